"""`verify: {all: true}`: every step runs in its order, whatever became of those before it, and each has its result."""

import pytest

from tests.e2e.pipelines import calls, noted, pipeline, prompt, shell
from tests.project import Project

pytestmark = [
    pytest.mark.slow,  # whole builds: `make test` runs them, `make check` does not
    pytest.mark.usefixtures("steps_reach_outside"),  # they note outside of their sandbox that they ran
]


def steps(project: Project, *written: str, run_all: bool = True, more: str = "") -> None:
    lines = "".join(f"        - {one}\n" for one in written)
    verify = f"    verify:\n      all: {str(run_all).lower()}\n      steps:\n{lines}"
    project.write(shell(f"  make:\n    outputs: [out.py]\n    shell: echo 'x = 1' > out.py\n{verify}{more}"))


def reported(project: Project) -> list[tuple[str, bool]]:
    return [(event["data"]["step"], event["data"]["passed"]) for event in project.events_of("check_result")]


def test_every_step_runs_in_its_order_and_checks_come_first(project: Project) -> None:
    log = f"{project.root}-notes.log"
    written = [f"shell: 'echo {n} >> {log}; exit {code}'" for n, code in ((1, 3), (2, 0), (3, 4))]
    steps(project, *written, "check: python_syntax")
    failed = project.build()
    assert failed.code == 1
    assert noted(project) == ["1", "2", "3"]
    assert [passed for _, passed in reported(project)] == [True, False, True, False]
    assert reported(project)[0][0] == "check python_syntax"
    steps(project, *written, run_all=False)
    assert project.build("-f", "make").code == 1
    assert noted(project) == ["1", "2", "3", "1"], "without it the first failure is the last step"


def test_a_tool_that_cannot_be_started_is_a_result_and_the_others_run(project: Project) -> None:
    steps(project, "shell: [no-such-tool]", "shell: 'echo red; exit 5'", "shell: 'true'")
    failed = project.build()
    assert failed.code == 1
    assert reported(project) == [("no-such-tool", False), ("echo red; exit 5", False), ("true", True)]
    assert "red" in failed.err


def test_the_next_attempt_is_reported_of_every_failure(project: Project) -> None:
    files = {"p.md.j2": prompt("{{ (brief.excerpt if brief else '') | replace('\n', ' | ') }}", "x = 1")}
    stage = """\
  code:
    outputs: [a.py]
    llm: {prompt: p.md.j2, returns: text}
    verify: {all: true, steps: [{shell: 'echo first; exit 1'}, {shell: 'true'}, {shell: 'echo third; exit 1'}]}
    retry: 1
"""
    project.write(pipeline(stage, files))
    assert project.build().code == 1
    (asked,) = calls(project)[1:]
    assert "first" in asked
    assert "third" in asked


def test_a_step_that_leaves_its_bounds_after_another_failed_is_a_safety_violation(project: Project) -> None:
    steps(project, "shell: 'exit 1'", "shell: 'ln -s /etc/passwd stolen'", more="    retry: 2\n")
    failed = project.build()
    assert failed.code == 2
    assert len(project.events_of("attempt_finished")) == 1, "no attempt follows it"


def test_the_exit_code_is_of_the_first_failure_that_has_one(project: Project) -> None:
    steps(project, "ensures: {file_absent: out.py}", "shell: 'exit 7'")
    assert project.build().code == 1
    (attempt,) = project.events_of("attempt_finished")
    assert attempt["data"]["exit_code"] == 7
