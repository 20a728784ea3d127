"""Why something failed is said in one line: the exit code of a command, or the first error."""

import pytest

from orch23.attempt.failures import acceptance_failed, command_failed, exit_text, failure_of
from orch23.model.diagnostic import Diagnostic


@pytest.mark.parametrize(
    ("exit_code", "text"),
    [
        (1, "exited with 1"),
        (42, "exited with 42"),
        (127, "exited with 127"),
        (137, "exited with 137 (SIGKILL)"),
        (141, "exited with 141 (SIGPIPE)"),
        (255, "exited with 255"),
    ],
)
def test_an_exit_code_is_shown_with_its_signal(exit_code: int, text: str) -> None:
    assert exit_text(exit_code) == text


def test_a_refusal_is_summed_up_by_its_first_error() -> None:
    errors = [Diagnostic("E303", "`a` was not written"), Diagnostic("E303", "`b` was not written")]
    assert failure_of("verify_failed", errors[:1]).summary == "`a` was not written"
    assert failure_of("verify_failed", errors).summary == "`a` was not written (and 1 more)"
    named = [Diagnostic("E301", "failed with KeyError", subject="t.py::test_a")]
    assert failure_of("verify_failed", named).summary == "t.py::test_a: failed with KeyError"


def test_of_several_commands_the_first_is_named_and_the_others_are_counted() -> None:
    failed = [failure_of("verify_failed", [Diagnostic("E301", f"fault {number}")]) for number in (1, 2, 3)]
    assert acceptance_failed(failed[:1], ()).summary == "fault 1"
    assert acceptance_failed(failed, ()).summary == "fault 1 (and 2 more failed)"


def test_a_failure_of_which_nothing_else_is_known_is_named_by_its_kind() -> None:
    assert command_failed("timeout", "x", exit_code=None, output="").summary == "timeout"


def test_a_kind_that_is_none_is_an_exception() -> None:
    assert failure_of("timeout", []).kind == "timeout"
    assert failure_of("of a plugin", []).kind == "exception"
