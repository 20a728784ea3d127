import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.digest import Digest, FileEntry, digest_bytes, digest_json
from orch23.model.errors import CorruptStateError, ExitCode
from orch23.model.record import Base, LockFile, Record
from orch23.store.lock_file import decode_lock, encode_lock, read_lock, write_lock

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(lambda name: name != "~")
ENTRIES = st.builds(
    FileEntry,
    st.builds(Digest, st.binary(min_size=32, max_size=32).map(bytes.hex), st.integers(0, 10**12)),
    st.booleans(),
)
BLOB_IDS = st.binary(min_size=20, max_size=20).map(bytes.hex)
RECORDS = st.builds(
    dict,
    stage=NAMES,
    key=st.binary(min_size=32, max_size=32).map(bytes.hex),
    manifest=st.dictionaries(NAMES, NAMES | st.integers() | st.lists(NAMES, max_size=3), max_size=4),
    outputs=st.dictionaries(NAMES, ENTRIES, max_size=4),
    originals=st.dictionaries(NAMES, st.none() | ENTRIES, max_size=3),
    bases=st.dictionaries(NAMES, st.builds(Base, ENTRIES, st.none() | ENTRIES), max_size=2),
    accepted=st.lists(NAMES, max_size=2).map(tuple),
    git=st.dictionaries(st.binary(min_size=32, max_size=32).map(bytes.hex), BLOB_IDS, max_size=2),
    texts=st.just("") | NAMES,
).map(lambda given: Record(**given))  # st.builds would evaluate the annotations, of which Json is recursive


def record(stage: str, text: str = "v1") -> Record:
    return Record(
        stage=stage,
        key=digest_bytes(f"{stage}{text}".encode()).sha256,
        manifest={"kind": "llm", "prompt": text, "outputs": [f"{stage}.py"]},
        outputs={f"{stage}.py": FileEntry(digest_bytes(text.encode()))},
        originals={f"{stage}.py": None},
    )


def lock(*records: Record) -> LockFile:
    return LockFile({one.stage: one for one in records})


@pytest.mark.slow
@given(st.dictionaries(NAMES, RECORDS, max_size=4), st.dictionaries(NAMES, RECORDS, max_size=2))
def test_records_survive_the_lock_file(records: dict[str, Record], retained: dict[str, Record]) -> None:
    made = LockFile(records, {name: msgspec.structs.replace(one, failed=True) for name, one in retained.items()})
    text = encode_lock(made, "todo")
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert decode_lock(text.encode(), "x.lock") == made
    assert encode_lock(decode_lock(text.encode(), "x.lock"), "todo") == text


def test_a_missing_file_holds_no_records(tmp_path: Path) -> None:
    assert read_lock(tmp_path / "x.lock") == LockFile()


def test_the_text_does_not_depend_on_the_order_of_making(tmp_path: Path) -> None:
    assert encode_lock(lock(record("b"), record("a")), "p") == encode_lock(lock(record("a"), record("b")), "p")


def test_the_same_records_are_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    assert write_lock(path.parent, path.name, lock(record("a")), "p")
    inode = path.stat().st_ino
    assert not write_lock(path.parent, path.name, lock(record("a")), "p")
    assert path.stat().st_ino == inode
    assert write_lock(path.parent, path.name, lock(record("a", "v2")), "p")
    assert read_lock(path) == lock(record("a", "v2"))


def test_a_stage_more_changes_no_line_of_the_others(tmp_path: Path) -> None:
    before = encode_lock(lock(record("a"), record("c")), "p").splitlines()
    for name in ("b", "d", "0"):
        after = encode_lock(lock(record("a"), record("c"), record(name)), "p").splitlines()
        rest = list(after)
        for line in before:
            rest.remove(line)
        assert [line for line in after if line in before][: len(before)]
        assert len(after) - len(before) == len(rest)


def test_changes_of_two_stages_merge_by_lines() -> None:
    base = encode_lock(lock(record("a"), record("b"), record("c")), "p").splitlines()
    ours = encode_lock(lock(record("a", "v2"), record("b"), record("c")), "p").splitlines()
    theirs = encode_lock(lock(record("a"), record("b"), record("c", "v2")), "p").splitlines()
    merged = [o if o != b else t for b, o, t in zip(base, ours, theirs, strict=True)]
    assert decode_lock("\n".join(merged).encode(), "x") == lock(record("a", "v2"), record("b"), record("c", "v2"))


def test_conflict_markers_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    lines = encode_lock(lock(record("a")), "p").splitlines()
    lines[3:4] = ["<<<<<<< HEAD", lines[3], "=======", lines[3], ">>>>>>> theirs"]
    path.write_text("\n".join(lines))
    with pytest.raises(CorruptStateError) as caught:
        read_lock(path)
    [found] = caught.value.diagnostics
    assert (found.code, found.location and found.location.line) == ("E701", 4)
    assert found.hint
    assert caught.value.exit_code == ExitCode.CORRUPT


def test_every_damaged_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    write_lock(path.parent, path.name, lock(record("a"), record("b"), record("c")), "p")
    body = json.loads(path.read_text())
    body["records"]["a"]["outputs"]["a.py"] = body["records"]["a"]["outputs"]["a.py"].replace(":2", ":3")
    body["records"]["c"]["extra"] = 1
    path.write_text(json.dumps(body, indent=1, sort_keys=True))
    with pytest.raises(CorruptStateError) as caught:
        read_lock(path)
    assert [(d.code, d.subject) for d in caught.value.diagnostics] == [("E703", "a"), ("E703", "c")]
    lines = path.read_text().splitlines()
    for found in caught.value.diagnostics:
        assert found.location is not None
        assert f'"{found.subject}"' in lines[found.location.line - 1]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "E702"),
        ("[]", "E702"),
        ("{", "E702"),
        ("[" * 100_000, "E702"),
        ('{"orch23_lock": 1, "pipeline": "p", "records": {}}', "E702"),
        ('{"orch23_lock": 1, "orch23_lock": 1, "pipeline": "p", "records": {"~": null}}', "E702"),
        ('{"orch23_lock": 1, "pipeline": "p", "records": {"~": NaN}}', "E702"),
        ('{"orch23_lock": 2, "pipeline": "p", "records": {"~": null}}', "E704"),
        ('{"pipeline": "p"}', "E704"),
    ],
)
def test_anything_but_a_lock_file_is_reported(text: str, code: str) -> None:
    with pytest.raises(CorruptStateError) as caught:
        decode_lock(text.encode(), "x.lock")
    assert [d.code for d in caught.value.diagnostics] == [code]


def test_two_blocks_of_one_stage_left_by_a_merge_are_no_lock_file() -> None:
    text = encode_lock(lock(record("a")), "p")
    block = text[text.index('  "a"') : text.index('  "~"')]
    with pytest.raises(CorruptStateError):
        decode_lock(text.replace(block, block + block).encode(), "x.lock")


def test_no_damage_gives_other_records(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = tmp_path / "x.lock"
    write_lock(path.parent, path.name, lock(record("a"), record("b")), "p")
    damage(path)
    try:
        found = read_lock(path)
    except CorruptStateError as error:
        problems = error.diagnostics
    else:
        assert found == lock(record("a"), record("b"))
        return
    assert problems
    assert all(one.hint for one in problems)


def test_a_kept_failure_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="BUG"):
        write_lock(tmp_path, "x.lock", lock(msgspec.structs.replace(record("a"), failed=True)), "p")


def test_after_a_fault_at_any_call_the_lock_file_is_old_or_new(tmp_path: Path, disk: Any, fault: int | None) -> None:
    path = tmp_path / "x.lock"
    old, new = lock(record("a")), lock(record("a", "v2"), record("b"))

    def make(at: int) -> Callable[[], object]:
        write_lock(path.parent, path.name, old, "p")
        return lambda: write_lock(path.parent, path.name, new, "p")

    disk.every_point(make, fault, lambda: read_lock(path) in (old, new) or pytest.fail("torn"))


def test_a_record_of_an_earlier_version_keeps_its_text() -> None:
    body = json.loads(encode_lock(lock(record("a")), "p"))["records"]["a"]
    assert not {"bases", "accepted", "git", "texts"} & set(body)


def test_a_retained_record_is_not_a_result(tmp_path: Path) -> None:
    made = LockFile({}, {"a": msgspec.structs.replace(record("a"), failed=True)})
    write_lock(tmp_path, "p.lock", made, "p")
    read = read_lock(tmp_path / "p.lock")
    assert not read.records
    assert read.owner_records()["a"].outputs == record("a").outputs
    assert read.originals() == {"a.py": None}


@pytest.mark.parametrize("part", ["records", "retained"])
def test_a_result_and_what_is_retained_cannot_stand_in_the_place_of_the_other(part: str) -> None:
    one = msgspec.structs.replace(record("a"), failed=part == "records")
    made = LockFile({"a": one}) if part == "records" else LockFile({}, {"a": one})
    with pytest.raises(ValueError, match="BUG"):
        encode_lock(made, "p")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bases", {"a.py": ["x"]}),
        ("bases", {"a.py": "x"}),
        ("accepted", "a.py"),
        ("git", {"0": "no blob id"}),
        ("texts", 1),
    ],
)
def test_a_damaged_field_is_reported_with_the_stage(tmp_path: Path, field: str, value: object) -> None:
    document = json.loads(encode_lock(lock(record("a")), "p"))
    body = {**document["records"]["a"], field: value}
    body.pop("sum")
    document["records"]["a"] = {**body, "sum": digest_json(body)}
    (tmp_path / "p.lock").write_text(json.dumps(document))
    with pytest.raises(CorruptStateError, match="`a`"):
        read_lock(tmp_path / "p.lock")
