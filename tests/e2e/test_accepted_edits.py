"""After `accept`, commands name the edit; a refused `accept` and a restored stage say why, and what to do."""

import json
from typing import Any

import pytest

from orch23.model.llm import Request, Response
from tests.project import Project
from tests.repository import EchoModel, addition, llm, pipeline, spec

WRITE: dict[str, Any] = {
    "inputs": ["a.txt"],
    "outputs": ["w.txt"],
    "shell": "cp a.txt w.txt",
    "verify": [{"shell": "grep -q word w.txt"}],
}
PIPELINE = json.dumps({"version": 1, "name": "p", "stages": {"write": WRITE}})


@pytest.fixture
def built(project: Project) -> Project:
    project.write({"pipeline.yaml": PIPELINE, "a.txt": "a word\n"})
    assert project.build().code == 0
    return project


def newest_run(project: Project) -> str:
    return project.journals()[-1].stem


@pytest.mark.slow
def test_explain_and_show_name_an_accepted_edit_and_its_run(built: Project) -> None:
    built.edit("w.txt", "my word\n")
    accepted = built.run("accept", "write")
    assert accepted.code == 0
    run = newest_run(built)
    said = f"w.txt contains an accepted user edit (run {run})"
    assert said in built.run("explain", "write").out
    explained = built.run("explain", "write", "--json").json()
    assert (explained["accepted"], explained["result_run"]) == (["w.txt"], run)
    assert f"{said}\n`orch23 show --diff write` shows the edit\n" in built.run("show", "write").out
    assert built.run("show", "write", "--json").json()["accepted"] == ["w.txt"]
    # The build after it runs nothing, and the result is still of the run that recorded it.
    assert built.build().code == 0
    assert said in built.run("explain", "write").out


def test_without_an_accepted_edit_nothing_is_said_about_one(built: Project) -> None:
    assert "accepted" not in built.run("explain", "write").out + built.run("show", "write").out


@pytest.mark.slow
def test_a_refused_edit_shows_no_time_and_what_to_do_next(built: Project) -> None:
    built.edit("w.txt", "nothing\n")
    refused = built.run("accept", "write")
    assert refused.code != 0
    row = next(line for line in refused.err.splitlines() if " write " in line)
    assert row.split()[1:5] == ["write", "failed", "the", "edit"], "no time, and no step: none ran"
    accept, discard = "`orch23 accept write`", "`orch23 build --overwrite-edited`"
    assert f"  next: correct the file, then {accept}; {discard} discards the edit\n" in refused.err


@pytest.mark.slow
def test_an_accepted_edit_shows_no_time(built: Project) -> None:
    built.edit("w.txt", "my word\n")
    row = next(line for line in built.run("accept", "write").err.splitlines() if " write " in line)
    assert row.split()[1:] == ["write", "verified", "w.txt"]


@pytest.mark.slow
def test_a_restored_stage_says_what_changed_and_whose_result_it_is(built: Project) -> None:
    first = newest_run(built)
    built.edit("a.txt", "another word\n")
    assert built.build().code == 0
    built.edit("a.txt", "a word\n")
    reason = "a.txt changed back"
    assert reason in built.run("plan").out
    explained = built.run("explain", "write").out
    assert f"the files of the result of run {first} are written back; nothing runs" in explained
    assert "a.txt changed, because you edited it" in explained
    assert "~ input:a.txt" in explained, "the change since the last result is shown"
    row = next(line for line in built.build().err.splitlines() if " write " in line)
    assert row.split(maxsplit=3)[1:] == ["write", "restored", f"w.txt   {reason}"]


def test_a_deleted_output_is_restored_as_missing(built: Project) -> None:
    built.delete("w.txt")
    row = next(line for line in built.build().err.splitlines() if " write " in line)
    assert row.split(maxsplit=3)[1:] == ["write", "restored", "w.txt   was missing"]


TWO = {"a": {"shell": "echo a > a.txt", "outputs": ["a.txt"]}, "b": {"shell": "echo b > b.txt", "outputs": ["b.txt"]}}


@pytest.fixture
def edited(project: Project) -> Project:
    stages = {**TWO, "c": {"shell": "cat a.txt > c.txt", "inputs": ["a.txt"], "outputs": ["c.txt"]}}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages})})
    assert project.build().code == 0
    for path in ("a.txt", "b.txt", "c.txt"):
        project.edit(path, f"my {path}\n")
    return project


@pytest.mark.slow
def test_a_forced_run_over_a_changed_file_does_not_say_that_nothing_changed(edited: Project) -> None:
    (edited.root / "b.txt").unlink()
    assert "same bytes" not in edited.run("build", "-f", "b", "--only", "b").err
    assert "same bytes" in edited.run("build", "-f", "b", "--only", "b").err


@pytest.mark.slow
def test_several_stages_are_accepted_at_once(edited: Project) -> None:
    assert edited.run("accept", "a", "b").code == 0
    assert edited.build().code == 6
    assert edited.run("accept", "c").code == 0
    assert edited.build().code == 0
    assert [edited.read(path) for path in ("a.txt", "b.txt", "c.txt")] == ["my a.txt\n", "my b.txt\n", "my c.txt\n"]


@pytest.mark.slow
def test_a_stage_and_one_that_reads_it_are_accepted_at_once(edited: Project) -> None:
    assert edited.run("accept", "c", "b", "a").code == 0
    assert edited.build().code == 0
    assert [edited.read(path) for path in ("a.txt", "b.txt", "c.txt")] == ["my a.txt\n", "my b.txt\n", "my c.txt\n"]


@pytest.mark.slow
def test_all_stages_that_cannot_be_accepted_are_named_and_none_is_accepted(edited: Project) -> None:
    edited.edit("b.txt", "b\n")
    refused = edited.run("accept", "a", "b", "zero")
    assert refused.code == 66
    assert "no stage is named `zero`" in refused.err
    refused = edited.run("accept", "a", "b")
    assert (refused.code, "no output of `b` was edited: it is fresh" in refused.err) == (64, True)
    assert edited.build().code == 6


NUMBERS = "mkdir -p out; for i in 1 2 3; do echo $i > out/$i.txt; done"
FROM_NOTHING: dict[str, dict[str, Any]] = {
    "folder": {"outputs": ["out/"], "shell": NUMBERS},
    "item": {"foreach": {"in": ["out"]}, "outputs": ["${{ item }}/"], "shell": NUMBERS},
    "slow": {"outputs": ["out/"], "shell": NUMBERS, "verify": [{"shell": "true"}]},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FROM_NOTHING)
def test_a_stage_that_ends_as_edited_writes_none_of_its_files(project: Project, kind: str) -> None:
    use = {"inputs": ["out/2.txt"], "outputs": ["u.txt"], "shell": "cp out/2.txt u.txt"}
    stages = {"make": FROM_NOTHING[kind], "use": use}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages}), "out/1.txt": "mine\n"})
    for _ in range(2):
        assert project.build("-k").code == 6
        assert (project.files("out"), project.exists("u.txt")) == ({"out/1.txt": b"mine\n"}, False)
    assert project.run("accept", "make@out" if kind == "item" else "make").code == 0
    assert project.build().code == 0
    assert (project.read("out/1.txt"), project.read("u.txt")) == ("mine\n", "2\n")


@pytest.mark.slow
def test_a_file_that_is_saved_while_its_stage_runs_keeps_back_the_others(project: Project) -> None:
    class Saving(EchoModel):
        def complete(self, request: Request) -> Response:
            project.write({"out/1.txt": "mine\n"})
            return super().complete(request)

    stages = {"make": llm(["S.md"], ["out/"])}
    project.write({**pipeline(stages), "S.md": spec("out/1.txt: a", "out/2.txt: b")})
    with Saving().answering():
        assert project.build("a.yaml").code == 6
    assert project.files("out") == {"out/1.txt": b"mine\n"}
    with EchoModel().answering() as model:  # the next run starts from the user's file
        assert project.build("a.yaml").code == 0
        assert model.last.base == {"out/1.txt": "mine\n"}
    assert (project.read("out/1.txt"), project.read("out/2.txt")) == ("mine\n" + addition("a"), addition("b"))


# ---- a command that makes the same again -----------------------------------------------------------


def counting(project: Project, **more: Any) -> Project:
    count = {"inputs": ["in.txt"], "outputs": ["n.txt"], "shell": "printf 'n %s\\n' $(wc -l < in.txt) > n.txt", **more}
    use = {"inputs": ["n.txt"], "outputs": ["use.txt"], "shell": "cp n.txt use.txt"}
    stages = {"count": count, "use": use}
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": stages}), "in.txt": "a\nb\n"})
    assert project.build().code == 0
    project.edit("n.txt", "n = 2\n")
    assert project.build().code == 6
    assert project.run("accept", "count").code == 0
    assert project.build().code == 0
    assert "up to date" in project.build().err
    return project


def test_an_accepted_output_of_a_command_stays_until_the_command_makes_another_one(project: Project) -> None:
    counting(project)
    for last in ("c", "d"):  # again after another change: the record still says what the command made
        project.edit("in.txt", f"a\n{last}\n")
        assert "may end as edited" in project.run("plan").out
        assert project.build().code == 0
        assert (project.read("n.txt"), project.read("use.txt")) == ("n = 2\n", "n = 2\n")
        assert "up to date" in project.build().err
    project.edit("in.txt", "a\nb\nc\n")
    asked = project.build()
    assert (asked.code, "accepted by a user" in asked.err, project.read("n.txt")) == (6, True, "n = 2\n")
    assert project.build("--overwrite-edited").code == 0
    assert project.read("use.txt") == "n 3\n"


def test_what_the_command_made_is_known_after_another_verification(project: Project) -> None:
    counting(project)
    document = json.loads(project.read("pipeline.yaml"))
    document["stages"]["count"]["verify"] = [{"shell": "test -s n.txt"}]
    project.edit("pipeline.yaml", json.dumps(document))
    assert project.plan()["count"] == "verify"
    assert project.build().code == 0
    project.edit("in.txt", "a\nc\n")
    assert project.build().code == 0
    assert project.read("n.txt") == "n = 2\n"


def test_an_accepted_output_that_does_not_pass_for_new_inputs_is_a_question(project: Project) -> None:
    counting(project, verify=[{"shell": "! grep -q z in.txt || grep -q 'n 2' n.txt"}])
    project.edit("in.txt", "a\nz\n")
    assert project.build().code == 6
    assert project.read("n.txt") == "n = 2\n"


def test_an_accepted_output_is_overwritten_on_request(project: Project) -> None:
    counting(project)
    project.edit("in.txt", "a\nc\n")
    assert project.build("--overwrite-edited").code == 0
    assert project.read("n.txt") == "n 2\n"
