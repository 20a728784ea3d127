"""Decide why a step probably failed, from its output and from facts that are verified.

The output only says what to look for: programs under test can print anything. A cause is named if the project or this
machine confirms it.
"""

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Final, Literal, Protocol

from msgspec import Struct

from orch23.decide.package_cause import Interpreter, missing_package
from orch23.model.action import StepLimits
from orch23.model.event_data import LikelyCause
from orch23.model.patterns import lazy_pattern

_MAX_TEXT = 200_000
_MAX_LINE = 1_000
# Each is looked up in the project.
_MAX_NAMES = 64
_TREE = "/room/work/"

_NO_FILE = lazy_pattern(
    r"no such file|cannot open|can't open|could not open|cannot find|can't read|ENOENT|FileNotFoundError"
    r"|no rule to make target|file or directory not found|does not exist",
    re.IGNORECASE,
)
_QUOTED = lazy_pattern(r"['\"`\u2018]([^'\"`\u2018\u2019]{1,300})['\"`\u2019]")
_BETWEEN_WORDS = lazy_pattern(r"[\s:,;()\[\]<>\"'`\u2018\u2019=]+")
_PROGRAM_NAME = lazy_pattern(r"\s*[\w.+-]+: ")
# Other characters have a meaning in `inputs`, such as those of patterns, or in YAML.
_PATH = lazy_pattern(r"(?!-)[\w.@+-]+(?:/[\w.@+-]+)*/?")
_PHRASE: Final = frozenset(
    ("no", "such", "file", "or", "directory", "cannot", "open", "not", "found", "error", "find", "line")
)
_NO_MODULE = lazy_pattern(r"No module named '?([A-Za-z_][\w.]{0,200})")
_NO_PROGRAM = lazy_pattern(
    r"(?:^|[\s:])([\w.+-]+): (?:command )?not found"
    r"|env: ['\u2018]?([\w.+-]+)['\u2019]?: No such file"
    r"|FileNotFoundError: .*No such file or directory: '([\w.+-]+)'"
    r"|exec: \"([\w.+-]+)\": executable file not found"
    r"|spawn ([\w.+-]+) ENOENT"
    r"|make: ([\w.+-]+): No such file",
    re.MULTILINE,
)
_NO_VARIABLE = lazy_pattern(
    r"\b([A-Za-z_]\w{0,99}): (?:unbound variable|parameter (?:null or )?not set)|KeyError: '([A-Z_][A-Z0-9_]{0,99})'"
)
# Paths from the root of the machine, or from the home of the user.
_PATH_OUTSIDE = lazy_pattern(r"~?/(?!/)[^\x00-\x1f\x7f*?\[\]{}$]{1,300}")
_UNSEEN = lazy_pattern(r"no such file|permission denied|can't open file|cannot open|not found", re.IGNORECASE)
_HOME = lazy_pattern(r"(?<![\w./-])/room/home(?=/)")
_KILLED = 137
_FLOODED = lazy_pattern(r"\nkilled: it printed more than (\d{1,15}) bytes\s*\Z")


class FailedStep(Struct, frozen=True, kw_only=True):
    """A step that failed. `output` has no secrets; `command` is its command as its author wrote it.

    `exit_code` is None if it is not known. `inputs_key` is the key of the stage for its inputs, `python_path_key` that
    for its `python_path`. `network` is whether it could reach other machines.
    """

    output: str
    network: bool
    command: str = ""
    exit_code: int | None = None
    inputs_key: str = "inputs"
    python_path_key: str = ""
    python_path: tuple[str, ...] = ()
    is_pytest: bool = False


class KnownFacts(Interpreter, Protocol):
    """Facts of the project and of this machine. Paths are those that the step uses."""

    def undeclared_input(self, path: str) -> str | None:
        """Return the entry of `inputs` for a file or directory of the project that the step did not get.

        None if there is none, or if a step must not get it.
        """

    def is_staged(self, path: str) -> bool:
        """Return whether the step got a file, or files below a directory."""

    def program(self, name: str) -> str | None:
        """Return the path of a program on the PATH of the user that no step can find, or None."""

    def inside(self, path: str) -> str | None:
        """Return the path that a step uses for an absolute one, or one from `~`, of the project; None for others."""

    def unseen_file(self, path: str) -> Literal["program", "file"] | None:
        """Return what is at a path of this machine, absolute or from `~`, that no step can see.

        None if there is nothing, if steps can see it, or if it is private or of the system.
        """

    def variable(self, name: str) -> Literal["settable", "refused"] | None:
        """Return whether `env` can set a variable; None if the user has not set it, or the step has it."""

    def has_module(self, name: str) -> bool:
        """Return whether the interpreter of the step has a module."""

    def editable(self, name: str) -> tuple[str, str] | None:
        """Return what leads the interpreter to a module elsewhere, and the folder: of the step, or absolute."""

    def python_path(self, folder: str) -> str:
        """Return the value of PYTHONPATH with one more folder; empty if it has it."""


def likely_cause(failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    """Return the first cause that the facts confirm, or None."""
    text = _HOME.sub("~", failed.output[:_MAX_TEXT])
    causes = (
        _undeclared_file(text, failed, known),
        *(_missing_module(name, failed, known) for name in _first(_NO_MODULE.findall(text))),
        *(_missing_program(name, failed, known) for name in _first(map("".join, _NO_PROGRAM.findall(text)))),
        *(_unseen_file(path, failed, known) for path in _first(_paths_outside(text))),
        *(_missing_variable(name, known) for name in _first(map("".join, _NO_VARIABLE.findall(text)))),
    )
    found = next((cause for cause in causes if cause is not None), None)
    if found is not None or failed.network:
        return found
    from orch23.decide.network_cause import network_cause  # noqa: PLC0415 - only for failures of steps without network

    return network_cause(text, failed.command, failed.exit_code)


def _first(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))[:_MAX_NAMES]


# ---- files ----------------------------------------------------------------------------------------


def _undeclared_file(text: str, failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    lines = (line[:_MAX_LINE] for line in text.splitlines() if _NO_FILE.search(line[:_MAX_LINE]))
    paths = _first(path for line in lines for path in _paths_in(line))
    return next((_input(entry, failed) for path in paths if (entry := known.undeclared_input(path))), None)


def _paths_in(line: str) -> Iterator[str]:
    # The first word of `cat: a.md: No such file` is the program.
    program = _PROGRAM_NAME.match(line)
    words = _BETWEEN_WORDS.split(line[program.end() :] if program else line)
    unquoted = (word.removesuffix(".") for word in words if word.casefold() not in _PHRASE)
    for name in (*_QUOTED.findall(line), *unquoted):
        path = name.removeprefix(_TREE).removeprefix("./")
        # A pattern that the shell did not expand: `cat: 'specs/*.md'`. What it is about is the directory.
        path = path.partition("*")[0].rpartition("/")[0] if "*" in path else path
        if _PATH.fullmatch(path):
            yield path


def _paths_outside(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if _UNSEEN.search(line[:_MAX_LINE]):
            for word in (*_QUOTED.findall(line[:_MAX_LINE]), *_BETWEEN_WORDS.split(line[:_MAX_LINE])):
                if _PATH_OUTSIDE.fullmatch(word) and not f"{word}/".startswith("/room/"):
                    yield word


def _unseen_file(path: str, failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    """Return the cause of a path of this machine that steps cannot see."""
    inside = known.inside(path)
    if inside is not None:
        entry = known.undeclared_input(inside)
        if entry is None and not known.is_staged(inside):
            return None
        text = f"`{path}` is the project's `{inside}`: a step sees only its inputs, by their paths in the project"
        key, value = ("", "") if entry is None else (failed.inputs_key, entry)
        appends = entry is not None
        return LikelyCause(
            kind="path", text=text, key=key, value=value, appends=appends, old_word=path, new_word=inside
        )
    found = known.unseen_file(path)
    # Output can name any file. That it is in the command shows that the author of the pipeline wants it.
    if found is None or (found == "file" and path not in failed.command):
        return None
    where = "your home directory" if path.startswith("~") else "that directory"
    text = f"`{path}` is on this machine, but a step cannot see {where}"
    if found == "file":
        # No line: what is outside of the project is not proposed as an input.
        return LikelyCause(kind="path", text=text, hint="a step sees only its `inputs`, which are files of the project")
    return _copied(path, path, text, failed)


def _copied(name: str, place: str, text: str, failed: FailedStep) -> LikelyCause:
    """Return the cause of a file outside of the project, which becomes a file of it."""
    copy = f"tools/{place.rpartition('/')[2]}"
    source = shlex.quote(place) if not place.startswith("~/") else f"~/{shlex.quote(place[2:])}"
    return LikelyCause(
        kind="program",
        text=text,
        first=f"copy it into the project: `mkdir -p tools && cp {source} tools/`",
        key=failed.inputs_key,
        value=copy,
        appends=True,
        old_word=name,
        new_word=copy,
    )


def _input(entry: str, failed: FailedStep) -> LikelyCause:
    what = "the verification does not get it" if failed.inputs_key != "inputs" else "the stage does not get it"
    name = failed.inputs_key.replace("/", ".")
    return LikelyCause(
        kind="undeclared_input",
        text=f"`{entry}` is in the project, but not in `{name}`, so {what}",
        key=failed.inputs_key,
        value=entry,
        appends=True,
    )


# ---- Python ---------------------------------------------------------------------------------------


def _missing_module(name: str, failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    name = name.rstrip(".")
    top = name.partition(".")[0]
    if (cause := _editable(name, top, failed, known)) is not None:
        return cause
    for folder in dict.fromkeys((".", *failed.python_path, "src")):
        for path in _module_paths(name, top, folder):
            if entry := known.undeclared_input(path):
                return _input(entry, failed)
        is_needed = folder == "src" and "src" not in failed.python_path and failed.python_path_key
        if is_needed and any(map(known.is_staged, (f"src/{top}.py", f"src/{top}"))):
            return LikelyCause(
                kind="python_path",
                text=f"`{top}` is in `src`, where the tests do not look for modules",
                key=failed.python_path_key,
                value="src",
                appends=True,
            )
    if known.has_module(top):
        return None
    return _missing_below(name, top, failed, known) or missing_package(top, known)


def _editable(name: str, top: str, failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    """Return the cause of a module that is installed as editable: its files are where the step does not see them."""
    file, folder = known.editable(top) or ("", "")
    if not file:
        return None
    text = f"`{top}` is installed as editable: `{file}` leads to `{folder}`"
    if folder.startswith("/"):
        text += ", outside of the project, which a step cannot see"
        return LikelyCause(kind="package", text=text, hint="install it without `-e`")
    text += " of the project, and a step has only its inputs, at another path"
    # `env` of a stage with a pytest step must not set PYTHONPATH. Of `a.b`, Python names `a` if it does not find that.
    key = "pytest/pythonpath" if failed.is_pytest else "env/PYTHONPATH"
    is_found = name != top or folder in map(posixpath.normpath, failed.python_path)
    value = "" if is_found else folder if failed.is_pytest else known.python_path(folder)
    add = f"add `{folder}` to `{key.replace('/', '.')}`" if value else ""
    if entry := next(filter(None, map(known.undeclared_input, _module_paths(name, top, folder))), None):
        return LikelyCause(
            kind="python_path", text=text, key=failed.inputs_key, value=entry, appends=True, hint=add and f"and {add}"
        )
    if not value:
        return None
    if failed.is_pytest and not failed.python_path_key:
        return LikelyCause(kind="python_path", text=text, hint=add)
    return LikelyCause(kind="python_path", text=text, key=key, value=value, appends=failed.is_pytest)


def _missing_below(name: str, top: str, failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    """Return the cause of a module that the step did not get, though it got the file or folder of its first name."""
    if name == top and (known.is_staged(f"{top}.py") or known.is_staged(top)):
        text = f"`{top}` is in the folder of the step, but Python does not look for modules there"
        hint = "a script looks in its own folder only: run it as `python -m FOLDER.SCRIPT`"
        return LikelyCause(kind="module", text=text, hint=hint)
    for folder in dict.fromkeys((".", *failed.python_path, "src")):
        if name != top and known.is_staged(posixpath.normpath(f"{folder}/{top}")):
            path = posixpath.normpath(f"{folder}/{name.replace('.', '/')}.py")
            text = f"there is no module `{name}`: the stage has no `{path}`"
            return LikelyCause(kind="module", text=text, hint=f"create `{path}`, or correct the import")
    return None


def _module_paths(name: str, top: str, folder: str) -> Iterator[str]:
    for one in dict.fromkeys((name, top)):
        path = posixpath.normpath(f"{folder}/{one.replace('.', '/')}")
        yield f"{path}.py"
        yield path


# ---- the machine ----------------------------------------------------------------------------------


def _missing_program(name: str, failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    place = known.program(name)
    if place is None:
        return None
    text = f"`{name}` is {place} on your PATH; a step cannot see your home directory, and its PATH is fixed"
    return _copied(name, place, text, failed)


def _missing_variable(name: str, known: KnownFacts) -> LikelyCause | None:
    state = known.variable(name)
    if state is None:
        return None
    text = f"`{name}` is set in your environment, but a step gets only the variables in `env`"
    if state == "refused":
        return LikelyCause(kind="variable", text=text, hint=f"`env` refuses `{name}`: no step can get it")
    return LikelyCause(
        kind="variable",
        text=text,
        key=f"env/{name}",
        value="VALUE",
        hint="write its value in place of VALUE; it becomes a part of the key of the stage",
    )


# ---- limits ---------------------------------------------------------------------------------------


def timeout_cause(timeout_s: float) -> LikelyCause:
    """Return the cause of a process that was killed at its timeout, in seconds."""
    return LikelyCause(
        kind="time",
        text=f"it did not end within its `timeout` of {timeout_s:g}s",
        key="timeout",
        value=f"{2 * timeout_s:g}s",
        hint="or make it faster",
    )


def limit_cause(message: str, limits: StepLimits) -> LikelyCause | None:
    """Return the cause of a process that was killed at one of its limits, which the message of E620 names."""
    name = next((one for one in limits.__struct_fields__ if f"`limits.{one}`" in message), None)
    limit = getattr(limits, name) if name else None
    if name is None or limit is None:
        return None
    is_size = name in ("memory", "disk", "address_space")
    have, more = ((_size(n) if is_size else str(n)) for n in (limit, 2 * limit))
    return LikelyCause(
        kind="limit",
        text=f"it needed more than its limit of {have} (`limits.{name}`)",
        key=f"limits/{name}",
        value=more,
        hint="or use less",
    )


def token_limit_cause(limit: int, most: int | None) -> LikelyCause | None:
    """Return the cause of a response that was cut off at a limit of tokens; `most` is that of the model, if known.

    None if the model has no longer responses.
    """
    more = 2 * limit if most is None else min(2 * limit, most)
    if more <= limit:
        return None
    return LikelyCause(
        kind="limit",
        text=f"the response needed more tokens than `llm.max_tokens`, {limit:,}",
        key="llm/max_tokens",
        value=str(more),
        hint="or change the prompt, so that the response is shorter",
    )


def output_cause(output: str, size_bytes: int, exit_code: int | None) -> LikelyCause | None:
    """Return the cause of a process that was killed since it printed too much. `size_bytes` is how much it printed."""
    found = _FLOODED.search(output)
    if found is None or exit_code != _KILLED or size_bytes <= int(found[1]):
        return None
    return LikelyCause(
        kind="output",
        text=f"it printed more than {_size(int(found[1]))}, which is the most that a step may print",
        hint="print less, or write it to a file: `COMMAND > FILE`, with FILE in `outputs` or `scratch`",
    )


def _size(size_bytes: int) -> str:
    """Return bytes as the pipeline writes them: `4GiB`, `512MiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return str(size_bytes)
