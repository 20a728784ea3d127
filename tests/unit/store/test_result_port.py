"""What the records of a project promise: results by stage key."""

from pathlib import Path

import pytest

from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.ports import ResultIndex
from orch23.model.record import Record
from orch23.store.records import Records

KEY, OTHER = "ab" * 32, "cd" * 32


@pytest.fixture
def results(tmp_path: Path) -> ResultIndex:
    return Records(tmp_path / "records")


def record(text: str, *, key: str = KEY, failed: bool = False) -> Record:
    return Record(stage="s", key=key, manifest={}, outputs={"a": FileEntry(digest_bytes(text.encode()))}, failed=failed)


def test_a_result_is_there_once_it_was_put_and_the_newest_comes_first(results: ResultIndex) -> None:
    assert list(results.by_key(KEY)) == []
    results.put(record("one"))
    results.put(record("two"))
    assert list(results.by_key(KEY)) == [record("two"), record("one")]
    results.put(record("one"))
    assert list(results.by_key(KEY)) == [record("one"), record("two")]
    assert list(results.by_key(OTHER)) == []


def test_a_retained_failure_is_not_a_result(results: ResultIndex) -> None:
    results.put(record("one", failed=True))
    assert list(results.by_key(KEY)) == []


def test_the_records_of_a_project_are_results_with_an_index(tmp_path: Path) -> None:
    index: ResultIndex = Records(tmp_path / "records")
    index.put(record("one"), durable=False)
    assert list(index.everything()) == list(index.owners("a")) == [record("one")]
