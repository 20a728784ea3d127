"""Say what to do after a stage failed."""

import shlex
from collections.abc import Callable

from orch23.model.event import StageFinished
from orch23.model.event_data import EventProblem, LikelyCause
from orch23.report.cause_text import is_possible
from orch23.report.diagnostics import visible
from orch23.resolve.commands import SHELL_COMMAND, typed_command

_PYTEST = "python -m pytest "
_MAX_COMMAND = 200


def next_step(name: str, ended: StageFinished, kind: str, command: Callable[..., str], *, is_whole: bool) -> str:
    """Return what to do after a stage failed, in one line.

    `command` returns the command line of a command of orch23. `is_whole` is whether the whole output is shown.
    """
    if ended.paths:
        discard = command("build", "--overwrite-edited")
        return f"correct the file, then `{command('accept', name)}`; `{discard}` discards the edit"
    show, build = command("show", name), command("build")
    views = f"`{show} --response`, `{show} --prompt`" if kind == "llm" else f"`{show}` shows its output"
    more = "" if is_whole and kind != "llm" else f"; {views}"
    if ended.cause:
        return f"{_change(ended.cause)}, then `{build}`{more}"
    if kind == "pytest" and (test := _first_test(ended)) is not None:
        return f"{_start(test)}, then `{build}`{_rerun(ended, test)}{more}"
    if kind == "shell" and ended.command and not ended.failure.strip():
        alone = command("build", name)
        return f"`{alone}` runs this stage alone; without the sandbox: {_by_hand(ended.command)}"
    return views


def trace_hint(command: str, place: str) -> str:
    """Return how to see which part of a text that bash runs failed; empty for another command."""
    where = f" ({place})" if place else ""
    hint = f"to see each command before it runs, write `set -x` at the beginning of `shell`{where}"
    return hint if typed_command(command) != command else ""


def _change(cause: LikelyCause) -> str:
    condition = "if that is the cause, " if is_possible(cause) else ""
    if not cause.key and not cause.old_word:
        return f"{condition}correct that"
    changes = "both changes" if cause.key and cause.old_word else "this change"
    return f"{condition}copy it, make {changes}" if cause.first else f"{condition}make {changes}"


def _first_test(ended: StageFinished) -> EventProblem | None:
    """Return the failed test that the excerpt describes first, or None."""
    named = [one for one in ended.problems if one.code == "E301" and one.subject]
    found = {ended.failure.find(f"{one.subject} ("): one for one in named}
    found.pop(-1, None)
    return found[min(found)] if found else None


def _start(test: EventProblem) -> str:
    if not test.location:
        return "correct the test or the code"
    return f"start at {visible(test.location.file)}:{test.location.line}"


def _rerun(ended: StageFinished, test: EventProblem) -> str:
    if not ended.command.startswith(_PYTEST):
        return ""
    return f"; `{_PYTEST}{visible(shlex.quote(test.subject or ''))}` runs this test alone"


def _by_hand(command: str) -> str:
    """Return how to run a command as the stage does, without its sandbox."""
    typed, bash = typed_command(command), shlex.join(SHELL_COMMAND)
    line = command if typed == command else f"{bash} {shlex.quote(typed)}"
    if "\n" in line or len(line) > _MAX_COMMAND:
        return f"`{bash} TEXT`, with the text of `shell`" if typed != command else "the command above"
    return f"`{visible(line)}`"
