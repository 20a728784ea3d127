"""Decide why a step probably failed, from its output and from facts that are verified.

The output only says what to look for: programs under test can print anything. A cause is named if the project or this
machine confirms it. Names are found beside fixed words, so that any output costs linear time.
"""

import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.action import MAY_BE_OF_OTHERS, StepLimits
from orch23.model.event_data import LikelyCause
from orch23.model.patterns import lazy_pattern
from orch23.verdict.network_cause import network_cause
from orch23.verdict.package_cause import known_package

_MAX_TEXT, _MAX_LINE, _MAX_NAME = 200_000, 1_000, 200
# Each is looked up in the project.
_MAX_NAMES = 64
_TREE = "/room/work/"

# Lines that may name paths have one of these.
_NO_FILE = lazy_pattern(
    r"no such file|cannot open|can't open|could not open|cannot find|can't read|ENOENT|FileNotFoundError"
    r"|no rule to make target|file or directory not found|does not exist",
    re.IGNORECASE,
)
_UNSEEN = lazy_pattern(r"no such file|permission denied|can't open file|cannot open|not found", re.IGNORECASE)
# Where a name is: before or after fixed words.
_NO_MODULE: Final = ("No module named {}",)
_NO_PROGRAM: Final = (
    *("{}: command not found", "{}: not found", "No such file or directory: {}"),
    *("env: {}", "spawn {}", "exec: {}", "make: {}"),
)
_NO_VARIABLE: Final = ("{}: unbound variable", "{}: parameter null or not set", "{}: parameter not set", "KeyError: {}")
_QUOTES = lazy_pattern("['\"`\u2018\u2019]")
_BETWEEN_WORDS = lazy_pattern("[\\s:,;()\\[\\]<>\"'`\u2018\u2019=]")
# Other characters have a meaning in `inputs`, such as those of patterns, or in YAML.
_PATH = lazy_pattern(r"(?!-)[\w.@+-]+(?:/[\w.@+-]+)*/?")
# Paths from the root of the machine, or from the home of the user.
_PATH_OUTSIDE = lazy_pattern(r"~?/(?!/)[^\x00-\x1f\x7f*?\[\]{}$]{1,200}")
_PHRASE: Final = frozenset(
    ("no", "such", "file", "or", "directory", "cannot", "open", "not", "found", "error", "find", "line")
)
_KILLED = 137
_FLOODED = "\nkilled: it printed more than "


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


class KnownFacts(Protocol):
    """Facts of the project and of this machine. Paths are those that the step uses.

    `is_orch23s_interpreter`: for lack of another, the step has the interpreter that orch23 is installed in.
    """

    @property
    def interpreter(self) -> str: ...  # noqa: D102
    @property
    def is_orch23s_interpreter(self) -> bool: ...  # noqa: D102
    @property
    def has_uv(self) -> bool: ...  # noqa: D102

    def undeclared_input(self, path: str) -> str | None:
        """Return the entry of `inputs` for a file or directory that the step did not get, and may get; else None."""

    def is_staged(self, path: str) -> bool:
        """Return whether the step got a file, or files below a directory."""

    def program(self, name: str) -> str | None:
        """Return the path of a program on the PATH of the user that no step can find, or None."""

    def inside(self, path: str) -> str | None:
        """Return the path that a step uses for an absolute one, or one from `~`, of the project; None for others."""

    def unseen_file(self, path: str) -> Literal["program", "file"] | None:
        """Return what is at a path, absolute or from `~`, that no step can see; None for nothing or a private file."""

    def variable(self, name: str) -> Literal["settable", "refused"] | None:
        """Return whether `env` can set a variable; None if the user has not set it, or the step has it."""

    def has_module(self, name: str) -> bool:
        """Return whether the interpreter of the step has a module."""

    def editable(self, name: str) -> tuple[str, str, str] | None:
        """Return the file that leads to a module elsewhere, and its folder: from `cwd`, and from the project's root."""

    def python_path(self, folder: str) -> str:
        """Return the value of PYTHONPATH with one more folder; empty if it has it."""


_Explain: TypeAlias = Callable[[str, FailedStep, KnownFacts], LikelyCause | None]


def likely_cause(failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    """Return the first cause that the facts confirm, or None."""
    text = failed.output[:_MAX_TEXT].replace("/room/home/", "~/")
    named: tuple[tuple[_Explain, Iterable[str]], ...] = (
        (_undeclared_file, _paths(text)),
        (_missing_module, _beside(_NO_MODULE, text)),
        (_missing_program, _beside(_NO_PROGRAM, text)),
        (_unseen_file, _paths_outside(text)),
        (_missing_variable, _beside(_NO_VARIABLE, text)),
    )
    looked_up = ((explain, name) for explain, names in named for name in islice(dict.fromkeys(names), _MAX_NAMES))
    found = (cause for explain, name in looked_up if (cause := explain(name, failed, known)) is not None)
    return next(found, None) or (None if failed.network else network_cause(text, failed.command, failed.exit_code))


def _beside(forms: Iterable[str], text: str) -> Iterator[str]:
    """Yield the word in place of each `{}`."""
    for form in forms:
        before, _, after = form.partition("{}")
        parts = text.split(before or after)
        near = (part[:_MAX_NAME] for part in parts[1:]) if before else (part[-_MAX_NAME:] for part in parts[:-1])
        words = ([word for word in _BETWEEN_WORDS.split(one) if word] for one in near)
        yield from (one[0 if before else -1] for one in words if one)


def _words(line: str) -> Iterator[str]:
    """Yield the texts between quotes in a line, and its words, without those of messages."""
    yield from _QUOTES.split(line)[1:-1]
    yield from (word.removesuffix(".") for word in _BETWEEN_WORDS.split(line) if word.casefold() not in _PHRASE)


def _lines(text: str, words: re.Pattern[str]) -> Iterator[str]:
    return (line for line in (one[:_MAX_LINE] for one in text.splitlines()) if words.search(line))


# ---- files ----------------------------------------------------------------------------------------


def _paths(text: str) -> Iterator[str]:
    for line in _lines(text, _NO_FILE):
        # The first word of `cat: a.md: No such file` is the program.
        program, colon, rest = line.partition(": ")
        for word in _words(rest if colon and _PATH.fullmatch(program.lstrip()) else line):
            path = word.removeprefix(_TREE).removeprefix("./")
            # A pattern that the shell did not expand: `cat: 'specs/*.md'`. The step lacks the directory.
            path = path.partition("*")[0].rpartition("/")[0] if "*" in path else path
            if _PATH.fullmatch(path):
                yield path


def _paths_outside(text: str) -> Iterator[str]:
    words = (word for line in _lines(text, _UNSEEN) for word in _words(line))
    return (word for word in words if _PATH_OUTSIDE.fullmatch(word) and not f"{word}/".startswith("/room/"))


def _undeclared_file(path: str, failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    entry = known.undeclared_input(path)
    if entry is None:
        return None
    what = "the verification does not get it" if failed.inputs_key != "inputs" else "the stage does not get it"
    return LikelyCause(
        kind="undeclared_input",
        text=f"`{entry}` is in the project, but not in `{failed.inputs_key.replace('/', '.')}`, so {what}",
        key=failed.inputs_key,
        value=entry,
        appends=True,
    )


def _unseen_file(path: str, failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    if (inside := known.inside(path)) is not None:
        entry = known.undeclared_input(inside)
        if entry is None and not known.is_staged(inside):
            return None
        text = f"`{path}` is the project's `{inside}`: a step sees only its inputs, by their paths in the project"
        cause = LikelyCause(kind="path", text=text, old_word=path, new_word=inside)
        return cause if entry is None else replace(cause, key=failed.inputs_key, value=entry, appends=True)
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


# ---- Python ---------------------------------------------------------------------------------------


def _missing_module(name: str, failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    name = name.rstrip(".")
    top = name.partition(".")[0]
    if not name.replace(".", "_").isidentifier():
        return None
    if (cause := _editable(name, top, failed, known)) is not None:
        return cause
    for folder in dict.fromkeys((".", *failed.python_path, "src")):
        paths = _module_paths(name, top, folder)
        if cause := next(filter(None, (_undeclared_file(path, failed, known) for path in paths)), None):
            return cause
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
    return _missing_below(name, top, failed, known) or _missing_package(top, known)


def _editable(name: str, top: str, failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    """Return the cause of a module that is installed as editable: its files are where the step does not see them."""
    if (found := known.editable(top)) is None:
        return None
    file, folder, shown = found
    text = f"`{top}` is installed as editable: `{file}` leads to `{shown}`"
    if folder.startswith("/"):
        if name != top or any(map(known.undeclared_input, _module_paths(name, top, "."))):
            return None
        text += ", outside of the project, which a step cannot see"
        return LikelyCause(kind="package", text=text, hint="install it without `-e`")
    text += " of the project, and a step has only its inputs, at another path"
    # `env` of a stage with a pytest step must not set PYTHONPATH. Of `a.b`, Python names `a` if it does not find that.
    key = "pytest/pythonpath" if failed.is_pytest else "env/PYTHONPATH"
    is_found = name != top or folder in map(posixpath.normpath, failed.python_path)
    value = "" if is_found else folder if failed.is_pytest else known.python_path(folder)
    line = f"write `pytest: {{args: [...], pythonpath: [{', '.join((*failed.python_path, folder))}]}}`"
    add = (line if failed.is_pytest else f"add `{folder}` to `env.PYTHONPATH`") if value else ""
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


def _missing_package(module: str, known: KnownFacts) -> LikelyCause:
    name, note = known_package(module), ""
    if not name:
        guess = module.replace("_", "-").lower()
        note = f"; PACKAGE is often named as its module, here `{guess}`, but check it first: the name may be invented"
        name = "PACKAGE"
    text = f"`{module}` is not installed in the interpreter of the stage, {known.interpreter}"
    if known.is_orch23s_interpreter:
        text += ", which is that of orch23, since the project has no virtual environment"
        make = f"python3 -m venv .venv && .venv/bin/python -m pip install pytest {name}"
        make = f"uv venv && uv pip install pytest {name}" if known.has_uv else make
        return LikelyCause(kind="package", text=text, hint=f"make one that has it: `{make}`{note}")
    install = f"uv pip install --python {known.interpreter}" if known.has_uv else f"{known.interpreter} -m pip install"
    hint = f"install the package that has it: `{install} {name}`{note}; or name another interpreter in `python:`"
    return LikelyCause(kind="package", text=text, hint=hint)


# ---- the machine ----------------------------------------------------------------------------------


def _missing_program(name: str, failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    place = None if "/" in name else known.program(name)
    if place is None:
        return None
    text = f"`{name}` is {place} on your PATH; a step cannot see your home directory, and its PATH is fixed"
    return _copied(name, place, text, failed)


def _missing_variable(name: str, _failed: FailedStep, known: KnownFacts) -> LikelyCause | None:
    state = known.variable(name) if name.isidentifier() else None
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
    """Return the cause of a process that was killed at one of its limits, which the message of E620 names.

    None if the message says that others may have taken the bytes: then a larger limit may not help.
    """
    name = next((one for one in limits.__struct_fields__ if f"`limits.{one}`" in message), None)
    limit = getattr(limits, name) if name else None
    if name is None or limit is None or MAY_BE_OF_OTHERS in message:
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
    most = output.rstrip().rpartition(_FLOODED)[2].removesuffix(" bytes")
    if exit_code != _KILLED or not most.isdecimal() or size_bytes <= int(most):
        return None
    return LikelyCause(
        kind="output",
        text=f"it printed more than {_size(int(most))}, which is the most that a step may print",
        hint="print less, or write it to a file: `COMMAND > FILE`, with FILE in `outputs` or `scratch`",
    )


def _size(size_bytes: int) -> str:
    """Return bytes as a pipeline writes them, in the unit with the shortest number: `4GiB`, `80MB`."""
    units = {"GiB": 1 << 30, "GB": 10**9, "MiB": 1 << 20, "MB": 10**6, "KiB": 1 << 10, "KB": 1000}
    texts = (f"{size_bytes // unit}{name}" for name, unit in units.items() if size_bytes % unit == 0)
    return min(texts, key=len, default=str(size_bytes))
