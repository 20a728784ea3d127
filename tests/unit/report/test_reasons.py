"""Every reason and every decision has a text."""

from typing import cast, get_args

import pytest

from orch23.model.plan import Blocked, Decision, Edited, Expand, Fresh, Maybe, Restore, Run, VerifyOnly
from orch23.model.record import Reason, ReasonCode, Record
from orch23.report.plan_view import first_reason, reason_text, reason_texts, short_value

RECORD = Record(stage="a", key="k", manifest={})


@pytest.mark.parametrize("code", get_args(ReasonCode))
def test_every_code_has_a_clause(code: str) -> None:
    said = reason_text(Reason(cast("ReasonCode", code), "subject"))
    assert said
    assert "_" not in said


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (Reason("input_changed", "specs/a.md"), "specs/a.md changed"),
        (Reason("model_changed", "model", "small", "large"), "model changed: small -> large"),
        (Reason("command_changed", "command", ["a"], ["b"]), "command changed"),
        (Reason("tool_changed", "python", "3.11", "3.12"), "python changed: 3.11 -> 3.12"),
        (Reason("output_missing", ""), "its output is missing from the store"),
        (Reason("salt_changed", "action_format", 1, 2), "this version of orch23 builds it differently"),
        (Reason("verify_changed", "verify.input:tests/t.py"), "verification changed: tests/t.py"),
    ],
)
def test_a_reason_says_what_changed(reason: Reason, said: str) -> None:
    assert reason_text(reason) == said


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Fresh(RECORD), ()),
        (Run((Reason("first_run"),)), ("first run",)),
        (Restore(RECORD, ()), ("a later stage needs this version",)),
        (VerifyOnly(RECORD, (Reason("verify_changed", "verify"),)), ("verification changed",)),
        (Maybe(("a", "b")), ("if the outputs of a, b change",)),
        (Expand(("plan",), 3), ("its items are known after plan has run; 3 items last time",)),
        (Expand(("plan",), 0), ("its items are known after plan has run",)),
        (Blocked(("a",)), ("blocked by a",)),
        (Blocked(()), ()),
        (Edited(("x.py",)), ("edited by hand: x.py",)),
    ],
)
def test_a_decision_says_why(decision: Decision, said: tuple[str, ...]) -> None:
    assert reason_texts(decision) == said


def test_the_first_reason_is_shown_with_the_number_of_the_others() -> None:
    assert first_reason(()) == ""
    assert first_reason(("a",)) == "a"
    assert first_reason(("a", "b", "c")) == "a, +2 more"


def test_values_are_short_and_harmless() -> None:
    assert short_value("ab" * 32) == "abababababab"
    assert short_value("ab" * 32 + "+x") == "abababababab+x"
    assert short_value(None) == "nothing"
    assert short_value({"a": (1, 2)}) == '{"a": [1, 2]}'
    assert len(short_value("long " * 50)) == 40
    assert "\x1b" not in short_value("\x1b[31mred")
