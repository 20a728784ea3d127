import json
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.model.parsing import parse_stored
from orch23.model.record import Record, core_of, identity_of, key_of
from orch23.store.index import StoreIndex
from orch23.store.record_format import record_from_json, record_to_json
from orch23.store.records import GENERATION_FILE, RECORDS_TABLE, Records
from orch23.store.safe_files import sweep_temps

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ENTRIES = st.builds(
    FileEntry,
    st.builds(Digest, st.binary(min_size=32, max_size=32).map(bytes.hex), st.integers(0, 10**12)),
    st.booleans(),
)
RECORDS = st.builds(
    dict,
    stage=NAMES,
    key=st.binary(min_size=32, max_size=32).map(bytes.hex),
    manifest=st.dictionaries(NAMES, NAMES | st.integers() | st.lists(NAMES, max_size=3), max_size=4),
    outputs=st.dictionaries(NAMES, ENTRIES, max_size=4),
    deleted=st.lists(NAMES, max_size=3).map(tuple),
    exchanges=st.lists(NAMES, max_size=3).map(tuple),
    originals=st.dictionaries(NAMES, st.none() | ENTRIES, max_size=3),
    failed=st.booleans(),
).map(lambda given: Record(**given))  # st.builds would evaluate the annotations, of which Json is recursive


def entry(text: str, *, executable: bool = False) -> FileEntry:
    return FileEntry(digest_bytes(text.encode()), executable)


def record(
    text: str = "v1", *, stage: str = "code", path: str = "a.py", failed: bool = False, **aspects: Any
) -> Record:
    manifest = {"kind": "shell", "outputs": [path], "item": None, "command": text, **aspects}
    return Record(stage=stage, key=key_of(manifest), manifest=manifest, outputs={path: entry(text)}, failed=failed)


@given(RECORDS)
def test_a_record_survives_json(one: Record) -> None:
    assert record_from_json(parse_stored(json.dumps(record_to_json(one)))) == one


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.pop("key"),
        lambda body: body.update(more=1),
        lambda body: body.update(failed=0),
        lambda body: body.update(outputs={"a": "abc"}),
        lambda body: body.update(outputs={"a": None}),
        lambda body: body.update(deleted="a"),
        lambda body: body.update(stage=None),
    ],
)
def test_a_body_of_another_shape_is_not_a_record(change: Callable[[dict[str, Any]], object]) -> None:
    body: dict[str, Any] = record_to_json(record())
    change(body)
    with pytest.raises(ValueError):
        record_from_json(body)


VERIFY: dict[str, Any] = {"verify.steps": ["pytest"]}


def test_a_record_is_found_by_each_of_its_lookups(tmp_path: Path) -> None:
    one = record("v1", **VERIFY)
    Records(tmp_path / "r").put(one)
    records = Records(tmp_path / "r")
    assert records.by_key(one.key) == (one,)
    assert records.by_core(core_of(one.manifest)) == (one,)
    assert records.by_identity(identity_of(one.manifest)) == (one,)
    assert records.labelled("code") == (one,)
    assert records.owners("a.py") == (one,)
    assert records.having("a.py", entry("v1")) == (one,)
    assert records.having("a.py", entry("v1", executable=True)) == ()
    assert records.having("b.py", entry("v1")) == ()
    assert records.by_key("0" * 64) == ()


def test_asking_writes_nothing(tmp_path: Path) -> None:
    assert Records(tmp_path / "r").labelled("code") == ()
    assert list(tmp_path.iterdir()) == []


def test_the_newest_comes_first_also_to_another_process(tmp_path: Path) -> None:
    a, b, c = record("a"), record("b"), record("c")
    records = Records(tmp_path / "r")
    for one in (a, b, c, a):
        records.put(one)
    for reader in (records, Records(tmp_path / "r")):
        assert reader.owners("a.py") == (a, c, b)
        assert reader.labelled("code") == (a, c, b)


def test_one_key_may_have_several_records(tmp_path: Path) -> None:
    one = record("v1")
    other = msgspec.structs.replace(one, outputs={"a.py": entry("another answer")})
    records = Records(tmp_path / "r")
    records.put(one)
    records.put(other)
    assert Records(tmp_path / "r").by_key(one.key) == (other, one)
    records.put(one)
    assert Records(tmp_path / "r").by_key(one.key) == (one, other)


def test_the_newest_record_put_again_writes_nothing(tmp_path: Path) -> None:
    records = Records(tmp_path / "r")
    records.put(record("v1"))
    [file] = [p for p in (tmp_path / "r").rglob("*") if p.is_file()]
    before = file.read_bytes(), file.stat().st_mtime_ns
    Records(tmp_path / "r").put(record("v1"))
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


def test_a_file_that_is_moved_to_and_fro_does_not_grow_without_end(tmp_path: Path) -> None:
    records = Records(tmp_path / "r")
    for _ in range(300):
        records.put(record("a"))
        records.put(record("b"))
    assert all(p.stat().st_size < 10_000 for p in (tmp_path / "r").rglob("*") if p.is_file())
    assert Records(tmp_path / "r").owners("a.py") == (record("b"), record("a"))


def test_a_kept_failure_is_known_but_restores_nothing(tmp_path: Path) -> None:
    records = Records(tmp_path / "r")
    good, bad = record("v1"), record("v2", failed=True)
    records.put(good)
    records.put(bad)
    assert records.by_key(bad.key) == ()
    assert records.by_core(core_of(bad.manifest)) == ()
    assert records.labelled("code") == (bad, good)
    assert records.having("a.py", entry("v2")) == (bad,)
    assert records.owners("a.py") == (bad, good)
    assert records.by_identity(identity_of(bad.manifest)) == (bad, good)


def test_a_damaged_file_gives_no_wrong_record_and_is_repaired(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    records = Records(tmp_path / "r")
    one = record("v1")
    other = msgspec.structs.replace(one, outputs={"a.py": entry("x")})
    records.put(one)
    records.put(other)
    [file] = [p for p in (tmp_path / "r").rglob("*") if p.is_file()]
    damage(file)
    reader = Records(tmp_path / "r")
    assert all(found in (one, other) for found in reader.by_key(one.key))
    reader.put(record("v9", stage="s", path="z"))
    reader.put(one)
    again = Records(tmp_path / "r")
    assert again.by_key(one.key)[0] == one
    assert again.damaged == []


def test_a_file_of_another_key_is_not_believed(tmp_path: Path) -> None:
    records = Records(tmp_path / "r")
    one, other = record("v1"), record("v2")
    records.put(one)
    records.put(other)
    there = tmp_path / "r" / other.key[:2] / other.key
    there.write_bytes((tmp_path / "r" / one.key[:2] / one.key).read_bytes())
    reader = Records(tmp_path / "r")
    assert reader.by_key(other.key) == ()
    assert reader.by_key(one.key) == (one,)
    assert len(reader.damaged) == 1


@pytest.mark.slow
def test_after_a_fault_at_any_call_no_record_that_was_put_is_lost(tmp_path: Path, disk: Any, fault: int | None) -> None:
    one = record("v1")
    other = msgspec.structs.replace(one, outputs={"a.py": entry("x")})
    third = record("v3")

    def make(at: int) -> Callable[[], object]:
        records = Records(tmp_path / f"r{at}")
        make.folder = tmp_path / f"r{at}"  # type: ignore[attr-defined]
        records.put(one)

        def run() -> None:
            records.put(other)
            records.put(third)
            records.put(one)

        return run

    def check() -> None:
        folder = make.folder  # type: ignore[attr-defined]
        reader = Records(folder)
        assert one in reader.by_key(one.key)
        assert all(found in (one, other, third) for found in reader.owners("a.py"))
        sweep_temps(reader.folder)
        reader.put(other)
        reader.put(third)
        assert Records(folder).owners("a.py") == (third, other, one)

    assert disk.every_point(make, fault, check) >= 8


def test_a_process_goes_on_after_a_full_disk(tmp_path: Path, disk: Any) -> None:
    records = Records(tmp_path / "r")
    one = record("v1")
    other = msgspec.structs.replace(one, outputs={"a.py": entry("x")})
    records.put(one)
    with disk.failing(1, 28), pytest.raises(OSError, match="No space"):
        records.put(other)
    assert records.by_key(one.key) == (one,)
    records.put(other)
    assert Records(tmp_path / "r").by_key(one.key) == (other, one)


@pytest.mark.slow  # without coverage, whose tracing of starting threads fails now and then in CPython 3.11
def test_many_threads_may_put(tmp_path: Path) -> None:
    records = Records(tmp_path / "r")
    many = [record(str(n % 40)) for n in range(120)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(records.put, many))
    reader = Records(tmp_path / "r")
    assert len(reader.owners("a.py")) == 40
    assert reader.damaged == []


STEPS = st.lists(st.integers(0, 5) | st.just("reopen"), max_size=25)


@given(STEPS)
def test_the_order_is_that_of_the_puts_whatever_is_reopened(steps: list[int | str]) -> None:
    pool = [record(str(number % 3), path=f"p{number % 2}") for number in range(6)]
    expected: list[Record] = []
    with tempfile.TemporaryDirectory() as folder:
        records = Records(Path(folder) / "r")
        for step in steps:
            if isinstance(step, str):
                records = Records(Path(folder) / "r")
            else:
                records.put(pool[step])
                expected = [pool[step], *(one for one in expected if one != pool[step])]
            for path in ("p0", "p1"):
                assert list(records.owners(path)) == [one for one in expected if path in one.outputs]
            assert list(records.labelled("code")) == expected


def indexed(folder: Path) -> StoreIndex:
    """Return an index of the records in a folder, as the store writes it."""
    index = StoreIndex(folder.parent / "index.sqlite")
    rows, _ = Records(folder).pending_index_rows()
    assert rows is not None
    index.write({RECORDS_TABLE: rows})
    index.close()
    return index


def reads(records: Records) -> set[str]:
    """Return the keys of the files that were read so far."""
    return set(records._read_files or ())


def test_with_an_index_only_the_files_that_are_needed_are_read(tmp_path: Path) -> None:
    whole = Records(tmp_path / "records")
    for text in ("v1", "v2", "v3"):
        for path in ("a.py", "b.py"):
            whole.put(record(text, path=path))
    whole.put(record("v1", path="a.py"))  # the newest again
    some = Records(tmp_path / "records", indexed(tmp_path / "records"))
    wanted = record("v3", path="a.py")
    assert some.by_key(wanted.key) == whole.by_key(wanted.key) != ()
    assert reads(some) == {wanted.key}
    assert some.owners("c.py") == ()
    assert reads(some) == {wanted.key}
    assert [one.manifest["command"] for one in some.owners("a.py")] == ["v1", "v3", "v2"]
    assert some.by_key(record("v9").key) == ()
    assert len(reads(some)) == 3
    identity = identity_of(record("v1").manifest)
    assert some.by_identity(identity) == whole.by_identity(identity)


def test_what_is_put_beside_an_index_comes_first_and_makes_the_index_one_of_other_records(tmp_path: Path) -> None:
    whole = Records(tmp_path / "records")
    for text in ("v1", "v2"):
        whole.put(record(text))
    index = indexed(tmp_path / "records")
    some = Records(tmp_path / "records", index)
    assert some.is_indexed()
    some.put(record("v3"))
    some.put(record("v1"))
    assert not Records(tmp_path / "records", index).is_indexed()
    assert [one.manifest["command"] for one in Records(tmp_path / "records", index).owners("a.py")] == [
        "v1",
        "v3",
        "v2",
    ]
    fresh, changed = some.pending_index_rows()
    assert fresh is None
    index.write({}, {RECORDS_TABLE: changed})
    again = Records(tmp_path / "records", index)
    assert again.is_indexed()
    assert [one.manifest["command"] for one in again.owners("a.py")] == ["v1", "v3", "v2"]
    assert again.labelled("code")[0] == record("v1")
    some.put(record("v2"))  # a line more in a file that is there: no folder shows it
    assert not Records(tmp_path / "records", index).is_indexed()


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12))
@settings(deadline=None)
def test_any_history_reads_the_same_with_an_index_and_without(steps: list[tuple[int, bool]]) -> None:
    pool = [record(f"v{number % 2}", path=f"p{number // 2}", stage=f"s{number}") for number in range(4)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "records"
        index: StoreIndex | None = None
        records = Records(folder, index)
        for number, is_saved in steps:
            records.put(pool[number])
            if is_saved:
                index = index or StoreIndex(Path(name) / "index.sqlite")
                fresh, changed = records.pending_index_rows()
                index.write(
                    {RECORDS_TABLE: fresh} if fresh is not None else {},
                    {RECORDS_TABLE: changed} if fresh is None else {},
                )
                records = Records(folder, index)
                assert records.is_indexed()
            whole = Records(folder)
            for one in pool:
                assert records.by_key(one.key) == whole.by_key(one.key)
                assert records.by_core(core_of(one.manifest)) == whole.by_core(core_of(one.manifest))
                assert records.owners(next(iter(one.outputs))) == whole.owners(next(iter(one.outputs)))
                assert records.labelled(one.stage) == whole.labelled(one.stage)
                ((path, file),) = one.outputs.items()
                assert records.having(path, file) == whole.having(path, file)


def test_an_edit_of_a_stage_with_many_results_reads_none_of_the_others(tmp_path: Path) -> None:
    whole = Records(tmp_path / "records")
    for number in range(20):
        whole.put(record(f"v{number}"))
    index = indexed(tmp_path / "records")
    some, one, new = Records(tmp_path / "records", index), record("v7"), record("new")
    assert some.having("a.py", entry("v7")) == (one,)
    some.put(new)
    assert reads(some) == {one.key, new.key}
    index.write({}, {RECORDS_TABLE: some.pending_index_rows()[1]})
    again = Records(tmp_path / "records", index)
    assert again.is_indexed()
    assert again.owners("a.py") == again.labelled("code") == Records(tmp_path / "records").owners("a.py")
    assert len(again.owners("a.py")) == 21


@pytest.mark.parametrize("change", ["a record is removed", "the records are removed", "the state is removed"])
def test_an_index_of_other_records_is_not_believed(tmp_path: Path, change: str) -> None:
    whole = Records(tmp_path / "records")
    for text in ("v1", "v2"):
        whole.put(record(text))
    index = indexed(tmp_path / "records")
    key = record("v2").key
    if change == "a record is removed":
        (tmp_path / "records" / key[:2] / key).unlink()
    elif change == "the records are removed":
        shutil.rmtree(tmp_path / "records")
    else:
        (tmp_path / GENERATION_FILE).unlink()
    some = Records(tmp_path / "records", index)
    assert not some.is_indexed()
    assert some.owners("a.py") == Records(tmp_path / "records").owners("a.py")


def test_a_damaged_index_costs_nothing_but_time(tmp_path: Path) -> None:
    whole = Records(tmp_path / "records")
    for text in ("v1", "v2", "v3"):
        whole.put(record(text))
    index = indexed(tmp_path / "records")
    sound = index.path.read_bytes()
    wanted = [one.manifest["command"] for one in whole.owners("a.py")]
    for at in range(0, len(sound), 97):
        index.close()
        index.path.write_bytes(sound[:at] + bytes([sound[at] ^ 255]) + sound[at + 1 :])
        some = Records(tmp_path / "records", StoreIndex(index.path))
        assert [one.manifest["command"] for one in some.owners("a.py")] == wanted
        assert some.by_key(record("v2").key) == (record("v2"),)


def test_a_damaged_file_is_repaired_if_an_index_leads_to_it(tmp_path: Path) -> None:
    whole = Records(tmp_path / "records")
    whole.put(record("v1"))
    index = indexed(tmp_path / "records")
    key = record("v1").key
    (tmp_path / "records" / key[:2] / key).write_text("no record\n")
    some = Records(tmp_path / "records", index)
    assert some.by_key(key) == ()
    assert len(some.damaged) == 1
    some.put(record("v2"))
    assert not (tmp_path / "records" / key[:2] / key).exists()


def test_an_index_stays_that_of_the_records_if_none_is_deleted(tmp_path: Path) -> None:
    """As after `cache verify`, which looks for damage."""
    index = StoreIndex(tmp_path / "index.sqlite")
    whole = Records(tmp_path / "records", index)
    whole.put(record("v1"))
    whole.put(record("v2"))
    fresh, _ = whole.pending_index_rows()
    assert fresh is not None
    index.write({RECORDS_TABLE: fresh}, {})
    Records(tmp_path / "records", index).delete(frozenset())
    assert Records(tmp_path / "records", index).is_indexed()
    digest = next(iter(Records(tmp_path / "records")._load_all().values())).entries.keys()
    Records(tmp_path / "records", index).delete(frozenset(digest))
    again = Records(tmp_path / "records", index)
    assert not again.is_indexed()
    assert len(again.survey()) == 1
