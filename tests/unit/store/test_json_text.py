"""What is written quickly is what json writes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.model.digest import FileEntry, Json, canonical_json, digest_bytes
from orch23.model.record import Record
from orch23.snapshot.store_registry import registered_stores, registration, sealing_key
from orch23.store.access import hold_build_lock, key_of_store
from orch23.store.index import IndexFaultError, StoreIndex
from orch23.store.json_text import TRUSTED, StoreKey, add_checksum, checked_line, indented_json, mac_of
from orch23.store.records import Records

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(VALUES, st.booleans())
def test_the_text_is_that_of_json(value: Json, sort_keys: bool) -> None:
    assert indented_json(value, sort_keys=sort_keys) == json.dumps(
        value, indent=1, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False
    )


def test_anything_but_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        indented_json([float("nan")])


KEY = "ab" * 32
MAC = b"0123456789abcdef" * 2


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a registered store."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ORCH23_TRUST", "0")
    folder = tmp_path / "p" / ".orch23"
    with hold_build_lock(folder / "lock"):
        pass
    return folder


def record(text: str) -> Record:
    return Record(stage="s", key=KEY, manifest={"a": "b"}, outputs={"a": FileEntry(digest_bytes(text.encode()))})


# ---- lines ------------------------------------------------------------------------------------------


def test_a_line_has_a_value_and_a_mac() -> None:
    line = add_checksum(b'{"a":1}', MAC)
    assert checked_line(line) == (b'{"a":1}', MAC)
    assert TRUSTED.decode(line, dict) == {"a": 1}
    assert checked_line(add_checksum(b'{"a":1}')) == (b'{"a":1}', b"")


def test_any_other_byte_in_a_line_is_damage() -> None:
    line = add_checksum(b'{"a":1}', MAC)
    for place in range(len(line)):
        with pytest.raises(ValueError, match="checksum"):
            checked_line(line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :])
        with pytest.raises(ValueError, match="checksum"):
            checked_line(line[:place])


@pytest.mark.parametrize("digits", [30, 31, 32, 33])
def test_a_value_that_looks_like_a_mac_is_a_value(digits: int) -> None:
    inner = canonical_json({"a": 1, "mac": "0" * digits})
    assert checked_line(add_checksum(inner)) == (inner, b"")
    assert checked_line(add_checksum(inner, MAC)) == (inner, MAC)


# ---- keys -------------------------------------------------------------------------------------------


def test_a_line_is_proven_by_the_key_of_the_store_only(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = key_of_store(store)
    inner, mac = checked_line(key.line(b"{}"))
    assert key.proves(inner, mac)
    forged = (b"", MAC, mac_of(b"{}", b"x" * 32), mac_of(b"{1}", sealing_key(str(store)) or b""))
    assert not any(key.proves(inner, other) for other in forged)
    monkeypatch.setenv("ORCH23_TRUST", "1")
    assert key_of_store(store).proves(inner, b"")
    assert key_of_store(store).line(b"{}") == key.line(b"{}"), "what a build wrote counts later, too"


def test_a_store_without_a_registration_proves_nothing(store: Path) -> None:
    (Path(registered_stores()) / (store / "id").read_text().strip()).unlink()
    key = key_of_store(store)
    assert not key.proves(b"{}", b"")
    assert key.line(b"{}") == add_checksum(b"{}")
    with pytest.raises(LookupError):
        _ = key.sealing


def test_the_key_is_read_again_once_the_lock_is_taken(tmp_path: Path, store: Path) -> None:
    key = key_of_store(tmp_path / "new" / ".orch23")
    assert key.line(b"{}") == add_checksum(b"{}")
    with hold_build_lock(tmp_path / "new" / ".orch23" / "lock", key):
        assert key.line(b"{}") != add_checksum(b"{}")
    assert registration(str(store)) != registration(str(tmp_path / "new" / ".orch23"))


# ---- records ----------------------------------------------------------------------------------------


def lines_of(store: Path) -> list[bytes]:
    return (store / "records" / KEY[:2] / KEY).read_bytes().splitlines(keepends=True)


def test_a_claim_is_proven_once_it_is_put(store: Path) -> None:
    Records(store / "records").put(record("one"))
    records = Records(store / "records", None, key_of_store(store))
    assert records.by_key(KEY) == (record("one"),)
    assert records.proven(KEY) == ()
    records.put(record("one"))
    for reader in (records, Records(store / "records", None, key_of_store(store))):
        assert reader.proven(KEY) == (record("one"),)
        assert reader.damaged == []


def test_a_forged_line_does_not_replace_a_proven_record(store: Path) -> None:
    Records(store / "records", None, key_of_store(store)).put(record("one"))
    forger = Records(store / "records")
    forger.put(record("two"))
    forger.put(record("one"))
    records = Records(store / "records", None, key_of_store(store))
    assert records.proven(KEY) == (record("one"),)
    assert records.by_key(KEY) == (record("two"), record("one")), "the forged move does not count"
    assert "was not written by a build of yours" in records.damaged[0]


def test_a_claim_stays_one_when_its_file_is_written_again(store: Path) -> None:
    Records(store / "records").put(record("one"))
    records = Records(store / "records", None, key_of_store(store))
    records.put(record("two"))
    records.put(record("three"))
    gone = next(one.digest for one in records.survey() if one.record == record("two"))
    records.delete({gone})
    again = Records(store / "records", None, key_of_store(store))
    assert again.by_key(KEY) == (record("three"), record("one"))
    assert again.proven(KEY) == (record("three"),)
    assert [bool(checked_line(line)[1]) for line in lines_of(store)] == [False, True]


# ---- other files ------------------------------------------------------------------------------------


def test_rows_of_another_key_are_damage(store: Path) -> None:
    StoreIndex(store / "index.sqlite").write({"t": {b"a": b"b"}})
    index = StoreIndex(store / "index.sqlite", key_of_store(store))
    assert not index.has_table("t")
    with pytest.raises(IndexFaultError):
        index.get("t", b"a")
    index.write({"t": {b"a": b"c"}})
    assert index.get("t", b"a") == b"c"
    index.close()
    assert not StoreIndex(store / "index.sqlite").has_table("t")


# ---- stores of earlier versions ---------------------------------------------------------------------


def early(store: Path) -> None:
    """Give a store the form of versions without keys."""
    (Path(registered_stores()) / (store / "id").read_text().strip()).write_text(f"{store}\n")
    Records(store / "records").put(record("one"))
    (store / "batches").mkdir()
    (store / "batches" / "a.json").write_bytes(StoreKey().encode({"batch_id": "b"}))


def damaged_line(store: Path) -> None:
    with (store / "records" / KEY[:2] / KEY).open("ab") as file:
        file.write(b"torn")


def folders_instead_of_files(store: Path) -> None:
    for name in ("promote.json", "batches/x.json", f"records/cd/{'cd' * 32}"):
        (store / name).mkdir(parents=True)


def link_to_a_file(store: Path) -> None:
    (store / "records" / "cd").mkdir()
    (store / "records" / "cd" / ("cd" * 32)).symlink_to(store / "id")


def link_to_a_folder(store: Path) -> None:
    (store / "records" / "cd").symlink_to(store / "batches")


@pytest.mark.parametrize("change", [None, damaged_line, folders_instead_of_files, link_to_a_file, link_to_a_folder])
def test_all_of_an_early_store_is_authenticated(store: Path, change: Callable[[Path], None] | None) -> None:
    early(store)
    if change is not None:
        change(store)
    before = Records(store / "records", None, key_of_store(store))
    assert before.proven(KEY) == (record("one"),)
    with hold_build_lock(store / "lock"):
        pass
    assert len((registration(str(store)) or (b"",))[0]) == 32
    assert Records(store / "records", None, key_of_store(store)).proven(KEY) == (record("one"),)
    assert key_of_store(store).decode((store / "batches" / "a.json").read_bytes(), dict) == {"batch_id": "b"}
    assert not list(store.rglob("*.tmp"))
    assert all(path.is_symlink() or path.stat().st_size for path in store.rglob("?" * 64)), "no file was replaced"


def test_an_early_store_at_another_path_gets_an_id_of_its_own(store: Path, tmp_path: Path) -> None:
    early(store)
    number = (store / "id").read_text()
    store.parent.rename(tmp_path / "moved")
    moved = tmp_path / "moved" / ".orch23"
    assert Records(moved / "records", None, key_of_store(moved)).proven(KEY) == ()
    with hold_build_lock(moved / "lock"):
        pass
    assert (moved / "id").read_text() != number
    assert Records(moved / "records", None, key_of_store(moved)).by_key(KEY) == (record("one"),)
    assert Records(moved / "records", None, key_of_store(moved)).proven(KEY) == ()


def test_a_link_to_the_project_is_the_same_path(store: Path, tmp_path: Path) -> None:
    early(store)
    (tmp_path / "link").symlink_to(store.parent)
    linked = tmp_path / "link" / ".orch23"
    assert Records(linked / "records", None, key_of_store(linked)).proven(KEY) == (record("one"),)


@pytest.mark.parametrize("text", ["", "\n", "x" * 64 + "\n/p\n", "ab" * 31 + "\n/p\n"])
def test_a_damaged_registration_proves_nothing(store: Path, text: str) -> None:
    Records(store / "records", None, key_of_store(store)).put(record("one"))
    (Path(registered_stores()) / (store / "id").read_text().strip()).write_text(text)
    assert Records(store / "records", None, key_of_store(store)).proven(KEY) == ()


def test_a_failed_record_is_not_proven_by_one_of_another_key(store: Path) -> None:
    records = Records(store / "records", None, key_of_store(store))
    records.put(replace(record("one"), failed=True))
    assert records.proven(KEY) == (replace(record("one"), failed=True),)
    assert records.by_key(KEY) == ()
