"""Exit codes 126 and 127: of a program that the pipeline names, they end the stage; of anything else, an attempt."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.project import Project, files_answer, scripted
from tests.repository import green

FORGED = "echo 'bash: line 1: ls: command not found'; exit 127"


def story(project: Project, answers: Sequence[str], verify: Any, *, begin: str = "#!/bin/sh\n", **more: Any) -> None:
    """Write a pipeline whose model answers with these versions of `a.sh`."""
    stage = {"inputs": ["task.md"], "outputs": ["a.sh"], "llm": {}, "retry": 2, "verify": verify, **more}
    answered = {"make": [files_answer({"a.sh": f"{begin}{one}\n"}) for one in answers]}
    project.write({**scripted({"make": stage}, answered), "task.md": "a task\n"})


def calls(project: Project) -> int:
    """Return how many responses the newest run requested that are not recorded."""
    return len([one for one in project.events_of("llm_request") if not one["data"]["recorded"]])


def attempts(project: Project) -> int:
    return len(project.events_of("attempt_started"))


@pytest.mark.parametrize("command", [["no-such-tool", "x"], "A=1 no-such-tool a.sh && ls", "no-such-tool x | cat"])
def test_a_verifier_that_is_not_installed_costs_no_call(project: Project, command: Any) -> None:
    story(project, ["exit 0"], [{"shell": "ls"}, {"shell": command}])
    failed = project.build()
    assert (failed.code, calls(project), attempts(project)) == (1, 0, 0), failed.err
    assert "the program `no-such-tool` of `verify` was not found; no model was called" in failed.err
    assert "PATH is fixed to /" in failed.err
    assert "/usr/local/bin, /usr/bin, /bin" in failed.err
    story(project, ["exit 0"], [{"shell": "ls"}])
    green(project.build())


@pytest.mark.parametrize("folder", ["", "lib/"])
def test_a_module_that_the_answer_makes_may_be_missing_before(project: Project, folder: str) -> None:
    stage = {
        "inputs": ["task.md"],
        "outputs": [f"{folder}job.py"],
        "env": {"PYTHONPATH": "lib"},
        "llm": {},
        "verify": [{"shell": "python -m job"}],
    }
    project.write(
        {**scripted({"make": stage}, {"make": [files_answer({f"{folder}job.py": ""})]}), "task.md": "a task\n"}
    )
    green(project.build())
    assert calls(project) == 1


def test_a_path_that_the_sandbox_does_not_show_costs_no_call(project: Project) -> None:
    tool = project.home / "bin/tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    story(project, ["exit 0"], [{"shell": f"{tool} x"}, {"shell": ["/usr/bin/env", "true"]}])
    failed = project.build()
    assert (failed.code, calls(project)) == (1, 0), failed.err
    assert f"the program `{tool}` of `verify` was not found; no model was called" in failed.err
    project.write({"tools/tool": "#!/bin/sh\n"})
    (project.root / "tools/tool").chmod(0o755)
    story(project, ["exit 0"], {"inputs": ["tools/tool"], "steps": [{"shell": "tools/tool x"}]})
    green(project.build())


@pytest.mark.parametrize(
    "command",
    [
        "ls; no-such-tool x",
        "# it's a comment\nls\nno-such-tool x | cat",
        "x=$(no-such-tool)",
        "sh -c 'no-such-tool x'",
        "ls | xargs no-such-tool",
        ["timeout", "5", "no-such-tool"],
        ["env", "no-such-tool"],
        "ls && /opt/no/such-tool",
    ],
)
def test_a_missing_program_within_a_command_ends_the_stage_after_one_call(project: Project, command: Any) -> None:
    story(project, ["exit 0"] * 3, [{"shell": command}])
    failed = project.build()
    assert (failed.code, calls(project), attempts(project)) == (1, 1, 1), failed.err
    assert "such-tool` was not found; not retryable" in failed.err
    story(project, ["exit 0"] * 3, [{"shell": "ls"}])
    green(project.build())
    assert calls(project) == 0, "the response is recorded"


@pytest.mark.parametrize(
    "command", ["no-such-tool || ls", "if no-such-tool; then ls; fi", "no-such-tool && ls; true", "f() { ls; }; f"]
)
def test_a_program_that_may_be_missing_is_no_error(project: Project, command: str) -> None:
    story(project, ["exit 0"], [{"shell": command}])
    green(project.build())
    assert calls(project) == 1


@pytest.mark.parametrize(
    ("command", "bad", "good"),
    [
        (["./a.sh"], "no-such-tool", "exit 0"),
        ("ls && ./a.sh", FORGED, "exit 0"),
        (["bash", "a.sh"], "no-such-tool", "exit 0"),
        ("no-such-tool || ./a.sh", "exit 127", "exit 0"),
        (". ./a.sh; run-it", "true", "run-it() { true; }"),
        ("./a.sh; bin/built", "true", "cp /bin/true bin/built"),
        ('PATH="$PWD/bin:$PATH"; ./a.sh; run-it', "true", "cp /bin/true bin/run-it"),
    ],
)
def test_what_a_response_makes_or_runs_is_the_failure_of_the_attempt(
    project: Project, command: Any, bad: str, good: str
) -> None:
    story(project, [bad, good], [{"shell": command}], scratch=["bin/"])
    green(project.build())
    failed, _ = (one["data"] for one in project.events_of("attempt_finished"))
    assert (failed["exit_code"], calls(project)) == (127, 2)


@pytest.mark.parametrize("command", [["./a.sh"], "ls; ./a.sh"])
def test_a_file_of_a_response_that_is_not_executable_is_the_failure_of_the_attempt(
    project: Project, command: Any
) -> None:
    story(project, ["ls", "#!/bin/sh"], [{"shell": command}], begin="")
    green(project.build())
    assert calls(project) == 2


def test_a_formatter_that_runs_a_file_of_the_answer_fails_the_attempt(project: Project) -> None:
    story(project, ["no-such-tool", "exit 0"], [], format=[{"shell": "./a.sh"}])
    green(project.build())
    assert calls(project) == 2


def test_a_command_of_a_model_that_is_missing_is_the_failure_of_its_attempt(project: Project) -> None:
    step = {"commands": {"from": "plan.json#/run", "allow": ["no-such-tool", "ls"]}}
    story(project, ["exit 0"] * 3, {"inputs": ["plan.json"], "steps": [step]}, retry={"max": 1, "no_progress": 5})
    project.write({"plan.json": '{"run": ["no-such-tool"]}'})
    assert (project.build().code, calls(project)) == (1, 2)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("ls && tools/check", "the program `tools/check` is not executable"),
        (["tools/none"], "the program `tools/none` is not among the files of the step"),
        (["tools"], "was not found"),
    ],
)
def test_a_script_of_the_user_that_cannot_run_ends_the_stage(project: Project, command: Any, why: str) -> None:
    story(project, ["exit 0"] * 3, {"inputs": ["tools/check"], "steps": [{"shell": command}]})
    project.write({"tools/check": "#!/bin/sh\n"})
    failed = project.build()
    assert (failed.code, why in failed.err) == (1, True), failed.err
    assert calls(project) <= 1
    (project.root / "tools/check").chmod(0o755)
    story(project, ["exit 0"] * 3, {"inputs": ["tools/check"], "steps": [{"shell": ["tools/check"]}]})
    green(project.build())


def test_a_command_runs_once_if_its_program_is_missing_and_again_if_its_script_fails(project: Project) -> None:
    stages: dict[str, dict[str, Any]] = {
        "missing": {"shell": "no-such-tool", "retry": 2},
        "script": {"inputs": ["run.sh"], "shell": "./run.sh", "retry": {"max": 2, "no_progress": 5}},
    }
    project.write({**scripted(stages, {}), "run.sh": "#!/bin/sh\nno-such-tool\n"})
    (project.root / "run.sh").chmod(0o755)
    assert project.build("-k").code == 1
    started = [one["role"] for one in project.events_of("attempt_started")]
    assert (started.count("missing"), started.count("script")) == (1, 3)
