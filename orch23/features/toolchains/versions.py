"""Find the version of a program in the files that it was installed with, without starting it."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

ReadText = Callable[[Path], str]

# `v22.1.0`, `go1.22.3`, `21-tem`, `node-v22.1.0-linux-x64`: the name of a directory.
_OF_FOLDER = re.compile(r"(?:^|^go|^v|[-_@]v?)(\d+(?:\.\d+)*)(?=$|[-_+])")
_OF_FILE = re.compile(r"(?:[a-z](?=\d+\.)|-)(\d+(?:\.\d+)*)$")  # `python3.12`, `gcc-12`
_PLACES = (
    ("VERSION", re.compile(r"\Ago(\d[\d.]*)")),
    ("release", re.compile(r'^JAVA_VERSION="(\d[\d.]*)', re.MULTILINE)),
    ("lib/rustlib/multirust-channel-manifest.toml", re.compile(r'^\[pkg\.rust\]\nversion = "(\d[\d.]*)', re.MULTILINE)),
)
_OF_ENTRY = re.compile(r"^Version: (?:\d+:)?(\d[\d.]*)", re.MULTILINE)
_STATUS, _INFO = Path("/var/lib/dpkg/status"), Path("/var/lib/dpkg/info")


def version_of(program: Path, read: ReadText) -> str:
    """Return the version of a program, empty if no file states it. `read` returns the text of a file, or nothing."""
    real = program.resolve()
    prefixes = tuple(dict.fromkeys((program.parent.parent, real.parent.parent)))
    return next(filter(None, _found(program.name, real, prefixes, read)), "")


def _found(name: str, real: Path, prefixes: tuple[Path, ...], read: ReadText) -> Iterator[str]:
    if "node_modules" in real.parts:
        yield from (_json_version(read(folder / "package.json")) for folder in real.parents if folder.name != "bin")
    yield _of_debian(real)
    for prefix in prefixes:
        yield from _of_distribution(name, prefix, read)
        yield from _of_conda(name, prefix, read)
        yield from (found[1] for place, line in _PLACES if (found := line.search(read(prefix / place))))
        if name.startswith("python"):
            yield from re.findall(r"^version(?:_info)?\s*=\s*(\d[\d.]*)", read(prefix / "pyvenv.cfg"), re.MULTILINE)
        folder = prefix.parent if prefix.name == "installation" else prefix
        yield from (found[1] for found in (_OF_FOLDER.search(folder.name),) if found)
    yield from (found[1] for found in (_OF_FILE.search(real.name),) if found)


def _of_distribution(name: str, prefix: Path, read: ReadText) -> Iterator[str]:
    """Yield the version of the Python distribution that installed a program."""
    for packages in sorted(prefix.glob("lib/python3*/site-packages")):
        read(packages)  # another version changes the directory
        infos = sorted(packages.glob("*.dist-info"))
        own = re.compile(rf"{re.escape(name.replace('-', '_'))}-[^-]+", re.IGNORECASE)
        yield from (info.stem.rpartition("-")[2] for info in infos if own.fullmatch(info.stem))
        line = re.compile(rf"^{re.escape(name)}\s*=", re.MULTILINE)
        yield from (info.stem.rpartition("-")[2] for info in infos if line.search(read(info / "entry_points.txt")))


def _of_conda(name: str, prefix: Path, read: ReadText) -> Iterator[str]:
    for package in sorted(prefix.glob("conda-meta/*.json")):
        if f'"bin/{name}"' in (text := read(package)):
            yield _json_version(text)


def _json_version(text: str) -> str:
    with suppress(ValueError, AttributeError, RecursionError):
        return str(json.loads(text).get("version", ""))
    return ""


def _of_debian(real: Path) -> str:
    """Return the version of the Debian package of a program, without epoch and revision."""
    is_packaged = real.is_relative_to("/usr") and not real.is_relative_to("/usr/local")
    with suppress(OSError):  # an image may lack the status of its packages
        for files in sorted(_INFO.glob("*.list")) if is_packaged else ():
            lines = files.read_text("utf-8", "replace").splitlines()
            if {str(real), str(real).removeprefix("/usr")}.intersection(lines):
                head, status = f"Package: {files.stem.partition(':')[0]}\n", _STATUS.read_text("utf-8", "replace")
                entry = next((one for one in status.split("\n\n") if one.startswith(head)), "")
                found = _OF_ENTRY.search(entry)
                return found[1] if found else ""
    return ""
