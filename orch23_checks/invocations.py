"""Read an argv as a call of Python or of a shell: which code, module or script it runs."""

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

Program: TypeAlias = Literal["python", "shell", "other"]
Kind: TypeAlias = Literal["code", "module", "script", "nothing"]

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*(?:\.exe)?", re.IGNORECASE)
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_LONG_WITH_VALUE = frozenset({"--check-hash-based-pycs", "--rcfile", "--init-file"})


class Invocation(Struct, frozen=True):
    """What a command runs. `value` is the code, the module or the path; None where the command leaves it out.

    `dry` says that a shell is told to read and not to run (`-n`).
    """

    program: Program
    kind: Kind = "nothing"
    value: str | None = None
    dry: bool = False


def is_assignment(word: str) -> bool:
    """Say whether a word is `NAME=value`, which only a shell (or `env`) takes for more than a name."""
    return _ASSIGNMENT.match(word) is not None


def read_argv(argv: Sequence[str]) -> Invocation:
    """Return what an argv runs, an `env NAME=value ...` before it left out."""
    rest = list(argv)
    if rest and _name(rest[0]) == "env":
        del rest[0]
        while rest and is_assignment(rest[0]):
            del rest[0]
    if not rest:
        return Invocation("other")
    name = _name(rest[0])
    if _PYTHON.fullmatch(name):
        return _read_options(rest[1:], "python", code="c", module="m", valued="WXQ")
    if name in _SHELLS:
        return _read_options(rest[1:], "shell", code="c", module="", valued="oO")
    return Invocation("other", "script", rest[0]) if "/" in rest[0] else Invocation("other")


def plain_path(path: str) -> str:
    """Return a path without `.`, empty segments and what `..` undoes: for comparing, never for writing."""
    kept: list[str] = []
    for name in path.split("/"):
        if name == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif name not in ("", "."):
            kept.append(name)
    return ("/" if path.startswith("/") else "") + "/".join(kept)


def _name(program: str) -> str:
    return program.rpartition("/")[2]


def _read_options(args: list[str], program: Program, *, code: str, module: str, valued: str) -> Invocation:
    """Read options up to the one, or the operand, that says what runs; letters may stand together, as in `-Ic`."""
    dry, at = False, 0
    while at < len(args):
        word = args[at]
        following = args[at + 1] if at + 1 < len(args) else None
        if word == "--":
            return Invocation(program, "script", following, dry) if following else Invocation(program)
        if not word.startswith(("-", "+")) or word in ("-", "+"):
            return Invocation(program) if word == "-" else Invocation(program, "script", word, dry)
        at += 1
        if word.startswith("--"):
            at += word in _LONG_WITH_VALUE
            continue
        for position, letter in enumerate(word[1:], start=2):
            attached = word[position:]
            if letter == code and program == "shell":
                # A shell takes its code from the first operand, whatever letters and options come after the `c`.
                return Invocation(program, "code", next((a for a in args[at:] if not a.startswith("-")), None), dry)
            if letter == code:
                return Invocation(program, "code", attached or following)
            if letter == module:
                return Invocation(program, "module", attached or following)
            if letter in valued:
                at += not attached
                break
            dry = dry or (program == "shell" and letter == "n" and word[0] == "-")
    return Invocation(program)
