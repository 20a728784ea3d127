"""Describe failures of stages: their likely cause, what to do next, failed attempts, and where a value was set."""

import re
import shlex
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import partial

from orch23.model.diagnostic import Location, Related
from orch23.model.event import AttemptFinished, AttemptStarted, CallSettled, Event, StageFinished
from orch23.model.event_data import EventProblem, LikelyCause
from orch23.model.parsing import json_at
from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import Pipeline, Stage, family_of
from orch23.model.step import ProcessStep
from orch23.model.text import format_duration, parse_amount, visible
from orch23.report.values import Style, money_text, pluralize, truncate
from orch23.resolve.commands import MAX_COMMAND_LENGTH, typed_command
from orch23.steps.registry import is_llm

_PLAIN = lazy_pattern(r"[\w./@+-]+")


def cause_lines(pipeline: Pipeline, stage: str, cause: LikelyCause, style: Style, code: str = "") -> list[str]:
    """Return the lines of a cause; `code` is the code of the error that it explains, or empty."""
    name = f"{cause_name(cause)}[{code}]" if code else cause_name(cause)
    lines = [f"  {style.paint(name, 'notice')}: {visible(cause.text)}"]
    if cause.key:
        # The place of the key, or else of the stage.
        place = pipeline.locate("stages", stage, *cause.key.split("/"))
        lines += [f"   {style.paint('-->', 'frame')} {visible(str(place))}"] if place else []
        lines.append(f"   {style.paint('+', 'good')} {visible(yaml_line(cause))}")
    return [*lines, f"  = help: {visible(cause.hint)}"] if cause.hint else lines


def cause_name(cause: LikelyCause) -> str:
    """Return how certain a cause is."""
    return "possible cause" if is_possible(cause) else "likely cause"


def is_possible(cause: LikelyCause) -> bool:
    """Return whether a cause only may explain the failure."""
    return cause.kind == "network_use"


def yaml_line(cause: LikelyCause) -> str:
    """Return the key with its value in one line: `limits: {memory: 2GiB}`, `inputs: [..., a.md]`."""
    escaped = cause.value.replace("\\", "\\\\").replace('"', '\\"')
    value = cause.value if _PLAIN.fullmatch(cause.value) else f'"{escaped}"'
    first, *others = cause.key.split("/")
    text = f"[..., {value}]" if cause.appends else value
    for name in reversed(others):
        text = f"{{{name}: {text}}}"
    return f"{first}: {text}"


_PYTEST = "python -m pytest "
_SEVERAL = lazy_pattern(r"[;|&()<>`{}!\n]|\$\(")
_SHELLS = ("bash", "dash", "ksh", "sh", "zsh")
_EXITS = ("exit", "return")


def next_step(
    name: str, ended: StageFinished, kind: str, command: Callable[..., str], start: str | None, *, is_whole: bool
) -> str:
    """Return what to do after a stage failed, in one line.

    `command` returns the command line of a command of orch23. `start` is the command of pytest without the test, or
    empty; None if files that the stage got are in the store alone, so that no command finds them. `is_whole` is whether
    the whole output is shown.
    """
    if ended.paths:
        discard = command("build", "--overwrite-edited")
        return f"correct the file, then `{command('accept', name)}`; `{discard}` discards the edit"
    show, build = partial(command, "show", name), command("build")
    views = f"`{show('--response')}`, `{show('--prompt')}`" if kind == "llm" else f"`{show()}` shows its output"
    more = "" if is_whole and kind != "llm" else f"; {views}"
    if ended.cause:
        condition = "if that is the cause, " if is_possible(ended.cause) else ""
        return f"{condition}{'make this change' if ended.cause.key else 'correct that'}, then `{build}`{more}"
    if kind in ("pytest", "shell") and (test := _first_test(ended)) is not None:
        place = test.location
        begin = f"start at {visible(place.file)}:{place.line}" if place else "correct the test or the code"
        return f"{begin}, then `{build}`{_rerun(ended, test, start)}{more}"
    if kind == "shell" and ended.command and not ended.failure.strip():
        return (
            f"`{command('shell', name)}` opens a shell where it ran; `{command('build', name)}` runs this stage alone"
        )
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


def failed_tests(ended: StageFinished) -> list[EventProblem]:
    """Return the failed tests that are named: the id is the subject of each."""
    return [one for one in ended.problems if one.code == "E301" and one.subject]


def _first_test(ended: StageFinished) -> EventProblem | None:
    """Return the failed test that the excerpt describes first, or None."""
    named = failed_tests(ended)
    # The excerpt has `ID (call): ERROR` of pytest, and `ID: ERROR` of other runners.
    places = {one.subject: [ended.failure.find(f"{one.subject}{end}") for end in (" (", ": ")] for one in named}
    found = {min((at for at in places[one.subject] if at >= 0), default=-1): one for one in named}
    found.pop(-1, None)
    return found[min(found)] if found else None


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


def _rerun(ended: StageFinished, test: EventProblem, start: str | None) -> str:
    if not start or not ended.command.startswith(_PYTEST):
        return ""
    return f"; `{visible(start)}{visible(shlex.quote(test.subject or ''))}` runs this test alone"


_MAX_RESULT = 100
_MAX_REASON = 160
_VERIFIED = ("verify_failed", "acceptance_failed")
_NOTHING_TO_VERIFY = ("llm_output_invalid", "write_scope_violation")


def failed_attempts(events: Iterable[tuple[float, Event]]) -> tuple[str, ...]:
    """Return a line for each failed attempt: the result, the duration, the calls and their cost.

    The events are those of a stage, each with its time in seconds.
    """
    lines: list[str] = []
    began: float | None = None
    calls, cost = 0, Decimal(0)
    for now, event in events:
        match event.data:
            case AttemptStarted():
                began, calls, cost = now, 0, Decimal(0)
            case CallSettled():
                calls += event.data.calls
                cost += parse_amount(event.data.cost) or Decimal(0)
            case AttemptFinished(passed=False):
                result = event.message.partition("\n")[0].replace(" failed: verify: ", " failed: ", 1)
                facts = [truncate(visible(result), _MAX_RESULT)]
                # The verification of a recorded result has no start.
                facts += [] if began is None else [format_duration(now - began)]
                facts += [pluralize(calls, "call")] if calls else []
                facts += [money_text(cost, Decimal(0))] if cost else []
                lines.append("   ".join(facts))
    return tuple(lines)


def hidden_reasons(events: Iterable[Event]) -> str:
    """Return the reason of each attempt of a stage: `3 attempts failed: 1: no module; 2, 3: cut off`.

    Empty unless a result failed its verification, and the last attempt failed before there was a result to verify: its
    reason says nothing about the earlier one.
    """
    ended = [one for one in events if isinstance(one.data, AttemptFinished) and one.data.attempt]
    kinds = [one.data.failure_kind for one in ended if isinstance(one.data, AttemptFinished)]
    if not ended or kinds[-1] not in _NOTHING_TO_VERIFY or not set(_VERIFIED).intersection(kinds):
        return ""
    numbers: dict[str, list[str]] = {}
    for number, one in enumerate(ended, 1):
        reason = one.message.partition("\n")[0].partition(" failed: ")[2].removeprefix("verify: ")
        numbers.setdefault(truncate(visible(reason), _MAX_REASON), []).append(str(number))
    reasons = "; ".join(f"{', '.join(found)}: {reason}" for reason, found in numbers.items())
    return f"{pluralize(len(ended), 'attempt')} failed: {reasons}"


_VAR = re.compile(r"\$\{\{\s*vars\.(\w+)\s*\}\}")
_VARS = lazy_pattern(r"\bvars\.(\w+)")


def timeout_hint(pipeline: Pipeline, name: str, source: Callable[[str], str]) -> str:
    """Return what to do about a process of a stage that took too long. `source` returns the text of a file."""
    place = pipeline.locate_written(f"stages/{family_of(name)}/timeout")
    written = _text_at(source(place.file), place) if place else ""
    ways = [f"`vars.{var}`, as with `--set {var}=VALUE`" for var in dict.fromkeys(_VARS.findall(written))]
    raised = " or ".join(ways or ["`timeout`"])
    return f"correct what does not end, such as a loop, or make it faster; else raise {raised}"


def model_places(pipeline: Pipeline, name: str, place: Location, source: str) -> tuple[Related, ...]:
    """Return where the model of a stage is set: at a var, or outside of the file; nothing if it is at the place.

    `place` is the place of `llm.model`, `source` the text of its file.
    """
    stage = next((one for one in pipeline.stages if one.name == family_of(name)), None)
    if not isinstance(stage, Stage) or not is_llm(stage.step):
        return ()
    model, used = stage.step.model, _text_at(source, place)
    if used in ("", model):
        return ()
    var = _VAR.fullmatch(used)
    set_at = None if var is None else pipeline.locate("vars", var[1])
    if var is not None and set_at is not None and _text_at(source, set_at) == model:
        return (Related(f"`vars.{var[1]}` is set here", set_at),)
    ways = f"`--model`, `ORCH23_MODEL`{'' if var is None else ', `--set` or a file of `--vars`'}"
    return (Related(f"`{model}` comes from outside of this file: from {ways}", None),)


def _text_at(source: str, place: Location) -> str:
    lines = source.removeprefix("\ufeff").split("\n")
    line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
    return line[place.column - 1 : place.column - 1 + place.length].strip("\"'")
