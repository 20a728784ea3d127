"""What is reported of writes to a read-only tree that were refused: read from what the step printed."""

import pytest

from orch23.attempt.failures import command_failed
from orch23.attempt.process_runner import with_refused_writes


def reported(printed: str) -> list[str]:
    failure = command_failed("verify_failed", "true", exit_code=1, output="it failed")
    return [d.message for d in with_refused_writes(failure, printed).diagnostics]


@pytest.mark.parametrize(
    "line",
    [
        "E   OSError: [Errno 30] Read-only file system: 'out.txt'",
        "PermissionError: [Errno 13] Permission denied: '/room/work/out.txt'",
        "touch: cannot touch 'out.txt': Read-only file system",
        "bash: line 1: out.txt: Permission denied",
        "OSError: [Errno 30] Read-only file system: '/etc' -> 'out'",
        "rm: cannot remove '/room/work/tests/test_a.py': Permission denied",
    ],
)
def test_a_refused_write_is_reported_with_its_line_and_a_hint(line: str) -> None:
    failure = with_refused_writes(command_failed("verify_failed", "true", exit_code=1, output="it failed"), line)
    (found,) = failure.diagnostics
    assert found.code == "E323"
    assert line.removeprefix("E   ") in found.message
    assert "`scratch`" in (found.hint or "")
    assert failure.feedback.excerpt.startswith("it failed")
    assert "`scratch`" in failure.feedback.excerpt
    assert len(failure.feedback.diagnostics) == 1


@pytest.mark.parametrize(
    "line",
    [
        "PermissionError: [Errno 13] Permission denied: '/root/.netrc'",
        "cat: /etc/shadow: Permission denied",
        "assert 1 == 2",
        "OSError: [Errno 28] No space left on device: 'out.txt'",
    ],
)
def test_what_has_another_reason_is_not(line: str) -> None:
    assert reported(line) == []


def test_one_of_the_errors_has_the_hint() -> None:
    failure = command_failed("verify_failed", "true", exit_code=1, output="it failed")
    printed = (
        "E   OSError: [Errno 30] Read-only file system: 'o'\nFAILED a - OSError: [Errno 30] Read-only file system: 'o'"
    )
    assert [bool(one.hint) for one in with_refused_writes(failure, printed).diagnostics] == [True, False]


def test_only_the_first_refused_writes_are_reported_and_long_lines_are_cut() -> None:
    many = "\n".join(f"touch: cannot touch 'out{n}.txt': Read-only file system" for n in range(9))
    assert len(reported(many)) == 3
    assert len(reported("x" * 5000 + ": Read-only file system")[0]) < 500
