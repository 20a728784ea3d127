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
_STATUS, _INFO = Path("/var/lib/dpkg/status"), Path("/var/lib/dpkg/info")


def version_of(program: Path, read: ReadText) -> str:
    """Return the version of a program, empty if no file states it. `read` returns the text of a file, or nothing."""
    return next(filter(None, _versions(program, read)), "")


def _versions(program: Path, read: ReadText) -> Iterator[str]:
    name, real = program.name, program.resolve()
    if "node_modules" in real.parts:
        yield from (_json_version(read(folder / "package.json")) for folder in real.parents if folder.name != "bin")
    yield from _of_debian(real)
    for prefix in (program.parent.parent, real.parent.parent):
        yield from _of_distribution(name, prefix, read)
        yield from _of_conda(name, prefix, read)
        yield from (version for place, line in _PLACES for version in line.findall(read(prefix / place)))
        if name.startswith("python"):
            yield from re.findall(r"^version(?:_info)?\s*=\s*(\d[\d.]*)", read(prefix / "pyvenv.cfg"), re.MULTILINE)
        folder = prefix.parent if prefix.name == "installation" else prefix
        yield from _OF_FOLDER.findall(folder.name)
    yield from _OF_FILE.findall(real.name)


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


def _of_debian(real: Path) -> Iterator[str]:
    """Yield the version of the Debian package of a program, without epoch and revision."""
    if not real.is_relative_to("/usr") or real.is_relative_to("/usr/local"):
        return
    names = {str(real), str(real).removeprefix("/usr")}
    with suppress(OSError):  # an image may lack the status of its packages
        for files in sorted(_INFO.glob("*.list")):
            if not names.isdisjoint(files.read_text("utf-8", "replace").splitlines()):
                package = re.escape(files.stem.partition(":")[0])
                line = rf"^Package: {package}\n(?:.+\n)*?Version: (?:\d+:)?(\d[\d.]*)"
                yield from re.findall(line, _STATUS.read_text("utf-8", "replace"), re.MULTILINE)
