"""Find a program in the installations of version managers, as the user's shell would start it in the project."""

import glob
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.execute.interpreters import SYSTEM_PATH, is_program, sha256_of
from orch23.execute.sandbox.visible_paths import SYSTEM_FOLDERS, interpreter_paths, link_chain
from orch23.features.toolchains import table
from orch23.features.toolchains.versions import version_of
from orch23.model.digest import Json
from orch23.model.file_policy import secret_file_reason
from orch23.model.parsing import as_mapping, json_at
from orch23.model.step import Tool
from orch23.model.tool import FoundTool
from orch23.snapshot.signatures import sha256_hex
from orch23.store.safe_files import read_regular
from orch23.text.version_ranges import is_in_range

_MAX_BYTES, _MAX_DEPTH = 4 << 20, 3
_ALIAS, _MOST_ALIASES = re.compile(r"[a-z][\w-]*(?:/[\w*-]+)?"), 4
_NEWEST_ONE = frozenset({"node", "latest", "lts", "lts/*"})
_NUMBER, _PREFIX = re.compile(r"\d+"), re.compile(r"^(?:v|go)(?=\d)")
# Certificates of authorities, which everyone has.
_PUBLIC = frozenset(("cacert.pem", "cert.pem", "ca-bundle.pem"))
_EXECUTABLE = "name an executable file by a path that begins with `/` or `~/`"
_SHARED = "install it with a version manager, in ~/.local/bin, or below /usr; PATH is set by orch23 and not inherited"


class _Installation(Struct, frozen=True):
    manager: table.Manager
    place: Path
    language: str
    version: str

    @property
    def numbers(self) -> list[int]:
        return [int(number[:9]) for number in _NUMBER.findall(self.version)]

    def fits(self, wanted: str) -> bool:
        """Return whether its version is the wanted one, or begins with it: 22 is 22.1.0, `stable` is stable-x86_64."""
        wanted = _PREFIX.sub("", wanted)
        return self.version == wanted or self.version.startswith((f"{wanted}.", f"{wanted}-"))


class _Search(Struct, frozen=True, dict=True):
    """The installations and toolchain files that a user has. `looked_at` collects what decides.

    `folders` are those on the PATH of steps, `cwd` is the working directory of the stage, below `root`.
    """

    root: Path
    environ: Mapping[str, str]
    folders: tuple[str, ...]
    cwd: str = "."
    looked_at: set[str] = field(default_factory=set)

    def place(self, path: str) -> Path:
        return Path(self.environ.get("HOME") or "/", path[2:]) if path.startswith("~/") else Path(path)

    def text(self, path: Path) -> str:
        self.looked_at.add(str(path))
        with suppress(OSError):
            return (read_regular(path, _MAX_BYTES) or b"").decode("utf-8", "replace")
        return ""

    def below(self, manager: table.Manager, path: str) -> Path:
        """Return the place of a path below the home of a manager."""
        moved = self.environ.get(manager.variable, "")
        return (Path(moved) if moved.startswith("/") else self.place(manager.home)) / self.place(path)

    @cached_property
    def installations(self) -> list[_Installation]:
        found, root = list[_Installation](), self.root.resolve()
        for one in table.MANAGERS:
            places = [str(self.below(one, ""))]
            for part in (*filter(None, one.installed.split("/")), "bin"):
                self.looked_at.update(places)
                patterns = [f"{glob.escape(place)}/{part}" for place in places]
                # Unlike `Path.glob`, this raises nothing below a folder that is closed, such as one of root in /opt.
                places = [path for one in patterns for path in sorted(glob.glob(one))]  # noqa: PTH207 - as above
            for place in (Path(path).parent for path in places):
                if not root.is_relative_to(place.resolve()):  # a project may be in /opt, where installations are
                    folder = place.parent if place.name == "installation" else place  # of fnm
                    language = one.language or place.parent.name
                    language = table.LANGUAGES.get(language, language)
                    found.append(_Installation(one, place, language, _PREFIX.sub("", folder.name)))
        return found

    def having(self, name: str) -> list[_Installation]:
        """Return the installations with a program: of each manager its default, then the newest one."""
        found = [one for one in self.installations if is_program(one.place / "bin" / name)]
        order = [one.manager.name for one in found]

        def rank(one: _Installation) -> tuple[int, bool, list[int]]:
            return -order.index(one.manager.name), one.fits(self.default(one)), one.numbers

        return sorted(found, key=rank, reverse=True)

    def default(self, one: _Installation) -> str:
        """Return the version that a manager uses outside of projects, empty if it is not known."""
        return self.versions(self.below(one.manager, one.manager.default), one.manager.language).get(one.language, "")

    @cached_property
    def wanted(self) -> dict[str, tuple[str, str]]:
        """The version of each language that a toolchain file of the project names, and the file."""
        found: dict[str, tuple[str, str]] = {}
        inner = PurePosixPath(self.cwd)
        for folder in (inner, *inner.parents):
            for language, names in table.VERSION_FILES.items():
                for path in (folder / name for name in names):
                    named = self.versions(self.root / path, language)
                    found = {**{key: (version, str(path)) for key, version in named.items()}, **found}
        return found

    def versions(self, path: Path, language: str) -> dict[str, str]:
        """Return the versions that a file names, by language. Without `language`, it names several."""
        text, found = self.text(path), dict[str, Json]()
        lines = [line.partition("#")[0].replace("=", " ").split() for line in text.splitlines()]
        if path.suffix == ".toml":
            with suppress(ValueError, RecursionError):
                of_file = tomllib.loads(text)
                channel = json_at(of_file, "toolchain", "channel") or of_file.get("default_toolchain")
                found |= {language: channel} if language else as_mapping(of_file.get("tools"))
        else:
            lines = [[language, *words] for words in lines[:1]] if language else lines
            # The first line of a language counts.
            found.update((words[0], words[1]) for words in reversed(lines) if len(words) > 1)
        return {table.LANGUAGES.get(key, key): self.resolved(one) for key, one in found.items() if isinstance(one, str)}

    def resolved(self, version: str) -> str:
        """Return the version that a name of nvm, such as `lts/*`, leads to."""
        folder = self.place(self.environ.get("NVM_DIR") or "~/.nvm") / "alias"
        for _ in range(_MOST_ALIASES):
            version = (_ALIAS.fullmatch(version) and self.text(folder / version).strip()) or version
        return version


def find_tool(
    tool: Tool, root: str, environ: Mapping[str, str], folders: tuple[str, ...] = (), cwd: str = "."
) -> FoundTool:
    """Return where a program is; an error if steps do not see that place, or if it has another version.

    `folders` are the directories of PATH that steps have anyway, `cwd` is the working directory of the stage.
    """
    search = _Search(Path(root), environ, folders, cwd)
    found = _chosen(search, tool)
    beside = (Path(folder, tool.name) for folder in folders if folder not in SYSTEM_PATH)
    own = next(filter(is_program, beside), None)
    if own and not found.error and found.program != str(own):
        text = f"{own} is beside the interpreter, and comes first on PATH, before {found.program}"
        found = FoundTool(error=text, hint="remove it there, or set `python:` to another environment")
    return replace(found, tool=tool, looked_at=tuple(sorted(search.looked_at)))


def _chosen(search: _Search, tool: Tool) -> FoundTool:
    """Return the first place of a tool, or the first one with its version."""
    others: list[str] = []
    for found in (_at_path(search, tool),) if tool.path else _places(search, tool.name):
        if found.error or not tool.version:
            return found
        version = version_of(Path(found.program), search.text)
        if is_in_range(version, tool.version):
            return found
        why = f" (`{found.selected_by}` selects it)" if found.selected_by else ""
        others.append(f"{found.program} has {version or 'a version that no file states'}{why}")
    if others:
        text = f"the tool `{tool.name}` must have version {tool.version}: {'; '.join(dict.fromkeys(others))}"
        return FoundTool(error=text, hint="install it with a version manager, or change or remove `version`")
    text = f"the declared tool `{tool.name}` was not found"
    if (on_path := _on_path(search, tool.name)) is None:
        return FoundTool(error=text, hint=_SHARED)
    home = search.environ.get("HOME") or "~"
    path = f"~/{on_path.relative_to(home)}" if on_path.is_relative_to(home) else on_path
    text = f"{text}: {on_path} is not in a directory of a toolchain that orch23 knows"
    return FoundTool(error=text, hint=f"name it by its path, `{path}`, or {_SHARED}")


def _at_path(search: _Search, tool: Tool) -> FoundTool:
    """Return the program at a path of the pipeline: of its installation, or alone."""
    program = search.place(tool.path)
    search.looked_at.add(str(program))
    if not is_program(program):
        return FoundTool(error=f"the tool `{tool.path}` is not a program", hint=_EXECUTABLE)
    real = program.resolve()
    if any(one.is_relative_to(search.root.resolve()) for one in (program, real)):
        hint = "list it in `inputs`, and write its path in the command"
        return FoundTool(error=f"the tool `{tool.path}` is in the project", hint=hint)
    if reason := secret_file_reason(tool.path) or secret_file_reason(str(real)):
        return FoundTool(error=f"the tool `{tool.path}` is not shown to steps: {reason}", hint="move the program")
    if tool.grant is None and not any(map(real.is_relative_to, (*SYSTEM_FOLDERS, "/opt"))):
        text = f"the tool `{tool.path}` is a link to {real}"
        return FoundTool(error=text, hint="name that path, which needs your consent")
    return _of_program(search, program) or _alone(search, program)


def _places(search: _Search, name: str) -> Iterator[FoundTool]:
    """Yield where a program is: the place that a step uses first, then others."""
    own = [one for one in (Path(folder, name) for folder in search.folders) if is_program(one)]
    for number, one in enumerate(own):
        if not one.parent.is_symlink():  # /bin may be /usr/bin
            yield FoundTool(str(one), sha256_of(one), origin=str(one) if number else "")
    if (selected := _by_file(search, name)) is not None:
        yield selected
        return
    installed = (one.place / "bin" / name for one in search.having(name))
    singles = (one for folder in table.SINGLE_FILES if is_program(one := search.place(folder) / name))
    others = filter(None, (_on_path(search, name), *installed, *singles))
    yield from filter(None, (_of_program(search, one) for one in others))


def _on_path(search: _Search, name: str) -> Path | None:
    """Return the program that the user's PATH finds."""
    folders = search.environ.get("PATH", "").split(os.pathsep)
    programs = [Path(folder, name) for folder in folders if folder.startswith("/")]
    search.looked_at.update(map(str, programs))
    return next(filter(is_program, programs), None)


def _by_file(search: _Search, name: str) -> FoundTool | None:
    """Return the program of the installation that a toolchain file of the project selects."""
    having = search.having(name)
    for language in dict.fromkeys(one.language for one in having if one.language in search.wanted):
        version, file = search.wanted[language]
        if version == "system":
            continue
        others = [one for one in having if one.language == language]
        if fitting := [one for one in others if version in _NEWEST_ONE or one.fits(version)]:
            newest = max(fitting, key=lambda one: one.numbers)
            return replace(_of_installation(search, newest, name), selected_by=file)
        # conda names its environments freely, and most of their programs are not of Python.
        if name.startswith("python") or any(one.manager.name != "conda" for one in others):
            text = f"`{file}` names {language} {version}, and no installation of it has `{name}`"
            hint = f"install it, or name one of: {', '.join(one.version for one in others)}"
            return FoundTool(error=text, hint=hint)
    return None


def _of_program(search: _Search, program: Path) -> FoundTool | None:
    """Return a program in its installation, or alone if it is in a directory of such programs."""
    having, real, folder = search.having(program.name), program.resolve(), program.parent.resolve()
    # The Python of a virtual environment is a link to its base.
    found = (
        [one for one in having if program.is_relative_to(one.place)]
        or [one for one in having if real.is_relative_to(one.place.resolve())]
        or [one for one in having if program.parent == search.below(one.manager, one.manager.shims)]
    )
    if found:  # an environment of conda can be in another one
        inner = max(found, key=lambda one: len(one.place.parts))
        return _of_installation(search, inner, program.name)
    if any(map(folder.is_relative_to, SYSTEM_FOLDERS)):  # a profile of Nix
        return FoundTool(str(folder / program.name), sha256_of(real), origin=str(program))
    return _alone(search, program) if program.parent in map(search.place, table.SINGLE_FILES) else None


def _alone(search: _Search, program: Path) -> FoundTool:
    shown = tuple(dict.fromkeys(map(str, link_chain(program))))
    search.looked_at.update(shown)
    origin = f"{program} ({shown[-1]})" if program.is_symlink() else str(program)
    return FoundTool(str(program), sha256_of(program), shown, origin=origin)


def _of_installation(search: _Search, one: _Installation, name: str) -> FoundTool:
    program, place = one.place / "bin" / name, one.place.resolve()
    real = program.resolve()
    search.looked_at.update((str(program), str(real)))
    # The base of a virtual environment may be in ~/bin or ~/.local/bin: of these, the interpreter and its libraries.
    closed = (Path("/"), search.root, *map(search.place, ("~/", *table.SINGLE_FILES)))
    # What a link leads to must be seen, too.
    roots = dict.fromkeys((one.place, place, *interpreter_paths(one.place / "bin/python", closed)))
    shown = [path for root in roots for path in _shown(root)]
    if not real.is_relative_to(place):
        shown.append(str(real))
    variables = {key: text.format(one.place) for key, text in table.VARIABLES.get(one.language, {}).items()}
    offline, origin = table.OFFLINE.get(one.language, {}), f"{program} ({one.manager.name})"
    identity = sha256_of(real)
    is_script = read_regular(real, 2) == b"#!"
    if is_script or one.language == "python":
        # A script stays the same if another version of its library is installed. Environments share their Python.
        version = version_of(program, search.text) if is_script else ""
        identity = sha256_hex(f"{identity} {one.version} {version}".encode())
    return FoundTool(str(program), identity, tuple(dict.fromkeys(shown)), variables, offline, origin)


def _shown(place: Path) -> Iterator[str]:
    """Yield what a step sees of an installation, or of a file or directory of libraries."""
    parts = [path for name in table.SHOWN for path in sorted(place.glob(name))] if (place / "bin").is_dir() else [place]
    for path in parts:
        yield from _without_secrets(str(path))


def _without_secrets(path: str, depth: int = 1) -> list[str]:
    """Return a path, or what it has beside files with secrets, which programs have near the top."""
    names, parts = list[str](), list[str]()
    with suppress(OSError), os.scandir(path) as entries:  # it may be a file
        for entry in sorted(entries, key=lambda one: one.name):
            names.append(entry.path)
            if entry.name in _PUBLIC or not secret_file_reason(entry.name):
                is_inside = depth < _MAX_DEPTH and entry.is_dir(follow_symlinks=False)
                parts += _without_secrets(entry.path, depth + 1) if is_inside else [entry.path]
    return [path] if parts == names else parts
