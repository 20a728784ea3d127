"""Decide why a step probably failed: its output has fixed words, and a fact confirms the name beside them.

The output only says what to look for: programs under test can print anything. A cause is named if the project or this
machine confirms it. Nothing here is noted as an input of the stage: a build would be stale because of a file that its
output named. Any output costs linear time.
"""

import os
import posixpath
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct

from orch23.execute.interpreters import SYSTEM_PATH, find_program, has_module
from orch23.execute.launch import refused_variables
from orch23.execute.sandbox.visible_paths import SYSTEM_FOLDERS
from orch23.model.digest import FileEntry
from orch23.model.event_data import CauseKind, LikelyCause
from orch23.model.file_policy import sealed_reason, secret_file_reason
from orch23.model.paths import IGNORED_NAMES, is_own_file
from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import Stage
from orch23.model.tool import installed_tool
from orch23.text.secrets import is_secret_name

_MAX_TEXT, _MAX_LINE, _MAX_NAME = 200_000, 1_000, 200
_MAX_NAMES, _MAX_FILES = 64, 1_000  # of names in an output that are looked up; of files in a proposed directory
_TREE = "/room/work/"
# What is there is of the machine, and of no use for a project.
_OF_THE_SYSTEM = ("/boot", "/etc", "/proc", "/run", "/sys", "/var")

# Lines that may name paths have one of these.
_NO_FILE: Final = (
    *("no such file", "cannot open", "can't open", "could not open", "cannot find", "can't read", "enoent"),
    *("filenotfounderror", "no rule to make target", "file or directory not found", "does not exist"),
)
# The sandbox may also deny a path outside of its directory.
_NO_FILE_OUTSIDE: Final = (*_NO_FILE, "permission denied", "not found")
# Where a name is: before or after fixed words.
_NO_MODULE: Final = ("No module named {}",)
_NO_PROGRAM: Final = (
    *("{}: command not found", "{}: not found", "No such file or directory: {}"),
    *("env: {}", "spawn {}", "exec: {}", "make: {}"),
)
_NO_PACKAGE: Final = (*_NO_PROGRAM, "Cannot find module {}", "Cannot find package {}", "registry.npmjs.org/{}")
_NO_VARIABLE: Final = ("{}: unbound variable", "{}: parameter null or not set", "{}: parameter not set", "KeyError: {}")
# Codes have large letters: `ENOTFOUND` in any case is also a part of FileNotFoundError.
_NO_CONNECTION: Final = (
    *("could not resolve", "name resolution", "name or service not known", "network is unreachable", "getaddrinfo"),
    *("failed to resolve", "unable to resolve", "no such host", "failed to establish a new connection"),
    *("couldn't connect to server", "EAI_AGAIN", "ENOTFOUND", "ENETUNREACH"),
)
_REFUSED: Final = ("connection refused", "ECONNREFUSED", "couldn't connect to server", "failed to connect to ")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
_DOWNLOADERS: Final = ("curl", "wget")
# Exit codes of curl and wget, which may print nothing: no host was found, or none was reached.
_NO_HOST: Final = (4, 6, 7, 28)
_QUOTES = lazy_pattern("['\"`\u2018\u2019]")
_BETWEEN_WORDS = lazy_pattern("[\\s:,;()\\[\\]<>\"'`\u2018\u2019=]")
# Other characters have a meaning in `inputs`, such as those of patterns, or in YAML.
_PATH = lazy_pattern(r"(?!-)[\w.@+-]+(?:/[\w.@+-]+)*/?")
# Paths from the root of the machine, or from the home of the user.
_PATH_OUTSIDE = lazy_pattern(r"~?/(?!/)[^\x00-\x1f\x7f*?\[\]{}$]{1,200}")
_PHRASE: Final = frozenset(
    ("no", "such", "file", "or", "directory", "cannot", "open", "not", "found", "error", "find", "line")
)


class ProjectFacts(Struct, frozen=True, kw_only=True):
    """The project and the machine that all steps of a build run on.

    `environ` are the variables of the user. `is_isolated` returns whether steps run in a sandbox, `may_read` whether
    a stage may have a file as an input: no later stage makes it. `is_made` returns whether a stage makes a file that a
    pattern matches.
    """

    root: Path
    environ: Mapping[str, str]
    is_isolated: Callable[[], bool]
    may_read: Callable[[str, str], bool]
    is_made: Callable[[str], bool] = lambda _pattern: False


class FailedStep(Struct, frozen=True, kw_only=True):
    """A step that failed. `output` has no secrets; `command` is its command as its author wrote it.

    `exit_code` is None if it is not known. `inputs_key` is the key of the stage for its inputs, `python_path_key` the
    one for its `python_path`, empty if there is none. `network` is whether it could reach other machines.
    """

    project: ProjectFacts
    stage: Stage
    staged: Mapping[str, FileEntry]
    interpreter: str
    output: str
    network: bool
    command: str = ""
    exit_code: int | None = None
    inputs_key: str = "inputs"
    python_path: tuple[str, ...] = ()
    python_path_key: str = ""

    def missing_file(self, path: str) -> LikelyCause | None:
        """Return the cause of a file or directory that the step did not get."""
        if path.startswith(("/", "~")):
            return self._file_outside(path)
        if (entry := self._entry(path)) is None:
            return None
        receiver = "the verification" if self.inputs_key != "inputs" else "the stage"
        key = self.inputs_key.replace("/", ".")
        text = f"`{entry}` is in the project, but not in `{key}`, so {receiver} does not get it"
        return LikelyCause(kind="undeclared_input", text=text, key=self.inputs_key, value=entry, appends=True)

    def _entry(self, path: str) -> str | None:
        """Return the entry of `inputs` for a file or directory that the step did not get, or None."""
        inside, root = self._path(path), self.project.root
        if inside is None or _is_private(inside) or self.is_staged(path):
            return None
        # A link on the way could lead out of the project.
        if not os.path.lexists(root / inside) or (root / inside).resolve() != root.resolve() / inside:
            made = (one for one in (inside, f"{inside}/**") if self.project.is_made(one))
            found = next((one for one in made if self.project.may_read(self.stage.name, one)), None)
            return None if found is None else found.removesuffix("**")
        if not self.project.may_read(self.stage.name, inside):
            return None
        place = root / inside
        if place.is_file():
            return None if is_own_file(inside, place.read_bytes) else inside
        return f"{inside}/" if place.is_dir() and _has_only_ordinary_files(place, inside) else None

    def is_staged(self, path: str) -> bool:
        """Return whether the step got a file, or files below a directory."""
        inside = self._path(path)
        return inside is not None and any(f"{one}/".startswith(f"{inside}/") for one in self.staged)

    def _path(self, path: str) -> str | None:
        """Return a path of the step relative to the root of the project; None if it leads out of it."""
        inside = os.path.normpath(f"{self.stage.cwd}/{path}")
        return None if inside == "." or inside.startswith(("../", "/")) or inside == ".." else inside

    def _file_outside(self, path: str) -> LikelyCause | None:
        """Return the cause of an absolute path, or one from `~`, that the step does not see."""
        home, root = self.project.environ.get("HOME", ""), self.project.root
        place = Path(os.path.normpath(f"{home}{path[1:]}" if path.startswith("~") else path))
        if not place.is_absolute() or place == root:
            return None
        if place.is_relative_to(root):
            inside = os.path.relpath(place, root / self.stage.cwd)
            entry = self._entry(inside)
            if entry is None and not self.is_staged(inside):
                return None
            text = f"`{path}` is the project's `{inside}`: a step sees only its inputs, by their paths in the project"
            key, hint = self.inputs_key if entry else "", f"write `{inside}` in place of `{path}`"
            return LikelyCause(kind="path", text=text, key=key, value=entry or "", appends=bool(entry), hint=hint)
        seen = [Path(one) for one in (*SYSTEM_FOLDERS, *_OF_THE_SYSTEM, Path(self.interpreter).parent.parent)]
        is_seen = any(map(place.is_relative_to, seen)) or not (path.startswith("~") or self.project.is_isolated())
        # Output can name any file. The author of the pipeline wants this one, since the command names it.
        if is_seen or path not in self.command or _is_private(str(place)[1:]) or not place.is_file():
            return None
        where = "your home directory" if path.startswith("~") else "that directory"
        hint = "a step sees only its `inputs`, which are files of the project"
        return LikelyCause(kind="path", text=f"`{path}` is on this machine, but a step cannot see {where}", hint=hint)

    def missing_module(self, name: str) -> LikelyCause | None:
        """Return the cause of a module that Python did not find."""
        name = name.rstrip(".")
        top = name.partition(".")[0]
        if not name.replace(".", "_").isidentifier():
            return None
        folders = dict.fromkeys((".", *self.python_path, "src"))
        wanted = [f"{folder}/{one.replace('.', '/')}" for folder in folders for one in dict.fromkeys((name, top))]
        paths = [posixpath.normpath(f"{one}{end}") for one in wanted for end in (".py", "")]
        if cause := next(filter(None, map(self.missing_file, paths)), None):
            return cause
        if "src" not in self.python_path and any(map(self.is_staged, (f"src/{top}.py", f"src/{top}"))):
            text, key = f"`{top}` is in `src`, where Python does not look for modules", self.python_path_key
            if not key:
                return LikelyCause(kind="python_path", text=text, hint="add `src` to `pythonpath` of the pytest step")
            appends = key.startswith("pytest/")
            value = "src" if appends else ":".join((*self.python_path, "src"))
            return LikelyCause(kind="python_path", text=text, key=key, value=value, appends=appends)
        if has_module(Path(self.interpreter), top):
            return None
        if any(map(self.is_staged, paths)):
            text = f"the step has files of `{top}`, but Python finds no module `{name}` where it looks"
            hint = "correct the import; a script looks in its own folder only: run it as `python -m FOLDER.SCRIPT`"
            return LikelyCause(kind="module", text=text, hint=hint)
        # The tests of a model's code name that module in an error of their own.
        return None if self.project.is_made(f"**/{top}.py") else self._missing_package(top)

    def _missing_package(self, module: str) -> LikelyCause:
        # No command: a name that a model invented may be a package of an attacker.
        text = f"`{module}` is not installed in the interpreter of the stage, {self.interpreter}"
        hint = "correct the name, or install the package that has it there, without `-e`"
        is_own = self.interpreter == sys.executable and not self.project.environ.get("VIRTUAL_ENV")
        if is_own and not Path(self.interpreter).is_relative_to(self.project.root):
            text += ", which is that of orch23, since the project has no virtual environment"
            hint = "correct the name, or make an environment at `.venv` with pytest and the package that has it"
        return LikelyCause(kind="package", text=text, hint=f"{hint}; or name another interpreter in `python:`")

    def missing_node_package(self, name: str) -> LikelyCause | None:
        """Return the cause of a program or package of npm that the step did not get."""
        packages = self._path("node_modules")
        if packages is None or self.is_staged("node_modules") or not _PATH.fullmatch(name):
            return None
        if not any(os.path.lexists(self.project.root / packages / one) for one in (f".bin/{name}", name)):
            return None
        key = self.inputs_key.replace("/", ".")
        text = f"`{name}` is in `{packages}/`, which is not in `{key}`; wildcards skip it"
        return LikelyCause(kind="undeclared_input", text=text, key=self.inputs_key, value=f"{packages}/", appends=True)

    def missing_variable(self, name: str) -> LikelyCause | None:
        """Return the cause of a variable that the user has set, and the step does not have."""
        if not name.isidentifier() or name not in self.project.environ or name in self.stage.env:
            return None
        text = f"`{name}` is set in your environment, but a step gets only the variables in `env`"
        if is_secret_name(name) or refused_variables({name: ""}):
            return LikelyCause(kind="variable", text=text, hint=f"`env` refuses `{name}`: no step can get it")
        hint = "write its value in place of VALUE; it becomes a part of the key of the stage"
        return LikelyCause(kind="variable", text=text, key=f"env/{name}", value="VALUE", hint=hint)


def is_seen(interpreter: str, name: str) -> bool:
    """Return whether a step on this machine finds a program, in a sandbox or without one."""
    found = _found_by_step(interpreter, name)
    return found is not None and _is_shown(interpreter, Path(found).resolve())


def _found_by_step(interpreter: str, name: str) -> str | None:
    return find_program(name, os.pathsep.join((str(Path(interpreter).parent), *SYSTEM_PATH)))


def _is_shown(interpreter: str, target: Path) -> bool:
    return any(target.is_relative_to(one) for one in (*SYSTEM_FOLDERS, Path(interpreter).parent.parent))


def unseen_program(project: ProjectFacts, interpreter: str, key: str, name: str) -> LikelyCause | None:
    """Return why a step does not find a program that the user can start, if that is so; `key` is that of its inputs."""
    if "/" in name or not _PATH.fullmatch(name):
        return None
    path = filter(os.path.isabs, project.environ.get("PATH", "").split(os.pathsep))
    found = _found_by_step(interpreter, name)
    if (place := found or find_program(name, os.pathsep.join(path))) is None:
        return None
    target = Path(place).resolve()
    is_shown = not project.is_isolated() or _is_shown(interpreter, target)
    if found and is_shown:
        return None
    if is_shown:
        text = f"`{name}` is {place} on your PATH; that of a step is fixed, and does not have this directory"
        return LikelyCause(kind="program", text=text, hint=f"write `{place}` in place of `{name}` in the command")
    if found is None and (tool := installed_tool(name, str(project.root), project.environ)) is not None:
        text = f"`{name}` is {tool.origin}, which a step sees only if its stage names the tool"
        return LikelyCause(kind="program", text=text, key="tools", value=name, appends=True)
    where = f"{place}, a link to {target}," if found else f"{place} on your PATH"
    text = f"`{name}` is {where} and a step does not see that directory; its PATH is fixed"
    hint = (
        f"copy it to `tools/{name}` first, and write that in place of `{name}` in the command; if it has more files, "
        f"install it in the environment of the project or below /usr. Or name `{place}` in `tools`: a step sees it "
        "after your consent"
    )
    return LikelyCause(kind="program", text=text, key=key, value=f"tools/{name}", appends=True, hint=hint)


def likely_cause(failed: FailedStep) -> LikelyCause | None:
    """Return the first cause that the facts confirm, or None."""
    text = failed.output[:_MAX_TEXT].replace("/room/home/", "~/")
    named: tuple[tuple[Callable[[str], LikelyCause | None], Iterable[str]], ...] = (
        (failed.missing_file, _paths(text)),
        (failed.missing_module, _beside(_NO_MODULE, text)),
        (failed.missing_node_package, _beside(_NO_PACKAGE, text)),
        (partial(unseen_program, failed.project, failed.interpreter, failed.inputs_key), _beside(_NO_PROGRAM, text)),
        (failed.missing_variable, _beside(_NO_VARIABLE, text)),
    )
    looked_up = ((explain, name) for explain, names in named for name in islice(dict.fromkeys(names), _MAX_NAMES))
    found = (cause for explain, name in looked_up if (cause := explain(name)) is not None)
    return next(found, None) or (None if failed.network else network_cause(text, failed.command, failed.exit_code))


def _beside(forms: Iterable[str], text: str) -> Iterator[str]:
    """Yield the word in place of each `{}`."""
    for form in forms:
        before, _, after = form.partition("{}")
        parts = text.split(before or after)
        near = (part[:_MAX_NAME] for part in parts[1:]) if before else (part[-_MAX_NAME:] for part in parts[:-1])
        words = ([word for word in _BETWEEN_WORDS.split(one) if word] for one in near)
        yield from (one[0 if before else -1] for one in words if one)


def _has(line: str, words: Iterable[str]) -> bool:
    """Return whether a line has one of these: those of small letters in any case, others as they are."""
    lower = line.lower()
    return any(word in line or word in lower for word in words)


def _words(line: str) -> Iterator[str]:
    """Yield the texts between quotes in a line, and its words, without those of messages."""
    yield from _QUOTES.split(line)[1:-1]
    yield from (word.removesuffix(".") for word in _BETWEEN_WORDS.split(line) if word.casefold() not in _PHRASE)


def _paths(text: str) -> Iterator[str]:
    lines = (one[:_MAX_LINE] for one in text.splitlines())
    for line in (one for one in lines if _has(one, _NO_FILE_OUTSIDE)):
        # The first word of `cat: a.md: No such file` is the program.
        program, colon, rest = line.partition(": ")
        for word in _words(rest if colon and _PATH.fullmatch(program.lstrip()) else line):
            path = word.removeprefix(_TREE).removeprefix("./")
            # A pattern that the shell did not expand: `cat: 'specs/*.md'`. The step lacks the directory.
            path = path.partition("*")[0].rpartition("/")[0] if "*" in path else path
            is_outside = _PATH_OUTSIDE.fullmatch(path) and not f"{path}/".startswith("/room/")
            if is_outside or (_PATH.fullmatch(path) and _has(line, _NO_FILE)):
                yield path


def _is_private(path: str) -> bool:
    """Return whether orch23 never proposes a path as an input: of secrets, of git, of a tool, or its own."""
    hidden = any(name.startswith(".") or name in IGNORED_NAMES for name in path.split("/"))
    return hidden or secret_file_reason(path) is not None or sealed_reason(path) is not None


def _has_only_ordinary_files(folder: Path, path: str) -> bool:
    """Return whether a directory may be proposed as an input: it has files, not too many, and none is private."""
    count = 0
    for above, folders, files in os.walk(folder):
        below = Path(path, Path(above).relative_to(folder)).as_posix()
        folders[:] = [name for name in folders if name not in IGNORED_NAMES]
        count += len(files)
        if count > _MAX_FILES or any(secret_file_reason(f"{below}/{name}") for name in (*folders, *files)):
            return False
    return count > 0


def network_cause(output: str, command: str, exit_code: int | None) -> LikelyCause | None:
    """Return the cause of a step that has no access to the network, or None.

    The sandbox denies connections without a record of them. `command` is the text that its author wrote.
    """
    output = "\n".join(line for line in output.splitlines() if not _has(line, ("no such file", "NotFoundError:")))
    words = {word.rpartition("/")[2] for word in _BETWEEN_WORDS.split(command)}
    program = next((one for one in _DOWNLOADERS if one in words and "http" in command), "")
    is_unreached = bool(program) and exit_code in _NO_HOST and not output.strip()
    host = next((one for one in _LOOPBACK if one in output or one in command), "")
    # A connection to itself is refused because a server runs elsewhere, or because its own did not start.
    if host and (is_unreached or _has(output, _REFUSED)):
        own = "is the step itself, since it has no access to the network: a server that runs outside of the step"
        return _no_network("network_use", f"`{host}` in a step {own} cannot be reached")
    if _has(output, _NO_CONNECTION):
        text = "the step has no access to the network, and its output reports a failed connection"
        return _no_network("network", text)
    if not program or host:
        return None
    # In a pipe, the exit code is of another program, which got nothing to read.
    kind: CauseKind = "network" if is_unreached else "network_use"
    return _no_network(kind, f"the command uses `{program}`, and the step has no access to the network")


def _no_network(kind: CauseKind, text: str) -> LikelyCause:
    hint = "the stage then runs in each build, unless it also has `cache: true`"
    return LikelyCause(kind=kind, text=text, key="network", value="true", hint=hint)
