"""Limit what items of a foreach may decide: plain paths and arguments, never programs or code.

The list may come from a model, which could otherwise choose the programs that run on this machine.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Final

from msgspec import Struct

from orch23.language.expressions import has_expression, node_at
from orch23.model.digest import Json
from orch23.model.fields import Problem, leaves, normalize_path
from orch23.model.file_policy import protected_reason, secret_file_reason
from orch23.model.paths import is_glob, match_any, unsafe_reason
from orch23.resolve.expression_syntax import UNKNOWN_MARK

_PROGRAMS: Final = (
    r"(?:a|ba|c|da|fi|k|mk|pdk|r|tc|z)?sh|python|pypy|ipython|perl|raku|j?ruby|irb|node(?:js)?|deno|bun|php|lua(?:jit)?|"
    r"tclsh|wish|expect|rscript|r|julia|octave|groovy|elixir|erl|ocaml|guile|racket|sbcl|osascript|pwsh|powershell|cmd|"
    r"busybox|toybox|su|sudo|doas|runuser|script|flock|parallel|watch|ssh|git|g?make|psql|mysql|sqlite|gdb|lldb|"
    r"n?vim?|ex|emacs"
)
# Programs that run the text after an option such as `-c` or `-e`. For other programs it is a name or a number.
_INTERPRETER: Final = re.compile(rf"(?:{_PROGRAMS})[\d.]*(?:\.exe)?", re.IGNORECASE)

# Only interpreters run the text after `-c` or `-e`. For all other programs the value must be a plain path, so that
# `gcc -c FILE` and `wc -c FILE` work with items.
_RUNS_TEXT: Final = frozenset({"-c", "-e", "--eval", "-lc", "-ec"})
_CODE_OPTION: Final = re.compile(
    r"-[A-Za-z0-9]*[ceEpr][A-Za-z0-9]*|--?(?i:eval|exec|execute|expression|print|(?:encoded)?command)"
)
# Options of find.
_RUNS_PROGRAM: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})

# `-p` loads a plugin, and `-o` overrides settings.
_PYTEST_OPTIONS: Final = frozenset({*_RUNS_TEXT, "-p", "-o"})
# In `timeout 5m PROGRAM` or `taskset 0x3 PROGRAM`, the number is not the program.
_NUMBER: Final = re.compile(r"(?:0x)?[0-9a-f.]+[smhd]?")
_SHELL_SIGNS: Final = frozenset("\"'\\;&|<>()$`{}!#~^=")

# Programs that run another program named by their arguments, each with its options that take a value.
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

ArgumentError = tuple[str, str]
"""Message and hint."""

# Code, message and hint.
_Error = tuple[str, str, str]

_HINT: Final = "pass the value as an argument of a script"
_PROGRAM_HINT: Final = "write the program out in the pipeline"


def template_argument_error(before: Sequence[str], source: str) -> ArgumentError | None:
    """Return what is wrong with an argument that an item gives, whatever its value is, or None.

    `before` are the program and the arguments before it, `source` is the argument as it is written.
    """
    if before and before[-1] in _RUNS_PROGRAM:
        return f"an item may not decide the program that `{before[-1]}` runs", _PROGRAM_HINT
    if not any(_INTERPRETER.fullmatch(_name(one)) for one in before):
        return None
    attached = source.partition("${{")[0].removesuffix("=")
    code = attached if source.startswith("-") and _CODE_OPTION.fullmatch(attached) else _code_option(before)
    return None if code is None else (f"an item may not decide what `{code}` runs", _HINT)


def argument_value_error(before: Sequence[str], source: str, value: str) -> ArgumentError | None:
    """Return what is wrong with an argument of a command that an item gave, or None."""
    if (found := template_argument_error(before, source)) is not None:
        return found
    wrapper = _awaits_program(before)
    if wrapper is not None and "=" not in source.partition("${{")[0] and not _NUMBER.fullmatch(value):
        return f"an item may not decide the program that `{wrapper}` runs", _PROGRAM_HINT
    if before and before[-1] in _RUNS_TEXT and not _is_plain_path(value):
        return f"an item may not decide what `{before[-1]}` runs: `{value[:80]}` is not a plain path", _HINT
    return None


def pytest_argument_error(before: Sequence[str]) -> ArgumentError | None:
    """Return what is wrong with an argument of pytest that an item gives, or None."""
    if not before or before[-1] not in _PYTEST_OPTIONS:
        return None
    return f"an item may not decide what `{before[-1]}` of pytest names", "write it out in the pipeline"


def _code_option(before: Sequence[str]) -> str | None:
    """Return the option whose value an interpreter runs, or None. After its script, only the most common ones count."""
    options = tuple(takewhile(_is_option, reversed(before)))
    rest = before[: len(before) - len(options)]
    last = max(number for number, one in enumerate(rest) if _INTERPRETER.fullmatch(_name(one)))
    # It has no script if only options, and possible values of options, follow it.
    has_script = not all(_is_option(one) or _is_option(left) for left, one in pairwise(rest[last:]))
    known = _RUNS_TEXT.__contains__ if has_script else _CODE_OPTION.fullmatch
    if before[-1] == "eval":
        return "eval"
    return next((one for one in options if known(one)), None)


def _awaits_program(before: Sequence[str]) -> str | None:
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
    odd = any(char.isspace() or char in _SHELL_SIGNS for char in value)
    return bool(value) and not odd and not is_glob(value) and unsafe_reason(value.removeprefix("./")) is None


def _is_option(text: str) -> bool:
    return text.startswith(("-", "+"))


def _name(program: str) -> str:
    return program.rpartition("/")[2]


_READ: Final = "read"
_SLICE: Final = "slice"
_WRITE: Final = "write"
_LOCAL: Final = "local"
_ARGUMENT: Final = "argument"
_TEXT: Final = "text"

# The places that an item may decide, and how each value is checked. `*` is one segment, `**` the rest. All others are
# refused.
_PLACES: tuple[tuple[str, str], ...] = (
    ("desc", _TEXT),
    ("salt", _TEXT),
    ("inputs/**", _SLICE),
    ("verify/inputs/**", _SLICE),
    ("outputs/*", _WRITE),
    ("edits/*", _WRITE),
    ("explore/*", _READ),
    ("explore/files/*", _READ),
    ("metrics/*", _LOCAL),  # only outputs are accepted, which have the rules of `outputs`
    ("allowed_paths/write/*", _WRITE),
    ("allowed_paths/protect/*", _WRITE),
    ("allowed_paths/delete/*", _WRITE),
    ("cwd", _WRITE),
    ("depfile", _LOCAL),
    ("depfile/path", _LOCAL),
    ("requires/**", _READ),
    ("ensures/**", _READ),
    ("shell/*", _ARGUMENT),
    ("pytest/args/*", _ARGUMENT),
    ("pytest/*", _ARGUMENT),
    ("pytest/paths/*", _LOCAL),
    ("pytest/expect/*", _TEXT),
    ("pytest/report", _WRITE),
    ("commands/from", _SLICE),
    ("commands/from/*", _TEXT),  # `read_commands` checks each command
)


def item_errors(body: Mapping[str, Json], watched: Mapping[str, str], at: str) -> list[Problem]:
    """Return an error for each value that an item may not decide; `watched` maps nodes that use it to their source."""
    typed = tuple(normalize_path(text) for text in _typed_entries(body, watched, at, "write") if not is_glob(text))
    readable = _typed_entries(body, watched, at, "read")
    problems: list[Problem] = []
    for path, source in watched.items():
        place_of_node = path.removeprefix(at + "/")
        for below, value in leaves(node_at(body, place_of_node)):  # an item may give a list or a mapping
            place = "/".join((place_of_node, *map(str, below)))
            fault = _fault(place, value, source, body, _Typed(typed, readable))
            if fault is not None:
                problems.append(Problem(f"{at}/{place}", *fault))
    return problems


def foreach_template_errors(body: Json, watched: Mapping[str, str], at: str) -> list[Problem]:
    """Return an error for each place that no item may decide, whatever the list has: the pipeline must change."""
    # These are errors of the pipeline. Reported per item, they would fail the stage that makes the list, and a retry of
    # that stage could not fix them.
    problems: list[Problem] = []
    typed = [one for key in ("write", "read") for one in _typed_entries(body, watched, at, key)]
    for path, source in watched.items():
        place = path.removeprefix(at + "/")
        if place.endswith("shell/0") or place.rpartition("/")[2] == "shell":
            message = f"an item of a file may not decide `{_shown(place)}`"
            hint = 'write the program out, as a list with the item as an argument: [program, "${{ ... }}"]'
            problems.append(Problem(path, "E857", message, hint))
        elif _is_of_shell(place) and (fault := template_argument_error(_before(place, body), source)) is not None:
            problems.append(Problem(path, "E857", *fault))
        for below, value in leaves(node_at(body, place)):
            given = _folder_fault("/".join((place, *map(str, below))), value, source, are_typed=bool(typed))
            problems += [] if given is None else [Problem(path, *given)]
    return problems


def _folder_fault(place: str, value: Json, source: str, *, are_typed: bool) -> _Error | None:
    """Return what is wrong with the directory before the path of an item, which no item could correct, or None."""
    if not isinstance(value, str) or (kind := _kind_of(place)) in (None, _ARGUMENT, _TEXT):
        return None
    path = _path_of(str(kind), value.removeprefix("!"), source.removeprefix("!")) or ""
    folder = path[: path.partition(UNKNOWN_MARK)[0].rfind("/") + 1]
    why = unsafe_reason(f"{folder}item") or (None if are_typed else protected_reason(f"{folder}item"))
    message = f"an item cannot name a path in `{folder}`: {why}"
    return None if why is None else ("E857", message, "correct the directory in the pipeline or its vars")


class _Typed(Struct, frozen=True):
    """The entries of `allowed_paths` in the pipeline itself: literal paths to write, and patterns to read."""

    write: tuple[str, ...]
    read: tuple[str, ...]


def _fault(place: str, value: Json, source: str, body: Mapping[str, Json], typed: _Typed) -> _Error | None:
    kind = _kind_of(place)
    if kind is None or (kind == _ARGUMENT and place.endswith("shell/0")):
        return "E857", f"an item may not decide `{_shown(place)}`", "write it out in the pipeline"
    if kind == _TEXT or not isinstance(value, str):
        return None
    if kind == _ARGUMENT:
        if value.startswith("-") and not source.startswith("-"):
            message = f"the argument `{value}`, which an item gives, is an option"
            return "E857", message, "write the option out in the pipeline"
        before = _before(place, body)
        fault = argument_value_error(before, source, value) if _is_of_shell(place) else pytest_argument_error(before)
        return None if fault is None else ("E857", *fault)
    if kind == _SLICE and value.startswith("!"):
        if not source.startswith("!"):
            return "E857", f"the item gives `{value}`: an item may not exclude inputs", "write the `!` in the pipeline"
        value, source = value.removeprefix("!"), source.removeprefix("!")
    path = _path_of(kind, value, source)
    return None if path is None else _path_fault(kind, path, value, typed)


def _path_fault(kind: str, path: str, value: str, typed: _Typed) -> _Error | None:
    if not path:
        return "E857", "the path that an item gives is empty", "correct the item"
    why = unsafe_reason(path)
    if why is not None or is_glob(path):
        message = f"the path `{value}`, which an item gives, {why or 'is a pattern'}"
        return "E857", message, "items name plain relative paths"
    # Only the pipeline may name a path outside of `allowed_paths.read`, or a protected or secret one.
    if kind == _LOCAL or (kind == _WRITE and path in typed.write):
        return None
    if kind in (_READ, _SLICE) and typed.read:
        message = f"the item names `{path}`, outside of `allowed_paths.read`"
        return None if match_any(typed.read, path) else ("E857", message, "correct the item")
    # An item could otherwise show a model a file of secrets, or let it write `conftest.py`.
    reason = protected_reason(path) or secret_file_reason(path)
    if reason is None:
        return None
    way = "name it literally under `allowed_paths.write`" if kind == _WRITE else "list it under `allowed_paths.read`"
    return "E858", f"the item names `{path}`: {reason}", f"correct the item, or {way}"


def _path_of(kind: str, value: str, source: str) -> str | None:
    """Return the path in a value, without a `./`, a `//` or a trailing `/` that the pipeline itself has.

    None if the item does not decide the path: in `specs/todo.md#${{ t.section }}` it only names the section.
    """
    path = value
    if kind == _SLICE:
        path = value.partition("#")[0]
        head, sign, _ = source.partition("#")
        if sign and not has_expression(head):
            return None
    elif kind == _LOCAL:
        path = value.partition("::")[0]
    head = source.partition("${{")[0]
    folder = head[: head.rfind("/") + 1]
    if folder and not folder.startswith("/") and path.startswith(folder):
        path = normalize_path(folder).lstrip("/") + path.removeprefix(folder)
    return path.removesuffix("/") if source.rstrip().endswith("/") else path


def _before(place: str, body: Json) -> tuple[str, ...]:
    head, _, last = place.rpartition("/")
    arguments = node_at(body, head)
    if isinstance(arguments, str) or not isinstance(arguments, Sequence) or not last.isdigit():
        return ()
    return tuple(str(one) for one in arguments[: int(last)])


def _is_of_shell(place: str) -> bool:
    return place.split("/")[-2:-1] == ["shell"]


def _typed_entries(body: Json, watched: Mapping[str, str], at: str, key: str) -> tuple[str, ...]:
    """Return the entries of `allowed_paths` that do not come from the item."""
    place = f"{at}/allowed_paths/{key}"
    entries = node_at(body, f"allowed_paths/{key}")
    if f"{at}/allowed_paths" in watched or place in watched:
        return ()
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        return ()
    return tuple(e for n, e in enumerate(entries) if isinstance(e, str) and f"{place}/{n}" not in watched)


def _kind_of(place: str) -> str | None:
    """Return how a value at a place is checked, or None. Steps of `format` and `verify` count as those of stages."""
    names = place.split("/")
    if names[:1] == ["format"]:
        names = names[2:] if names[2:3] == ["shell"] else []
    elif names[:1] == ["verify"] and names[1:2] != ["inputs"]:
        names = names[3:] if names[1:2] == ["steps"] else names[2:]
        if names[:1] == ["with"]:
            return _TEXT
        if names[:1] not in (["shell"], ["pytest"], ["ensures"], ["commands"]):
            return None
    return next((kind for pattern, kind in _PLACES if _fits(pattern.split("/"), names)), None)


def _fits(pattern: Sequence[str], names: Sequence[str]) -> bool:
    if pattern[-1] == "**":
        return list(names[: len(pattern) - 1]) == list(pattern[:-1])
    pairs = zip(pattern, names, strict=False)
    return len(pattern) == len(names) and all(one == other or (one == "*" and other.isdigit()) for one, other in pairs)


def _shown(place: str) -> str:
    return ".".join(name for name in place.split("/") if not name.isdigit())
