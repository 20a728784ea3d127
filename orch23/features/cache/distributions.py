"""The identity of the packages that are installed for an interpreter, from their records, without starting it.

Two virtual environments with the same wheels are equal, wherever they are and whatever installed them. So this leaves
out what an installer writes for one machine: scripts with the path of an interpreter, compiled files, its own notes.
"""

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, NoReturn

from msgspec import Struct, field

from orch23.execute.interpreters import sha256_of
from orch23.model.digest import digest_json
from orch23.store.safe_files import FileStamp, stamp_of

# The files of a distribution that an installer writes, and that differ between machines.
_OF_INSTALLER: Final = re.compile(
    rb"[^,/]+\.dist-info/(?:INSTALLER|REQUESTED|RECORD|RECORD\.jws|RECORD\.p7s|direct_url\.json|uv_\w+\.json),"
)
_ENTRY_POINTS: Final = re.compile(rb"[^,/]+\.dist-info/entry_points\.txt,")
_EXEC_LINES: Final = re.compile(rb"""'{3}exec' ("[^"\n]*"|[^" \n]+) "\$0" "\$@"\n' '{3}\n""")
_MAX_SCRIPT_BYTES: Final = 1 << 20
_SMALL_BYTES: Final = 64 << 10
_MOST_LOCAL: Final = 3 * 20_000


class StampedFiles(Struct, frozen=True):
    """What was computed of files, until their stamps change: one computation for each file and kind."""

    _known: dict[tuple[str, str], tuple[FileStamp, str]] = field(default_factory=dict)

    def get(self, kind: str, path: Path, compute: Callable[[Path], str]) -> str:
        """Return what `compute` returns for a file.

        Raises:
            OSError: there is no such file, or it cannot be read.
        """
        key, stamp = (kind, str(path)), stamp_of(path.stat())
        known = self._known.get(key)
        if known is None or known[0] != stamp:
            known = self._known[key] = stamp, compute(path)
        return known[1]

    def sha256(self, path: Path) -> str:
        """Return the sha256, in hex, of a file.

        Raises:
            OSError: as `get`.
        """
        return self.get("sha256", path, sha256_of)


class InstalledPackages(Struct, frozen=True):
    """All packages of an interpreter: the digest of their records, and which have no identity."""

    digest: str
    faults: tuple[str, ...] = ()


def installed_packages(folders: Iterable[Path], files: StampedFiles) -> InstalledPackages:
    """Return the identity of the packages in these folders, in their order: the first one of a name is imported."""
    places, faults, seen = list[dict[str, str]](), list[str](), set[Path]()
    for folder in folders:
        try:
            real = folder.resolve(strict=True)
            names = sorted(path.name for path in real.iterdir())
        except OSError:
            continue
        if real in seen:
            continue
        seen.add(real)
        found: dict[str, str] = {}
        for name in names:
            try:
                found |= _part(real / name, files)
            except _NoIdentityError as error:
                faults.append(str(error))
            except OSError:
                faults.append(f"`{name}` cannot be read")
        faults += _strays(real, names, found, files)
        places.append({name: value for name, value in found.items() if value})
    return InstalledPackages(digest_json(places), tuple(dict.fromkeys(faults)))


class _NoIdentityError(Exception):
    """Code of a package is in a folder of this machine."""


def _refuse(why: str) -> NoReturn:
    raise _NoIdentityError(why)


def _part(path: Path, files: StampedFiles) -> dict[str, str]:
    """Return the identity of an entry of a folder of packages by its name, if it describes packages."""
    name = path.name
    if name.endswith(".dist-info"):
        return {name: _of_dist_info(path, files)}
    if name.endswith(".egg-info"):
        return {name: files.sha256(path / "PKG-INFO" if path.is_dir() else path)}
    if name.endswith(".pth"):
        return {name: files.get("pth", path, _of_path_file)}
    if name.endswith((".egg-link", ".egg")):
        _refuse(f"`{name}` is installed in a way that has no record")
    return {}


def _of_dist_info(folder: Path, files: StampedFiles) -> str:
    origin = folder / "direct_url.json"
    if origin.exists() and files.get("editable", origin, _is_editable) == "yes":
        _refuse(f"`{folder.name.partition('-')[0]}` is installed in editable mode")
    record = folder / "RECORD"
    if record.exists():
        # Scripts are not in the stamp: an edit of one is as invisible as an edit of any other installed file.
        return files.get("record", record, _of_record).partition("\n")[0]
    return files.sha256(folder / "METADATA")


def _is_editable(path: Path) -> str:
    from orch23.model.parsing import json_at, parse_stored  # noqa: PLC0415 - few packages have this file

    with contextlib.suppress(ValueError):
        if json_at(parse_stored(path.read_bytes()), "dir_info", "editable") in (None, False):
            return "no"
    return "yes"


def _of_record(path: Path) -> str:
    """Return the digest of the lines of a RECORD that are the same on all machines, and the top-level names of all."""
    lines = [line for line in path.read_bytes().splitlines() if not line.endswith(b".pyc,,")]
    odd = [line for line in lines if b".dist-info/" in line or line.startswith((b"../", b"/"))]
    kept = set(lines).difference(odd)
    names = _entry_points(path.parent) if any(map(_ENTRY_POINTS.match, odd)) else frozenset[str]()
    kept.update(_stable(line, path.parent.parent, names) for line in odd)
    digest = hashlib.sha256(b"\n".join(sorted(kept))).hexdigest()
    # A line without a folder has no other slash: digests are written without it.
    firsts = {line.partition(b"/")[0] for line in lines}
    tops = {first.partition(b",")[0].strip(b'"').decode("utf-8", "surrogateescape") for first in firsts}
    return "\n".join([digest, *sorted(tops)])


def _stable(line: bytes, packages: Path, entry_points: frozenset[str]) -> bytes:
    """Return a line of a RECORD without what differs between machines; empty if all of it does."""
    if _OF_INSTALLER.match(line):
        return b""
    path, _, rest = line.partition(b",")
    folder, _, script = path.rpartition(b"/")
    if not (script and folder.endswith(b"bin") and (folder.startswith(b"../") or folder.rfind(b"/", 1) > 0)):
        return line
    name = script.decode("utf-8", "surrogateescape")
    # The installer made it of `entry_points.txt`, which has a line of its own.
    if name in entry_points:
        return b""
    digest = _digest_of_script(packages / path.decode("utf-8", "surrogateescape"))
    return b"bin/" + script + b"," + (digest or rest)


def _digest_of_script(path: Path) -> bytes:
    """Return the digest of a script without the path of its interpreter; empty for a program or a missing file."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(2) == b"#!":
            body = split_script(file.read(_MAX_SCRIPT_BYTES))[1]
            return b"script=" + hashlib.sha256(body).hexdigest().encode()
    return b""


def split_script(data: bytes) -> tuple[str, bytes]:
    """Return the command that interprets a script, and the lines after it. `data` begins after `#!`."""
    first, _, body = data.partition(b"\n")
    # Installers write a path that the kernel cannot use into a second line, for a shell.
    if found := _EXEC_LINES.match(body):
        return found[1].decode("utf-8", "replace"), body[found.end() :]
    return first.decode("utf-8", "replace").strip(), body


def _entry_points(folder: Path) -> frozenset[str]:
    """Return the names of the scripts that an installer makes for a distribution."""
    names, is_script = set[str](), False
    for line in (folder / "entry_points.txt").read_text("utf-8", "replace").splitlines():
        text = line.strip()
        if text.startswith("["):
            is_script = text in {"[console_scripts]", "[gui_scripts]"}
        elif is_script and "=" in text:
            names.add(text.partition("=")[0].strip())
    return frozenset(names)


def local_files(folder: Path, files: StampedFiles, closed: Collection[Path] = ()) -> str:
    """Return the digest of all files below a folder that are of no package of the system; empty if they are too many.

    Small files count with their bytes, so that machines that installed the same are equal, large ones with size and
    time. Steps do not see the `closed` folders.
    """
    found: list[str] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and Path(place, name) not in closed)
        for path in (Path(place, name) for name in sorted((*folders, *names))):
            status, content = path.lstat(), ""
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                is_read = status.st_size <= _SMALL_BYTES and os.access(path, os.R_OK)
                content = files.sha256(path) if is_read else f"{status.st_size} {status.st_mtime_ns}"
            found += (str(path), f"{status.st_mode:o}", content)
        if len(found) > _MOST_LOCAL:
            return ""
    return digest_json(found)


def programs_in_folder(folder: Path, files: StampedFiles) -> str:
    """Return the digest of the names of the programs in a folder, and of the bytes of those that are no scripts."""
    paths = (path for path in sorted(folder.iterdir()) if path.is_file() and os.access(path, os.X_OK))
    others = (path for path in paths if not path.name.startswith(("python", "pypy")))
    return digest_json({path.name: "" if _digest_of_script(path) else files.sha256(path) for path in others})


def _of_path_file(path: Path) -> str:
    data = path.read_bytes()
    for line in data.decode("utf-8", "replace").splitlines():
        text = line.strip()
        if text and not text.startswith(("#", "import ", "import\t")):
            _refuse(f"`{path.name}` adds a folder to the import path")
    return hashlib.sha256(data).hexdigest()


def _strays(folder: Path, names: list[str], found: dict[str, str], files: StampedFiles) -> Iterator[str]:
    """Add modules to `found` that belong to no distribution, and yield a fault for each such package."""
    # Where some distributions have no RECORD, such as those of Debian, it is not known what belongs to them.
    records = [folder / name / "RECORD" for name in found if name.endswith(".dist-info")]
    if any(name.endswith(".egg-info") for name in found) or not all(record.exists() for record in records):
        return
    owned = {top for record in records for top in files.get("record", record, _of_record).split("\n")}
    for name in names:
        stem, dot, suffix = name.partition(".")
        if name in owned or not stem.isidentifier() or name == "__pycache__":
            continue
        path = folder / name
        if dot and suffix.rpartition(".")[2] in {"py", "pyc", "so"}:
            found[name] = files.sha256(path)
        # A folder without modules may be a namespace package; only what an uninstalled package left is none.
        elif not dot and path.is_dir() and any(one.name != "__pycache__" for one in path.iterdir()):
            yield f"`{name}` is a package without a record"
