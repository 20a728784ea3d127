"""Find a program in the installations of version managers, as the user's shell would start it in the project."""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.execute.interpreters import SYSTEM_PATH, is_program, read_pyvenv_config, sha256_of
from orch23.execute.sandbox.visible_paths import SYSTEM_FOLDERS, link_chain
from orch23.features.toolchains.table import (
    LANGUAGES,
    MANAGERS,
    OFFLINE,
    SHOWN,
    SINGLE_FILES,
    VARIABLES,
    VERSION_FILES,
    Manager,
)
from orch23.features.toolchains.versions import version_of
from orch23.model.file_policy import secret_file_reason
from orch23.model.step import Tool
from orch23.model.tool import FoundTool
from orch23.snapshot.signatures import sha256_hex
from orch23.store.safe_files import read_regular
from orch23.text.version_ranges import is_in_range

_MAX_BYTES, _MAX_DEPTH = 4 << 20, 3
_ALIAS, _MOST_ALIASES = re.compile(r"[a-z][\w-]*(?:/[\w*-]+)?"), 4
_NEWEST_ONE = frozenset({"node", "latest", "lts", "lts/*"})
_NUMBER = re.compile(r"\d+")
# Certificates of authorities, which everyone has.
_PUBLIC = frozenset(("cacert.pem", "cert.pem", "ca-bundle.pem"))
_EXECUTABLE = "name an executable file by a path that begins with `/` or `~/`"
_SHARED = "install it with a version manager, in ~/.local/bin, or below /usr; PATH is set by orch23 and not inherited"


class _Installation(Struct, frozen=True):
    manager: Manager
    place: Path

    @property
    def language(self) -> str:
        name = self.manager.language or self.place.parent.name
        return LANGUAGES.get(name, name)

    @property
    def version(self) -> str:
        """The name of the directory; for fnm's `installation`, of the directory above."""
        place = self.place.parent if self.place.name == "installation" else self.place
        name = place.name.removeprefix("v")
        return name.removeprefix("go") if self.language == "go" else name

    def fits(self, wanted: str) -> bool:
        """Return whether its version is the wanted one, or begins with it: 22 is 22.1.0, `stable` is stable-x86_64."""
        wanted = wanted.strip().removeprefix("v")
        return self.version == wanted or self.version.startswith((f"{wanted}.", f"{wanted}-"))


class _Search(Struct, frozen=True, dict=True):
    """The installations and toolchain files that a user has. `looked_at` collects what decides.

    `folders` are those on the PATH of steps, `cwd` is the working directory of the stage, below `root`.
    """

    root: Path
    environ: Mapping[str, str]
    folders: tuple[str, ...]
    cwd: str = "."
    looked_at: dict[str, None] = field(default_factory=dict)

    def place(self, path: str) -> Path:
        return Path(self.environ.get("HOME") or "/", path[2:]) if path.startswith("~/") else Path(path)

    def text(self, path: Path) -> str:
        self.looked_at[str(path)] = None
        with suppress(OSError):
            return (read_regular(path, _MAX_BYTES) or b"").decode("utf-8", "replace")
        return ""

    @cached_property
    def installations(self) -> list[_Installation]:
        found, root = [], self.root.resolve()
        for one in MANAGERS:
            places = [self.home(one)]
            for part in filter(None, one.installed.split("/")):
                self.looked_at.update(dict.fromkeys(map(str, places)))
                # Others cannot be entered, such as folders of root in /opt.
                inside = (path for place in places if _may_enter(place) for path in sorted(place.glob(part)))
                places = [path for path in inside if not path.name.startswith(".")]
            entered = [place for place in places if _may_enter(place / "bin")]
            # A project may be in /opt, where installations are.
            found += [_Installation(one, place) for place in entered if not root.is_relative_to(place.resolve())]
        return found

    def having(self, name: str) -> list[_Installation]:
        return [one for one in self.installations if is_program(one.place / "bin" / name)]

    def home(self, manager: Manager) -> Path:
        moved = self.environ.get(manager.variable, "") if manager.variable else ""
        return Path(moved) if moved.startswith("/") else self.place(manager.home)

    @cached_property
    def wanted(self) -> dict[str, tuple[str, str]]:
        """The version of each language that a toolchain file of the project names, and the file."""
        found: dict[str, tuple[str, str]] = {}
        inner = PurePosixPath(self.cwd)
        for folder in (inner, *inner.parents):
            for name, language in VERSION_FILES.items():
                text = self.text(self.root / folder / name)
                for named, version in _versions(name, language, text):
                    found.setdefault(LANGUAGES.get(named, named), (version, str(folder / name)))
        return found

    def without_alias(self, version: str) -> str:
        """Return the version that a name of nvm, such as `lts/*`, leads to."""
        folder = self.place(self.environ.get("NVM_DIR") or "~/.nvm") / "alias"
        for _ in range(_MOST_ALIASES):
            words = self.text(folder / version).split() if _ALIAS.fullmatch(version) else []
            if not words:
                break
            version = words[-1]
        return version

    def default(self, manager: Manager) -> str:
        """Return the version that a manager uses outside of projects, empty if it is not known."""
        if not manager.default:
            return ""
        path = self.place(manager.default) if manager.default[0] == "~" else self.home(manager) / manager.default
        text = self.text(path)
        if manager.name == "rustup":
            return str(_toml(text).get("default_toolchain", ""))
        return next((line.split()[-1] for line in text.splitlines() if line.strip()), "")


def find_tool(
    tool: Tool, root: Path, environ: Mapping[str, str], *, folders: tuple[str, ...] = (), cwd: str = "."
) -> FoundTool:
    """Return where a program is; an error if steps do not see that place, or if it has another version.

    `folders` are the directories of PATH that steps have anyway, `cwd` is the working directory of the stage.
    """
    search = _Search(root, environ, folders, cwd)
    found = _chosen(search, tool)
    own = Path(folders[0], tool.name) if folders and folders[0] not in SYSTEM_PATH else None
    is_chosen = bool(tool.path or tool.version)
    if own and is_chosen and not found.error and Path(found.program) != own and is_program(own):
        text = f"{own} is beside the interpreter, and comes first on PATH, before {found.program}"
        found = FoundTool(error=text, hint="remove it there, or set `python:` to another environment")
    looked_at = tuple(filter(_has_state, search.looked_at))
    return replace(found, looked_at=looked_at, is_chosen=is_chosen, grant=tool.grant)


def _may_enter(folder: Path) -> bool:
    return os.access(f"{folder}/.", os.X_OK)


def _has_state(path: str) -> bool:
    """Return whether it can be seen that something at a path changes: not below a folder that is closed."""
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return True


def _chosen(search: _Search, tool: Tool) -> FoundTool:
    """Return the first place of a tool, or the first one with its version."""
    others: list[str] = []
    way = "change `version`"
    for one in _at_path(search, tool) if tool.path else _places(search, tool.name):
        found = _of_installation(search, one, tool.name) if isinstance(one, _Installation) else one
        if found.error or not tool.version:
            return found
        version = version_of(Path(found.program), search.text)
        if fits := is_in_range(version, tool.version):
            return found
        way = way if fits is not None else "change `version` or remove it"
        selected = search.wanted.get(one.language, ("", "")) if isinstance(one, _Installation) else ("", "")
        why = f" (`{selected[1]}` selects it)" if selected[0] else ""
        others.append(f"{found.program} has {version or 'a version that no file states'}{why}")
    if not others:
        on_path = _on_path(search, tool.name)
        where = f": {on_path} is not in a directory of a toolchain that orch23 knows" if on_path else ""
        home = search.environ.get("HOME", "")
        path = f"~/{on_path.relative_to(home)}" if on_path and home and on_path.is_relative_to(home) else on_path
        hint = f"name it by its path, `{path}`, or {_SHARED}" if path else _SHARED
        return FoundTool(error=f"the declared tool `{tool.name}` was not found{where}", hint=hint)
    text = f"the tool `{tool.name}` must have version {tool.version}: {'; '.join(dict.fromkeys(others))}"
    return FoundTool(error=text, hint=f"install it with a version manager, or {way}")


def _at_path(search: _Search, tool: Tool) -> Iterator[_Installation | FoundTool]:
    """Yield the program at a path of the pipeline: of its installation, or alone."""
    program = search.place(tool.path)
    search.looked_at[str(program)] = None
    if not is_program(program):
        yield FoundTool(error=f"the tool `{tool.path}` is not a program", hint=_EXECUTABLE)
    elif any(one.is_relative_to(search.root.resolve()) for one in (program, program.resolve())):
        hint = "list it in `inputs`, and write its path in the command"
        yield FoundTool(error=f"the tool `{tool.path}` is in the project", hint=hint)
    elif reason := secret_file_reason(tool.path) or secret_file_reason(str(program.resolve())):
        yield FoundTool(error=f"the tool `{tool.path}` is not shown to steps: {reason}", hint="move the program")
    elif tool.grant is None and not _is_below(program.resolve(), (*SYSTEM_FOLDERS, "/opt")):
        text = f"the tool `{tool.path}` is a link to {program.resolve()}"
        yield FoundTool(error=text, hint="name that path, which needs your consent")
    else:
        yield _of_program(search, search.having(tool.name), program) or _alone(search, program)


def _places(search: _Search, name: str) -> Iterator[_Installation | FoundTool]:
    """Yield where a program is: the place that a step uses first, then others."""
    own: dict[Path, Path] = {}
    for one in (Path(folder, name) for folder in search.folders):
        if is_program(one) and one.resolve() not in own:  # /bin may be /usr/bin
            yield FoundTool(str(one), sha256_of(one), str(one.parent), origin=str(one) if own else "")
            own[one.resolve()] = one
    having = search.having(name)
    if (selected := _by_file(search, having, name)) is not None:
        yield selected
        return
    if (program := _on_path(search, name)) is not None and (found := _of_program(search, having, program)):
        yield found
    # Of each manager its default, then the newest one, in the order of the table.
    order = [one.manager.name for one in having]

    def rank(one: _Installation) -> tuple[int, bool, list[int]]:
        default = search.default(one.manager)
        return -order.index(one.manager.name), bool(default) and one.fits(default), _newest(one)

    yield from sorted(having, key=rank, reverse=True)
    singles = (search.place(folder) / name for folder in SINGLE_FILES)
    yield from filter(None, (_of_program(search, having, one) for one in singles if is_program(one)))


def _on_path(search: _Search, name: str) -> Path | None:
    """Return the program that the user's PATH finds."""
    folders = [folder for folder in search.environ.get("PATH", "").split(os.pathsep) if folder.startswith("/")]
    search.looked_at.update({f"{folder}/{name}": None for folder in folders})
    return next((Path(folder, name) for folder in folders if is_program(Path(folder, name))), None)


def _by_file(search: _Search, having: list[_Installation], name: str) -> _Installation | FoundTool | None:
    """Return the installation that a toolchain file of the project selects."""
    for language in dict.fromkeys(one.language for one in having):
        version, file = search.wanted.get(language, ("", ""))
        if not version:
            continue
        others, version = [one for one in having if one.language == language], search.without_alias(version)
        if version == "system":
            continue
        if fitting := [one for one in others if version in _NEWEST_ONE or one.fits(version)]:
            return max(fitting, key=_newest)
        # conda names its environments freely, and most of their programs are not of Python.
        if not name.startswith("python") and all(one.manager.name == "conda" for one in others):
            continue
        text = f"`{file}` names {language} {version}, and no installation of it has `{name}`"
        return FoundTool(error=text, hint=f"install it, or name one of: {', '.join(one.version for one in others)}")
    return None


def _of_program(search: _Search, having: list[_Installation], program: Path) -> _Installation | FoundTool | None:
    """Return the installation of a program, or the program alone if it is in a directory of such programs."""
    real = program.resolve()
    for one in having:
        if program.is_relative_to(one.place) or real.is_relative_to(one.place.resolve()):
            return one
    for manager in MANAGERS:
        if manager.shims and program.parent == search.place(manager.shims):
            default = search.default(manager)
            if own := [one for one in having if one.manager == manager and (not default or one.fits(default))]:
                return max(own, key=_newest)
    if _is_below(folder := program.parent.resolve(), SYSTEM_FOLDERS):  # a profile of Nix
        return FoundTool(str(folder / program.name), sha256_of(real), str(folder), origin=str(program))
    return _alone(search, program) if program.parent in map(search.place, SINGLE_FILES) else None


def _is_below(path: Path, folders: Iterable[str]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _alone(search: _Search, program: Path) -> FoundTool:
    shown = tuple(dict.fromkeys(map(str, link_chain(program))))
    search.looked_at.update(dict.fromkeys(shown))
    origin = f"{program} ({shown[-1]})" if program.is_symlink() else str(program)
    return FoundTool(str(program), sha256_of(program), str(program.parent), shown, origin=origin)


def _of_installation(search: _Search, one: _Installation, name: str) -> FoundTool:
    program = one.place / "bin" / name
    real = program.resolve()
    # What a link leads to must be seen, too.
    shown = dict.fromkeys(path for root in dict.fromkeys((one.place, one.place.resolve())) for path in _open(root))
    shown |= dict.fromkeys(_base(search, one.place))
    if not real.is_relative_to(one.place.resolve()):
        shown[str(real)] = None
    search.looked_at.update({str(program): None, str(real): None})
    variables = {key: text.format(one.place) for key, text in VARIABLES.get(one.language, {}).items()}
    identity = sha256_of(real)
    is_script = read_regular(real, 2) == b"#!"
    if is_script or one.language == "python":
        # A script stays the same if another version of its library is installed. Environments share their Python.
        version = version_of(program, search.text) if is_script else ""
        identity = sha256_hex(f"{identity} {one.version} {version}".encode())
    offline, origin = OFFLINE.get(one.language, {}), f"{program} ({one.manager.name})"
    return FoundTool(
        str(program), identity, str(program.parent), tuple(shown), variables, offline=offline, origin=origin
    )


def _base(search: _Search, place: Path) -> Iterator[str]:
    """Yield what a step sees of the base of a virtual environment.

    Outside of an installation these are the interpreter and its libraries: it may be in ~/bin or ~/.local/bin.
    """
    home = read_pyvenv_config(place / "pyvenv.cfg").get("home")
    if not home or not home.startswith("/"):
        return
    programs = [one for one in link_chain(place / "bin/python") if is_program(one)]
    known = [one.place.resolve() for one in search.installations]
    for prefix in filter(_may_enter, dict.fromkeys((Path(home).parent, *(one.parent.parent for one in programs)))):
        # A link and its target are different paths for a step.
        for root in dict.fromkeys((prefix, prefix.resolve())):
            if _is_below(prefix.resolve(), map(str, known)):
                yield from _open(root)
            else:
                parts = (path for name in ("lib/python3*", "lib/libpython3*") for path in sorted(root.glob(name)))
                yield from (path for part in parts for path in _without_secrets(part))
    yield from map(str, programs)


def _open(place: Path) -> Iterator[str]:
    """Yield what a step sees of an installation."""
    for name in SHOWN:
        for path in sorted(place.glob(name)):
            yield from _without_secrets(path)


def _without_secrets(path: Path, depth: int = 1) -> Iterator[str]:
    """Yield a path, or what it has beside files with secrets, which programs have near the top."""
    hidden = [one for one in _near(path, depth) if one.name not in _PUBLIC and secret_file_reason(one.name)]
    if not hidden:
        yield str(path)
        return
    for one in sorted(set(path.iterdir()) - {*hidden}):
        is_inside = not one.is_symlink() and any(other.is_relative_to(one) for other in hidden)
        yield from _without_secrets(one, depth + 1) if is_inside else (str(one),)


def _near(place: Path, depth: int) -> Iterator[Path]:
    with suppress(OSError), os.scandir(place) as entries:  # it may be a file
        for entry in entries:
            yield Path(entry.path)
            if depth < _MAX_DEPTH and entry.is_dir(follow_symlinks=False):
                yield from _near(Path(entry.path), depth + 1)


def _newest(one: _Installation) -> list[int]:
    return [int(number[:9]) for number in _NUMBER.findall(one.version)]


def _versions(name: str, language: str, text: str) -> Iterator[tuple[str, str]]:
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    if name == ".tool-versions":
        yield from ((words[0], words[1]) for line in lines if len(words := line.split()) > 1)
    elif name == ".sdkmanrc":
        yield from ((key, value) for line in lines for key, _, value in (line.partition("="),) if value)
    elif name.endswith(".toml"):
        of_file = _toml(text).get("toolchain" if language else "tools")
        tools = of_file if isinstance(of_file, dict) else {}
        named = {language: tools.get("channel")} if language else tools
        yield from ((key, value) for key, value in named.items() if isinstance(value, str))
    else:
        yield from ((language, line.removeprefix("go")) for line in lines[:1] if line)


def _toml(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}
