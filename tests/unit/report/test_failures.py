"""The blocks of failed, edited and withheld stages at the end of a build."""

from typing import Any

import pytest
from msgspec.structs import replace

from orch23.model.diagnostic import Location
from orch23.model.event import AttemptFinished, Event, FinishedStage, StageFinished
from orch23.model.parsing import to_struct
from orch23.model.pipeline import FailureKind, Pipeline, Stage
from orch23.report.attempts import hidden_reasons
from orch23.report.marks import Style
from orch23.report.stage_text import failure_text, first_cause, stage_line
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
        "  = E304: raise `timeout`, or make it faster\n"
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
        f"  next: `orch23 build p.yaml a` runs this stage alone; without the sandbox: `{command}`\n"
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
    assert "  = " not in text_of(
        failure="[E304] a: killed after 3 s. Fix: raise `timeout`, or make it faster.", problems=[LATE]
    )


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
        "  in the store, but not in the workspace: a@1 a@2\n"
        "  next: fix a@3, then `orch23 build p.yaml` promotes the group; the stages that passed do not run again\n"
        "\n- b  withheld: its stages are promoted together\n"
        "  in the store, but not in the workspace: b@x\n"
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
