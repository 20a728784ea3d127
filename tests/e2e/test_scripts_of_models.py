"""A file that begins with `#!` can be run: a model writes it, a template renders it, no key says so."""

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.project import Project, files_answer, scripted

SCRIPT = "#!/bin/sh\necho hi\n"
EDIT = "tool.sh\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"
ANSWERS: dict[str, str] = {
    "files": files_answer({"tool.sh": SCRIPT}),
    "blocks": f"tool.sh\n```sh\n{SCRIPT}```\n",
    "edits": EDIT.format(old="", new=SCRIPT),
    "code": f"Here it is.\n\n```bash\n{SCRIPT}```\n",
    "text": SCRIPT,
}


def mode(project: Project, path: str = "tool.sh") -> int:
    return (project.root / path).stat().st_mode & 0o777


def story(project: Project, answer: str, returns: str = "files", **more: Any) -> None:
    tool = {"outputs": ["tool.sh"], "llm": {"returns": returns}, **more}
    use = {"inputs": ["tool.sh"], "outputs": ["u.txt"], "shell": "./tool.sh > u.txt"}
    project.write(scripted({"tool": tool, "use": use}, {"tool": [answer]}))


@pytest.mark.slow
@pytest.mark.parametrize("returns", ANSWERS)
def test_a_script_of_each_response_format_runs(project: Project, returns: str) -> None:
    story(project, ANSWERS[returns], returns)
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.read("u.txt") == "hi\n"
    assert mode(project) & 0o100
    assert set(project.plan().values()) == {"fresh"}


def test_a_rendered_script_runs_and_rust_is_no_script(project: Project) -> None:
    stages: dict[str, dict[str, Any]] = {
        "tool": {"outputs": ["tool.sh"], "render": {"template": "tool.j2"}},
        "rust": {"outputs": ["lib.rs"], "render": {"template": "rust.j2"}},
        "use": {"inputs": ["tool.sh"], "outputs": ["u.txt"], "shell": "./tool.sh > u.txt"},
    }
    project.write({**scripted(stages, {}), "tool.j2": SCRIPT, "rust.j2": "#![allow(dead_code)]\n"})
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert mode(project) & 0o111
    assert not mode(project, "lib.rs") & 0o111


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "was", "after", "becomes"),
    [
        ("echo hi\n", 0o755, "echo ho\n", True),  # a program of the user keeps its mode
        ("echo hi\n", 0o644, "echo ho\n", False),
        (SCRIPT, 0o755, "#!/bin/sh\necho ho\n", True),
        (SCRIPT, 0o755, "echo ho\n", False),  # the line is gone
        ("echo hi\n", 0o644, SCRIPT, True),
    ],
)
@pytest.mark.parametrize("returns", ["files", "edits"])
def test_a_model_keeps_the_mode_of_a_file_that_it_edits(
    project: Project, returns: str, before: str, was: int, after: str, becomes: bool
) -> None:
    answer = files_answer({"tool.sh": after}) if returns == "files" else EDIT.format(old=before, new=after)
    project.write({**scripted({"tool": {"outputs": ["tool.sh"], "llm": {"returns": returns}}}, {"tool": [answer]})})
    project.write({"tool.sh": before})
    (project.root / "tool.sh").chmod(was)
    outcome = project.build("--overwrite-edited")
    assert outcome.code == 0, outcome.err
    assert project.read("tool.sh") == after
    assert bool(mode(project) & 0o100) is becomes


@pytest.mark.slow
def test_a_retry_that_removes_the_line_loses_the_mode(project: Project) -> None:
    answers = [files_answer({"tool.sh": SCRIPT}), files_answer({"tool.sh": "echo plain\n"})]
    stage = {"outputs": ["tool.sh"], "llm": {}, "retry": 1, "verify": [{"shell": "grep -q plain tool.sh"}]}
    project.write(scripted({"tool": stage}, {"tool": answers}))
    assert project.build().code == 0
    assert not mode(project) & 0o111


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> Callable[[Project], None]:
    """Return a function that builds as a version did that made no script executable."""

    def build(project: Project) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("orch23.runners.llm.is_script", lambda _: False)
            project.build()

    return build


@pytest.mark.slow
def test_a_script_of_an_earlier_version_is_fresh_and_a_mode_is_no_edit(
    project: Project, earlier: Callable[[Project], None]
) -> None:
    story(project, ANSWERS["files"])
    earlier(project)
    assert mode(project) == 0o644
    assert project.plan() == {"tool": "fresh", "use": "run"}
    failed = project.build()
    assert failed.code == 1
    assert "make the file executable (`chmod +x FILE`" in failed.err, "the way out"
    assert "; stage `tool` makes `tool.sh`" in failed.err
    (project.root / "tool.sh").chmod(0o755)
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.read("u.txt") == "hi\n"
    assert not project.events_of("call_reserved"), "no model was called"
    assert set(project.plan().values()) == {"fresh"}
    # A checkout that loses the mode does not count as an edit: the file gets it back.
    (project.root / "tool.sh").chmod(0o644)
    assert project.plan()["tool"] == "restore"
    assert project.build().code == 0
    assert mode(project) & 0o100
    assert set(project.plan().values()) == {"fresh"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llm", "render"])
def test_a_checkout_that_loses_the_mode_is_no_edit(project: Project, kind: str) -> None:
    step: dict[str, Any] = {"llm": {}} if kind == "llm" else {"render": {"template": "tool.j2"}}
    answers = {"tool": [ANSWERS["files"]]} if kind == "llm" else {}
    project.write({**scripted({"tool": {"outputs": ["tool.sh"], **step}}, answers), "tool.j2": SCRIPT})
    assert project.build().code == 0
    (project.root / "tool.sh").chmod(0o644)
    assert project.plan() == {"tool": "restore"}
    assert project.build().code == 0
    assert mode(project) & 0o100


@pytest.mark.slow
def test_a_mode_that_the_user_gives_to_another_file_is_an_edit(project: Project) -> None:
    stage = {"outputs": ["tool.sh"], "llm": {}}
    project.write(scripted({"tool": stage}, {"tool": [files_answer({"tool.sh": "echo hi\n"})]}))
    assert project.build().code == 0
    (project.root / "tool.sh").chmod(0o755)
    assert project.build().code == 6


@pytest.mark.slow
def test_the_mode_of_a_script_of_a_command_stays_an_edit(project: Project) -> None:
    project.write(scripted({"tool": {"outputs": ["tool.sh"], "shell": f"printf {json.dumps(SCRIPT)} > tool.sh"}}, {}))
    assert project.build().code == 0
    assert not os.access(project.root / "tool.sh", os.X_OK)
    (project.root / "tool.sh").chmod(0o755)
    assert project.build().code == 6


def test_the_hint_of_what_cannot_be_run_knows_directories_and_files_of_shell_stages(project: Project) -> None:
    project.write({"pipeline.yaml": "version: 1\nstages:\n  s: {outputs: [a], shell: './ > a'}\n"})
    assert "E309: it is a directory: name a program in it" in project.build().err
    project.replace("pipeline.yaml", "./ > a", "echo > f; ./f > a")
    assert "`chmod +x FILE`; if a shell stage makes it, in the command of that stage" in project.build().err


@pytest.mark.parametrize(("run", "cwd"), [("./bin/tool.sh", "."), ("[./tool.sh]", "bin"), ("echo; (./tool.sh)", "bin")])
def test_the_hint_of_a_file_that_cannot_be_run_names_the_stage_that_makes_it(
    project: Project, run: str, cwd: str
) -> None:
    project.write(
        {
            "pipeline.yaml": f"""\
version: 1
stages:
  gen: {{outputs: [bin/tool.sh], shell: 'mkdir -p bin; echo echo > bin/tool.sh'}}
  use: {{inputs: [bin/tool.sh, i], outputs: [bin/x], cwd: {cwd}, shell: {run!r}}}
""".replace("'[", "[").replace("]'", "]"),
            "i": "",
        }
    )
    assert "; stage `gen` makes `bin/tool.sh`" in project.build().err
