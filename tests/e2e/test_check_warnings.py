"""A check's warning is shown and journaled, and the stage is green with it."""

from tests.e2e.pipelines import green, shell
from tests.project import Project


def test_a_warning_of_a_check_is_shown_and_blocks_nothing(project: Project) -> None:
    project.write(shell("  a: {outputs: [a.txt], shell: echo a > a.txt, verify: [{check: python_syntax}]}"))
    outcome = project.build()
    green(outcome)
    assert "warning: a: [W310] check `python_syntax`: there is no `.py` file among the outputs" in outcome.err
    (event,) = [one for one in project.events_of("warning") if one["role"] != "orch23"]  # that of the sandbox
    assert (event["role"], event["level"], event["data"]["code"]) == ("a", "warning", "W310")
    assert project.exists("a.txt")
