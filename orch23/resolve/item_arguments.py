"""Say which arguments of a command are a program or its code, which no item of a file may decide."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Final

from orch23.model.paths import is_glob, unsafe_reason

_PROGRAMS: Final = (
    r"(?:a|ba|c|da|fi|k|mk|pdk|r|tc|z)?sh|python|pypy|ipython|perl|raku|j?ruby|irb|node(?:js)?|deno|bun|php|lua(?:jit)?|"
    r"tclsh|wish|expect|rscript|r|julia|octave|groovy|elixir|erl|ocaml|guile|racket|sbcl|osascript|pwsh|powershell|cmd|"
    r"busybox|toybox|su|sudo|doas|runuser|script|flock|parallel|watch|ssh|git|g?make|psql|mysql|sqlite|gdb|lldb|"
    r"n?vim?|ex|emacs"
)
_INTERPRETER: Final = re.compile(rf"(?:{_PROGRAMS})[\d.]*(?:\.exe)?", re.IGNORECASE)
"""Programs that run the text that follows an option such as `-c` or `-e`; of others it is a name or a number."""

_RUNS_TEXT: Final = frozenset({"-c", "-e", "--eval", "-lc", "-ec"})
_CODE_OPTION: Final = re.compile(
    r"-[A-Za-z0-9]*[ceEpr][A-Za-z0-9]*|--?(?i:eval|exec|execute|expression|print|(?:encoded)?command)"
)
_RUNS_PROGRAM: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
"""Options of find."""

_PYTEST_OPTIONS: Final = frozenset({*_RUNS_TEXT, "-p", "-o"})
_NUMBER: Final = re.compile(r"(?:0x)?[0-9a-f.]+[smhd]?")
_SHELL_SIGNS: Final = frozenset("\"'\\;&|<>()$`{}!#~^=")

_WRAPPERS: Final[Mapping[str, frozenset[str]]] = {
    "env": frozenset({"-u", "-C", "--unset", "--chdir"}),
    "timeout": frozenset({"-s", "-k", "--signal", "--kill-after"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "ionice": frozenset({"-c", "-n"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "time": frozenset({"-f", "-o"}),
    "xargs": frozenset({"-a", "-d", "-E", "-I", "-L", "-n", "-P", "-s", "--arg-file", "--max-args", "--max-procs"}),
    "sudo": frozenset({"-u", "-g"}),
    **dict.fromkeys(("nohup", "setsid", "chrt", "taskset", "doas", "busybox"), frozenset[str]()),
}
"""Programs that run the program which their arguments name, with those of their options that take a value."""

Fault = tuple[str, str]
"""Message and hint."""

_HINT: Final = "pass the value as an argument of a script"
_PROGRAM_HINT: Final = "write the program out in the pipeline"


def template_fault(before: Sequence[str], source: str) -> Fault | None:
    """Return what is wrong with an argument that an item gives whatever it gives, or None.

    `before` are the program and the arguments before it, `source` is how the author wrote it.
    """
    if before and before[-1] in _RUNS_PROGRAM:
        return f"an item may not decide the program that `{before[-1]}` runs", _PROGRAM_HINT
    if not any(_INTERPRETER.fullmatch(_name(one)) for one in before):
        return None
    attached = source.partition("${{")[0].removesuffix("=")
    code = attached if source.startswith("-") and _CODE_OPTION.fullmatch(attached) else _code_option(before)
    return None if code is None else (f"an item may not decide what `{code}` runs", _HINT)


def value_fault(before: Sequence[str], source: str, value: str) -> Fault | None:
    """Return what is wrong with an argument of a command that an item gave, or None."""
    if (found := template_fault(before, source)) is not None:
        return found
    wrapper = _awaits_program(before)
    if wrapper is not None and "=" not in source.partition("${{")[0] and not _NUMBER.fullmatch(value):
        return f"an item may not decide the program that `{wrapper}` runs", _PROGRAM_HINT
    if before and before[-1] in _RUNS_TEXT and not _is_plain_path(value):
        return f"an item may not decide what `{before[-1]}` runs: `{value[:80]}` is not a plain path", _HINT
    return None


def pytest_fault(before: Sequence[str]) -> Fault | None:
    """Return what is wrong with an argument of pytest that an item gives, or None."""
    if not before or before[-1] not in _PYTEST_OPTIONS:
        return None
    return f"an item may not decide what `{before[-1]}` of pytest names", "write it out in the pipeline"


def _code_option(before: Sequence[str]) -> str | None:
    """Return the option by which the next argument of an interpreter is code.

    What follows its script are arguments of the script; there, only the commonest spellings count.
    """
    options = tuple(takewhile(_is_option, reversed(before)))
    known = _CODE_OPTION.fullmatch if _has_no_script(before[: len(before) - len(options)]) else _RUNS_TEXT.__contains__
    if before[-1] == "eval":
        return "eval"
    return next((one for one in options if known(one)), None)


def _has_no_script(before: Sequence[str]) -> bool:
    """Return whether all that follows the last interpreter are options, and what may be their values."""
    last = max(number for number, one in enumerate(before) if _INTERPRETER.fullmatch(_name(one)))
    after = before[last:]
    return all(_is_option(one) or _is_option(left) for left, one in pairwise(after))


def _awaits_program(before: Sequence[str]) -> str | None:
    """Return the wrapper, such as `timeout`, whose next argument is the program to run; None where there is none."""
    wrapper, is_value = None, False
    for one in before:
        if is_value:
            is_value = False
        elif _name(one) in _WRAPPERS:
            wrapper = _name(one)
        elif wrapper is None:
            return None
        elif _is_option(one):
            is_value = one in _WRAPPERS[wrapper]
        elif "=" not in one and not _NUMBER.fullmatch(one):
            return None
    return None if is_value else wrapper


def _is_plain_path(value: str) -> bool:
    """Return whether a text is a path without any character that could make code of it."""
    odd = any(char.isspace() or char in _SHELL_SIGNS for char in value)
    return bool(value) and not odd and not is_glob(value) and unsafe_reason(value.removeprefix("./")) is None


def _is_option(text: str) -> bool:
    return text.startswith(("-", "+"))


def _name(program: str) -> str:
    return program.rpartition("/")[2]
