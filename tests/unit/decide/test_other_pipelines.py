"""One path has one owner in a project: what the lock files of other pipelines claim, and when that counts."""

from pathlib import Path

import pytest

from orch23.decide.ownership import OtherPipelines
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.record import LockFile, Record
from orch23.store.lock_file import write_lock


class Declared:
    """Answers whether a pipeline declares a path, and remembers the questions."""

    def __init__(self, *, answer: bool) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, str]] = []

    def __call__(self, pipeline: str, stage: str, path: str) -> bool:
        self.asked.append((pipeline, stage, path))
        return self.answer


def locked(root: Path, name: str, **outputs: str) -> None:
    records = {
        stage: Record(stage=stage, key="0" * 64, manifest={}, outputs={path: FileEntry(digest_bytes(b"x"))})
        for stage, path in outputs.items()
    }
    write_lock(root, f"{name}.lock", LockFile(records), name)
    (root / f"{name}.yaml").write_text("version: 1\nstages: {}\n")


def test_the_stage_of_another_pipeline_that_declares_a_path_owns_it(tmp_path: Path) -> None:
    locked(tmp_path, "a", feature="src/m.py")
    claims = OtherPipelines(tmp_path, tmp_path / "b.lock", Declared(answer=True))
    claim = claims.owner("src/m.py")
    assert claim is not None
    assert (claim.pipeline, claim.stage) == ("a.yaml", "feature")
    (problem,) = claims.ownership_errors("other", ["src/m.py", "free.py"])
    assert problem.code == "E712"
    assert "`feature` in a.yaml" in problem.message
    assert "orch23 release a.yaml feature" in (problem.hint or "")


def test_a_claim_counts_only_as_long_as_the_path_is_declared(tmp_path: Path) -> None:
    locked(tmp_path, "a", feature="src/m.py")
    declared = Declared(answer=False)
    claims = OtherPipelines(tmp_path, tmp_path / "b.lock", declared)
    assert claims.owner("src/m.py") is None
    assert claims.owner("src/m.py") is None
    assert declared.asked == [("a.yaml", "feature", "src/m.py")], "loaded once"


def test_no_pipeline_is_loaded_for_a_path_that_no_one_claims(tmp_path: Path) -> None:
    locked(tmp_path, "a", feature="src/m.py")
    declared = Declared(answer=True)
    assert OtherPipelines(tmp_path, tmp_path / "b.lock", declared).owner("free.py") is None
    assert not declared.asked


def test_a_pipeline_does_not_compete_with_itself(tmp_path: Path) -> None:
    locked(tmp_path, "a", feature="src/m.py")
    assert OtherPipelines(tmp_path, tmp_path / "a.lock", Declared(answer=True)).owner("src/m.py") is None


@pytest.mark.parametrize("state", ["no pipeline", "damaged"])
def test_a_lock_file_that_no_pipeline_can_use_claims_nothing(tmp_path: Path, state: str) -> None:
    locked(tmp_path, "a", feature="src/m.py")
    if state == "damaged":
        text = (tmp_path / "a.lock").read_text()
        (tmp_path / "a.lock").write_text(text.replace("src/m.py", "src/n.py"))
    else:
        (tmp_path / "a.yaml").unlink()
    claims = OtherPipelines(tmp_path, tmp_path / "b.lock", Declared(answer=True))
    assert claims.owner("src/m.py") is None
    assert claims.owner("src/n.py") is None
