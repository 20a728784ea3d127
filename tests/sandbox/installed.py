"""Install orch23 as a user who owns nothing would find it: an environment of the system's Python, read by everybody."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
_NEVER_ASKED = frozenset({"anthropic"})  # a vendor's library is imported when somebody asks it; it is large


def install(folder: Path, interpreter: str) -> Path:
    """Make an environment in a folder, and return its Python. Packages are those of the user who runs the tests."""
    subprocess.run([interpreter, "-m", "venv", "--without-pip", "--copies", folder], check=True)
    packages = folder / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    for top in sorted({top for one in _needed() for top in _tops(one)}):
        if top.is_dir():
            shutil.copytree(top, packages / top.name, dirs_exist_ok=True)
        else:
            shutil.copy2(top, packages / top.name)
    for own in ("orch23", "orch23_checks"):
        shutil.copytree(ROOT / own, packages / own, dirs_exist_ok=True)
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o444 | (0o111 if path.is_dir() else 0))
    return folder / "bin/python"


def _needed() -> Iterator[importlib.metadata.Distribution]:
    """Give what orch23 needs, and what that needs, but for itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    left = [Requirement(one) for one in project["dependencies"]]
    seen: set[str] = set()
    while left:
        wanted = left.pop()
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        if name in seen | _NEVER_ASKED or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        found = importlib.metadata.distribution(name)
        left += [Requirement(one) for one in found.requires or ()]
        yield found


def _tops(one: importlib.metadata.Distribution) -> Iterator[Path]:
    """Give the folders and files that a package has beside others."""
    for file in one.files or ():
        if file.parts[0] not in {os.pardir, "__pycache__"}:
            yield Path(str(one.locate_file(file.parts[0])))
