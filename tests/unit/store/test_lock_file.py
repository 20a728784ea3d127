import json
import subprocess
from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.digest import Digest, FileEntry, digest_bytes, digest_json
from orch23.model.errors import CorruptStateError, ExitCode
from orch23.model.record import Base, LockFile, Record
from orch23.store.lock_file import (
    decode_lock,
    encode_lock,
    read_known_lock,
    read_lock,
    read_lock_records,
    write_lock,
    write_lock_records,
)

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
    assert_is_compact(json.loads(text), text)
    assert decode_lock(text.encode(), "x.lock") == made
    assert encode_lock(decode_lock(text.encode(), "x.lock"), "todo") == text


def assert_is_compact(document: Any, text: str) -> None:
    """Assert that records are sorted, leave out what `defaults` has, and have a first, a last and at most two lines."""
    defaults = document["defaults"]
    blocks = [*document["records"].items(), *document.get("retained", {}).items()]
    for part in ("records", "retained"):
        assert list(document.get(part, {})) == sorted(document.get(part, {}))
    for name, block in blocks:
        if block is not None:
            assert not {field for field in block if block[field] == {**defaults, "stage": name}.get(field, ...)}
            assert not [one for one in block["manifest"].items() if one in defaults["manifest"].items()]
    assert text.count("\n") <= 8 + 4 * len(blocks)
    assert text.endswith("\n }\n}\n")


def test_a_missing_file_holds_no_records(tmp_path: Path) -> None:
    assert read_lock(tmp_path / "x.lock") == LockFile()


def test_the_text_does_not_depend_on_the_order_of_making(tmp_path: Path) -> None:
    assert encode_lock(lock(record("b"), record("a")), "p") == encode_lock(lock(record("a"), record("b")), "p")


FIRST_FORM = Path(__file__).parent / "formats/second.lock"


def test_a_file_of_version_1_stays_until_a_record_changes(tmp_path: Path) -> None:
    data = FIRST_FORM.read_bytes()
    name = json.loads(data)["pipeline"]
    (tmp_path / "x.lock").write_bytes(data)
    known = read_known_lock(tmp_path / "x.lock", digest_bytes(data).sha256)
    assert known is not None
    for earlier in (None, known):
        assert not (same := write_lock(tmp_path, "x.lock", known.lock, name, earlier))
        assert same.sha256 == digest_bytes(data).sha256
    assert (tmp_path / "x.lock").read_bytes() == data
    changed = LockFile({**known.lock.records, "new": record("new")}, known.lock.retained)
    assert write_lock(tmp_path, "x.lock", changed, name, known)
    assert (tmp_path / "x.lock").read_text() == encode_lock(changed, name)
    assert read_lock(tmp_path / "x.lock") == changed


def test_a_part_of_a_file_of_version_1_is_left_to_who_reads_it_all(tmp_path: Path) -> None:
    data = FIRST_FORM.read_bytes()
    (tmp_path / "x.lock").write_bytes(data)
    with pytest.raises(CorruptStateError):
        read_lock_records(tmp_path / "x.lock", ["code"], data)
    with pytest.raises(CorruptStateError):
        write_lock_records(tmp_path, "x.lock", lock(record("code")), "p", data)
    assert (tmp_path / "x.lock").read_bytes() == data


@pytest.mark.parametrize("value", [True, 1.0, "1", [1], 2])
def test_a_value_is_left_out_only_if_it_is_the_same_in_every_way(value: Any) -> None:
    one = msgspec.structs.replace(record("a"), manifest={"action_format": value, "kind": "llm"})
    text = encode_lock(lock(one), "p")
    found = decode_lock(text.encode(), "x.lock").records["a"].manifest
    assert digest_json(found) == digest_json({"action_format": value, "kind": "llm"})


def merged(base: str, ours: str, theirs: str, folder: Path) -> str:
    """Return what git makes of two branches."""
    for name, text in (("ours", ours), ("base", base), ("theirs", theirs)):
        (folder / name).write_text(text)
    command = ["git", "merge-file", "-p", "ours", "base", "theirs"]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True).stdout


def test_git_merges_changes_of_neighbours_without_a_conflict(tmp_path: Path) -> None:
    base, ours, theirs = (
        encode_lock(lock(record("a", one), record("b", two)), "p")
        for one, two in (("v1", "v1"), ("v2", "v1"), ("v1", "v2"))
    )
    assert decode_lock(merged(base, ours, theirs, tmp_path).encode(), "x") == lock(record("a", "v2"), record("b", "v2"))


@pytest.mark.parametrize("declared", [False, True])
def test_a_conflict_in_a_record_has_the_whole_record_of_each_side(tmp_path: Path, *, declared: bool) -> None:
    """Also if only one side changed what the pipeline says: no line comes from the other side."""
    base = msgspec.structs.replace(record("b"), manifest={**record("b").manifest, "input:x": "0" * 64})
    given = {**base.manifest, **({"model": "m"} if declared else {})}
    ours = msgspec.structs.replace(base, manifest=given, outputs=record("b", "v2").outputs)
    theirs = msgspec.structs.replace(base, outputs=record("b", "v3").outputs)
    sides = [lock(record("a"), one, record("c")) for one in (base, ours, theirs)]
    old, mine, other = (encode_lock(one, "p") for one in sides)
    text = merged(old, mine, other, tmp_path)
    assert text.count("<<<<<<< ") == 1
    head, rest = text.split("<<<<<<< ours\n")
    first, rest = rest.split("=======\n")
    second, tail = rest.split(">>>>>>> theirs\n")
    assert decode_lock((head + first + tail).encode(), "x") == sides[1]
    assert decode_lock((head + second + tail).encode(), "x") == sides[2]


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


def conflict(ours: str, theirs: str, base: str = "") -> bytes:
    """Return two texts with markers where they differ, as git merges them without a common part in a conflict."""
    out: list[str] = []
    one, other = ours.splitlines(), theirs.splitlines()
    for tag, i1, i2, j1, j2 in SequenceMatcher(a=one, b=other, autojunk=False).get_opcodes():
        shown = ["||||||| 1234567", *base.splitlines()] if base else []
        changed = ["<<<<<<< HEAD", *one[i1:i2], *shown, "=======", *other[j1:j2], ">>>>>>> theirs"]
        out += one[i1:i2] if tag == "equal" else changed
    return "\n".join([*out, ""]).encode()


@pytest.mark.parametrize("base", ["", '   "stage": "the common base, which is on neither side",\n'])
def test_both_sides_of_a_conflict_are_read(base: str) -> None:
    ours = lock(record("a", "v2"), record("b"), record("o"))
    theirs = lock(record("a", "v3"), record("b"), record("t"))
    found = decode_lock(conflict(encode_lock(ours, "p"), encode_lock(theirs, "p"), base), "x")
    assert found.records == {**theirs.records, **ours.records}
    assert found.others == (theirs.records["a"],)
    other_way = decode_lock(conflict(encode_lock(theirs, "p"), encode_lock(ours, "p"), base), "x")
    assert {*map(str, other_way.records.values()), *map(str, other_way.others)} == {
        *map(str, found.records.values()),
        *map(str, found.others),
    }


def test_a_record_that_git_merged_to_two_blocks_is_read_as_both_sides() -> None:
    """Two branches gave a stage the same name: git may keep both blocks, without a conflict."""
    first, last = (encode_lock(lock(record("a", version), record("b")), "p") for version in ("v2", "v3"))
    start, end = (first.index(f'\n  "{name}": ') for name in ("a", "b"))
    found = decode_lock((first[:end] + last[start:]).encode(), "x")
    assert found.records == {"a": record("a", "v2"), "b": record("b")}
    assert found.others == (record("a", "v3"),)


def test_a_record_in_two_blocks_does_not_hide_the_sides_of_a_conflict() -> None:
    """Git may do both in one file: keep two blocks of one stage, and write markers around another one."""
    first, last = (encode_lock(lock(record("a", version), record("b")), "p") for version in ("v2", "v3"))
    start, end = (first.index(f'\n  "{name}": ') for name in ("a", "b"))
    twice = first[:end] + last[start:]
    found = decode_lock(conflict(twice, twice.replace('\n  "b": ', '\n  "c": ')), "x")
    assert found.records == {"a": record("a", "v2"), "b": record("b")}
    assert [record("a", "v3") == one for one in found.others] == [True, True]
    both = encode_lock(lock(record("a", "v2"), record("b"), record("t")), "p")
    found = decode_lock(conflict(twice, both), "x")
    assert found.records == {"a": record("a", "v2"), "b": record("b"), "t": record("t")}
    assert [record("a", "v3") == one for one in found.others] == [True]


def test_a_record_that_git_mixed_of_both_sides_is_no_record() -> None:
    text = encode_lock(lock(record("a", "v2"), record("b")), "p")
    mixed = text.replace(digest_bytes(b"v2").sha256, digest_bytes(b"v3").sha256)
    data = conflict(mixed, mixed.replace('"pipeline": "p"', '"pipeline": "q"'))
    assert decode_lock(data, "x") == lock(record("b"))


@pytest.mark.parametrize("cut", ["=======", ">>>>>>> theirs"])
def test_a_conflict_with_a_side_that_is_no_lock_file_is_named_with_its_line(tmp_path: Path, cut: str) -> None:
    path = tmp_path / "x.lock"
    data = conflict(encode_lock(lock(record("a")), "p"), encode_lock(lock(record("a", "v2")), "p"))
    path.write_bytes(data.replace(f"{cut}\n".encode(), b"", 1))
    with pytest.raises(CorruptStateError) as caught:
        read_lock(path)
    [found] = caught.value.diagnostics
    line = data.decode().splitlines().index("<<<<<<< HEAD") + 1
    assert (found.code, found.location and found.location.line) == ("E701", line)
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


def test_of_very_many_damaged_records_the_first_hundred_are_named() -> None:
    text = encode_lock(lock(*(record(f"s{number:03}") for number in range(150))), "p").replace('"sum":"', '"sum":"0')
    with pytest.raises(CorruptStateError) as caught:
        decode_lock(text.encode(), "x.lock")
    assert [one.subject for one in caught.value.diagnostics] == [f"s{number:03}" for number in range(100)]


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
        ('{"orch23_lock": 3, "pipeline": "p", "records": {"~": null}}', "E704"),
        ('{"orch23_lock": 2, "pipeline": "p", "records": {}}', "E702"),
        ('{"orch23_lock": 2, "defaults": [], "pipeline": "p", "records": {"~": null}}', "E702"),
        ('{"orch23_lock": 2, "defaults": {"manifest": 1}, "pipeline": "p", "records": {"a": {}, "~": null}}', "E703"),
        (
            '{"orch23_lock": 2, "defaults": {"texts": "%s"}, "pipeline": "p", "records": {"~": null}}' % (2000 * "x"),
            "E702",
        ),
        ('{"pipeline": "p"}', "E704"),
    ],
)
def test_anything_but_a_lock_file_is_reported(text: str, code: str) -> None:
    with pytest.raises(CorruptStateError) as caught:
        decode_lock(text.encode(), "x.lock")
    assert [d.code for d in caught.value.diagnostics] == [code]


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
