"""What the part of the records that a remote cache implements promises: results by stage key."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.ports import ResultIndex, ResultStore
from orch23.model.record import Record
from orch23.store.records import Records
from orch23.store.remote_stores import CombinedResults
from tests.doubles import MemoryResults

KEY, OTHER = "ab" * 32, "cd" * 32


@pytest.fixture(params=["records", "in memory", "shared"])
def results(tmp_path: Path, request: pytest.FixtureRequest) -> ResultStore:
    made: dict[str, Callable[[], ResultStore]] = {
        "records": lambda: Records(tmp_path / "records"),
        "in memory": MemoryResults,
        "shared": lambda: CombinedResults(Records(tmp_path / "records"), MemoryResults()),
    }
    return made[request.param]()


def record(text: str, *, key: str = KEY, failed: bool = False) -> Record:
    return Record(stage="s", key=key, manifest={}, outputs={"a": FileEntry(digest_bytes(text.encode()))}, failed=failed)


def test_a_result_is_there_once_it_was_put_and_the_newest_comes_first(results: ResultStore) -> None:
    assert not results.has(KEY)
    assert list(results.by_key(KEY)) == []
    results.put(record("one"))
    results.put(record("two"))
    assert results.has(KEY)
    assert list(results.by_key(KEY)) == [record("two"), record("one")]
    results.put(record("one"))
    assert list(results.by_key(KEY)) == [record("one"), record("two")]
    assert not results.has(OTHER)


def test_a_retained_failure_is_not_a_result(results: ResultStore) -> None:
    results.put(record("one", failed=True))
    assert not results.has(KEY)
    assert list(results.by_key(KEY)) == []


def test_the_records_of_a_project_are_results_with_an_index(tmp_path: Path) -> None:
    index: ResultIndex = Records(tmp_path / "records")
    index.add(record("one"))
    assert [held.record for held in index.survey()] == list(index.owners("a")) == [record("one")]


def test_a_result_from_elsewhere_is_kept_here_once_it_is_used(tmp_path: Path) -> None:
    here, elsewhere = Records(tmp_path / "records"), MemoryResults()
    elsewhere.put(record("one"))
    shared = CombinedResults(here, elsewhere)
    assert [*shared.by_key(KEY)] == [*shared.by_key(KEY)] == [record("one")]
    assert elsewhere.asked == [KEY]
    assert not here.has(KEY)
    assert not (tmp_path / "records").exists()
    shared.use(record("one"))
    assert [*here.by_key(KEY)] == [*shared.owners("a")] == [record("one")]


def test_a_local_result_is_not_looked_up_elsewhere_and_each_is_put_there(tmp_path: Path) -> None:
    here, elsewhere = Records(tmp_path / "records"), MemoryResults()
    shared = CombinedResults(here, elsewhere)
    shared.put(record("one"))
    shared.add(record("two", key=OTHER))
    assert shared.has(KEY)
    assert [*shared.by_key(OTHER)] == [record("two", key=OTHER)]
    assert elsewhere.asked == []
    assert {KEY, OTHER} <= elsewhere.records.keys()


def test_a_record_that_is_not_a_result_stays_local(tmp_path: Path) -> None:
    shared = CombinedResults(here := Records(tmp_path / "records"), elsewhere := MemoryResults())
    shared.put(record("kept", failed=True))
    assert elsewhere.records == {}
    assert [*here.labelled("s")] == [*shared.labelled("s")] == [record("kept", failed=True)]


def test_records_of_another_key_are_not_believed(tmp_path: Path) -> None:
    elsewhere = MemoryResults()
    elsewhere.records[KEY] = [record("wrong", key=OTHER), record("failed", failed=True), record("right")]
    assert [*CombinedResults(Records(tmp_path / "records"), elsewhere).by_key(KEY)] == [record("right")]
