"""Stages that change files of the project: what a model may change, what is recorded, and how it is replayed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from orch23.store.lock_file import read_lock
from tests.project import Project, files_answer, scripted
from tests.repository import Repository

A, B = "def a():\n    return 1\n", "def b():\n    return 1\n"
MOD: dict[str, Any] = {"inputs": ["task.md", "src/a.py"], "edits": ["src/**"], "llm": {}}


def edit(path: str, old: str, new: str) -> str:
    return f"{path}\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"


def story(project: Project, *answers: str, **stage: Any) -> None:
    llm = {"transcripts": "t"} | stage.pop("llm", {})
    project.write(scripted({"mod": {**MOD, **stage, "llm": llm}}, {"mod": answers}))
    project.write({"task.md": "return two\n", "src/a.py": A, "src/b.py": B, "other.txt": "x\n"})


def record(project: Project, name: str = "mod") -> Any:
    return read_lock(project.root / "pipeline.lock").records[name]


def test_edits_are_the_default_form_and_only_changed_files_are_the_result(project: Project) -> None:
    story(project, edit("src/a.py", "    return 1\n", "    return 2\n"))
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.read("src/a.py") == A.replace("1", "2")
    assert [*record(project).outputs] == ["src/a.py"]
    assert [*record(project).originals] == ["src/a.py"]
    assert project.plan() == {"mod": "fresh"}


def test_a_stated_form_wins_over_the_default(project: Project) -> None:
    story(project, files_answer({"src/a.py": A.replace("1", "3")}), llm={"returns": "files"})
    assert project.build().code == 0
    assert project.read("src/a.py") == A.replace("1", "3")


@pytest.mark.parametrize("returns", ["json", "text", "code"])
def test_a_form_with_one_file_is_refused(project: Project, returns: str) -> None:
    story(project, "", llm={"returns": returns})
    outcome = project.build()
    assert outcome.code == 65
    assert "E856" in outcome.err
    assert f"`returns: {returns}` is one new file" in outcome.err


WHOLE = "src/b.py\n```python\ndef b():\n    return 2\n```\n"
UNSEEN = {
    "edits": edit("src/b.py", "    return 1\n", "    return 2\n"),
    "edits with a whole file": WHOLE,
    "blocks": WHOLE,
    "files": files_answer({"src/b.py": "def b():\n    return 2\n"}),
    "files deleted": files_answer({}, deletes=["src/b.py"]),
}


@pytest.mark.parametrize("form", UNSEEN)
def test_a_file_that_the_prompt_does_not_show_cannot_be_changed(project: Project, form: str) -> None:
    story(project, UNSEEN[form], llm={"returns": form.partition(" ")[0]})
    outcome = project.build()
    assert outcome.code == 1
    assert "E213" in outcome.err
    assert "src/b.py" in outcome.err
    assert project.read("src/b.py") == B


def test_an_input_that_the_template_does_not_use_was_not_shown(project: Project) -> None:
    story(project, UNSEEN["files"], inputs=["task.md", "src/**"], llm={"returns": "files", "prompt": "blind.j2"})
    project.write({"blind.j2": "Change {{ inputs[0].text }}"})
    outcome = project.build()
    assert outcome.code == 1
    assert "E213" in outcome.err
    assert project.read("src/b.py") == B


def test_a_named_file_that_no_prompt_shows_is_an_error_before_the_call(project: Project) -> None:
    story(project, "", inputs=["task.md"], edits=["src/a.py"], llm={"prompt": "blind.j2"})
    project.write({"blind.j2": "Change {{ inputs[0].text }}"})
    outcome = project.build()
    assert outcome.code == 1
    assert "E213" in outcome.err
    assert "`{{ inputs | blocks }}`" in outcome.err
    assert not project.events_of("llm_request")
    project.write({"blind.j2": "Change {{ inputs | blocks }}"})
    project.write(
        {"pipeline.answers.yaml": json.dumps({"mod": [edit("src/a.py", "    return 1\n", "    return 2\n")]})}
    )
    assert project.build().code == 0
    assert project.read("src/a.py") == A.replace("1", "2")


def test_names_in_edits_are_shown_and_patterns_are_not(project: Project) -> None:
    story(
        project, edit("src/a.py", "    return 1\n", "    return 2\n"), inputs=["task.md"], edits=["src/a.py", "src/**"]
    )
    assert project.build().code == 0
    (request,) = project.events_of("llm_request")
    assert [one["path"] for one in request["data"]["files"] if one["path"].startswith("src/")] == ["src/a.py"]


def test_files_are_created_and_deleted_and_paths_beyond_are_refused(project: Project) -> None:
    beyond = files_answer({"other.txt": "y\n"})
    good = files_answer({"src/new/c.py": "c = 1\n"}, deletes=["src/a.py"])
    story(project, beyond, good, retry=1, llm={"returns": "files"})
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    (failed, _) = project.events_of("attempt_finished")
    assert "E204" in failed["data"]["excerpt"]
    assert project.read("other.txt") == "x\n"
    assert not project.exists("src/a.py")
    assert project.read("src/new/c.py") == "c = 1\n"
    found = record(project)
    assert ([*found.outputs], found.deleted) == (["src/new/c.py"], ("src/a.py",))
    assert found.originals["src/a.py"] is not None
    assert found.originals["src/new/c.py"] is None


@pytest.mark.parametrize("answer", ["No changes needed.", edit("src/a.py", "    return 1\n", "    return 1\n")])
def test_a_response_that_changes_nothing_is_an_empty_result_if_it_passes(project: Project, answer: str) -> None:
    story(project, answer, verify=[{"check": "python_syntax"}])
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert "W310" not in outcome.err
    found = record(project)
    assert (dict(found.outputs), found.deleted) == ({}, ())
    assert project.plan() == {"mod": "fresh"}
    assert project.build().code == 0
    assert project.ran() == []


def test_a_file_of_edits_need_not_exist_after_a_response_that_changes_nothing(project: Project) -> None:
    story(project, "No changes needed.", edits=["src/**", "docs/none.md"])
    outcome = project.build()
    assert outcome.code == 0, outcome.err


def test_a_response_that_changes_nothing_fails_with_the_verification(project: Project) -> None:
    answers = "No changes needed.", edit("src/a.py", "    return 1\n", "    return 2\n")
    story(project, *answers, verify=[{"shell": "grep -q 'return 2' src/a.py"}], retry=1)
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.read("src/a.py") == A.replace("1", "2")


def test_the_verification_sees_all_files_and_checks_the_changed_ones(project: Project) -> None:
    story(
        project,
        edit("src/a.py", "    return 1\n", "    return 2\n"),
        verify=[{"check": "python_syntax"}, {"shell": "test -f src/b.py && test -f src/broken.py"}],
    )
    project.write({"src/broken.py": "def (:\n"})
    outcome = project.build()
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("style", ["prompt", "conversation"])
def test_a_later_attempt_is_shown_the_files_as_the_one_before_left_them(project: Project, style: str) -> None:
    first = edit("src/a.py", "    return 1\n", "    return 3\n")
    second = edit("src/a.py", "    return 3\n", "    return 2\n")
    story(project, first, second, verify=[{"shell": "grep -q 'return 2' src/a.py"}], retry={"max": 1, "style": style})
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.read("src/a.py") == A.replace("1", "2")
    logs = sorted((project.root / "logs").rglob("prompt.txt"))
    prompt = logs[-1].read_text()
    assert "def a():\n    return 3\n" in prompt
    if style == "prompt":
        assert "return 1" not in prompt


def test_the_best_attempt_is_the_start_of_the_next_one(project: Project) -> None:
    """The third attempt repairs the first one, which failed fewer tests than the second."""
    tests = (
        "from a import a\nfrom b import b\n\ndef test_a():\n    assert a() == 2\n\ndef test_b():\n    assert b() == 2\n"
    )
    both = [edit("src/a.py", "    return 1\n", "    return 9\n"), edit("src/b.py", "    return 1\n", "    return 2\n")]
    answers = (
        "".join(both),
        edit("src/b.py", "    return 2\n", "    return 7\n"),
        edit("src/a.py", "    return 9\n", "    return 2\n"),
    )
    story(
        project,
        *answers,
        inputs=["task.md", "src/**"],
        retry={"max": 2, "from": "best"},
        verify={"inputs": ["tests/**"], "steps": [{"pytest": {"paths": ["tests"], "pythonpath": ["src"]}}]},
    )
    project.write({"tests/test_ab.py": tests})
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert (project.read("src/a.py"), project.read("src/b.py")) == (A.replace("1", "2"), B.replace("1", "2"))


def test_the_result_is_made_again_from_transcripts_without_a_model(project: Project, tmp_path: Path) -> None:
    answer = files_answer({"src/new.py": "n = 1\n", "src/a.py": A.replace("1", "2")}, deletes=["src/b.py"])
    story(project, answer, inputs=["task.md", "src/**"], llm={"returns": "files"})
    project.write({"src/a.py": A, "src/b.py": B})
    assert project.build().code == 0
    made = project.files("src")
    fresh = Project(tmp_path / "fresh")
    fresh.write({p: d for p, d in project.files().items() if not p.startswith("src/") and p != "pipeline.lock"})
    fresh.write({"src/a.py": A, "src/b.py": B, "pipeline.answers.yaml": project.read("pipeline.answers.yaml")})
    outcome = fresh.build("--replay")
    assert outcome.code == 0, outcome.err
    assert fresh.files("src") == made
    # The store lost the bytes: a deleted and a changed file of the result are made again from the response.
    project.delete("src/new.py")
    shutil.rmtree(project.root / ".orch23/cas")
    outcome = project.build("--replay")
    assert outcome.code == 0, outcome.err
    assert project.files("src") == made


def test_the_mode_of_a_changed_file_stays(project: Project) -> None:
    script = "#!/bin/sh\necho 1\n"
    story(project, edit("src/run.sh", "echo 1\n", "echo 2\n"), inputs=["src/run.sh"], edits=["src/run.sh", "src/tool"])
    project.write({"src/run.sh": script})
    assert project.build().code == 0
    assert project.read("src/run.sh") == script.replace("1", "2")
    assert (project.root / "src/run.sh").stat().st_mode & 0o111 == 0


@pytest.mark.usefixtures("steps_reach_outside")
@pytest.mark.parametrize("saved", ["src/a.py", "src/b.py", "src/new.py"])
def test_a_file_that_is_saved_while_the_stage_runs_keeps_all_files_unwritten(project: Project, saved: str) -> None:
    """The files are one that the stage changes, one that it deletes and one that it creates."""
    answer = files_answer({"src/a.py": A.replace("1", "2"), "src/new.py": "n = 1\n"}, deletes=["src/b.py"])
    verify = [{"shell": f"echo mine > {project.root}/{saved}"}]
    story(project, answer, inputs=["task.md", "src/**"], verify=verify, llm={"returns": "files"})
    before = project.files("src")
    outcome = project.build()
    assert outcome.code == 6, outcome.err
    assert saved in outcome.err
    assert project.files("src") == {**before, saved: b"mine\n"}
    assert "next: `orch23 build` starts from what is there" in outcome.err
    assert project.run("accept", "mod").code == 64
    project.replace("pipeline.yaml", f"echo mine > {project.root}/{saved}", "true")
    assert project.build().code == 0, "the model was shown the saved file"


def test_a_program_responds_with_edits(project: Project) -> None:
    """It gets the request on stdin; its response is judged like that of any model."""
    answer = edit("src/a.py", "    return 1\n", "    return 2\n")
    program = f"import sys\nassert 'return 1' in sys.stdin.read()\nprint({answer!r})\n"
    story(project)
    llm = {"provider": "command", "model": "m", "command": ["python3", "tools/ask.py"], "prompt": "pipeline.md.j2"}
    document = {"version": 1, "name": "p", "stages": {"mod": {**MOD, "llm": llm}}}
    project.write({"pipeline.yaml": json.dumps(document), "tools/ask.py": program})
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.read("src/a.py") == A.replace("1", "2")


# ---- shell -----------------------------------------------------------------------------------------


def shell(project: Project, command: str, **stage: Any) -> None:
    """Write a shell stage `fmt` over `src/**`, and its files."""
    document = {"version": 1, "name": "p", "stages": {"fmt": {"edits": ["src/**"], "shell": command, **stage}}}
    project.write({"pipeline.yaml": json.dumps(document), "src/a.py": A, "src/b.py": B, "other.txt": "x\n"})


def test_what_a_command_changed_created_and_deleted_is_its_result(project: Project) -> None:
    shell(project, "sed -i s/1/2/ src/a.py; mv src/b.py src/c.py; touch src/a.py; mkdir src/d; echo n > src/d/n")
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.files("src") == {"src/a.py": A.replace("1", "2").encode(), "src/c.py": B.encode(), "src/d/n": b"n\n"}
    found = record(project, "fmt")
    assert ([*found.outputs], found.deleted) == (["src/a.py", "src/c.py", "src/d/n"], ("src/b.py",))


def test_a_file_that_is_written_with_its_own_bytes_is_not_in_the_result(project: Project) -> None:
    shell(project, "cp src/b.py t && mv t src/b.py && sed -i s/1/2/ src/a.py", scratch=["t"])
    assert project.build().code == 0
    assert [*record(project, "fmt").outputs] == ["src/a.py"]


def test_a_command_that_changes_nothing_is_green_with_an_empty_result(project: Project) -> None:
    shell(project, "true")
    assert project.build().code == 0
    found = record(project, "fmt")
    assert (dict(found.outputs), found.deleted) == ({}, ())
    assert project.plan() == {"fmt": "fresh"}


def test_a_change_of_the_mode_is_a_change(project: Project) -> None:
    shell(project, "chmod +x src/a.py")
    assert project.build().code == 0
    assert [*record(project, "fmt").outputs] == ["src/a.py"]
    assert (project.root / "src/a.py").stat().st_mode & 0o100
    assert project.read("src/a.py") == A


BEYOND = {
    "echo y > other.txt": (1, "E306"),
    "rm other.txt": (1, "E306"),
    "echo n > new.txt": (1, "E306"),
    "rm -f src/a.py; ln -s b.py src/a.py": (2, "E610"),
}


@pytest.mark.parametrize("command", BEYOND)
def test_a_command_that_writes_beyond_its_edits_is_refused(project: Project, command: str) -> None:
    code, said = BEYOND[command]
    shell(project, f"sed -i s/1/2/ src/b.py; {command}", inputs=["other.txt"])
    before = project.files()
    outcome = project.build()
    assert outcome.code == code, outcome.err
    assert said in outcome.err
    assert {path: project.files()[path] for path in before} == before


def test_the_error_of_a_write_beyond_names_the_key(project: Project) -> None:
    shell(project, "echo n > new.txt")
    outcome = project.build()
    assert "declare it in `edits` or `outputs`" in outcome.err
    shell(project, "echo n > new.txt", outputs=["new.txt"])
    assert project.build().code == 0


# ---- items -----------------------------------------------------------------------------------------

FILES = [f"src/m{number:02}.py" for number in range(30)]


def codemod(project: Project, answers: dict[str, list[str]]) -> None:
    stage = {
        "foreach": {"in": [{"id": Path(path).stem, "path": path} for path in FILES], "key": "id", "as": "f"},
        "inputs": ["${{ f.path }}"],
        "edits": ["${{ f.path }}"],
        "llm": {"transcripts": "t"},
        "verify": [{"check": "python_syntax"}],
    }
    project.write(scripted({"mod": stage}, answers))
    project.write(dict.fromkeys(FILES, A))


def of_item(path: str) -> str:
    return edit(path, "    return 1\n", "    return 2\n")


@pytest.mark.slow
def test_a_codemod_of_thirty_files_runs_only_the_items_whose_file_changed(project: Project) -> None:
    nothing = FILES[7]
    answers = {f"mod@{Path(path).stem}": ["No change needed" if path == nothing else of_item(path)] for path in FILES}
    codemod(project, answers)
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert {path for path in FILES if project.read(path) == A} == {nothing}
    assert set(project.plan().values()) == {"fresh"}
    # The item that changed nothing depends on its input, and starts from the new text.
    project.edit(nothing, A + "\nX = 1\n")
    assert {name for name, action in project.plan().items() if action != "fresh"} == {f"mod@{Path(nothing).stem}"}


def test_items_that_edit_one_file_in_order_start_from_the_version_before(project: Project) -> None:
    stage = {
        "foreach": {"in": ["1", "2", "3"], "as": "n", "order": "sequential"},
        "inputs": ["src/a.py"],
        "edits": ["src/**"],
        "llm": {"transcripts": "t"},
    }
    answers = {f"mod@{n}": [edit("src/a.py", f"    return {n}\n", f"    return {n + 1}\n")] for n in (1, 2, 3)}
    project.write(scripted({"mod": stage}, answers))
    project.write({"src/a.py": A, "src/b.py": B})
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.read("src/a.py") == A.replace("1", "4")
    assert set(project.plan().values()) == {"fresh"}


def test_items_of_a_renamed_foreach_keep_the_files_that_they_edited(tmp_path: Path) -> None:
    def write(name: str) -> None:
        each = {"in": ["a", "b"], "as": "n", "order": "sequential"}
        stage = {"foreach": each, "inputs": ["src/*"], "edits": ["src/**"], "llm": {"transcripts": "t"}}
        answers = {f"{name}@{one}": [of_item(f"src/{one}.py")] for one in "ab"}
        project.write(scripted({name: stage}, answers))

    project = Repository(tmp_path / "project")
    project.init()
    project.write({"src/a.py": A, "src/b.py": B})
    write("mod")
    assert project.build().code == 0
    project.commit()
    write("renamed")
    assert project.plan() == {"renamed@a": "fresh", "renamed@b": "fresh"}
    project.edit("src/a.py", "mine = 1\n")
    assert project.plan()["renamed@a"] == "edited"
    assert project.build("--replay").code == 6
    assert project.read("src/a.py") == "mine = 1\n"
