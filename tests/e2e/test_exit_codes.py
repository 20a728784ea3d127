"""A template's own exit numbers: by the family of what stopped the run, wherever it stopped."""

import json

import pytest

from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.errors import ExitCode, custom_exit_code
from tests.e2e.pipelines import green, pipeline, prompt, proposing, shell
from tests.project import Project, scripted

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not

FAMILIES = {"E201": 4, "E2": 10, "E1": 11, "E3": 12, "E4": 3, "E5": 13, "E8": 2, "E822": 22}
HEAD = f"exit_codes: {json.dumps(FAMILIES)}\n"
ASK = "  a: {outputs: [a.json], llm: {prompt: p.md.j2, returns: json}}\n"


def test_the_longest_family_of_the_diagnostic_that_failed_a_stage_decides(project: Project) -> None:
    project.write(pipeline(ASK, {"p.md.j2": prompt("a", "this is no JSON")}, head=HEAD))
    assert project.build().code == 4, "E201"
    project.write(pipeline(ASK, {"p.md.j2": prompt("a", "")}, head=HEAD))
    failed = project.build()
    assert ("E2" in failed.err, failed.code) == (True, 10), "another of E2"
    (end,) = project.events_of("run_finished")
    assert (end["data"]["exit_code"], end["data"]["status"]) == (10, "failed")


def test_a_failure_that_no_family_fits_keeps_its_number_and_green_stays_0(project: Project) -> None:
    project.write(shell("  a: {shell: 'exit 9'}\n", head="exit_codes: {E8: 2}\n"))
    assert project.build().code == 1
    project.replace("pipeline.yaml", "exit 9", "exit 0")
    green(project.build())


def test_of_several_failures_the_gravest_decides_and_then_its_family(project: Project) -> None:
    stages = ASK + "  b: {shell: 'exit 9'}\n  c: {outputs: [c.json], llm: {prompt: c.md.j2, returns: json}}\n"
    files = {"p.md.j2": prompt("a", "no JSON"), "c.md.j2": prompt("c", "nor this")}
    project.write(pipeline(stages, files, head=HEAD))
    assert project.build("-k", "--replay").code == 3, "E4: nothing is recorded, which is graver than a failed stage"
    assert project.build("-k").code == 4, "a and c failed alike, and b has no diagnostic"


def test_what_stops_before_the_first_stage_has_its_number_too(project: Project) -> None:
    project.write(shell("  a: {shell: x, timeout: soon}\n", head=HEAD))
    assert [project.run(command).code for command in ("build", "plan", "validate")] == [2, 2, 2], "E815"
    project.write(shell("  a: {shell: x, inputs: [nobody.txt]}\n", head=HEAD))
    assert [project.run(command).code for command in ("build", "plan", "validate")] == [22, 22, 22], "E822"
    project.write(shell("  a: {shell: x, inputs: [nobody.txt]}\n  b: {shell: x, timeout: soon}\n", head=HEAD))
    assert project.build().code == 22, "both are told; in the order of the file E822 is first"
    asks = "  a: {outputs: [a.txt], llm: {provider: anthropic, model: claude-x, prompt: p.j2, returns: text}}\n"
    project.write({**shell(asks, head=HEAD), "p.j2": "say a"})
    refused = project.build()
    assert ("E4" in refused.err, refused.code) == (True, 3), "there is no key"


def test_a_stop_condition_has_its_number(project: Project) -> None:
    stages = {name: {"outputs": [f"{name}.txt"], "llm": {"returns": "text"}} for name in ("a", "b")}
    answers = {"a": ["a"], "b": ["b"]}
    project.write(scripted(stages, answers, stop_conditions={"max_llm_calls": 1}, exit_codes={"E5": 50}))
    stopped = project.build("-j1")
    assert ("E5" in stopped.err, stopped.code) == (True, 50)
    (end,) = project.events_of("run_finished")
    assert end["data"]["status"] == "limit"
    project.write(shell("  a: {shell: 'sleep 9'}\n", head="exit_codes: {E5: 51}\nstop_conditions: {max_wall: 0.2s}\n"))
    assert project.build().code == 51


def test_safety_keeps_its_number(project: Project) -> None:
    head = "exit_codes: {E1: 9, E2: 9, E3: 9, E4: 9, E6: 9, E7: 9}\n"
    project.write(shell("  a: {outputs: [out], shell: 'ln -s /etc/passwd out'}\n", head=head))
    assert project.build().code == 2


def test_a_proposal_outside_of_the_fence_is_numbered_by_its_code(project: Project) -> None:
    stages = "  a: {outputs: [a.txt], llm: {prompt: p.md.j2, returns: files}}\n"
    project.write(
        pipeline(stages, {"p.md.j2": proposing("a", {"b.txt": "'x'"})}, head="exit_codes: {E20: 77, E2: 9}\n")
    )
    assert project.build().code == 77


def test_an_edit_that_does_not_pass_is_numbered_too(project: Project) -> None:
    stage = "{outputs: [a.json], inputs: [a.schema.json], llm: {prompt: p.md.j2, returns: json}, "
    stage += "verify: [{check: json_schema, with: SCHEMA}]}"
    schema = {"a.schema.json": '{"type": "object"}'}
    text = pipeline(f"  a: {stage}\n".replace("SCHEMA", "{schema: a.schema.json}"), head="exit_codes: {E3: 30}\n")
    project.write({**text, **schema, "p.md.j2": prompt("a", "{}")})
    green(project.build())
    project.edit("a.json", "[]\n")
    assert project.run("accept", "a").code == 30
    (end,) = project.events_of("run_finished")
    assert end["data"]["exit_code"] == 30


@pytest.mark.parametrize(
    "code",
    [ExitCode.OK, ExitCode.SAFETY, ExitCode.SIGHUP, ExitCode.SIGINT, ExitCode.SIGTERM],
    ids=lambda code: code.name,
)
def test_what_no_pipeline_can_map(code: ExitCode) -> None:
    assert custom_exit_code(code, [Diagnostic("E101", "")], {"E1": 9}) == code


def test_warnings_do_not_decide_and_the_first_error_that_fits_does() -> None:
    warning = Diagnostic("E801", "", severity=Severity.WARNING)
    reported = [warning, Diagnostic("E900", ""), Diagnostic("E201", ""), Diagnostic("E101", "")]
    assert custom_exit_code(ExitCode.FAILED, reported, {"E8": 8, "E2": 20, "E201": 21, "E20": 22, "E1": 11}) == 21


@pytest.mark.parametrize(
    ("families", "expected"),
    [
        ({"FAILED": 9}, 9),
        ({"PROVIDER": 9}, ExitCode.FAILED),
        ({"E8": 8, "FAILED/E8": 9}, 9),
        ({"E8": 8, "INVALID/E8": 9}, 8),
        ({"E86": 8, "FAILED/E8": 9}, 9),
        ({"E860": 8, "FAILED/E860": 9}, 9),
        ({"FAILED/E9": 9}, ExitCode.FAILED),
        ({"FAILED": 9, "E8": 8}, 8),
    ],
)
def test_an_entry_may_name_the_exit_code_that_it_replaces(families: dict[str, int], expected: int) -> None:
    assert custom_exit_code(ExitCode.FAILED, [Diagnostic("E860", "")], families) == expected


def test_a_name_holds_for_failures_without_a_diagnostic_and_not_before_the_first_stage(project: Project) -> None:
    head = "exit_codes: {FAILED: 40, FAILED/E8: 41, E8: 42}\n"
    project.write(shell("  a: {shell: 'exit 9'}\n", head=head))
    assert project.run("validate").err == "", "no code is unknown"
    assert project.build().code == 40
    project.write(shell("  a: {shell: x, inputs: [nobody.txt]}\n", head=head))
    assert project.build().code == 42


@pytest.mark.parametrize(
    ("families", "words"),
    [
        ("{E1: 0}", "the minimum is 1"),
        ("{E1: 126}", "the maximum is 125"),
        ("{E1: two}", "a whole number"),
        ("{W8: 3}", "may not be a name here"),
        ("{E1234: 3}", "may not be a name here"),
        ("{PROVIDR: 3}", "may not be a name here"),
        ("{SAFETY: 3}", "may not be a name here"),
        ("{FAILED/: 3}", "may not be a name here"),
        ("{E1: '${{ vars.n }}'}", "the maximum is 125"),
    ],
)
def test_families_and_numbers_that_cannot_be(project: Project, families: str, words: str) -> None:
    project.write(shell("  a: {shell: x}\n", head=f"vars: {{n: 300}}\nexit_codes: {families}\n"))
    refused = project.build()
    assert (refused.code, words in refused.err) == (65, True)


def test_a_family_with_which_no_code_begins_is_warned_of_at_its_place(project: Project) -> None:
    project.write(shell("  a: {shell: 'exit 9'}\n", head="exit_codes: {E299: 4, E2: 2, E201: 3, E9: 9}\n"))
    validated = project.run("validate")
    assert validated.code == 0
    assert "warning[W803]: no diagnostic code begins with `E299`\n --> pipeline.yaml:3:20" in validated.err
    assert "begins with `E9`" in validated.err
    assert validated.err.count("W803") == 2
