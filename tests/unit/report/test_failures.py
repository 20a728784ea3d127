"""Failures at the end of a build: their blocks, likely causes, next steps, and where a model was set."""

from typing import Any

import pytest
from msgspec.structs import replace

from orch23.load.overrides import ModelOverride
from orch23.load.pipeline import parse_pipeline
from orch23.model.diagnostic import Location
from orch23.model.event import AttemptFinished, Event, FinishedStage, StageFinished
from orch23.model.event_data import LikelyCause
from orch23.model.parsing import to_struct
from orch23.model.pipeline import FailureKind, Pipeline, Stage
from orch23.report.failures import hidden_reasons, model_places, next_step, trace_hint, yaml_line
from orch23.report.stage_text import failure_text, first_cause, stage_line
from orch23.report.values import Style
from orch23.steps.llm.spec import LLMStep
from orch23.steps.shell.spec import ShellStep

PLAIN = Style()

PIPELINE = Pipeline(
    name="demo",
    file="p.yaml",
    stages=(Stage(name="a", step=ShellStep("x")),),
    locations={"stages/a": Location("p.yaml", 4, 3)},
)
LATE = {"code": "E304", "message": "killed after 3 s", "subject": "a", "hint": "raise `timeout`, or make it faster"}
RED = {"code": "E301", "message": "fails", "subject": "test_a", "hint": None}


def ended(name: str, message: str, **data: Any) -> FinishedStage:
    return FinishedStage(name, message, to_struct(data, StageFinished))


def text_of(**data: Any) -> str:
    end = ended("a", "killed after 3 s", status="failed", attempts=1, **data)
    return failure_text(PIPELINE, [end], {"a": "shell"}, PLAIN)


def test_a_failure_shows_its_code_and_its_hint() -> None:
    assert text_of(command="sleep 9", failure="killed after 3 s", problems=[LATE, LATE]) == (
        "\n✘ a  p.yaml:4:3\n"
        "  $ sleep 9\n"
        "  | killed after 3 s\n"
        "  = E304: correct what does not end, such as a loop, or make it faster; else raise `timeout`\n"
        "  next: `orch23 show p.yaml a` shows its output\n"
    )


def test_how_a_command_ended_comes_before_what_it_printed() -> None:
    facts = {"status": "failed", "attempts": 1, "command": "sh x"}
    text = failure_text(
        PIPELINE, [ended("a", "exited with 3; retries exhausted", failure="no disk\n", **facts)], {"a": "shell"}, PLAIN
    )
    assert "  $ sh x\n  exited with 3; retries exhausted\n  | no disk\n  next: " in text
    silent_end = ended("a", "exited with 3; retries exhausted", **facts)
    silent = failure_text(PIPELINE, [silent_end], {"a": "shell"}, PLAIN)
    assert "  $ sh x\n  exited with 3; retries exhausted\n  next: " in silent


def test_a_silent_command_is_traced_at_its_place() -> None:
    command = "bash -euo pipefail -c 'exit 3'"
    facts = {"status": "failed", "attempts": 1, "command": command, "exit_code": 3, "command_s": 2.0}
    silent = failure_text(PIPELINE, [ended("a", "exited with 3", **facts)], {"a": "shell"}, PLAIN)
    assert silent == (
        "\n✘ a  p.yaml:4:3\n"
        "  $ exit 3\n"
        "  exited with 3 after 2.0s; it printed nothing\n"
        "  = help: to see each command before it runs, write `set -x` at the beginning of `shell` (p.yaml:4:3)\n"
        "  next: `orch23 shell p.yaml a` opens a shell where it ran; `orch23 build p.yaml a` runs this stage alone\n"
    )
    verified = failure_text(PIPELINE, [ended("a", "verify: exited with 3", **facts)], {"a": "shell"}, PLAIN)
    assert "beginning of `shell`\n" in verified, "the command is one of `verify`, not of the stage"


def test_the_exit_status_is_said_once_beside_a_cause() -> None:
    facts: dict[str, Any] = {"status": "failed", "attempts": 1, "command": "x", "exit_code": 3, "failure": "no"}
    cause = {"kind": "package", "text": "`m` is not installed", "hint": "install it"}
    end = ended("a", "exited with 3", **facts, cause=cause)
    assert "exited" not in stage_line(end, "shell", 1, PLAIN)
    assert failure_text(PIPELINE, [end], {"a": "shell"}, PLAIN).count("exited with 3") == 1
    assert first_cause(PIPELINE, [end]) == "a (p.yaml:4:3): `m` is not installed"
    assert first_cause(PIPELINE, [ended("a", "exited with 3", **facts)]) == "a (p.yaml:4:3): exited with 3"
    assert "retries exhausted" in stage_line(ended("a", "exited with 3; retries exhausted", **facts), "shell", 1, PLAIN)


def test_a_hint_that_the_excerpt_contains_is_not_repeated() -> None:
    unwritten = {"code": "E303", "message": "`a` was not written", "hint": "write it"}
    assert "  = " not in text_of(failure="[E303]: `a` was not written. Fix: write it.", problems=[unwritten])


def test_the_hint_for_a_model_that_is_too_slow_is_not_that_for_its_user() -> None:
    late = {**LATE, "hint": "end every loop, or make it faster"}
    shown = text_of(failure="[E304] a: killed after 3 s. Fix: end every loop, or make it faster.", problems=[late])
    assert "  = E304: correct what does not end, such as a loop, or make it faster; else raise `timeout`\n" in shown


def test_a_failing_test_is_shown_by_its_excerpt_alone() -> None:
    assert "E301" not in text_of(failure="assert 2 == 1", problems=[RED])


def test_hints_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in text_of(failure="x", problems=[{**LATE, "hint": "\x1b[2J"}])


def test_a_failure_on_recorded_responses_says_how_to_call_the_model_again() -> None:
    text = "  no model call: its 2 responses are recorded; `orch23 build p.yaml --resample a` calls the model again\n"
    assert text in text_of(failure="x", recorded=2, calls=0)
    assert "its 1 response is recorded" in text_of(failure="x", recorded=1, calls=0)
    assert "no model call" not in text_of(failure="x", recorded=1, calls=1)
    assert "no model call" not in text_of(failure="x", recorded=0, calls=0)


@pytest.mark.needs("local")
def test_a_model_that_repeats_its_responses_is_not_called_again() -> None:
    end = ended("a", "x", status="failed", attempts=1, failure="x", recorded=1)
    step = LLMStep(prompt="p.md.j2", returns="code", provider="local", model="smollm2")
    for one, word in ((step, "change the prompt"), (replace(step, temperature=0.5), "--resample")):
        pipeline = replace(PIPELINE, stages=(Stage(name="a", step=one),))
        assert word in failure_text(pipeline, [end], {"a": "llm"}, PLAIN)


def test_the_reason_of_an_earlier_attempt_is_named_if_the_last_one_hides_it() -> None:
    def reasons(*kinds: FailureKind) -> str:
        found = [AttemptFinished(attempt=n, failure_kind=kind) for n, kind in enumerate(kinds, 1)]
        return hidden_reasons(
            Event(one, f"attempt {one.attempt} failed: verify: {one.failure_kind}\n") for one in found
        )

    verified: FailureKind = "verify_failed"
    cut: FailureKind = "llm_output_invalid"
    assert reasons(verified, cut, cut) == "3 attempts failed: 1: verify_failed; 2, 3: llm_output_invalid"
    assert reasons(cut, verified) == reasons(cut, cut) == reasons(verified) == reasons() == ""
    end = replace(
        ended("a", "cut off", status="failed", attempts=3, failure="cut off"), reasons="3 attempts failed: ..."
    )
    assert first_cause(PIPELINE, [end]) == "a (p.yaml:4:3): 3 attempts failed: ..."
    assert "  3 attempts failed: ...\n" in failure_text(PIPELINE, [end], {"a": "llm"}, PLAIN)


def withheld(name: str, *by: str) -> FinishedStage:
    return ended(name, "held back", status="held", by=list(by))


def test_a_withheld_group_is_reported_once_with_the_stages_that_failed() -> None:
    ends = [withheld("a@1", "a@3"), withheld("b@x", "b@y", "b@z"), withheld("a@2", "a@3")]
    assert failure_text(PIPELINE, ends, {}, PLAIN) == (
        "\n- a  withheld: its stages are promoted together\n"
        "  in the store, but not in the workspace: a@1 a@2; `orch23 show p.yaml STAGE --withheld` lists files\n"
        "  next: fix a@3, then `orch23 build p.yaml` promotes the group; the stages that passed do not run again\n"
        "\n- b  withheld: its stages are promoted together\n"
        "  in the store, but not in the workspace: b@x; `orch23 show p.yaml STAGE --withheld` lists files\n"
        "  next: fix b@y b@z, then `orch23 build p.yaml` promotes the group; the stages that passed do not run again\n"
    )


def test_a_long_list_of_withheld_stages_is_cut() -> None:
    text = failure_text(PIPELINE, [withheld(f"a@{n}", "a@x\x1b[2J") for n in range(12)], {}, PLAIN)
    assert "a@7 and 4 more" in text
    assert "\x1b" not in text


def test_of_many_failed_stages_the_first_are_shown_and_the_others_counted() -> None:
    ends = [ended(f"a@{n}", "no", status="failed") for n in range(3_000)]
    text = failure_text(PIPELINE, ends, {"a": "shell"}, PLAIN)
    assert text.count("✘") == 20
    assert "a@19" in text
    assert "2,980 more stages" in text
    assert len(text) < 2_000


def test_a_key_is_written_in_one_line() -> None:
    def line(key: str, value: str, *, appends: bool = False) -> str:
        return yaml_line(LikelyCause(kind="path", text="t", key=key, value=value, appends=appends))

    assert line("inputs", "b/c.md", appends=True) == "inputs: [..., b/c.md]"
    assert line("env/PYTHONPATH", "a:src") == 'env: {PYTHONPATH: "a:src"}'
    assert line("env/A", 'x "y"') == 'env: {A: "x \\"y\\""}'
    assert line("verify/inputs", "b", appends=True) == "verify: {inputs: [..., b]}"


KEY = {"kind": "path", "text": "t", "key": "inputs", "value": "b"}


def step_of(kind: str = "shell", start: str = "python -m pytest ", *, is_whole: bool = True, **data: Any) -> str:
    ended = to_struct({"status": "failed", "attempts": 1, "command": "x", "failure": "red", **data}, StageFinished)
    return next_step("a", ended, kind, lambda *words: " ".join(("orch23", *words)), start, is_whole=is_whole)


@pytest.mark.parametrize(
    ("cause", "step"),
    [
        (KEY, "make this change"),
        ({**KEY, "kind": "network_use"}, "if that is the cause, make this change"),
        ({"kind": "package", "text": "t", "hint": "install it"}, "correct that"),
    ],
)
def test_after_a_cause_comes_its_change_and_a_build(cause: dict[str, Any], step: str) -> None:
    assert step_of(cause=cause) == f"{step}, then `orch23 build`"
    assert step_of(cause=cause, is_whole=False).endswith("`orch23 build`; `orch23 show a` shows its output")
    assert step_of("llm", cause=cause).endswith("`orch23 build`; `orch23 show a --response`, `orch23 show a --prompt`")


def test_a_command_that_printed_nothing_has_a_shell_where_it_ran() -> None:
    shell = "`orch23 shell a` opens a shell where it ran; `orch23 build a` runs this stage alone"
    assert step_of(command="bash -euo pipefail -c 'exit 3'", failure="") == shell
    assert step_of() == "`orch23 show a` shows its output"


def test_after_failed_tests_comes_the_place_and_the_test_that_the_excerpt_shows_first() -> None:
    place = {"file": "t.py", "line": 8, "column": 1}
    problems = [
        {"code": "E301", "subject": "t.py::test_a"},
        {"code": "E301", "subject": "t.py::test_b[x y]", "location": place},
    ]
    facts: dict[str, Any] = {
        "failure": "2 tests with this cause: t.py::test_b[x y] (call): KeyError\n\nt.py::test_a (call): E",
        "command": "python -m pytest t.py",
        "problems": problems,
    }
    alone = "`python -m pytest 't.py::test_b[x y]'` runs this test alone"
    assert step_of("pytest", **facts) == f"start at t.py:8, then `orch23 build`; {alone}"
    assert step_of("pytest", "cd a && pytest ", **facts).endswith(
        "; `cd a && pytest 't.py::test_b[x y]'` runs this test alone"
    )
    assert step_of("pytest", "", **facts) == "start at t.py:8, then `orch23 build`"
    assert step_of("pytest", **{**facts, "command": "tox"}) == "start at t.py:8, then `orch23 build`"
    assert step_of("pytest", **{**facts, "failure": "t.py::test_a (call): E"}) == (
        "correct the test or the code, then `orch23 build`; `python -m pytest t.py::test_a` runs this test alone"
    )
    assert step_of("pytest", **{**facts, "problems": []}) == "`orch23 show a` shows its output"
    assert step_of("llm", **facts) == "`orch23 show a --response`, `orch23 show a --prompt`"


@pytest.mark.parametrize(
    ("command", "script"),
    [("./check.sh", "./check.sh"), ("bash check.sh x", "check.sh"), ("/bin/sh run", "run"), ("bash -x a.sh", "")],
)
def test_a_script_is_traced_in_its_own_file(command: str, script: str) -> None:
    hint = f"to see each command before it runs, write `set -x` in `{script}`, after its first line" if script else ""
    assert trace_hint(command, "p.yaml:3:4") == hint
    assert trace_hint(f"bash -euo pipefail -c '{command}'", "p.yaml:3:4") == hint


def test_only_a_text_that_bash_runs_can_be_traced() -> None:
    hint = "to see each command before it runs, write `set -x` at the beginning of `shell`"
    for several in ("a; b", "exit 3", "a | b", "x=$(a)", "a\nb", "! a", "a > b"):
        assert trace_hint(f"bash -euo pipefail -c '{several}'", "p.yaml:3:4") == f"{hint} (p.yaml:3:4)"
    assert trace_hint("bash -euo pipefail -c 'a; b'", "") == hint
    assert trace_hint("grep -q x y", "p.yaml:3:4") == ""
    assert trace_hint("bash -euo pipefail -c 'python t.py'", "p.yaml:3:4") == "", "bash would show its name alone"


TEXT = """version: 1
vars: {model: gpt-9, other: x}
stages:
  s:
    outputs: [o]
    llm: {provider: openai, prompt: p.j2, returns: text, model: MODEL}
"""
OUTSIDE = "comes from outside of this file: from `--model`, `ORCH23_MODEL`"


@pytest.mark.parametrize(
    ("written", "sets", "override", "expected"),
    [
        ("gpt-9", {}, None, []),
        ('"${{ vars.model }}"', {}, None, [("`vars.model` is set here", 2)]),
        ('"${{vars.model}}"', {"model": "z"}, None, [(f"`z` {OUTSIDE}, `--set` or a file of `--vars`", 0)]),
        ('"${{ vars.model }}"', {}, "m", [(f"`m` {OUTSIDE}, `--set` or a file of `--vars`", 0)]),
        ("gpt-9", {}, "m", [(f"`m` {OUTSIDE}", 0)]),
    ],
)
def test_the_place_of_the_value_is_named(
    written: str, sets: dict[str, str], override: str | None, expected: list[tuple[str, int]]
) -> None:
    text = TEXT.replace("MODEL", written)
    pipeline = parse_pipeline(text, "p.yaml", sets=sets, override=ModelOverride(model=override)).pipeline
    assert pipeline is not None
    place = pipeline.locate("stages", "s", "llm", "model")
    assert place is not None
    found = model_places(pipeline, "s", place, text)
    assert [(one.message, one.location.line if one.location else 0) for one in found] == expected
    assert model_places(pipeline, "s", place, "") == ()
    assert model_places(pipeline, "t", place, text) == ()
