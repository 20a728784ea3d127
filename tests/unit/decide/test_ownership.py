"""The owner of the bytes at a path: a run, a user who accepted or released them, or git."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from orch23.decide.ownership import LockIndex, Ownership, kept_failures, release_files
from orch23.model.digest import git_blob_id
from orch23.model.llm import Exchange
from orch23.model.record import LockFile, Record
from tests.unit.engine.rig import MemoryGit, Project, entry, stage

MADE = Record(stage="a", key="k", manifest={"kind": "shell"}, outputs={"a": entry("made")})


class CountingGit(MemoryGit):
    """Notes how it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str]] = []
        self.objects: dict[str, bytes] = {}

    def committed(self, paths: Iterable[str]) -> Mapping[str, str]:
        paths = list(paths)
        self.calls.append(sorted(paths))
        return super().committed(paths)

    def bytes_of(self, blob_id: str) -> bytes | None:
        return self.objects.get(blob_id)


def owner(project: Project, *locked: Record, git: MemoryGit | None = None) -> Ownership:
    lock = LockFile({record.stage: record for record in locked})
    return Ownership(project.as_store, project.pipeline, LockIndex(lock), git or MemoryGit())


@pytest.fixture
def project() -> Project:
    return Project(stage("a"))


def test_bytes_are_known_at_the_path_of_a_record_wherever_that_is(project: Project) -> None:
    assert not owner(project).is_known("a", entry("made"))
    assert owner(project, MADE).is_known("a", entry("made"))
    project.store.records.put(MADE)
    here = owner(project)
    assert here.is_known("a", entry("made"))
    assert not here.is_known("a", entry("edited"))
    assert not here.is_known("b", entry("made")), "the same bytes elsewhere are another file"


def test_acceptance_is_read_from_the_record_or_from_the_exchange_of_an_older_one(project: Project) -> None:
    def accepts(**more: Any) -> bool:
        project.store.records.all = [Record(stage="a", key="k", manifest={}, outputs={"a": entry("x")}, **more)]
        return owner(project).is_accepted("a", entry("x"))

    assert not accepts()
    assert accepts(accepted=("a",))
    assert not accepts(accepted=("b",))
    assert not accepts(exchanges=("unknown",))
    by_hand = Exchange(fingerprint="h", stage="a", request={}, response="", outcome="accepted_by_hand")
    project.store.exchanges.put(by_hand, None)
    assert accepts(exchanges=("h",))
    assert not accepts(exchanges=("h", "and another")), "a model's answer is behind it too"
    project.store.exchanges.put(Exchange(fingerprint="m", stage="a", request={}, response="", outcome="accepted"), None)
    assert not accepts(exchanges=("m",))


def test_a_damaged_transcript_accepts_nothing_and_stops_nothing(project: Project) -> None:
    project.store.records.put(Record(stage="a", key="k", manifest={}, outputs={"a": entry("x")}, exchanges=("h",)))

    project.store.exchanges.damaged.add("h")
    assert not owner(project).is_accepted("a", entry("x"))


def test_released_files_count_as_accepted(project: Project) -> None:
    project.disk["a"] = "made"
    lock = LockFile({"a": MADE})
    project.store.records.put(MADE)
    assert not owner(project, MADE).is_released("a", entry("made"))
    assert release_files(project.as_store, lock, kept_failures(project.as_store, ""), "a")["a"].outputs == {
        "a": entry("made")
    }
    here = owner(project, MADE)
    assert (here.is_released("a", entry("made")), here.is_accepted("a", entry("made"))) == (True, True)
    assert not here.is_released("a", entry("other"))
    assert [one.manifest["kind"] for one in project.store.records.all] == ["released", "shell"]
    assert release_files(project.as_store, lock, kept_failures(project.as_store, ""), "b") == {}


def test_a_file_equals_head_if_disk_and_head_have_its_bytes(project: Project) -> None:
    git = MemoryGit()
    here = owner(project, git=git)
    assert (here.is_committed("a"), here.equals_head("a", entry("x"))) == (False, False)
    git.head["a"] = "x"
    for there, equal in (("x", True), ("edited", False), (None, False)):
        project.disk.files.clear()
        if there is not None:
            project.disk["a"] = there
        here = owner(project, git=git)
        assert (here.is_committed("a"), here.equals_head("a", entry("x"))) == (True, equal)
    project.disk["a"] = "x"
    assert not owner(project, git=git).equals_head("a", entry("another"))
    git.head["a"] = "an older one"
    assert not owner(project, git=git).equals_head("a", entry("x"))


def test_git_is_called_once_for_all_paths_and_not_again_for_the_same_path(project: Project) -> None:
    git = CountingGit()
    here = owner(project, git=git)
    here.prefetch(["a", "b"])
    here.prefetch(["b", "c"])
    assert not here.is_committed("a")
    assert git.calls == [["a", "b"], ["c"]]


def test_bytes_are_found_in_git_by_blob_id_and_by_path(project: Project) -> None:
    git = CountingGit()
    data = b"long ago"
    record = Record(stage="a", key="k", manifest={}, git={entry(data).digest.sha256: git_blob_id(data)})
    git.objects[git_blob_id(data)] = data
    assert owner(project, record, git=git).bytes_from_git("moved", entry(data)) == data
    assert owner(project, git=git).bytes_from_git("moved", entry(data)) is None
    git.head["a"] = "long ago"
    assert owner(project, git=git).bytes_from_git("a", entry(data)) == data
    git.head["a"] = "another"
    assert owner(project, git=git).bytes_from_git("a", entry(data)) is None, "its bytes are verified"
