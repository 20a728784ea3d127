"""Stories of files that users, git and several stages share: no edit is lost, and no merged work is reverted."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch23.store.lock_file import read_lock, write_lock
from orch23.store.promotion import Promoter
from orch23.store.safe_files import discard_temp
from tests.project import Outcome
from tests.repository import EchoModel, Repository, addition, ends, green, llm, pipeline, spec, up_to_date

A, B, C = addition("a"), addition("b"), addition("c")
BASE = "# base\n"
EDIT = "# by a colleague\n"
FEATURE = llm(["FEATURE.md"], ["src/m.py"])
ZERO = {"outputs": ["zero.txt"], "shell": "echo 0 > zero.txt"}


@pytest.fixture
def model() -> Iterator[EchoModel]:
    with EchoModel().answering() as answering:
        yield answering


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Give a repository with one file of code and one spec, committed."""
    found = Repository(tmp_path / "project")
    found.init()
    found.write({"src/m.py": BASE, "FEATURE.md": spec("src/m.py: a")})
    return found


def started(repository: Repository, stages: dict[str, dict] | None = None) -> Repository:
    """Write the pipeline, commit, and build."""
    repository.write(pipeline(stages or {"feature": FEATURE}))
    repository.commit()
    green(repository.run("build", "a.yaml"))
    return repository


def merged(repository: Repository, stages: dict[str, dict] | None = None) -> Repository:
    """Build and commit what was built."""
    started(repository, stages).commit()
    return repository


def append(repository: Repository, path: str, text: str) -> str:
    """Append a line by hand and return the whole text."""
    whole = repository.read(path) + text
    repository.edit(path, whole)
    return whole


def settled(repository: Repository, model: EchoModel, *argv: str) -> None:
    """Check that nothing is left to do, that plan and status say so, and that no model is called for it."""
    called = len(model.calls)
    argv = argv or ("a.yaml",)
    up_to_date(repository.run("build", *argv))
    assert set(repository.plan(*argv).values()) <= {"fresh"}
    assert repository.run("status", "--exit-code", *argv).code == 0
    assert len(model.calls) == called


def leftovers(repository: Repository) -> list[str]:
    """Return files that a killed or finished command should not leave: temporary ones and the promotion's journal."""
    names = [path.relative_to(repository.root).as_posix() for path in repository.root.rglob("*")]
    status = [n for n in names if n.endswith((".tmp", "~")) and not n.startswith(".git/")]
    return [*status, *(n for n in names if n == ".orch23/promote.json"), *untracked(repository)]


def untracked(repository: Repository) -> list[str]:
    """Return hidden files that git does not know and no one declared."""
    lines = repository.git("status", "--porcelain", "-uall").splitlines()
    return [line[3:] for line in lines if line.startswith("??") and Path(line[3:]).name.startswith(".")]


# ---- 6: accepted edits -----------------------------------------------------------------------------


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("own_outputs", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_an_accepted_edit_is_the_base_of_the_next_run(repository, model, own_outputs, committed):
    started(repository, {"feature": {**FEATURE, "llm": {"context": {"own_outputs": own_outputs}}}})
    edited = append(repository, "src/m.py", EDIT)
    assert repository.run("build", "a.yaml").code == 6
    green(repository.run("accept", "a.yaml", "feature"))
    if committed:
        repository.commit()
    settled(repository, model)
    repository.edit("FEATURE.md", spec("src/m.py: b"))
    green(repository.run("build", "a.yaml"))
    assert model.last.base == {"src/m.py": edited}
    assert repository.read("src/m.py") == edited + B
    settled(repository, model)


@pytest.mark.slow
def test_an_accepted_edit_of_a_created_file_is_the_base_of_the_next_run(repository, model):
    repository.write({"GEN.md": spec("src/gen.py: a")})
    started(repository, {"gen": llm(["GEN.md"], ["src/gen.py"])})
    repository.edit("GEN.md", spec("src/gen.py: b"))
    green(repository.run("build", "a.yaml"))
    assert model.last.base == {}, "a file that only the stage has written does not become its own base"
    edited = append(repository, "src/gen.py", EDIT)
    green(repository.run("accept", "a.yaml", "gen"))
    repository.edit("GEN.md", spec("src/gen.py: c"))
    green(repository.run("build", "a.yaml"))
    assert model.last.base == {"src/gen.py": edited}


@pytest.mark.slow
@pytest.mark.parametrize("decided", ["accepted", "committed"])
def test_a_created_file_with_a_users_bytes_follows_the_merged_file(repository, model, decided):
    repository.write({"GEN.md": spec("src/gen.py: a")})
    started(repository, {"gen": llm(["GEN.md"], ["src/gen.py"])})
    edited = append(repository, "src/gen.py", EDIT)
    if decided == "accepted":
        green(repository.run("accept", "a.yaml", "gen"))
    else:
        repository.commit()
    repository.edit("GEN.md", spec("src/gen.py: b"))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/gen.py") == edited + B
    repository.commit()
    repository.edit("GEN.md", spec("src/gen.py: c"))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/gen.py") == edited + B + C


@pytest.mark.slow
def test_a_created_file_is_generated_again_although_it_is_committed(repository, model):
    repository.write({"GEN.md": spec("src/gen.py: a")})
    merged(repository, {"gen": llm(["GEN.md"], ["src/gen.py"])})
    repository.edit("GEN.md", spec("src/gen.py: b"))
    green(repository.run("build", "a.yaml"))
    assert model.last.base == {}
    assert repository.read("src/gen.py") == B


@pytest.mark.slow
def test_a_reverted_spec_is_restored_without_a_call(repository, model):
    merged(repository)
    repository.edit("FEATURE.md", spec("src/m.py: b"))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == BASE + A + B
    repository.edit("FEATURE.md", spec("src/m.py: a"))
    called = len(model.calls)
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == BASE + A
    assert len(model.calls) == called


@pytest.mark.slow
def test_without_git_the_base_is_the_original_until_an_edit_is_accepted(tmp_path, model):
    project = Repository(tmp_path / "project")
    project.write({"src/m.py": BASE, "FEATURE.md": spec("src/m.py: a"), **pipeline({"feature": FEATURE})})
    green(project.run("build", "a.yaml"))
    project.edit("FEATURE.md", spec("src/m.py: b"))
    green(project.run("build", "a.yaml"))
    assert model.bases("src/m.py") == [BASE, BASE]
    assert project.read("src/m.py") == BASE + B


@pytest.mark.slow
@pytest.mark.parametrize("committed", [False, True])
def test_an_edit_in_a_folder_of_a_renamed_stage_can_be_accepted(repository, model, committed):
    repository.write({"SITE.md": spec("site/a.py: a", "site/b.py: a")})
    merged(repository, {"site": llm(["SITE.md"], ["site/"])})
    edited = append(repository, "site/b.py", EDIT)
    repository.write(pipeline({"site2": llm(["SITE.md"], ["site/"])}))
    if committed:
        repository.commit()
    green(repository.run("accept", "a.yaml", "site2"))
    settled(repository, model)
    assert repository.read("site/b.py") == edited


# ---- 7: the end of a stage -------------------------------------------------------------------------


@pytest.mark.slow
def test_merged_code_stays_where_its_stage_is_removed(repository, model):
    repository.write({"OTHER.md": spec("src/o.py: a")})
    merged(repository, {"feature": FEATURE, "other": llm(["OTHER.md"], ["src/o.py"])})
    repository.write(pipeline({"other": llm(["OTHER.md"], ["src/o.py"])}))
    assert "src/m.py" in repository.run("plan", "a.yaml").out
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == BASE + A
    assert repository.read("src/o.py") == A
    repository.commit()
    settled(repository, model)
    assert repository.read("src/m.py") == BASE + A


@pytest.mark.slow
@pytest.mark.parametrize("committed", [False, True])
def test_a_stage_that_is_only_renamed_is_fresh(repository, model, committed):
    started(repository)
    if committed:
        repository.commit()
    repository.write(pipeline({"feature2": FEATURE}))
    assert repository.plan("a.yaml") == {"feature2": "fresh"}
    green(repository.run("build", "a.yaml"))
    assert len(model.calls) == 1
    assert repository.read("src/m.py") == BASE + A
    settled(repository, model)


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("by_way_of", [False, True])
def test_a_stage_that_is_renamed_with_another_spec_starts_from_the_merged_file(repository, model, committed, by_way_of):
    started(repository)
    if committed:
        repository.commit()
    repository.write({**pipeline({"feature2": llm(["F2.md"], ["src/m.py"])}), "F2.md": spec("src/m.py: b")})
    if by_way_of:  # the rename alone is built first
        repository.edit("F2.md", spec("src/m.py: a"))
        repository.write(pipeline({"feature2": FEATURE}))
        green(repository.run("build", "a.yaml"))
        repository.commit()
        repository.write({**pipeline({"feature2": llm(["F2.md"], ["src/m.py"])}), "F2.md": spec("src/m.py: b")})
    green(repository.run("build", "a.yaml"))
    assert model.last.base == {"src/m.py": BASE + A}
    assert repository.read("src/m.py") == BASE + A + B
    settled(repository, model)


# ---- 8: several pipelines --------------------------------------------------------------------------


def two_pipelines(repository: Repository) -> Outcome:
    """Write a pipeline for each feature, build the first, and return the build of the second."""
    repository.write(
        {
            **pipeline({"first": llm(["FEATURE.md"], ["src/m.py"])}, name="a"),
            **pipeline({"second": llm(["B.md"], ["src/m.py"])}, name="b"),
            "B.md": spec("src/m.py: b"),
        }
    )
    repository.commit()
    green(repository.run("build", "a.yaml"))
    return repository.run("build", "b.yaml")


@pytest.mark.slow
def test_a_second_pipeline_may_not_write_the_file_of_a_first(repository, model):
    refused = two_pipelines(repository)
    assert refused.code not in (0, 70)
    for name in ("src/m.py", "a.yaml", "first", "second", "orch23 release"):
        assert name in refused.out + refused.err, name
    assert repository.read("src/m.py") == BASE + A
    assert len(model.calls) == 1, "the stage fails before it runs"
    again = repository.run("build", "b.yaml")
    assert again.code == refused.code


@pytest.mark.slow
def test_a_released_file_may_be_written_by_another_pipeline(repository, model):
    two_pipelines(repository)
    green(repository.run("release", "a.yaml", "first"))
    repository.write(pipeline({"other": llm(["OTHER.md"], ["src/o.py"])}, name="a"))
    repository.write({"OTHER.md": spec("src/o.py: a")})
    green(repository.run("build", "b.yaml"))
    assert model.last.base == {"src/m.py": BASE + A}
    assert repository.read("src/m.py") == BASE + A + B
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == BASE + A + B


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("first", ["a", "b"])
def test_a_stage_that_moves_to_another_pipeline_keeps_its_output(repository, model, committed, first):
    other = {"other": llm(["OTHER.md"], ["src/o.py"])}
    gen = {"gen": llm(["GEN.md"], ["src/gen.py"])}
    repository.write({"OTHER.md": spec("src/o.py: a"), "GEN.md": spec("src/gen.py: a")})
    repository.write(pipeline({"feature": FEATURE, **gen, **other}, name="a"))
    repository.commit()
    green(repository.run("build", "a.yaml"))
    if committed:
        repository.commit()
    repository.write({**pipeline(other, name="a"), **pipeline({"feature": FEATURE, **gen}, name="b")})
    for name in (first, "b" if first == "a" else "a"):
        green(repository.run("build", f"{name}.yaml"))
    assert repository.read("src/m.py") == BASE + A
    if committed or first == "b":
        assert repository.read("src/gen.py") == A
    for name in "ab":
        green(repository.run("build", f"{name}.yaml"))
    assert repository.read("src/m.py") == BASE + A
    assert repository.read("src/gen.py") == A
    assert len(model.calls) == 3


# ---- 9: a shorter list -----------------------------------------------------------------------------


@pytest.mark.slow
def test_an_edit_stays_when_a_stage_moves_to_another_pipeline_and_back(repository, model):
    gen, other = {"gen": llm(["GEN.md"], ["src/gen.py"])}, {"other": llm(["OTHER.md"], ["src/o.py"])}
    repository.write({"OTHER.md": spec("src/o.py: a"), "GEN.md": spec("src/gen.py: a")})
    started(repository, {**gen, **other})
    edited = append(repository, "src/gen.py", EDIT)
    repository.write({**pipeline(other, name="a"), **pipeline(gen, name="b")})
    green(repository.run("build", "b.yaml"))
    assert repository.read("src/gen.py") == edited + A
    repository.edit("GEN.md", spec("src/gen.py: b"))
    repository.write(pipeline({**gen, **other}, name="a"))
    (repository.root / "b.yaml").unlink()
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/gen.py") == edited + A + B


def item(name: str, text: str = "a", path: str = "") -> dict[str, object]:
    return {"id": name, "files": [path or f"tests/test_{name}.py"], "text": text}


def items_of(*items: dict[str, object], **foreach: object) -> dict[str, dict]:
    """Return a stage that writes a test for each item."""
    stage = llm([], ["${{ one.files[0] }}"])
    return {"tests": {**stage, "foreach": {"in": list(items), "key": "id", "as": "one", **foreach}}}


@pytest.mark.slow
@pytest.mark.parametrize("committed", [False, True])
def test_a_shorter_list_keeps_committed_files_and_removes_the_others(repository, model, committed):
    started(repository, items_of(item("x"), item("y"), item("z")))
    if committed:
        repository.commit()
    kept = append(repository, "tests/test_z.py", EDIT)
    repository.write(pipeline(items_of(item("x"))))
    assert "tests/test_y.py" in repository.run("plan", "a.yaml").out
    green(repository.run("build", "a.yaml"))
    assert repository.read("tests/test_x.py") == A
    assert repository.exists("tests/test_y.py") == committed
    assert repository.read("tests/test_z.py") == kept, "an edited file is left as it is"
    settled(repository, model)


@pytest.mark.slow
def test_a_file_that_another_stage_names_as_an_input_is_released(repository, model):
    reader = {"inputs": ["tests/test_y.py"], "outputs": ["build/y.txt"], "shell": "cp tests/test_y.py build/y.txt"}
    started(repository, {**items_of(item("x"), item("y")), "reader": reader})
    repository.write(pipeline({**items_of(item("x")), "reader": reader}))
    green(repository.run("build", "a.yaml"))
    assert repository.read("tests/test_y.py") == A
    assert repository.read("build/y.txt") == A
    settled(repository, model)


# ---- 10: a fresh clone -----------------------------------------------------------------------------


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("change", [False, True])
def test_a_fresh_clone_builds_without_transcripts(repository, model, tmp_path, moved, change):
    merged(repository)
    expected = BASE + A
    if moved:
        repository.edit("FEATURE.md", spec("src/m.py: b"))
        green(repository.run("build", "a.yaml"))
        repository.commit()
        expected += B
    clone = repository.clone(tmp_path / "clone")
    called = len(model.calls)
    up_to_date(clone.run("build", "a.yaml"))
    clone.delete("src/m.py")
    green(clone.run("build", "a.yaml"))
    assert clone.read("src/m.py") == expected
    assert len(model.calls) == called
    if change:
        clone.edit("FEATURE.md", spec("src/m.py: c"))
        green(clone.run("build", "a.yaml"))
        assert model.last.base == {"src/m.py": expected}
        assert clone.read("src/m.py") == expected + C


@pytest.mark.slow
def test_a_fresh_clone_whose_lock_was_committed_without_its_outputs_builds(repository, model, tmp_path):
    started(repository).commit("a.lock", "a.yaml", "FEATURE.md")
    clone = repository.clone(tmp_path / "clone")
    green(clone.run("build", "a.yaml"))
    assert clone.read("src/m.py") == BASE + A
    assert model.bases("src/m.py") == [BASE, BASE]


@pytest.mark.slow
@pytest.mark.parametrize("change", [False, True])
def test_a_chain_in_a_fresh_clone_builds_without_transcripts(repository, model, tmp_path, change):
    merged(repository, chain_of(("x", "a"), ("y", "b")))
    clone = repository.clone(tmp_path / "clone")
    if not change:
        up_to_date(clone.run("build", "a.yaml"))
        assert len(model.calls) == 2
        return
    clone.write(pipeline(chain_of(("x", "a"), ("y", "c"))))
    green(clone.run("build", "a.yaml"))
    assert model.last.base == {"src/m.py": BASE + A + B}, "the earlier item has the result of the lock file"
    assert clone.read("src/m.py") == BASE + A + B + C


# ---- 11: a group ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_edit_of_one_file_does_not_withhold_the_files_of_other_items(repository, model):
    merged(repository, items_of(item("x"), item("y"), promote="together"))
    edited = append(repository, "tests/test_x.py", EDIT)
    repository.write(pipeline(items_of(item("x"), item("y", "b"), item("z"), promote="together")))
    assert repository.run("build", "a.yaml").code == 6
    assert repository.read("tests/test_x.py") == edited
    assert repository.read("tests/test_y.py") == B
    assert repository.read("tests/test_z.py") == A
    assert repository.run("build", "a.yaml").code == 6
    green(repository.run("accept", "a.yaml", "tests@x"))
    settled(repository, model)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["each", "together"])
def test_a_committed_edit_is_verified_and_recorded(repository, model, group):
    merged(repository, items_of(item("x"), item("y"), promote=group))
    edited = append(repository, "tests/test_x.py", EDIT)
    repository.commit()
    repository.write(pipeline(items_of(item("x"), item("y", "b"), promote=group)))
    green(repository.run("build", "a.yaml"))
    assert repository.read("tests/test_x.py") == edited
    assert repository.read("tests/test_y.py") == B
    settled(repository, model)
    repository.write(pipeline(items_of(item("x", "c"), item("y", "b"), promote=group)))
    green(repository.run("build", "a.yaml"))
    assert model.last.base == {"tests/test_x.py": edited}


@pytest.mark.slow
def test_a_committed_edit_that_fails_the_verification_fails_the_stage_and_stays(repository, model):
    merged(repository)
    edited = append(repository, "src/m.py", "# bad\n")
    repository.commit()
    for _ in range(2):
        assert repository.run("build", "a.yaml").code == 1
        assert repository.read("src/m.py") == edited
    assert len(model.calls) == 1


@pytest.mark.slow
@pytest.mark.parametrize("committed", [False, True])
def test_an_edit_of_a_shell_output_is_asked_about_and_not_overwritten(repository, model, committed):
    stage = {"inputs": ["FEATURE.md"], "outputs": ["build/f.txt"], "shell": "cp FEATURE.md build/f.txt"}
    merged(repository, {"copy": stage})
    edited = append(repository, "build/f.txt", EDIT)
    if committed:
        repository.commit()
    assert repository.run("build", "a.yaml").code == 6
    green(repository.run("accept", "a.yaml", "copy"))
    settled(repository, model)
    repository.edit("FEATURE.md", spec("src/m.py: b"))
    assert repository.run("build", "a.yaml").code == 6
    assert repository.read("build/f.txt") == edited
    green(repository.run("build", "a.yaml", "--overwrite-edited"))
    assert repository.read("build/f.txt") == spec("src/m.py: b")


# ---- 12: clean, reset, crashes ---------------------------------------------------------------------


@pytest.mark.needs("upkeep")
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_clean_gives_back_the_file_after_a_kept_failure(repository, model, force):
    repository.edit("FEATURE.md", spec("src/m.py: bad"))
    repository.write(pipeline({"feature": {**FEATURE, "on_failure": "keep"}}))
    repository.commit()
    assert repository.run("build", "a.yaml").code == 1
    assert repository.read("src/m.py") == BASE + addition("bad")
    green(repository.run("clean", "a.yaml", *force))
    assert repository.read("src/m.py") == BASE


@pytest.mark.slow
def test_after_reset_of_outputs_a_kept_failure_does_not_become_the_original(repository, model):
    repository.edit("FEATURE.md", spec("src/m.py: bad"))
    repository.write(pipeline({"feature": {**FEATURE, "on_failure": "keep"}}))
    repository.commit()
    assert repository.run("build", "a.yaml").code == 1
    green(repository.run("reset", "--outputs", "a.yaml"))
    repository.edit("FEATURE.md", spec("src/m.py: b"))
    green(repository.run("build", "a.yaml"))
    assert model.last.base == {"src/m.py": BASE}
    assert repository.read("src/m.py") == BASE + B


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [(), ("--outputs",)])
def test_reset_keeps_the_original_and_rebuilds_without_a_question(repository, model, outputs):
    started(repository)
    green(repository.run("reset", *outputs, "a.yaml"))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == BASE + A
    assert len(model.calls) == 1
    settled(repository, model)
    green(repository.run("clean", "a.yaml"))
    assert repository.read("src/m.py") == BASE


@pytest.mark.slow
def test_after_a_damaged_journal_a_reset_does_not_ask_about_files_that_no_one_edited(repository, model):
    started(repository)
    lock = repository.read("a.lock")
    repository.edit("FEATURE.md", spec("src/m.py: b"))
    green(repository.run("build", "a.yaml"))
    repository.edit("a.lock", lock)  # the build was killed before it wrote its own
    journal = repository.journals()[-1]
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join([lines[0], "{damaged", *lines[2:-1]]) + "\n")
    shutil.rmtree(repository.root / ".orch23/snapshots", ignore_errors=True)
    stopped = repository.run("build", "a.yaml")
    assert stopped.code == 3, stopped.err
    green(repository.run("reset", "a.yaml"))
    built = repository.run("build", "a.yaml")
    assert built.code == 0, built.err
    assert "edited by hand" not in built.out + built.err
    assert repository.read("src/m.py") == BASE + B
    assert len(model.calls) == 2


class KilledError(Exception):
    """The process is gone at this place."""


@pytest.mark.stride(5)
@pytest.mark.slow
@pytest.mark.parametrize("at", range(7))
def test_reset_after_a_kill_during_the_promotion_of_a_group(repository, model, monkeypatch, at):
    started(repository, items_of(item("x"), item("y"), item("z"), promote="together"))
    repository.write(pipeline(items_of(item("x", "b"), item("y", "b"), item("z", "b"), promote="together")))
    seen = []

    def dying(inner):
        def guarded(*args, **kwargs):
            seen.append(inner)
            if len(seen) > at:
                raise KilledError
            return inner(*args, **kwargs)

        return guarded

    with monkeypatch.context() as patched:
        for name in ("_apply", "_prepare", "_name"):
            patched.setattr(Promoter, name, dying(getattr(Promoter, name)))
        patched.setattr("orch23.store.promotion.discard_temp", dying(discard_temp))
        with pytest.raises(KilledError):
            raw(repository, "build", "a.yaml")
    green(repository.run("reset", "a.yaml"))
    assert not leftovers(repository)
    built = repository.run("build", "a.yaml")
    assert built.code == 0, built.err
    assert "edited by hand" not in built.out + built.err
    for name in "xyz":
        assert repository.read(f"tests/test_{name}.py") == B
    assert not leftovers(repository)
    assert len(model.calls) == 6
    settled(repository, model)


def raw(repository: Repository, *argv: str) -> None:
    """Run a command of which the process dies: what it raises comes through, as nothing of it runs any more."""
    from orch23.cli import build_parts, build_run, project_loading  # noqa: PLC0415  only this story needs it

    settings = project_loading.ProjectSettings(
        root=repository.root, pipeline_path=repository.root / argv[1], environ={"PATH": os.defpath, "ORCH23_TRUST": "1"}
    )

    class Silent:
        def notice(self, event: object) -> None: ...

    build_run.run_build(project_loading.open_project(settings), build_parts.BuildRequest(), Silent())


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("outputs", [(), ("--outputs",)])
@pytest.mark.parametrize("existed", [False, True])
def test_an_accepted_edit_outlives_a_reset(repository, model, outputs, existed):
    path = "src/m.py" if existed else "src/new.py"
    repository.edit("FEATURE.md", spec(f"{path}: b"))
    started(repository, {"feature": llm(["FEATURE.md"], [path])})
    edited = append(repository, path, EDIT)
    green(repository.run("accept", "a.yaml", "feature"))
    green(repository.run("reset", *outputs, "a.yaml"))
    assert repository.read(path) == edited
    green(repository.run("build", "a.yaml"))
    assert repository.read(path).startswith(edited)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [(), ("--outputs",)])
def test_an_accepted_edit_in_a_folder_outlives_a_reset(repository, model, outputs):
    repository.write({"SITE.md": spec("site/a.py: a", "site/b.py: a")})
    started(repository, {"site": llm(["SITE.md"], ["site/"])})
    edited = append(repository, "site/a.py", EDIT)
    green(repository.run("accept", "a.yaml", "site"))
    green(repository.run("reset", *outputs, "a.yaml"))
    repository.run("build", "a.yaml")
    assert repository.read("site/a.py").startswith(edited)


@pytest.mark.slow
def test_accepting_after_a_reset_takes_the_other_files_of_the_folder_from_git(repository, model):
    repository.write({"SITE.md": spec("site/a.py: a", "site/b.py: a")})
    started(repository, {"site": llm(["SITE.md"], ["site/"])})
    append(repository, "site/a.py", EDIT)
    green(repository.run("accept", "a.yaml", "site"))
    repository.commit()
    green(repository.run("reset", "--outputs", "a.yaml"))
    green(repository.run("accept", "a.yaml", "site"))
    green(repository.run("build", "a.yaml"))
    assert (repository.read("site/a.py"), repository.read("site/b.py")) == (A + EDIT, A)
    settled(repository, model)


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("way", [("clean",), ("reset", "--outputs"), ()])
@pytest.mark.parametrize("decided", ["accepted", "committed"])
def test_a_missing_file_comes_back_with_the_edit_that_it_was_made_from(repository, model, way, decided):
    repository.write({"GEN.md": spec("src/gen.py: a")})
    started(repository, {"gen": llm(["GEN.md"], ["src/gen.py"])})
    edited = append(repository, "src/gen.py", EDIT)
    if decided == "accepted":
        green(repository.run("accept", "a.yaml", "gen"))
    else:
        repository.commit()
    repository.edit("GEN.md", spec("src/gen.py: b"))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/gen.py") == edited + B
    if way:
        green(repository.run(*way, "a.yaml"))
        assert repository.read("src/gen.py") == edited
    else:
        repository.delete("src/gen.py")
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/gen.py") == edited + B
    assert len(model.calls) == 2


@pytest.mark.slow
@pytest.mark.parametrize("way", [("clean",), ("reset", "--outputs")])
def test_clean_gives_back_what_a_new_stage_started_from_and_not_what_was_there_before_its_former_stage(
    repository, model, way
):
    started(repository)
    repository.delete("src/m.py")
    repository.write({"src/m.py": "# mine\n", "FEATURE.md": spec("src/m.py: b"), **pipeline({"other": FEATURE})})
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == "# mine\n" + B
    green(repository.run(*way, "a.yaml"))
    assert repository.read("src/m.py") == "# mine\n"
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == "# mine\n" + B
    assert len(model.calls) == 2


@pytest.mark.slow
@pytest.mark.parametrize("way", [("clean",), ("reset", "--outputs")])
def test_clean_gives_back_the_newest_file_that_an_item_of_a_chain_started_from(repository, model, way):
    def items(*texts: str) -> dict[str, dict]:
        return items_of(
            *(item(name, text, "src/m.py") for name, text in zip("xyz", texts, strict=True)), order="sequential"
        )

    merged(repository, items("a", "b", "c"))
    edited = ""
    for number, texts in enumerate((("b", "b", "c"), ("b", "c", "c"))):
        edited = append(repository, "src/m.py", f"# by a colleague {number}\n")
        repository.commit()
        repository.write(pipeline(items(*texts)))
        green(repository.run("build", "a.yaml"))
        assert repository.read("src/m.py").startswith(edited)
    made, called = repository.read("src/m.py"), len(model.calls)
    green(repository.run(*way, "a.yaml"))
    assert repository.read("src/m.py") == edited
    green(repository.run("build", "a.yaml"))
    assert (repository.read("src/m.py"), len(model.calls)) == (made, called)


# ---- 13: a stage that read a released file ---------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("committed", [False, True])
def test_a_stage_builds_from_a_released_file(repository, model, committed):
    reader = {"inputs": ["src/gen.py"], "outputs": ["build/b.txt"], "shell": "cp src/gen.py build/b.txt"}
    repository.write({"GEN.md": spec("src/gen.py: a")})
    started(repository, {"gen": llm(["GEN.md"], ["src/gen.py"]), "b": reader})
    if committed:
        repository.commit()
    repository.write(pipeline({"b": {**reader, "shell": "cat src/gen.py src/gen.py > build/b.txt"}}))
    plan = repository.run("plan", "a.yaml")
    assert plan.code == 0, plan.err
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/gen.py") == A
    assert repository.read("build/b.txt") == A + A
    settled(repository, model)
    assert repository.read("src/gen.py") == A


@pytest.mark.slow
def test_a_released_file_is_matched_by_patterns(repository, model):
    reader = {"inputs": ["src/*.py"], "outputs": ["build/b.txt"], "shell": "cat src/*.py > build/b.txt"}
    repository.write({"GEN.md": spec("src/gen.py: a")})
    merged(repository, {"gen": llm(["GEN.md"], ["src/gen.py"]), "b": reader})
    assert repository.read("build/b.txt") == A + BASE
    repository.write(pipeline({"b": reader}))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/gen.py") == A
    assert repository.read("build/b.txt") == A + BASE
    append(repository, "src/gen.py", EDIT)
    green(repository.run("build", "a.yaml"))
    assert repository.read("build/b.txt") == A + EDIT + BASE


# ---- 14: reset and the lock file; a file that was there before ---------------------------------------


@pytest.mark.slow
def test_reset_drops_the_results_of_the_lock_file(repository, model):
    merged(repository)
    green(repository.run("reset", "a.yaml"))
    lock = json.loads(repository.read("a.lock"))
    assert "feature" not in lock["records"]
    assert repository.plan("a.yaml") != {"feature": "fresh"}
    green(repository.run("build", "a.yaml"))
    assert len(model.calls) == 1, "the response is recorded"
    assert repository.read("src/m.py") == BASE + A


@pytest.mark.slow
def test_a_file_that_was_there_before_a_shell_stage_is_not_called_an_edit(repository, model):
    stage = {"inputs": ["FEATURE.md"], "outputs": ["build/f.txt"], "shell": "cp FEATURE.md build/f.txt"}
    repository.write({"build/f.txt": "mine\n", **pipeline({"copy": stage})})
    repository.commit()
    stopped = repository.run("build", "a.yaml")
    assert stopped.code == 6
    assert repository.read("build/f.txt") == "mine\n"
    assert "build/f.txt" in stopped.out + stopped.err
    assert "edited by hand" not in stopped.out + stopped.err
    assert ends(repository) == {"copy": "edited"}
    green(repository.run("build", "a.yaml", "--overwrite-edited"))
    assert repository.read("build/f.txt") == spec("src/m.py: a")


# ---- chains ----------------------------------------------------------------------------------------


def chain_of(*items: tuple[str, str]) -> dict[str, dict]:
    """Return a sequential foreach whose items edit one file."""
    return items_of(*(item(name, text, "src/m.py") for name, text in items), order="sequential")


@pytest.mark.slow
@pytest.mark.parametrize("committed", [False, True])
def test_an_item_starts_from_the_item_before_it_although_the_file_is_committed(repository, model, committed):
    repository.write(pipeline(chain_of(("x", "a"), ("y", "bad"))))
    if committed:
        repository.commit()
    for _ in range(2):
        assert repository.run("build", "a.yaml").code == 1
        assert model.last.base == {"src/m.py": BASE + A}
        assert repository.read("src/m.py") == BASE
    assert len(model.calls) == 2
    repository.write(pipeline(chain_of(("x", "a"), ("y", "b"))))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == BASE + A + B
    settled(repository, model)


@pytest.mark.slow
def test_an_item_does_not_start_from_what_the_item_before_it_started_from(repository, model):
    merged(repository, chain_of(("x", "a"), ("y", "b")))
    repository.write(pipeline(chain_of(("y", "b"), ("z", "bad"))))
    repository.commit()
    for _ in range(2):
        assert repository.run("build", "a.yaml").code == 1
        assert model.last.base == {"src/m.py": BASE + A + B + B}
    repository.write(pipeline(chain_of(("y", "b"), ("z", "c"))))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == BASE + A + B + B + C


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize("items", [[("z", "c"), ("x", "a")], [("y", "b"), ("z", "c")], [("z", "c")]])
def test_the_plan_of_a_committed_chain_with_other_items_is_what_the_build_does(repository, model, items):
    merged(repository, chain_of(("x", "a"), ("y", "b")))
    repository.write(pipeline(chain_of(*items)))
    planned = repository.plan("a.yaml")
    green(repository.run("build", "a.yaml"))
    decided = {event["role"]: event["data"]["decision"] for event in repository.events_of("stage_decided")}
    wrong = {name: (planned[name], did) for name, did in decided.items() if planned[name] not in (did, "maybe")}
    assert not wrong
    assert repository.read("src/m.py").startswith(BASE + A + B)
    settled(repository, model)


@pytest.mark.slow
@pytest.mark.parametrize("committed", [False, True])
def test_an_accepted_edit_stays_in_a_chain_whose_items_change_one_after_the_other(repository, model, committed):
    started(repository, chain_of(("x", "a"), ("y", "a")))
    append(repository, "src/m.py", EDIT)
    green(repository.run("accept", "a.yaml", "tests"))
    if committed:
        repository.commit()
    for texts in (("a", "b"), ("c", "b"), ("c", "a"), ("b", "b")):
        repository.write(pipeline(chain_of(("x", texts[0]), ("y", texts[1]))))
        green(repository.run("build", "a.yaml"))
        assert EDIT in repository.read("src/m.py"), texts
    settled(repository, model)


@pytest.mark.slow
def test_a_chain_whose_last_item_ends_keeps_the_committed_file(repository, model):
    merged(repository, chain_of(("x", "a"), ("y", "b")))
    repository.write(pipeline(chain_of(("x", "a"))))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == BASE + A + B
    settled(repository, model)
    repository.write(pipeline(chain_of(("x", "a"), ("z", "c"))))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == BASE + A + B + C


@pytest.mark.slow
@pytest.mark.parametrize("order", [("z", "x", "y"), ("y", "x")])
def test_a_reordered_chain_with_a_committed_edit_comes_to_rest(repository, model, order):
    merged(repository, chain_of(("x", "a"), ("y", "b")))
    append(repository, "src/m.py", EDIT)
    repository.write(pipeline(chain_of(*((name, "a") for name in order))))
    repository.commit()
    green(repository.run("build", "a.yaml"))
    assert EDIT in repository.read("src/m.py")
    settled(repository, model)


@pytest.mark.slow
def test_an_edit_stays_when_the_item_that_started_from_it_ends(repository, model):
    started(repository, chain_of(("x", "a"), ("y", "a")))
    append(repository, "src/m.py", EDIT)
    green(repository.run("release", "a.yaml", "tests"))
    repository.write(pipeline(chain_of(("x", "b"), ("y", "b"))))
    green(repository.run("build", "a.yaml"))
    built = repository.read("src/m.py")
    assert built == BASE + A + A + EDIT + B + B
    repository.write(pipeline(chain_of(("y", "c"), ("z", "c"))))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == built + C + C
    settled(repository, model)


@pytest.mark.slow
def test_an_edit_stays_when_earlier_items_come_back_before_the_item_that_started_from_it(repository, model):
    first = [("x", "a"), ("y", "a")]
    started(repository, chain_of(*first))
    built = append(repository, "src/m.py", EDIT)
    repository.write(pipeline(chain_of(("z", "a"))))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == built + A
    repository.write(pipeline(chain_of(*first, ("z", "a"))))
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == built + A + A
    settled(repository, model)


@pytest.mark.slow
def test_a_lost_record_of_an_earlier_item_makes_no_version_a_users(repository, model):
    started(repository, chain_of(("x", "a"), ("y", "a")))
    lock = read_lock(repository.root / "a.lock")
    lost = lock.records["tests@x"]
    write_lock(repository.root, "a.lock", lock.where(lambda name, _: name != "tests@x"), "a")
    (repository.root / ".orch23/records" / lost.key[:2] / lost.key).unlink()
    built, called = repository.read("src/m.py"), len(model.calls)
    green(repository.run("build", "a.yaml"))
    assert repository.read("src/m.py") == built
    assert len(model.calls) == called, "the recorded answers are laid on the original again"


# ---- kept failures ---------------------------------------------------------------------------------


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("existed", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_a_kept_failure_keeps_its_base(repository, model, existed, alone):
    path = "src/m.py" if existed else "src/new.py"
    repository.edit("FEATURE.md", spec(f"{path}: bad"))
    other = {"inputs": ["FEATURE.md"], "outputs": ["build/f.txt"], "shell": "cp FEATURE.md build/f.txt"}
    stages = {} if alone else {"a": other}
    repository.write(pipeline({**stages, "feature": llm(["FEATURE.md"], [path], on_failure="keep")}))
    repository.commit()
    base = {"src/m.py": BASE} if existed else {}
    for _ in range(2):
        assert repository.run("build", "a.yaml").code == 1
        assert repository.read(path) == base.get(path, "") + addition("bad")
    assert len(model.calls) == 1
    repository.edit("FEATURE.md", spec(f"{path}: b"))
    green(repository.run("build", "a.yaml"))
    assert model.last.base == base
    assert repository.read(path) == base.get(path, "") + B


@pytest.mark.slow
def test_a_kept_failure_in_a_folder_keeps_its_base(repository, model):
    other = {"inputs": ["FEATURE.md"], "outputs": ["build/f.txt"], "shell": "cp FEATURE.md build/f.txt"}
    repository.write({"SITE.md": spec("site/a.py: bad", "site/b.py: a")})
    repository.write(pipeline({"a": other, "site": llm(["SITE.md"], ["site/"], on_failure="keep")}))
    repository.commit()
    for _ in range(2):
        assert repository.run("build", "a.yaml").code == 1
        assert repository.read("site/a.py") == addition("bad")
    assert len(model.calls) == 1
    repository.edit("SITE.md", spec("site/a.py: b", "site/b.py: a"))
    green(repository.run("build", "a.yaml"))
    assert model.last.base == {}
    assert repository.read("site/a.py") == B


@pytest.mark.slow
def test_an_accepted_result_of_an_earlier_item_stays_when_that_item_changes(repository, model):
    """Case: another item was built on the accepted result, so that the bytes on disk are a run's."""

    def declare(*pairs: tuple[str, str]) -> None:
        items = [item(key, text, "src/m.py") for key, text in pairs]
        repository.write(pipeline({"work": items_of(*items, order="sequential")["tests"]}))

    declare(("x", "p"), ("y", "p"))
    green(repository.run("build", "a.yaml"))
    append(repository, "src/m.py", "# mine\n")
    declare(("y", "p"), ("z", "p"))
    green(repository.run("accept", "a.yaml", "work"))
    green(repository.run("build", "a.yaml"))
    declare(("y", "r"), ("z", "p"))
    green(repository.run("build", "a.yaml"))
    assert "# mine\n" in repository.read("src/m.py")


@pytest.mark.slow
def test_an_item_that_is_restored_without_the_item_before_it_is_not_asked_again(
    tmp_path: Path, model: EchoModel
) -> None:
    """It had started from released bytes: its record must say so on the version that they replace now."""

    def items(**texts: str) -> dict[str, str]:
        them = [{"id": name, "files": ["src/app.py"], "text": text} for name, text in texts.items()]
        how = {"in": them, "key": "id", "as": "one", "order": "sequential"}
        return pipeline({"chain": llm([], ["src/app.py"], foreach=how), "zero": ZERO})

    project = Repository(tmp_path / "p")
    project.write({"src/app.py": BASE, **items(x="a", y="a")})
    green(project.run("build", "a.yaml"))
    green(project.run("release", "a.yaml", "chain"))
    project.write(items(x="a", y="b", z="bad"))
    assert project.run("build", "a.yaml", "-k").code == 1
    assert project.read("src/app.py") == BASE + A + A
    project.write(items(y="b"))
    calls = len(model.calls)
    green(project.run("build", "a.yaml"))
    assert project.read("src/app.py") == BASE + A + A + B
    settled(project, model)
    assert len(model.calls) == calls
    project.delete("a.lock")
    green(project.run("build", "a.yaml"))
    settled(project, model)
    assert len(model.calls) == calls


@pytest.mark.slow
@pytest.mark.parametrize("is_built", [True, False], ids=["built", "dropped"])
def test_a_file_that_another_pipeline_made_from_an_edit_is_not_removed(
    tmp_path: Path, model: EchoModel, *, is_built: bool
) -> None:
    """Without git: both pipelines had a stage of that name, and neither declares it any more."""
    project, gen = Repository(tmp_path / "p"), llm(["FEATURE.md"], ["src/gen.py"])
    project.write({"FEATURE.md": spec("src/gen.py: a"), **pipeline({"gen": gen})})
    green(project.run("build", "a.yaml"))
    append(project, "src/gen.py", EDIT)
    project.write({"FEATURE.md": spec("src/gen.py: b"), **pipeline({"zero": ZERO}), **pipeline({"gen": gen}, name="b")})
    green(project.run("build", "b.yaml"))
    whole = project.read("src/gen.py")
    assert EDIT in whole
    project.write(pipeline({"other": {**ZERO, "outputs": ["other.txt"], "shell": "echo 0 > other.txt"}}, name="b"))
    if is_built:
        green(project.run("build", "b.yaml"))
    assert project.run("plan", "--json", "a.yaml").json()["dead_files"] == []
    green(project.run("build", "a.yaml"))
    assert project.read("src/gen.py") == whole
