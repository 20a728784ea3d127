"""Find out how orch23 was installed, and which command adds a library to that installation."""

import importlib.util
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import msgspec


def install_command(library: str, *, prefix: str = sys.prefix, found: Distribution | None = None) -> str:
    """Return the command that installs a library of an extra into the Python that runs orch23.

    The library is installed by its own name: orch23 may come from a directory or a repository, and not from an index.
    `prefix` is the directory of the environment, `found` is what is known of the installed orch23.
    """
    try:
        installed = found or distribution("orch23")
    except PackageNotFoundError:  # a source tree on PYTHONPATH
        return _pip(library)
    requirement, extra = _requirement(library, installed)
    if (Path(prefix) / "uv-receipt.toml").is_file():
        return _uv_tool(extra, Path(prefix) / "uv-receipt.toml", installed)
    if (Path(prefix) / "pipx_metadata.json").is_file():
        # The environment is named after the application, with its suffix if it has one.
        return shlex.join(["pipx", "inject", Path(prefix).name, requirement])
    if (installed.read_text("INSTALLER") or "").strip() == "uv":
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, requirement])
    return _pip(requirement)


def orch23_command(environ: Mapping[str, str]) -> str:
    """Return how a shell runs orch23: by its name, or by its path if PATH does not have it."""
    script = Path(sys.prefix, "bin", "orch23")
    is_found = shutil.which("orch23", path=environ.get("PATH", "")) is not None or not script.is_file()
    return "orch23" if is_found else shlex.quote(str(script))


def _pip(requirement: str) -> str:
    if importlib.util.find_spec("pip") is None:
        return shlex.join(["pip", "--python", sys.executable, "install", requirement])
    return shlex.join([sys.executable, "-m", "pip", "install", requirement])


def _requirement(library: str, installed: Distribution) -> tuple[str, str]:
    """Return the requirement of a library with its versions, and the extra that has it; no extra if orch23 needs it."""
    for line in installed.requires or ():
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        extra = marker.partition("extra ==")[2].strip().strip("'\"")
        if name == library and extra != "test":
            return requirement, extra
    return library, ""


def _uv_tool(extra: str, receipt: Path, installed: Distribution) -> str:
    """Return the command that installs the tool again, with the extras that it has and one more.

    `uv tool` has no command that adds a library, and forgets libraries that the command does not name.
    """
    try:
        listed = tomllib.loads(receipt.read_text("utf-8"))["tool"]["requirements"]
        extras = next(set(one.get("extras", ())) for one in listed if one["name"] == "orch23")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, StopIteration, TypeError, AttributeError):
        extras = set()
    names = ",".join(sorted({*extras, extra} - {""}))
    name = f"orch23[{names}]" if names else "orch23"
    source = _source(installed)
    return shlex.join(["uv", "tool", "install", "--reinstall", f"{name} @ {source}" if source else name])


def _source(installed: Distribution) -> str:
    """Return the URL that orch23 was installed from, as a requirement states it; empty if it came from an index."""
    try:
        origin: Any = msgspec.json.decode(installed.read_text("direct_url.json") or "{}")
        url = str(origin.get("url", ""))
        vcs = origin.get("vcs_info")
        if vcs is None:
            return url
        return f"{vcs['vcs']}+{url}@{vcs.get('requested_revision') or vcs['commit_id']}"
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError):
        return ""
