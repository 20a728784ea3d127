"""Analyze an acceptance command: is it one program, what does it run, what does it import."""

import ast
import posixpath
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.text import shell_signs
from orch23.text.python_imports import imported_names
from orch23.text.source_syntax import parse_python, python_tree

ProgramKind: TypeAlias = Literal["python", "shell", "other"]
InvocationKind: TypeAlias = Literal["code", "module", "script", "nothing"]

_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*(?:\.exe)?", re.IGNORECASE)
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_LONG_WITH_VALUE = frozenset({"--check-hash-based-pycs", "--rcfile", "--init-file"})


class Invocation(Struct, frozen=True):
    """What a command runs. `value` is the code, the module or the path; None if the command has none.

    `is_dry_run`: a shell reads the script and does not run it (`-n`).
    """

    program: ProgramKind
    kind: InvocationKind = "nothing"
    value: str | None = None
    is_dry_run: bool = False


def is_assignment(word: str) -> bool:
    """Return whether a word is `NAME=value`, which is an assignment only to a shell or to `env`."""
    return _ASSIGNMENT.match(word) is not None


def read_argv(argv: Sequence[str]) -> Invocation:
    """Return what an argv runs; `env NAME=value ...` before it is skipped."""
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
    """Return a path without `.`, empty segments and resolved `..`: for comparisons, never for writing."""
    plain = posixpath.normpath(path)
    if plain.startswith("//"):  # POSIX lets two leading slashes mean something else; Linux does not
        return plain[1:]
    return "" if plain == "." else plain


def _name(program: str) -> str:
    return program.rpartition("/")[2]


def _read_options(args: list[str], program: ProgramKind, *, code: str, module: str, valued: str) -> Invocation:
    """Read options up to the option or the operand that says what runs. Letters may be joined, as in `-Ic`."""
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


_OPERATORS = frozenset("|&;<>()`\n")
_EXPANSION = re.compile(r"\$[A-Za-z_0-9({?@*#!$-]")
_STARTERS = frozenset({"if", "then", "else", "do", "while", "until", "exec", "time", "!", "{"})
_SHOWN = 5
# Words of a shell's own code in which the script of a call is looked for.
_WITHIN = 8
_NO_SHELL = "it runs without a shell: write one program and its arguments, quote text, or write several commands"


class JudgedCommand(Struct, frozen=True):
    """The argv of a command, empty if it cannot be split, and its errors."""

    argv: tuple[str, ...]
    errors: tuple[Diagnostic, ...] = ()


def judge_command(command: str, subject: str, verify: str) -> JudgedCommand:
    """Split a command as `shlex` does, and check it for E003, E006, E007 and E105. `verify` is the refused script."""
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        why = str(error)[:1].lower() + str(error)[1:]
        return JudgedCommand((), (_unreadable(subject, f"cannot be split into words: {why}"),))
    if not argv or not argv[0]:
        return JudgedCommand((), (_unreadable(subject, "names no program"),))
    if "\0" in command:
        return JudgedCommand((), (_unreadable(subject, "contains a null character"),))
    found: list[Diagnostic] = []
    operators = shell_operators(command)
    if operators:
        named = ", ".join(f"`{one}`" for one in operators[:_SHOWN]).replace("\n", "\\n")
        found.append(Diagnostic("E003", f"contains {named}", hint=_NO_SHELL, subject=subject))
    if is_assignment(argv[0]):
        what = f"starts with the assignment `{argv[0][:40]}`"
        found.append(Diagnostic("E003", what, hint=_NO_SHELL, subject=subject))
    called = read_argv(argv)
    if called.program == "python" and called.kind == "code":
        found += _code_errors(called.value, subject)
    if runs_script(argv, verify):
        hint = "remove it: the verification runs it after every order"
        found.append(Diagnostic("E105", f"runs `{verify}`", hint=hint, subject=subject))
    return JudgedCommand(argv, tuple(found))


def shell_operators(command: str) -> tuple[str, ...]:
    """Return what a shell would interpret outside of quotes, in order, each once: operators, `$NAME`, line breaks."""
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
    """Return whether a command runs this script: directly, by a shell, or in the code that it passes to a shell."""
    called = read_argv(argv)
    if called.value is None or called.is_dry_run:
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


def _code_errors(code: str | None, subject: str) -> tuple[Diagnostic, ...]:
    if code is None:
        what = "passes no code to `python -c`"
    else:
        try:
            parse_python(code, "<command>")
        except SyntaxError as error:
            place = f" (line {error.lineno}, column {error.offset})" if error.lineno and error.offset else ""
            what = f"passes code to `python -c` that is not valid Python: {error.msg or 'invalid syntax'}{place}"
        except (RecursionError, MemoryError, ValueError):
            what = "passes code to `python -c` that is nested too deeply for Python's parser"
        else:
            return ()
    return (Diagnostic("E006", what, hint="write Python that parses, in one pair of quotes", subject=subject),)


def _unreadable(subject: str, what: str) -> Diagnostic:
    return Diagnostic("E007", what, hint="write a program and its arguments, and close each quote", subject=subject)


STDLIB_NAMES = frozenset({*sys.stdlib_module_names, "__main__"})


class CommandDependencies(Struct, frozen=True):
    """Dotted names of modules outside the standard library, and paths of scripts; both sorted."""

    modules: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()


def command_dependencies(argv: Sequence[str]) -> CommandDependencies:
    """Return the modules and scripts that a command needs. Code that does not parse imports nothing."""
    called = read_argv(argv)
    if called.value is None:
        return CommandDependencies()
    if called.kind == "script":
        return CommandDependencies(scripts=(plain_path(called.value),))
    if called.program == "python" and called.kind == "code":
        return CommandDependencies(modules=_imports(called.value))
    return CommandDependencies()


class PresentFiles(Struct):
    """The paths at one point of the sequence. Modules are imported from the directories `roots`."""

    roots: tuple[str, ...] = ("",)
    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)

    def add(self, paths: Iterable[str]) -> None:
        """Add paths, and the directories that they are in."""
        for path in paths:
            self.files.add(path)
            self.folders |= {path[:at] for at, char in enumerate(path) if char == "/"}

    def has_module(self, name: str) -> bool:
        """Return whether a module, a package or a directory of modules has this name."""
        below = name.replace(".", "/")
        paths = [plain_path(f"{root}/{below}" if root else below) for root in self.roots]
        return any(f"{path}.py" in self.files or path in self.folders for path in paths)

    def has_script(self, path: str) -> bool:
        """Return whether there is a file of this path, or a directory that Python runs by its `__main__.py`."""
        return path in self.files or f"{path}/__main__.py" in self.files


def _imports(code: str) -> tuple[str, ...]:
    """Return the modules that code imports; for `from a.b import c` it is `a.b`."""
    tree = python_tree(code)
    found = {name for node in ast.walk(tree) for name in imported_names(node)} if isinstance(tree, ast.AST) else ()
    return tuple(sorted(name for name in found if name.partition(".")[0] not in STDLIB_NAMES))
