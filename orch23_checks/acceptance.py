"""Judge one acceptance command that a model wrote: it must be one program with arguments, as it will run."""

import re
import shlex
from collections.abc import Sequence

from msgspec import Struct

from orch23.checks.python_source import parse_python
from orch23.model.diagnostic import Diagnostic
from orch23.model.shell_signs import shell_signs
from orch23_checks.invocations import is_assignment, plain_path, read_argv

_OPERATORS = frozenset("|&;<>()`\n")
_EXPANSION = re.compile(r"\$[A-Za-z_0-9({?@*#!$-]")
_STARTERS = frozenset({"if", "then", "else", "do", "while", "until", "exec", "time", "!", "{"})
_SHOWN = 5
_WITHIN = 8  # words of a shell's own code in which the script of a call is looked for
_NO_SHELL = "no shell reads it: write one program and its arguments, quote what is text, or make it several commands"


class Judged(Struct, frozen=True):
    """The argv of a command, empty if it has none, and what is wrong with it."""

    argv: tuple[str, ...]
    problems: tuple[Diagnostic, ...] = ()


def judge_command(command: str, subject: str, verify: str) -> Judged:
    """Split a command as `shlex` does and hold it to E003, E006, E007 and E105; `verify` is the banned script."""
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        why = str(error)[:1].lower() + str(error)[1:]
        return Judged((), (_unreadable(subject, f"cannot be split into words: {why}"),))
    if not argv or not argv[0]:
        return Judged((), (_unreadable(subject, "names no program"),))
    if "\0" in command:
        return Judged((), (_unreadable(subject, "holds a null character"),))
    problems: list[Diagnostic] = []
    operators = shell_operators(command)
    if operators:
        named = ", ".join(f"`{one}`" for one in operators[:_SHOWN]).replace("\n", "\\n")
        problems.append(Diagnostic("E003", f"holds {named}", hint=_NO_SHELL, subject=subject))
    if is_assignment(argv[0]):
        what = f"begins with the assignment `{argv[0][:40]}`"
        problems.append(Diagnostic("E003", what, hint=_NO_SHELL, subject=subject))
    called = read_argv(argv)
    if called.program == "python" and called.kind == "code":
        problems += _code_problems(called.value, subject)
    if runs_script(argv, verify):
        hint = "leave it out: the verification of every order runs it anyway"
        problems.append(Diagnostic("E105", f"runs `{verify}`", hint=hint, subject=subject))
    return Judged(argv, tuple(problems))


def shell_operators(command: str) -> tuple[str, ...]:
    """Return what a shell would act on outside of quotes, in order, each once: operators, `$NAME`, line breaks."""
    text, found, run, end = command.strip(), list[str](), "", 0
    for sign in shell_signs(text):
        if sign.quote or not (sign.char in _OPERATORS or _EXPANSION.match(text, sign.at)):
            continue
        if run and (sign.at != end or sign.char == "$"):
            found.append(run)
            run = ""
        run, end = run + sign.char, sign.at + 1
    return tuple(dict.fromkeys([*found, run] if run else found))


def runs_script(argv: Sequence[str], script: str) -> bool:
    """Say whether a command runs this script: itself, by a shell, or by the code that it gives to a shell."""
    called = read_argv(argv)
    if called.value is None or called.dry:
        return False
    if called.kind == "script":
        return called.program != "python" and plain_path(called.value) == plain_path(script)
    if called.program != "shell":
        return False
    try:
        words = list(shlex.shlex(called.value.replace("\n", ";"), posix=True, punctuation_chars=True))
    except ValueError:
        return False
    starts = [
        at for at in range(len(words)) if at == 0 or words[at - 1] in _STARTERS or set(words[at - 1]) <= _OPERATORS
    ]
    return any(runs_script(words[at : at + _WITHIN], script) for at in starts)


def _code_problems(code: str | None, subject: str) -> tuple[Diagnostic, ...]:
    """Hold the code of `python -c` to Python's own parser."""
    hint = "write Python that parses, in one pair of quotes"
    if code is None:
        return (Diagnostic("E006", "gives `python -c` no code", hint=hint, subject=subject),)
    try:
        parse_python(code, "<command>")
    except SyntaxError as error:
        place = f" (line {error.lineno}, column {error.offset})" if error.lineno and error.offset else ""
        what = f"gives `python -c` code that is not valid Python: {error.msg or 'invalid syntax'}{place}"
        return (Diagnostic("E006", what, hint=hint, subject=subject),)
    except (RecursionError, MemoryError, ValueError):
        what = "gives `python -c` code that is nested too deeply for Python's parser"
        return (Diagnostic("E006", what, hint=hint, subject=subject),)
    return ()


def _unreadable(subject: str, what: str) -> Diagnostic:
    return Diagnostic("E007", what, hint="write a program and its arguments, each quote closed", subject=subject)
