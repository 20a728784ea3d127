"""A part of a lock file is read and written as the whole would be."""

import os
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.decide.open_pipeline import PartialPriorState, WholePriorState
from orch23.model.digest import digest_bytes
from orch23.model.errors import CorruptStateError
from orch23.model.record import LockFile, Record
from orch23.store.lock_file import (
    encode_lock,
    lock_digest,
    read_known_lock,
    read_lock,
    read_lock_records,
    write_lock,
    write_lock_records,
)
from orch23.store.record_format import record_to_json
from tests.unit.store.test_lock_file import NAMES, RECORDS, record


@pytest.mark.slow
@settings(max_examples=5000 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 30)
@given(
    st.dictionaries(NAMES.filter(lambda name: name < "~"), st.tuples(RECORDS, RECORDS, st.booleans()), max_size=5),
    st.text(max_size=5).filter(lambda name: name.isprintable()),
    st.sampled_from([0, 16]),
)
def test_what_a_part_says_and_gets_is_what_the_whole_would(
    tmp_path_factory: pytest.TempPathFactory, cases: dict[str, tuple[Record, Record, bool]], pipeline: str, few: int
) -> None:
    with patch("orch23.store.lock_file._FEW", few):
        part_like_the_whole(tmp_path_factory.mktemp("lock"), cases, pipeline)


def part_like_the_whole(root: Path, cases: dict[str, tuple[Record, Record, bool]], pipeline: str) -> None:
    before = LockFile({name: old for name, (old, _, _) in cases.items()})
    part = LockFile({name: new for name, (_, new, is_in) in cases.items() if is_in})
    write_lock(root, "x.lock", before, pipeline)
    data = (root / "x.lock").read_bytes()
    found = read_lock_records(root / "x.lock", part.records, data)
    assert found.records == {name: before.records[name] for name in part.records}
    write_lock_records(root, "x.lock", part, pipeline, data)
    assert (root / "x.lock").read_text() == encode_lock(LockFile({**before.records, **part.records}), pipeline)
    assert not write_lock_records(root, "x.lock", part, pipeline, data)


@pytest.mark.slow
@given(
    st.dictionaries(NAMES, st.tuples(RECORDS, st.none() | RECORDS, st.booleans()), max_size=5),
    st.dictionaries(NAMES, RECORDS, max_size=2),
)
def test_a_known_file_is_read_and_written_like_any_other(
    tmp_path_factory: pytest.TempPathFactory,
    cases: dict[str, tuple[Record, Record | None, bool]],
    retained: dict[str, Record],
) -> None:
    root = tmp_path_factory.mktemp("lock")
    failed = {name: replace(one, failed=True) for name, one in retained.items()}
    sha256 = write_lock(
        root, "x.lock", LockFile({name: old for name, (old, _, _) in cases.items()}, failed), "p"
    ).sha256
    known = read_known_lock(root / "x.lock", sha256)
    assert known is not None
    assert known.lock == read_lock(root / "x.lock")
    kept = {name: new or known.lock.records[name] for name, (_, new, is_kept) in cases.items() if is_kept}
    write_lock(root, "x.lock", LockFile(kept), "q", known)
    assert (root / "x.lock").read_text() == encode_lock(LockFile(kept), "q")
    assert read_known_lock(root / "x.lock", "0" * 64) is None
    assert read_known_lock(root / "none.lock", sha256) is None


def test_of_a_known_file_only_records_that_changed_are_encoded_and_no_checksum_is_computed(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(30)]
    sha256 = write_lock(tmp_path, "x.lock", LockFile({name: record(name) for name in names}), "p").sha256
    memory = WholePriorState(tmp_path, tmp_path / "logs", "x.yaml", sha256)
    with patch("orch23.store.lock_file.without_sum", side_effect=AssertionError):
        lock, _ = memory.read()
    with patch("orch23.store.lock_file.record_to_json", wraps=record_to_json) as encoded:
        assert not memory.write(lock, "p")
        assert encoded.call_count == 0
        assert memory.write(LockFile({**lock.records, "s7": record("s7", "v2"), "new": record("new")}), "p")
        assert encoded.call_count == 2
    expected = {name: record(name, *(["v2"] if name == "s7" else [])) for name in (*names, "new")}
    assert read_lock(tmp_path / "x.lock").records == expected


def test_a_known_file_that_somebody_has_formatted_is_written_anew(tmp_path: Path) -> None:
    lock = LockFile({name: record(name) for name in "abc"})
    write_lock(tmp_path, "x.lock", lock, "p")
    text = (tmp_path / "x.lock").read_text()
    (tmp_path / "x.lock").write_text(text.replace('\n  "b": {\n', '\n  "b":\n {\n'))
    known = read_known_lock(tmp_path / "x.lock", lock_digest(tmp_path / "x.lock"))
    assert known is not None
    assert known.lock == lock
    assert write_lock(tmp_path, "x.lock", known.lock, "p", known)
    assert (tmp_path / "x.lock").read_text() == text


@pytest.mark.parametrize("few", [0, 16])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('  "b": {', '   "b": {'),
        ('\n  "b": {\n', '\n  "b": { \n'),
        ('"b": {', '"bb": {'),
        ('"a": {', '"b": {'),
        ('"sum":"', '"sum":"0'),
        ('  "~": null\n', ""),
    ],
)
def test_a_file_that_is_not_as_it_was_written_is_refused(
    tmp_path: Path, old: str, new: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orch23.store.lock_file._FEW", few)
    write_lock(tmp_path, "x.lock", LockFile({name: record(name) for name in "abc"}), "p")
    text = (tmp_path / "x.lock").read_text()
    assert old in text
    (tmp_path / "x.lock").write_text(text.replace(old, new))
    with pytest.raises(CorruptStateError):
        read_lock_records(tmp_path / "x.lock", ["b"], (tmp_path / "x.lock").read_bytes())


def test_names_behind_the_end_mark_are_left_to_who_reads_it_all(tmp_path: Path) -> None:
    write_lock(tmp_path, "x.lock", LockFile({name: record(name) for name in ("a", "code@\u00e9", "\u00e9")}), "p")
    with pytest.raises(CorruptStateError):
        read_lock_records(tmp_path / "x.lock", ["a"], (tmp_path / "x.lock").read_bytes())


def test_without_the_file_no_part_of_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(CorruptStateError):
        read_lock_records(tmp_path / "x.lock", ["b"], b"")
    assert read_lock(tmp_path / "x.lock") == LockFile()


@pytest.fixture
def left(tmp_path: Path) -> Path:
    write_lock(tmp_path, "x.lock", LockFile({name: record(name) for name in "abc"}), "p")
    return tmp_path


@pytest.mark.parametrize(("is_known", "hashed"), [(True, 0), (False, 1)])
def test_a_lock_file_with_the_known_change_time_is_not_hashed(left: Path, *, is_known: bool, hashed: int) -> None:
    file = left / "x.lock"
    memory = PartialPriorState(left, "x.yaml", ["b"], digest_bytes(file.read_bytes()).sha256)
    memory.ctime_ns = file.stat().st_ctime_ns if is_known else 0
    with patch("orch23.decide.open_pipeline.digest_bytes", side_effect=digest_bytes) as counted:
        lock, _ = memory.read()
    assert (set(lock.records), counted.call_count) == ({"b"}, hashed)


@pytest.mark.parametrize("is_known", [True, False])
def test_an_edit_of_the_lock_file_since_the_last_build_is_seen(left: Path, *, is_known: bool) -> None:
    file = left / "x.lock"
    data, ctime_ns = file.read_bytes(), file.stat().st_ctime_ns if is_known else 0
    file.write_bytes(data + b"\n")
    os.utime(file)  # by now its change time is another, also where clocks are coarse
    while file.stat().st_ctime_ns == ctime_ns:
        os.utime(file)
    with pytest.raises(CorruptStateError, match="was changed since the last build"):
        PartialPriorState(left, "x.yaml", ["b"], digest_bytes(data).sha256, ctime_ns).read()


@pytest.mark.parametrize("is_known", [True, False])
def test_an_edit_of_the_lock_file_since_it_was_read_is_kept_and_the_digest_is_unknown(
    left: Path, *, is_known: bool
) -> None:
    file = left / "x.lock"
    data, ctime_ns = file.read_bytes(), file.stat().st_ctime_ns if is_known else 0
    memory = PartialPriorState(left, "x.yaml", ["b"], digest_bytes(data).sha256, ctime_ns)
    lock, _ = memory.read()
    edited = data.replace(b'\n  "~": null', b'\n\n  "~": null')
    assert edited != data
    file.write_bytes(edited)
    while file.stat().st_ctime_ns == ctime_ns:
        os.utime(file)
    assert memory.write(lock, "p").sha256 == ""
    assert file.read_bytes() == edited


def test_only_records_that_changed_are_encoded(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(30)]
    write_lock(tmp_path, "x.lock", LockFile({name: record(name) for name in names}), "p")
    memory = PartialPriorState(tmp_path, "x.yaml", names[:20], digest_bytes((tmp_path / "x.lock").read_bytes()).sha256)
    lock, _ = memory.read()
    with patch("orch23.store.lock_file.record_to_json", wraps=record_to_json) as encoded:
        assert not memory.write(lock, "p")
        assert encoded.call_count == 0
        assert memory.write(LockFile({**lock.records, "s7": record("s7", "v2")}), "p")
        assert encoded.call_count == 1
    expected = {name: record(name, *(["v2"] if name == "s7" else [])) for name in names}
    assert read_lock(tmp_path / "x.lock").records == expected


@pytest.mark.parametrize("few", [0, 16])
def test_in_known_bytes_a_stage_may_have_a_retained_record_too(
    tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orch23.store.lock_file._FEW", few)
    lock = LockFile({"a": record("a")}, {"a": replace(record("a", "v2"), failed=True)})
    write_lock(tmp_path, "x.lock", lock, "p")
    data = (tmp_path / "x.lock").read_bytes()
    assert read_lock_records(tmp_path / "x.lock", ["a"], data, is_known=True).records == lock.records
    with pytest.raises(CorruptStateError):
        read_lock_records(tmp_path / "x.lock", ["a"], data)
