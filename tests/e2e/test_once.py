"""Stages with `once`: done when their result is committed. Their files are the user's from then on."""

import json
from pathlib import Path
from typing import Any

import pytest

from orch23.execute.git_repository import GitRepository
from orch23.store.lock_file import read_lock
from tests.moments import age, noticed, run
from tests.project import Outcome, Project, scripted
from tests.repository import EchoModel, Repository, addition, pipeline

A = "def a():\n    return 1\n"
TASK = "Return two.\n"


def edit(old: int, new: int, path: str = "src/a.py") -> str:
    return f"{path}\n<<<<<<< SEARCH\n    return {old}\n=======\n    return {new}\n>>>>>>> REPLACE\n"


def story(project: Project, *answers: str, **stage: Any) -> None:
    """Write a stage `mod` that changes `src/a.py`, and one after it that reads the file."""
    mod = {"inputs": ["task.md", "src/a.py"], "edits": ["src/**"], "once": True, "llm": {}, **stage}
    read = {"inputs": ["src/a.py"], "outputs": ["seen.txt"], "shell": "cp src/a.py seen.txt"}
    llm = {"transcripts": "t"} | mod["llm"]
    project.write(scripted({"mod": {**mod, "llm": llm}, "read": read}, {"mod": answers}))
    project.write({"task.md": TASK, "src/a.py": A, "src/b.py": "b = 1\n"})


def green(outcome: Outcome) -> Outcome:
    assert outcome.code == 0, outcome.err
    return outcome


def lock(project: Project) -> bytes:
    return (project.root / "pipeline.lock").read_bytes()


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    """Give a project in git."""
    found = Repository(tmp_path / "project")
    found.init()
    return found


@pytest.fixture
def done(repo: Repository) -> Repository:
    """Give a project whose stage is built and committed."""
    story(repo, edit(1, 2))
    repo.commit()
    green(repo.build())
    repo.commit()
    return repo


def test_a_stage_with_outputs_is_done_too(repo: Repository) -> None:
    def write(prompt: str, number: int) -> None:
        stage = {"inputs": ["task.md"], "outputs": ["o.py"], "once": True, "llm": {"returns": "code"}}
        repo.write(scripted({"mod": stage}, {"mod": [f"```python\nx = {number}\n```\n"]}))
        repo.write({"pipeline.md.j2": prompt + " {{ inputs | blocks }}", "task.md": TASK})

    write("Write it.", 1)
    green(repo.build())
    repo.commit()
    repo.edit("o.py", "mine = 1\n")
    assert repo.plan() == {"mod": "done"}
    green(repo.build())
    assert repo.read("o.py") == "mine = 1\n"
    write("Write it again.", 2)
    green(repo.build())
    assert repo.read("o.py") == "x = 2\n"
    assert any("mine = 1" in one.read_text() for one in (repo.root / "logs").rglob("prompt.txt"))


def test_before_the_commit_the_files_are_those_of_the_stage(repo: Repository) -> None:
    story(repo, edit(1, 2))
    repo.commit()
    green(repo.build())
    assert repo.plan()["mod"] == "fresh"
    repo.edit("src/a.py", "mine\n")
    assert repo.build().code == 6


def test_a_committed_result_is_done_and_its_files_are_the_users(done: Repository) -> None:
    before = read_lock(done.root / "pipeline.lock").records["mod"]
    assert done.plan() == {"mod": "done", "read": "fresh"}
    done.edit("src/a.py", "mine = 1\n")
    done.write({"src/new.py": "n = 1\n"})
    assert done.plan() == {"mod": "done", "read": "run"}
    outcome = green(done.build())
    assert "1 done" in outcome.err
    assert done.ran() == ["read"]
    assert done.read("src/a.py") == "mine = 1\n"
    assert done.read("seen.txt") == "mine = 1\n", "a stage after it sees the file on disk"
    assert read_lock(done.root / "pipeline.lock").records["mod"] == before
    done.delete("src/b.py")
    done.write({"src/a.py": A})
    green(done.build())
    assert (done.plan()["mod"], done.read("src/a.py")) == ("done", A)
    assert not done.exists("src/b.py")


def test_the_lock_file_stays_as_it_was(done: Repository) -> None:
    before = lock(done)
    green(done.build())
    done.write({"src/b.py": "b = 2\n"})
    green(done.build())
    assert lock(done) == before


def test_plan_status_and_explain_say_done(done: Repository) -> None:
    assert "1 done" in green(done.run("plan")).out
    assert "1 done" in green(done.run("status")).out
    explained = green(done.run("explain", "mod")).out
    assert "mod: done" in explained
    assert "its result is committed, and its files are yours" in explained
    assert "match the record" not in explained


@pytest.mark.slow
def test_git_is_asked_only_once_head_has_moved(done: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    read = GitRepository.at_head

    def at_head(git: GitRepository, path: str) -> bytes | None:
        asked.append(path)
        return read(git, path)

    monkeypatch.setattr(GitRepository, "at_head", at_head)
    monkeypatch.chdir(done.root)

    def ran(command: str = "build") -> Outcome:
        age(str(done.root))
        with noticed() as moments:
            return run(moments, command)

    green(ran())
    assert any((done.root / ".orch23/snapshots").iterdir())
    asked.clear()
    assert "up to date" in green(ran()).err
    assert "1 done" in green(ran("plan")).out
    assert not asked
    done.git("commit", "-q", "--allow-empty", "-m", "another")
    assert "up to date" in green(ran()).err
    assert asked, "it may have another lock file"
    green(ran())
    done.git("reset", "-q", "--soft", "HEAD~2")
    assert "done" not in ran("plan").out
    done.edit("src/a.py", "mine = 1\n")
    assert ran().code == 6


def test_in_a_clone_it_is_done_and_nothing_is_verified(done: Repository, tmp_path: Path) -> None:
    done.edit("src/a.py", "broken(\n")
    done.commit()
    clone = done.clone(tmp_path / "clone")
    green(clone.build(env={"ORCH23_TRUST": ""}))
    assert "mod" not in clone.ran()
    assert clone.plan()["mod"] == "done"
    assert clone.read("src/a.py") == "broken(\n"


def again(project: Project, *answers: str) -> None:
    project.write({"pipeline.answers.yaml": json.dumps({"mod": list(answers)})})


def test_a_new_task_runs_from_the_files_as_they_are_and_clean_gives_these_back(done: Repository) -> None:
    mine = A.replace("1", "7") + "# mine\n"
    done.edit("src/a.py", mine)
    done.edit("task.md", "Return eight.\n")
    again(done, edit(7, 8))
    plan = green(done.run("plan")).out
    assert "task.md" in plan
    green(done.build())
    assert done.read("src/a.py") == mine.replace("7", "8")
    assert done.plan() == {"mod": "fresh", "read": "fresh"}
    assert done.run("clean", "mod").code == 0
    assert done.read("src/a.py") == mine
    green(done.build())
    assert done.read("src/a.py") == mine.replace("7", "8")
    done.commit()
    assert done.plan()["mod"] == "done"


def test_a_second_task_with_an_equal_result_is_not_run_again_before_its_commit(repo: Repository) -> None:
    story(repo, "No changes needed.")
    repo.commit()
    green(repo.build())
    repo.commit()
    assert repo.plan()["mod"] == "done"
    repo.edit("task.md", "Return one.\n")
    again(repo, "No changes needed.")
    green(repo.build())
    assert repo.plan()["mod"] == "fresh"
    repo.commit()
    assert repo.plan()["mod"] == "done"


def test_the_template_and_the_vars_that_it_uses_are_task_text_and_other_vars_are_not(repo: Repository) -> None:
    story(repo, edit(1, 2))
    document = json.loads(repo.read("pipeline.yaml"))

    def write(prompt: str, **variables: str) -> None:
        document["vars"] = variables
        repo.write({"pipeline.yaml": json.dumps(document), "pipeline.md.j2": prompt})

    write("{{ vars.what }} {{ inputs | blocks }}", what="change", other="a")
    repo.commit()
    green(repo.build())
    repo.commit()
    write("{{ vars.what }} {{ inputs | blocks }}", what="change", other="b")
    assert repo.plan()["mod"] == "done"
    write("{{ vars.what }} {{ inputs | blocks }}", what="fix", other="b")
    assert repo.plan()["mod"] == "run"
    write("Now {{ vars.what }} {{ inputs | blocks }}", what="change", other="b")
    assert repo.plan()["mod"] == "run"
    assert "prompt" in repo.run("plan").out


def test_a_template_that_needs_a_file_by_its_position_counts_as_it_is_written(repo: Repository) -> None:
    story(repo, edit(1, 2))
    repo.write({"pipeline.md.j2": "{{ inputs[1].text }} {{ inputs[0].text }}"})
    repo.commit()
    green(repo.build())
    repo.commit()
    repo.edit("src/a.py", "mine = 1\n")
    assert repo.plan()["mod"] == "done"
    repo.write({"pipeline.md.j2": "Now {{ inputs[1].text }} {{ inputs[0].text }}"})
    assert repo.plan()["mod"] == "run"


def test_it_is_not_verified_again(repo: Repository) -> None:
    story(repo, edit(1, 2), verify=[{"shell": "grep -q 'return 2' src/a.py"}])
    repo.commit()
    green(repo.build())
    repo.commit()
    repo.edit("src/a.py", A)
    repo.replace("pipeline.yaml", "return 2", "return 5")
    assert repo.plan()["mod"] == "done"
    green(repo.build())
    assert repo.ran() == ["read"]


def test_without_git_it_is_done_when_it_was_promoted(project: Project) -> None:
    story(project, edit(1, 2))
    green(project.build())
    assert project.plan() == {"mod": "done", "read": "fresh"}
    assert "1 done" in green(project.build()).err
    project.edit("src/a.py", "mine = 1\n")
    green(project.build())
    assert project.read("src/a.py") == project.read("seen.txt") == "mine = 1\n"


def test_the_files_of_a_stage_that_is_gone_stay(done: Repository) -> None:
    changed = done.read("src/a.py")
    document = json.loads(done.read("pipeline.yaml"))
    del document["stages"]["mod"]
    done.write({"pipeline.yaml": json.dumps(document)})
    outcome = green(done.build())
    assert done.read("src/a.py") == changed
    assert "src/a.py" not in outcome.err, "nothing is removed or released"
    assert "mod" not in read_lock(done.root / "pipeline.lock").records


def test_a_stage_that_is_switched_off_and_on_again_is_still_done(done: Repository) -> None:
    changed, text = done.read("src/a.py"), done.read("pipeline.yaml")
    done.replace("pipeline.yaml", '"once": true', '"once": true, "if": false')
    green(done.build())
    assert done.read("src/a.py") == changed
    done.commit()
    done.edit("pipeline.yaml", text)
    assert done.plan()["mod"] == "done"


def test_a_stage_that_is_switched_off_before_its_result_is_committed_ends_once(repo: Repository) -> None:
    story(repo, edit(1, 2))
    repo.commit()
    green(repo.build())
    repo.replace("pipeline.yaml", '"once": true', '"once": true, "if": false')
    assert "released as source files: src/a.py" in green(repo.build()).err
    assert "up to date" in green(repo.build()).err
    assert "mod" not in read_lock(repo.root / "pipeline.lock").records


def test_clean_leaves_the_files_of_a_stage_that_is_done(done: Repository) -> None:
    changed = done.read("src/a.py")
    assert done.run("clean").code == 0
    assert done.read("src/a.py") == changed
    assert not done.exists("seen.txt")


def test_a_stage_that_edits_the_file_later_starts_from_it_and_clean_gives_it_back(done: Repository) -> None:
    changed = done.read("src/a.py")
    document = json.loads(done.read("pipeline.yaml"))
    document["stages"]["fmt"] = {"edits": ["src/**"], "needs": ["mod"], "shell": "echo '# end' >> src/a.py"}
    document["stages"]["read"]["needs"] = ["fmt"]
    done.write({"pipeline.yaml": json.dumps(document)})
    green(done.build())
    assert done.read("src/a.py") == done.read("seen.txt") == changed + "# end\n"
    assert done.plan()["mod"] == "done"
    assert done.run("clean", "fmt").code == 0
    assert done.read("src/a.py") == changed


def test_it_is_done_without_the_lock_file_too_if_a_later_stage_has_taken_its_result_over(repo: Repository) -> None:
    later = {
        "needs": ["mod"],
        "edits": ["src/*.py"],
        "shell": "for f in src/*.py; do grep -q '# end' $f || echo '# end' >> $f; done",
    }
    story(repo, edit(1, 2))
    document = json.loads(repo.read("pipeline.yaml"))
    document["stages"]["later"] = later
    repo.write({"pipeline.yaml": json.dumps(document)})
    for _ in range(2):
        green(repo.build())
        repo.commit()
    repo.delete("pipeline.lock")
    assert repo.plan() == {"mod": "done", "read": "fresh", "later": "fresh"}


def test_a_forced_run_starts_from_the_files_as_they_are(done: Repository) -> None:
    done.edit("src/a.py", A.replace("1", "7"))
    again(done, edit(7, 9))
    green(done.build("-f", "mod"))
    assert done.read("src/a.py") == A.replace("1", "9")


def test_after_an_earlier_editor_it_starts_from_the_files_as_they_are_too(repo: Repository) -> None:
    story(repo, edit(1, 2), needs=["fmt"])
    document = json.loads(repo.read("pipeline.yaml"))
    document["stages"]["fmt"] = {"edits": ["src/a.py"], "shell": "grep -q end src/a.py || echo '# end' >> src/a.py"}
    repo.write({"pipeline.yaml": json.dumps(document)})
    repo.commit()
    green(repo.build())
    assert repo.read("src/a.py") == A.replace("1", "2") + "# end\n"
    repo.commit()
    green(repo.build())
    assert (repo.ran(), repo.plan()["mod"]) == (["fmt"], "done"), "the file is a new one for the stage before it"
    mine = A.replace("1", "7") + "# end\n# mine\n"
    repo.edit("src/a.py", mine)
    green(repo.build())
    assert repo.read("src/a.py") == mine
    repo.edit("task.md", "Return eight.\n")
    repo.replace("pipeline.yaml", "'# end' >>", "'# an end' >>")
    repo.edit("src/a.py", mine.replace("# end\n", ""))
    again(repo, edit(7, 8))
    green(repo.build())
    assert repo.read("src/a.py") == A.replace("1", "8") + "# mine\n# an end\n"


def test_a_stage_that_gets_the_key_later_is_done_after_the_next_build_and_commit(repo: Repository) -> None:
    story(repo, edit(1, 2), once=False)
    repo.commit()
    green(repo.build())
    repo.commit()
    assert repo.plan()["mod"] == "fresh"
    repo.replace("pipeline.yaml", '"once": false', '"once": true')
    green(repo.build())
    repo.commit()
    assert repo.plan()["mod"] == "done"
    repo.replace("pipeline.yaml", '"once": true', '"once": false')
    repo.edit("src/a.py", "mine = 1\n")
    assert repo.build().code == 6, "without `once` the file is that of the stage again"


def test_an_item_is_done_by_itself(repo: Repository) -> None:
    files = {name: f"src/{name}.py" for name in "abc"}
    stage = {
        "foreach": {"from": "list.json", "key": "id", "as": "f"},
        "inputs": ["${{ f.path }}"],
        "edits": ["${{ f.path }}"],
        "once": True,
        "llm": {"transcripts": "t"},
    }
    answers = {f"mod@{name}": [edit(1, 2, path)] for name, path in files.items()}
    repo.write(scripted({"mod": stage}, answers))
    repo.write(dict.fromkeys(files.values(), A))
    repo.write({"list.json": json.dumps([{"id": name, "path": files[name]} for name in "ab"])})
    repo.commit()
    green(repo.build())
    repo.commit()
    repo.edit("src/a.py", "mine = 1\n")
    repo.write({"list.json": json.dumps([{"id": name, "path": files[name]} for name in "bc"])})
    assert repo.plan() == {"mod@b": "done", "mod@c": "run"}
    green(repo.build())
    assert repo.ran() == ["mod@c"]
    assert repo.read("src/a.py") == "mine = 1\n"
    assert repo.read("src/b.py") == repo.read("src/c.py") == A.replace("1", "2")
    repo.commit()
    repo.delete("src/b.py")
    assert repo.plan() == {"mod@b": "done", "mod@c": "done"}, "a file that it changed need not exist any more"
    green(repo.build())


def test_a_command_runs_again_only_if_it_or_another_input_changes(repo: Repository) -> None:
    def write(command: str) -> None:
        stage = {"inputs": ["rules.txt"], "edits": ["src/**"], "once": True, "shell": command}
        repo.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": {"fix": stage}})})

    write("sed -i 's/$/;/' src/a.py")
    repo.write({"src/a.py": "a\n", "rules.txt": "r\n"})
    repo.commit()
    green(repo.build())
    repo.commit()
    repo.edit("src/a.py", "b\n")
    assert repo.plan() == {"fix": "done"}
    write("sed -i 's/$/!/' src/a.py")
    assert repo.plan() == {"fix": "run"}
    green(repo.build())
    assert repo.read("src/a.py") == "b!\n"
    repo.commit()
    repo.edit("rules.txt", "other\n")
    assert repo.plan() == {"fix": "run"}


def test_a_group_is_promoted_without_a_member_that_is_done(repo: Repository) -> None:
    story(repo, edit(1, 2), promote="g")
    repo.replace("pipeline.yaml", '"outputs": [', '"promote": "g", "outputs": [')
    repo.commit()
    green(repo.build())
    repo.commit()
    repo.edit("src/a.py", "mine = 1\n")
    green(repo.build())
    assert repo.read("seen.txt") == "mine = 1\n"


def test_after_reset_it_is_still_done_as_long_as_head_has_the_result(done: Repository) -> None:
    done.edit("src/a.py", "mine = 1\n")
    assert done.run("reset").code == 0
    assert done.plan()["mod"] == "done"
    green(done.build())
    assert done.read("src/a.py") == "mine = 1\n"
    assert "mod" in read_lock(done.root / "pipeline.lock").records


@pytest.mark.parametrize("in_git", [True, False])
def test_a_result_that_was_reset_is_not_done_and_not_made_twice(
    repo: Repository, project: Project, in_git: bool
) -> None:
    here = repo if in_git else project
    story(here, edit(1, 2))
    green(here.build())
    assert here.run("reset", *(["--outputs"] if in_git else [])).code == 0
    if in_git:
        repo.commit()
    for _ in range(2):
        green(here.build())
        assert here.read("src/a.py") == A.replace("1", "2")


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ({"shell": "date > o", "outputs": ["o"], "once": True}, "would replace your files"),
        ({"shell": "true", "edits": ["src/**"], "once": True, "on_edit": "rerun"}, "contradict each other"),
    ],
)
def test_keys_that_contradict_it_are_errors(project: Project, stage: dict[str, Any], said: str) -> None:
    project.write({"pipeline.yaml": json.dumps({"version": 1, "name": "p", "stages": {"s": stage}}), "src/a": "a"})
    outcome = project.run("plan")
    assert outcome.code == 65
    assert "E856" in outcome.err
    assert said in outcome.err


@pytest.mark.parametrize("key", ["once", "edits"])
def test_defaults_do_not_take_it(project: Project, key: str) -> None:
    document = {"version": 1, "name": "p", "defaults": {key: True}, "stages": {"s": {"shell": "true"}}}
    project.write({"pipeline.yaml": json.dumps(document)})
    outcome = project.run("plan")
    assert outcome.code == 65
    assert f"`{key}`" in outcome.err


# ---- on_edit ---------------------------------------------------------------------------------------


def rerun(repo: Repository, *answers: str, **stage: Any) -> None:
    story(repo, *answers, once=False, on_edit="rerun", **stage)
    repo.commit()
    green(repo.build())
    assert repo.plan()["mod"] == "fresh"
    repo.commit()
    assert repo.plan()["mod"] == "fresh", "its own result is not an edit"


def test_a_committed_edit_is_a_reason_to_run_from_it(repo: Repository) -> None:
    rerun(repo, edit(1, 2))
    mine = A.replace("1", "7") + "# mine\n"
    repo.edit("src/a.py", mine)
    assert repo.build().code == 6, "an edit that is neither accepted nor committed"
    repo.commit()
    assert repo.plan()["mod"] == "run"
    assert "src/a.py" in repo.run("plan").out
    again(repo, edit(7, 8))
    green(repo.build())
    assert repo.read("src/a.py") == mine.replace("7", "8")
    assert repo.plan()["mod"] == "fresh"
    repo.commit()
    assert repo.plan()["mod"] == "fresh"
    green(repo.build())
    assert repo.ran() == []


def test_an_accepted_edit_is_a_reason_to_run_from_it(repo: Repository) -> None:
    rerun(repo, edit(1, 2))
    mine = A.replace("1", "7")
    repo.edit("src/a.py", mine)
    green(repo.run("accept", "mod"))
    assert repo.plan()["mod"] == "run"
    again(repo, edit(7, 8))
    green(repo.build())
    assert repo.read("src/a.py") == mine.replace("7", "8")
    assert repo.plan()["mod"] == "fresh"


def test_it_holds_for_outputs_too_and_keep_is_the_default(repo: Repository) -> None:
    whole = "```python\nx = 1\n```\n"
    stage = {"inputs": ["task.md"], "outputs": ["o.py"], "llm": {"returns": "code", "transcripts": "t"}}
    repo.write(scripted({"mod": stage}, {"mod": [whole]}))
    repo.write({"task.md": TASK})
    repo.commit()
    green(repo.build())
    repo.edit("o.py", "x = 7\n")
    repo.commit()
    assert repo.plan()["mod"] == "verify"
    repo.write(scripted({"mod": {**stage, "on_edit": "rerun"}}, {"mod": [whole.replace("1", "8")]}))
    assert repo.plan()["mod"] == "run"
    green(repo.build())
    assert repo.read("o.py") == "x = 8\n"
    assert repo.plan()["mod"] == "fresh"


SHOUT = "grep -q end src/a.py || echo '# end' >> src/a.py"


def then_formatted(project: Project, *answers: str, command: str = SHOUT) -> None:
    """Write the story, with a program that edits the file after the stage."""
    story(project, *answers)
    document = json.loads(project.read("pipeline.yaml"))
    document["stages"]["fmt"] = {"edits": ["src/**"], "needs": ["mod"], "shell": command}
    project.write({"pipeline.yaml": json.dumps(document)})


def test_a_program_after_it_starts_from_its_result_and_takes_nothing_back(repo: Repository) -> None:
    then_formatted(repo, edit(1, 2))
    repo.commit()
    green(repo.build())
    result = A.replace("1", "2") + "# end\n"
    repo.commit()
    before = lock(repo)
    assert repo.plan() == {"mod": "done", "fmt": "fresh", "read": "fresh"}
    green(repo.build())
    assert (repo.read("src/a.py"), lock(repo)) == (result, before)
    # It runs again from an edit, and that is what it starts from from then on.
    repo.edit("src/a.py", "mine = 1\n")
    for _ in range(2):
        green(repo.build())
        assert repo.read("src/a.py") == repo.read("seen.txt") == "mine = 1\n# end\n"
    repo.edit("src/a.py", result)
    green(repo.build())
    # The stage is removed: its result stays.
    document = json.loads(repo.read("pipeline.yaml"))
    del document["stages"]["mod"], document["stages"]["fmt"]["needs"]
    repo.write({"pipeline.yaml": json.dumps(document)})
    for _ in range(2):
        green(repo.build())
        assert repo.read("src/a.py") == repo.read("seen.txt") == result


def test_a_new_task_starts_from_a_file_that_only_a_program_after_it_wrote(repo: Repository) -> None:
    then_formatted(repo, edit(1, 2), command=SHOUT.replace("src/a.py", "src/b.py"))
    repo.replace("pipeline.yaml", '"src/a.py"], "edits"', '"src/**"], "edits"')
    repo.commit()
    green(repo.build())
    assert repo.read("src/b.py") == "b = 1\n# end\n"
    repo.commit()
    repo.edit("task.md", "Change b.\n")
    again(repo, "src/b.py\n<<<<<<< SEARCH\nb = 1\n# end\n=======\nb = 2\n# end\n>>>>>>> REPLACE\n")
    for _ in range(2):
        green(repo.build())
        assert repo.read("src/b.py") == "b = 2\n# end\n"
    assert repo.plan() == {"mod": "fresh", "fmt": "fresh", "read": "fresh"}


def test_a_stage_before_it_that_runs_again_writes_its_file(repo: Repository) -> None:
    story(repo, edit(1, 2), once=False)
    document = json.loads(repo.read("pipeline.yaml"))
    document["stages"]["fmt"] = {"edits": ["src/**"], "needs": ["mod"], "once": True, "shell": SHOUT}
    repo.write({"pipeline.yaml": json.dumps(document)})
    repo.commit()
    green(repo.build())
    repo.commit()
    again(repo, edit(2, 8))
    repo.edit("task.md", "Return eight.\n")
    green(repo.build())
    assert repo.plan() == {"mod": "fresh", "fmt": "done", "read": "fresh"}
    assert repo.read("src/a.py") == repo.read("seen.txt") == A.replace("1", "8") + "# end\n"


def test_a_result_that_a_failed_program_holds_back_is_not_done(repo: Repository) -> None:
    then_formatted(repo, edit(1, 2), command="false")
    repo.commit()
    assert repo.build().code == 1
    assert repo.read("src/a.py") == A, "the disk gets the version of the last stage"
    repo.commit()
    assert repo.plan()["mod"] == "fresh"
    repo.replace("pipeline.yaml", '"shell": "false"', f'"shell": {json.dumps(SHOUT)}')
    green(repo.build())
    assert repo.read("src/a.py") == repo.read("seen.txt") == A.replace("1", "2") + "# end\n"
    repo.commit()
    assert repo.plan() == {"mod": "done", "fmt": "fresh", "read": "fresh"}


def test_an_edit_before_the_commit_stays_the_start_of_a_program_after_it(repo: Repository) -> None:
    then_formatted(repo, edit(1, 2))
    repo.commit()
    green(repo.build())
    repo.edit("src/a.py", "mine = 1\n")
    green(repo.build())
    repo.commit()
    green(repo.build())
    assert repo.plan()["mod"] == "done"
    assert repo.read("src/a.py") == repo.read("seen.txt") == "mine = 1\n# end\n"


def test_a_failed_item_with_a_new_task_withholds_nothing_of_a_new_item(repo: Repository, tmp_path: Path) -> None:
    project, model = repo, EchoModel()

    def items(**texts: str) -> None:
        found = [{"id": name, "files": ["src/a"], "text": text} for name, text in texts.items()]
        each = {"in": found, "key": "id", "as": "one", "order": "sequential"}
        made = {"foreach": each, "outputs": ["src/a"], "once": True, "retry": 0, "llm": {"returns": "files"}}
        project.write(pipeline({"mod": {**made, "verify": [{"shell": "! grep -q bad src/a"}]}}))

    items(x="p", y="p")
    project.write({"src/a": "a\n"})
    with model.answering():
        green(project.run("build", "a.yaml"))
        project.commit()
        project = project.clone(tmp_path / "clone")
        items(z="q", x="bad")
        assert project.run("build", "a.yaml").code == 1
        bases = model.bases("src/a")
        assert project.read("src/a") == bases[-1] == f"{bases[-2]}{addition('q')}"
        before = project.files("src") | {"a.lock": project.read("a.lock").encode()}
        assert project.run("build", "a.yaml").code == 1
        assert model.bases("src/a") == bases, "the response of the failed attempt is recorded"
        assert project.files("src") | {"a.lock": project.read("a.lock").encode()} == before
