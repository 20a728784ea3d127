"""The lock file is deleted, emptied, or that of another branch, and the store is there: ownership comes from both."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from orch23.model.record import Record
from orch23.store.records import Records
from tests.project import Project
from tests.repository import EchoModel, Repository, ends, green, llm, pipeline, spec, up_to_date

M = "src/m.py"
EDIT = "# mine\n"
COPY = "mkdir -p o; for f in g/*; do cp $f o/$(basename $f).out; done"
MAKE = {"inputs": ["g/*"], "outputs": ["o/"], "shell": COPY}
SUM = {"inputs": ["o/**"], "outputs": ["sum.txt"], "shell": "cat o/*.out > sum.txt"}


@pytest.fixture
def model() -> Iterator[EchoModel]:
    with EchoModel().answering() as model:
        yield model


def document(stages: Mapping[str, Any], name: str = "pipeline") -> dict[str, str]:
    return {f"{name}.yaml": json.dumps({"version": 1, "name": name, "stages": stages})}


@pytest.fixture
def built(project: Project) -> Project:
    """Return a project with a stage that writes a folder, and one that reads it."""
    project.write({**document({"make": MAKE, "sum": SUM}), "g/1": "1\n", "g/2": "2\n"})
    green(project.build())
    return project


def delete(project: Project, name: str = "pipeline.lock") -> None:
    project.delete(name)


def empty(project: Project, name: str = "pipeline.lock") -> None:
    lock = json.loads(project.read(name))
    project.write({name: json.dumps({**lock, "records": {"~": None}})})


def without_one(project: Project, name: str = "pipeline.lock") -> None:
    lock = json.loads(project.read(name))
    del lock["records"]["make"]
    project.write({name: json.dumps(lock)})


LOSSES = pytest.mark.parametrize("lose", [delete, empty, without_one])


@pytest.mark.slow
@pytest.mark.stride(3)
@LOSSES
@pytest.mark.parametrize("failing", [False, True], ids=["", "after a failed build"])
def test_the_output_of_a_deleted_input_is_removed(
    built: Project, lose: Callable[[Project], None], failing: bool
) -> None:
    lose(built)
    built.delete("g/2")
    if failing:
        built.write(document({"make": {**MAKE, "shell": "false"}, "sum": SUM}))
        assert built.build().code == 1
        built.write(document({"make": MAKE, "sum": SUM}))
    green(built.build())
    assert (built.read("sum.txt"), built.exists("o/2.out")) == ("1\n", False)
    up_to_date(built.build())


@pytest.mark.slow
def test_an_older_lock_file_does_not_give_outputs_away(built: Project) -> None:
    older = built.read("pipeline.lock")
    built.write({"g/3": "3\n"})
    green(built.build())
    assert built.exists("o/3.out")
    built.write({"pipeline.lock": older})
    built.delete("g/3")
    green(built.build())
    assert (built.read("sum.txt"), built.exists("o/3.out")) == ("1\n2\n", False)
    assert built.read("pipeline.lock") == older, "no trace of what the lock file lacked"
    up_to_date(built.build())


@pytest.mark.slow
@LOSSES
def test_files_of_an_ended_stage_are_removed(built: Project, lose: Callable[[Project], None]) -> None:
    lose(built)
    built.write(document({"sum": {**SUM, "shell": "ls o > sum.txt || true"}, "other": {**MAKE, "outputs": ["p/"]}}))
    built.write(document({"sum": {**SUM, "inputs": ["**/*.out"], "shell": "cat */*.out > sum.txt || true"}}))
    green(built.build())
    assert (built.read("sum.txt"), built.exists("o/1.out")) == ("", False)


@pytest.mark.slow
@LOSSES
def test_files_of_the_user_stay(built: Project, lose: Callable[[Project], None]) -> None:
    built.write({"o/mine.out": "mine\n"})
    green(built.build())
    lose(built)
    built.delete("g/2")
    green(built.build())
    assert built.read("sum.txt") == "1\nmine\n"


@pytest.mark.slow
def test_a_reset_after_the_loss_gives_no_output_away(built: Project) -> None:
    delete(built)
    green(built.run("reset"))
    built.delete("g/2")
    green(built.build())
    assert (built.read("sum.txt"), built.exists("o/2.out")) == ("1\n", False)


@pytest.mark.slow
def test_a_loss_after_a_reset_gives_no_output_away(built: Project) -> None:
    green(built.run("reset"))
    delete(built)
    built.delete("g/2")
    green(built.build())
    assert (built.read("sum.txt"), built.exists("o/2.out")) == ("1\n", False)


@pytest.mark.needs("upkeep")
def test_clean_removes_outputs_without_a_lock_file(built: Project) -> None:
    delete(built)
    green(built.run("clean"))
    assert not built.exists("o/1.out")
    assert not built.exists("sum.txt")


@pytest.mark.slow
def test_released_files_stay_released(built: Project) -> None:
    built.write(document({"sum": SUM}))
    green(built.run("release", "make"))
    delete(built)
    green(built.build())
    assert built.read("sum.txt") == "1\n2\n"


@pytest.mark.slow
def test_an_older_version_of_a_released_file_stays(built: Project) -> None:
    older = built.read("o/1.out")
    built.write({"g/1": "one\n"})
    green(built.build())
    green(built.run("release", "make"))
    built.write({**document({"sum": SUM}), "o/1.out": older})
    green(built.build())
    assert (built.read("o/1.out"), built.read("sum.txt")) == (older, "1\n2\n")


@pytest.mark.slow
def test_a_lock_file_without_a_store_is_as_before(built: Project) -> None:
    shutil.rmtree(built.root / ".orch23")
    built.delete("g/2")
    green(built.build())
    assert (built.read("sum.txt"), built.exists("o/2.out")) == ("1\n", False)


@pytest.mark.slow
def test_a_link_in_the_place_of_a_folder_of_former_outputs_is_not_followed(built: Project) -> None:
    delete(built)
    shutil.rmtree(built.root / "o")
    built.write({"elsewhere/1.out": "1\n"})
    (built.root / "o").symlink_to("elsewhere")
    built.write(
        document({"other": {**MAKE, "outputs": ["p/"], "shell": COPY.replace("o", "p", 1).replace("o/", "p/")}})
    )
    assert built.build().code in (0, 1)
    assert built.read("elsewhere/1.out") == "1\n"


@pytest.mark.slow
def test_all_records_are_read_only_after_the_lock_file_was_replaced(
    built: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    everything = Records.everything

    def noted(records: Records) -> tuple[Record, ...]:
        looks.append("all")
        return everything(records)

    monkeypatch.setattr(Records, "everything", noted)
    built.write({"g/1": "other\n"})
    green(built.build())
    up_to_date(built.build())
    built.write(document({"make": {**MAKE, "shell": "false"}, "sum": SUM}))
    assert built.build().code == 1
    assert built.build().code == 1
    assert looks == []
    delete(built)
    built.build()
    assert looks == ["all"]
    built.build()
    assert looks == ["all"]


# ---- several pipelines -----------------------------------------------------------------------------


def two(project: Project) -> None:
    for name in ("a", "b"):
        stage = {"inputs": [f"{name}.in"], "outputs": [f"{name}/"], "shell": f"mkdir -p {name}; cp {name}.in {name}/x"}
        project.write({**document({"make": stage}, name), f"{name}.in": f"{name}\n"})
        green(project.run("build", f"{name}.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("lost", [("a",), ("b",), ("a", "b")], ids=" ".join)
def test_a_stage_with_the_same_name_in_another_pipeline_keeps_its_files(
    project: Project, lost: tuple[str, ...]
) -> None:
    two(project)
    for name in lost:
        delete(project, f"{name}.lock")
    project.write({"a.in": "new\n"})
    stage = {"inputs": ["a.in"], "outputs": ["a2/"], "shell": "mkdir -p a2; cp a.in a2/x"}
    project.write(document({"make": stage}, "a"))
    green(project.run("build", "a.yaml"))
    assert (project.read("b/x"), project.exists("a/x")) == ("b\n", False)
    up_to_date(project.run("build", "b.yaml"))


@pytest.mark.slow
def test_a_path_of_a_pipeline_without_its_lock_file_is_refused_to_another(project: Project) -> None:
    two(project)
    delete(project, "a.lock")
    project.write(document({"take": {"inputs": ["b.in"], "outputs": ["a/x"], "shell": "cp b.in a/x"}}, "b"))
    refused = project.run("build", "b.yaml")
    assert refused.code == 65
    assert "E712" in refused.err
    assert project.read("a/x") == "a\n"


# ---- bases -----------------------------------------------------------------------------------------


def started(tmp_path: Path, **more: Any) -> Repository:
    repository = Repository(tmp_path / "p")
    repository.write(pipeline({"feature": llm(["FEATURE.md"], [M], **more)}))
    repository.write({"FEATURE.md": spec(f"{M}: one"), M: "# base\n"})
    green(repository.run("build", "a.yaml"))
    return repository


@pytest.mark.slow
def test_a_model_does_not_start_from_its_own_output(tmp_path: Path, model: EchoModel) -> None:
    repository = started(tmp_path)
    repository.delete("a.lock")
    repository.write({"FEATURE.md": spec(f"{M}: two")})
    green(repository.run("build", "a.yaml"))
    assert model.bases(M) == ["# base\n", "# base\n"]


@pytest.mark.slow
def test_a_renamed_stage_does_not_start_from_its_own_output(tmp_path: Path, model: EchoModel) -> None:
    repository = Repository(tmp_path / "p")
    repository.write({**pipeline({"gen": llm(["G.md"], ["g.py"])}), "G.md": spec("g.py: one")})
    green(repository.run("build", "a.yaml"))
    repository.write(pipeline({"gen2": llm(["G.md"], ["g.py"])}))
    green(repository.run("build", "a.yaml"))
    repository.delete("a.lock")
    repository.write({"G.md": spec("g.py: two")})
    green(repository.run("build", "a.yaml"))
    assert model.bases("g.py") == [None, None]


def test_an_edit_is_not_overwritten(tmp_path: Path, model: EchoModel) -> None:
    repository = started(tmp_path)
    repository.write({M: repository.read(M) + EDIT, "FEATURE.md": spec(f"{M}: two")})
    repository.delete("a.lock")
    assert repository.run("build", "a.yaml").code == 6
    assert EDIT in repository.read(M)
    assert len(model.calls) == 1


@pytest.mark.slow
def test_an_accepted_edit_is_the_base(tmp_path: Path, model: EchoModel) -> None:
    repository = started(tmp_path)
    repository.write({M: repository.read(M) + EDIT})
    green(repository.run("accept", "a.yaml", "feature"))
    repository.delete("a.lock")
    up_to_date(repository.run("build", "a.yaml"))
    repository.write({"FEATURE.md": spec(f"{M}: two")})
    green(repository.run("build", "a.yaml"))
    assert EDIT in (model.last.base[M])
    assert ends(repository) == {"feature": "built"}


@pytest.mark.slow
def test_a_released_file_is_the_users_start(tmp_path: Path, model: EchoModel) -> None:
    repository = started(tmp_path)
    green(repository.run("release", "a.yaml", "feature"))
    repository.write({M: EDIT, "FEATURE.md": spec(f"{M}: two")})
    repository.delete("a.lock")
    green(repository.run("build", "a.yaml"))
    assert model.last.base[M] == EDIT


@pytest.mark.slow
def test_a_committed_file_stays_as_in_a_clone(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "p")
    repository.write({**document({"make": MAKE, "sum": SUM}), "g/1": "1\n"})
    repository.init()
    repository.write({".gitignore": ".orch23/\nlogs/\nsum.txt\n"})
    green(repository.run("build"))
    older = repository.read("pipeline.lock")
    repository.write({"g/2": "2\n"})
    green(repository.run("build"))
    repository.write({"pipeline.lock": older})
    repository.delete("g/2")
    repository.commit()
    clone = repository.clone(tmp_path / "clone")
    for one in (clone, repository):
        green(one.run("build"))
        assert one.read("sum.txt") == "1\n2\n"


@pytest.mark.slow
def test_an_original_of_an_item_that_ended_before_does_not_come_back(tmp_path: Path, model: EchoModel) -> None:
    repository = Repository(tmp_path / "p")

    def declare(*names: str) -> None:
        items = [{"id": name, "files": [M], "text": name} for name in names]
        stage = llm([], [M], foreach={"in": items, "key": "id", "as": "one", "order": "sequential"})
        del stage["inputs"]
        repository.write(pipeline({"chain": stage} if names else {"other": llm(["FEATURE.md"], ["other.py"])}))

    repository.write({M: "# base\n", "FEATURE.md": spec("other.py: one")})
    declare("x", "z")
    green(repository.run("build", "a.yaml"))
    declare()
    green(repository.run("build", "a.yaml"))
    repository.write({M: "# another base\n"})
    declare("x", "y")
    green(repository.run("build", "a.yaml"))
    repository.delete("a.lock")
    up_to_date(repository.run("build", "a.yaml"))
    repository.delete("a.lock")
    declare("x", "new")
    green(repository.run("build", "a.yaml"))
    assert repository.read(M).startswith("# another base\n")


@pytest.mark.slow
def test_an_edit_of_an_output_of_a_program_is_not_overwritten(built: Project) -> None:
    built.write({"o/1.out": "mine\n", "g/1": "other\n"})
    delete(built)
    assert built.build().code == 6
    assert built.read("o/1.out") == "mine\n"


@pytest.mark.slow
def test_a_kept_failure_of_an_ended_stage_is_removed(project: Project) -> None:
    make: dict[str, Any] = {"inputs": ["g/1"], "outputs": ["o/1.out"], "shell": "cp g/1 o/1.out", "on_failure": "keep"}
    make["verify"] = [{"shell": "! grep -q bad o/1.out"}]
    project.write({**document({"make": make, "sum": SUM}), "g/1": "1\n"})
    green(project.build())
    project.write({"g/1": "bad\n"})
    assert project.build().code == 1
    assert project.read("o/1.out") == "bad\n"
    project.write(document({"sum": {**SUM, "shell": "cat o/* > sum.txt || true"}}))
    green(project.build())
    assert (project.exists("o/1.out"), project.read("sum.txt")) == (False, "")
