"""Say what to do after a stage failed."""

import shlex
from collections.abc import Callable
from functools import partial

from orch23.model.diagnostic import Location
from orch23.model.event import StageFinished
from orch23.model.event_data import EventProblem, LikelyCause
from orch23.model.parsing import json_at
from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import Pipeline, Stage, family_of
from orch23.model.step import ProcessStep
from orch23.report.cause_text import is_possible
from orch23.report.diagnostics import visible
from orch23.resolve.commands import MAX_COMMAND_LENGTH, SHELL_COMMAND, typed_command

_PYTEST = "python -m pytest "
_MAX_COMMAND = 200
_SEVERAL = lazy_pattern(r"[;|&()<>`{}!\n]|\$\(")
_SHELLS = ("bash", "dash", "ksh", "sh", "zsh")
_EXITS = ("exit", "return")


def next_step(
    name: str, ended: StageFinished, kind: str, command: Callable[..., str], start: str, *, is_whole: bool
) -> str:
    """Return what to do after a stage failed, in one line.

    `command` returns the command line of a command of orch23. `start` is that of pytest without the test, or empty.
    `is_whole` is whether the whole output is shown.
    """
    if ended.paths:
        discard = command("build", "--overwrite-edited")
        return f"correct the file, then `{command('accept', name)}`; `{discard}` discards the edit"
    show, build = partial(command, "show", name), command("build")
    views = f"`{show('--response')}`, `{show('--prompt')}`" if kind == "llm" else f"`{show()}` shows its output"
    more = "" if is_whole and kind != "llm" else f"; {views}"
    if ended.cause:
        return f"{_change(ended.cause)}, then `{build}`{more}"
    if kind == "pytest" and (test := _first_test(ended)) is not None:
        return f"{_start(test)}, then `{build}`{_rerun(ended, test, start)}{more}"
    if kind == "shell" and ended.command and not ended.failure.strip():
        alone = command("build", name)
        return f"`{alone}` runs this stage alone; without the sandbox: {_by_hand(ended.command)}"
    return views


def trace_hint(command: str, place: str) -> str:
    """Return how to see which command of a text or script of a shell failed; empty for another program.

    `command` is the command of the stage; `place` is where it is written, or empty.
    """
    typed = typed_command(command)
    words = _words_of_one(typed)
    if script := _script(words):
        return f"to see each command before it runs, write `set -x` in `{script}`, after its first line"
    # For one program alone, bash would show only its name.
    if typed == command or (words and words[0] not in _EXITS):
        return ""
    where = f" ({place})" if place else ""
    return f"to see each command before it runs, write `set -x` at the beginning of `shell`{where}"


def place_of_verification(pipeline: Pipeline, name: str, command: str) -> Location | None:
    """Return where the step of a stage's verification with this command is written, or None."""
    stages = [one for one in pipeline.stages if isinstance(one, Stage) and one.name == name]
    for at, step in enumerate(stages[0].verify.steps if stages else ()):
        words = step.words if isinstance(step, ProcessStep) else None
        if words == typed_command(command) or (isinstance(words, list) and shlex.join(map(str, words)) == command):
            # A list is the steps themselves, a mapping has them under `steps`.
            found = [pipeline.place_in(stages[0], "verify", *way, at) for way in ((), ("steps",))]
            return max(filter(None, found), key=lambda place: (place.line, place.column), default=None)
    return None


def _words_of_one(typed: str) -> list[str]:
    """Return the words of a single command; none if bash may run more than one."""
    try:
        return [] if len(typed) > MAX_COMMAND_LENGTH or _SEVERAL.search(typed.strip()) else shlex.split(typed)
    except ValueError:
        return []


def _script(words: list[str]) -> str:
    if not words:
        return ""
    if words[0].rpartition("/")[2] in _SHELLS:
        return words[1] if len(words) > 1 and not words[1].startswith("-") else ""
    return words[0] if words[0].endswith(".sh") else ""


def _change(cause: LikelyCause) -> str:
    condition = "if that is the cause, " if is_possible(cause) else ""
    return f"{condition}{'make this change' if cause.key else 'correct that'}"


def _first_test(ended: StageFinished) -> EventProblem | None:
    """Return the failed test that the excerpt describes first, or None."""
    named = [one for one in ended.problems if one.code == "E301" and one.subject]
    found = {ended.failure.find(f"{one.subject} "): one for one in named}
    found.pop(-1, None)
    return found[min(found)] if found else None


def _start(test: EventProblem) -> str:
    if not test.location:
        return "correct the test or the code"
    return f"start at {visible(test.location.file)}:{test.location.line}"


def start_of_pytest(pipeline: Pipeline, name: str) -> str:
    """Return the begin of the command that runs a test of a stage by hand, from the root; empty if it is not known."""
    node = next(one for one in pipeline.stages if one.name == family_of(name))
    written = (
        {"cwd": node.cwd, "pytest": getattr(node.step, "declared", None)} if isinstance(node, Stage) else node.body
    )
    paths, cwd = json_at(written, "pytest", "pythonpath") or ["."], written.get("cwd") or "."
    path = ":".join(map(str, paths)) if isinstance(paths, list) else str(paths)
    if "${{" in f"{path}{cwd}":
        return ""
    folder = "" if cwd in (".", "./") else f"cd {shlex.quote(str(cwd))} && "
    return f"{folder}{'' if path == '.' else f'PYTHONPATH={shlex.quote(path)} '}{_PYTEST}"


def _rerun(ended: StageFinished, test: EventProblem, start: str) -> str:
    if not start or not ended.command.startswith(_PYTEST):
        return ""
    return f"; `{visible(start)}{visible(shlex.quote(test.subject or ''))}` runs this test alone"


def _by_hand(command: str) -> str:
    typed, bash = typed_command(command), shlex.join(SHELL_COMMAND)
    line = command if typed == command else f"{bash} {shlex.quote(typed)}"
    if "\n" in line or len(line) > _MAX_COMMAND:
        return f"`{bash} TEXT`, with the text of `shell`" if typed != command else "the command above"
    return f"`{visible(line)}`"
