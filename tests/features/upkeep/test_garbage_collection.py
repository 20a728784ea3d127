import os
from pathlib import Path

import pytest

from orch23.cli.store_size import count_files
from orch23.features.upkeep.garbage_collection import (
    GarbageCollector,
    GcLimits,
    GcRoots,
    GcSelection,
    stored_blobs,
)
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.record import Record, key_of
from orch23.store.project_store import ProjectStore, open_store

EVERYTHING = GcLimits(max_bytes=0)


@pytest.fixture
def store(tmp_path: Path) -> ProjectStore:
    found = open_store(tmp_path)
    with found.build_lock():
        return found


def made(
    store: ProjectStore, name: str, *, inputs: str = "", exchanges: tuple[str, ...] = (), failed: bool = False
) -> Record:
    """Keep a result of one output, whose bytes are its name."""
    entry = FileEntry(store.contents.put(name.encode()))
    manifest = {"command": name, **({"input:in.txt": str(store.contents.put(inputs.encode()))} if inputs else {})}
    record = Record(
        stage="s",
        key=key_of(manifest),
        manifest=manifest,
        outputs={f"{name}.txt": entry},
        exchanges=exchanges,
        failed=failed,
    )
    store.records.put(record)
    return record


def gone(store: ProjectStore, needs: GcRoots, wish: GcLimits = EVERYTHING) -> GcSelection:
    chosen = GarbageCollector(store).select(needs, wish)
    GarbageCollector(store).delete(chosen)
    return chosen


def names(chosen: GcSelection) -> list[str]:
    return [str(held.record.manifest["command"]) for held in chosen.records]


def test_a_shared_blob_goes_with_the_last_result_that_has_it(store: ProjectStore) -> None:
    shared = "the input"
    made(store, "one", inputs=shared)
    kept = made(store, "two", inputs=shared)
    chosen = gone(store, GcRoots(keys=frozenset({kept.key})), GcLimits(used_since_ns=1 << 62))
    assert names(chosen) == ["one"]
    assert store.contents.has(digest_bytes(shared.encode())), "an input of what is needed is kept for a look at it"
    assert not store.contents.has(digest_bytes(b"one"))
    assert gone(store, GcRoots(keys=frozenset({kept.key}))).blobs == (digest_bytes(shared.encode()),)
    assert store.contents.has(digest_bytes(b"two"))


def test_what_no_result_names_goes_first(store: ProjectStore) -> None:
    old = made(store, "old")
    stray = store.contents.put(b"of a failed attempt" * 100)
    chosen = gone(store, GcRoots(), GcLimits(max_bytes=count_files(store.folder)[1] - 1))
    assert (chosen.blobs, chosen.records) == ((stray,), ())
    assert store.records.by_key(old.key)


def test_a_result_that_is_restored_is_used(store: ProjectStore) -> None:
    first, second = made(store, "first"), made(store, "second")
    os.utime(store.local.records._path(first.key), ns=(1, 1))
    os.utime(store.local.records._path(second.key), ns=(2, 2))
    assert names(GarbageCollector(store).select(GcRoots(), EVERYTHING)) == ["first", "second"]
    store.records.use(first)
    assert names(GarbageCollector(store).select(GcRoots(), EVERYTHING)) == ["second", "first"]


def test_a_record_with_a_response_stays_without_its_bytes(store: ProjectStore) -> None:
    paid = made(store, "paid", exchanges=("f" * 64,))
    chosen = gone(store, GcRoots())
    assert (names(chosen), chosen.blobs) == ([], (digest_bytes(b"paid"),))
    assert store.records.by_key(paid.key)
    assert names(gone(store, GcRoots(), GcLimits(max_bytes=0, responses=True))) == ["paid"]


@pytest.mark.parametrize("failed", [False, True])
def test_a_record_of_what_lies_on_the_disk_stays(store: ProjectStore, failed: bool) -> None:
    there = made(store, "there", failed=failed)
    made(store, "elsewhere")
    (store.root / "there.txt").write_text("there")
    (store.root / "elsewhere.txt").write_text("edited")
    assert names(gone(store, GcRoots())) == ["elsewhere"]
    assert store.records.having("there.txt", there.outputs["there.txt"])


def test_of_many_records_of_the_same_file_one_is_enough(store: ProjectStore) -> None:
    (store.root / "same.txt").write_text("same")
    entry = FileEntry(store.contents.put(b"same"))
    for number in range(5):
        manifest = {"command": str(number)}
        store.records.put(Record(stage="s", key=key_of(manifest), manifest=manifest, outputs={"same.txt": entry}))
    assert len(gone(store, GcRoots()).records) == 4
    assert len(store.records.having("same.txt", entry)) == 1


def test_a_path_that_leads_through_a_link_today_keeps_its_record(store: ProjectStore) -> None:
    manifest = {"command": "x"}
    outputs = {"d/a.txt": FileEntry(store.contents.put(b"x"))}
    store.records.put(Record(stage="s", key=key_of(manifest), manifest=manifest, outputs=outputs))
    (store.root / "d").symlink_to("/tmp")
    assert gone(store, GcRoots()).records == ()


def test_what_stays_in_a_file_of_records_is_as_it_was(store: ProjectStore) -> None:
    manifest = {"command": "two results"}
    entries = [FileEntry(store.contents.put(data)) for data in (b"1", b"2")]
    records = [
        Record(stage="s", key=key_of(manifest), manifest=manifest, outputs={"a.txt": entry}) for entry in entries
    ]
    for record in records:
        store.records.put(record)
    (store.root / "a.txt").write_bytes(b"2")
    assert [held.record for held in gone(store, GcRoots()).records] == records[:1]
    again = open_store(store.root)
    assert again.records.by_key(records[0].key) == (records[1],)
    assert again.repairs() == ()


def test_a_need_by_a_record_keeps_its_bytes_although_the_store_lost_the_record(store: ProjectStore) -> None:
    entry = FileEntry(store.contents.put(b"locked"))
    locked = Record(stage="s", key="k" * 64, manifest={}, outputs={"a.txt": entry}, originals={"a.txt": entry})
    assert gone(store, GcRoots(records=(locked,))).blobs == ()


def test_the_number_that_is_freed_is_what_is_freed(store: ProjectStore) -> None:
    for number in range(20):
        made(store, f"r{number}" * 50, inputs=f"i{number}" * 100)
    chosen = gone(store, GcRoots(), GcLimits(max_bytes=20_000))
    assert chosen.remaining_bytes <= 20_000
    assert chosen.remaining_bytes == count_files(store.folder)[1]
    assert count_files(store.folder)[0] == len([path for path in store.folder.rglob("*") if path.is_file()])


def test_what_has_no_name_of_a_blob_is_none(store: ProjectStore) -> None:
    digest = store.contents.put(b"x")
    folder = store.local.contents.path_of(digest).parent
    for name in ("note.txt", "a" * 63, "G" * 64, "0" * 63 + "٣"):
        (folder / name).write_text("x")
    (store.local.contents.folder / "zz").mkdir()
    (store.local.contents.folder / "zz" / digest.sha256).write_text("x")
    assert [found for found, _ in stored_blobs(store.local.contents.folder)] == [digest]


def test_the_blobs_behind_a_link_belong_to_someone_else(store: ProjectStore, tmp_path: Path) -> None:
    folder, other = store.local.contents.path_of(store.contents.put(b"x")).parent, tmp_path / "other"
    folder.rename(other)
    folder.symlink_to(other)
    assert list(stored_blobs(store.local.contents.folder)) == []
