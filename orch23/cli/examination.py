"""Find out what works on this machine and in this project, by looking, and by trying the sandbox."""

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import assert_never

from msgspec import Struct

from orch23 import __version__
from orch23.execute.interpreters import find_interpreter, interpreter_facts
from orch23.execute.sandbox.bubblewrap import Bubblewrap, Namespaces
from orch23.execute.sandbox.choice import ALLOW_NAMESPACES, INSTALL, Choice, choose_once
from orch23.execute.sandbox.restricted import Restricted
from orch23.model.errors import Orch23Error
from orch23.model.own_files import LOGS
from orch23.providers.local_model import data_dir, installed, known_models
from orch23.report.figures import count, size
from orch23.store.journal import journals
from orch23.store.opening import FOLDER


class Finding(Struct, frozen=True):
    """One thing that was looked at; `ok` says that nothing is amiss with it, `hint` what to do if something is."""

    name: str
    value: str
    ok: bool = True
    hint: str = ""


_VENDORS = (
    ("anthropic", "ANTHROPIC_API_KEY", "pip install 'anthropic>=2,<3'"),
    ("openai", "OPENAI_API_KEY", "pip install 'orch23[openai]'"),
)


def examine(root: Path, environ: Mapping[str, str]) -> list[Finding]:
    """Return what was found in a project. Imports no client library, and calls no provider."""
    return [
        Finding("orch23", __version__),
        Finding("python", f"{platform.python_version()} ({sys.executable})"),
        Finding("project", str(root)),
        _writable(root),
        *_interpreter(root, environ),
        *(_vendor(name, key, way, environ) for name, key, way in _VENDORS),
        Finding("provider scripted", "usable"),
        Finding("provider command", "usable, with a program that the pipeline names"),
        *_local(environ),
        _cache(root / FOLDER),
        Finding("runs", count(len(journals(root / LOGS)), "run")),
        _sandbox(choose_once()),
    ]


def _writable(root: Path) -> Finding:
    place = next((folder for folder in (root / FOLDER, root) if folder.is_dir()), root)
    if os.access(place, os.W_OK | os.X_OK):
        return Finding("store", f"{root / FOLDER} can be written")
    return Finding("store", f"{place} cannot be written", ok=False, hint="change its owner, or build elsewhere with -C")


def _interpreter(root: Path, environ: Mapping[str, str]) -> list[Finding]:
    try:
        path = find_interpreter(None, root, environ)
        facts = interpreter_facts(path)
    except Orch23Error as error:
        problem = error.diagnostics[0]
        return [Finding("interpreter of stages", problem.message, ok=False, hint=problem.hint or "")]
    found = [Finding("interpreter of stages", f"{path} (Python {facts.version})")]
    if facts.pytest_major is None:
        hint = f"{path} -m pip install pytest"
        return [*found, Finding("pytest", "not found beside it", ok=False, hint=hint)]
    return [*found, Finding("pytest", f"version {facts.pytest_major}")]


def _vendor(name: str, variable: str, way: str, environ: Mapping[str, str]) -> Finding:
    """Look for the library and the key, of which nothing is shown."""
    try:
        library, hints = f"library {importlib.metadata.version(name)}", []
    except importlib.metadata.PackageNotFoundError:
        library, hints = "its library is not installed", [way]
    key = f"{variable} is set"
    if not environ.get(variable, "").strip():
        key = f"{variable} is not set"
        hints.append(f"set {variable}; recorded answers work without it")
    return Finding(f"provider {name}", f"{library}, {key}", ok=not hints, hint=", ".join(hints))


def _local(environ: Mapping[str, str]) -> list[Finding]:
    found = []
    if importlib.util.find_spec("xllamacpp") is None:
        hint = "pip install 'orch23[local]'"
        found.append(Finding("provider local", "its server is not installed", ok=False, hint=hint))
    else:
        found.append(Finding("provider local", "its server is installed"))
    for model in known_models():
        path = installed(model.name, data_dir(environ))
        if path is None:
            hint = f"orch23 model install {model.name}; recorded answers work without it"
            found.append(Finding(f"model {model.name}", "not installed", ok=False, hint=hint))
        else:
            found.append(Finding(f"model {model.name}", str(path)))
    return found


def _sandbox(choice: Choice) -> Finding:
    """Tell the tier, which was just tried, why it is no better one, and how to get that."""
    match choice.launcher:
        case Namespaces():
            return Finding(
                "sandbox", "namespaces: as with bubblewrap, but each process takes longer to start", hint=INSTALL
            )
        case Bubblewrap(program=program):
            return Finding("sandbox", f"bubblewrap ({program}): namespaces of its own, no network, only its room")
        case Restricted():
            hint = f"{choice.why}; {ALLOW_NAMESPACES}"
            value = (
                "Landlock and seccomp: a step writes only in its own directory; it can read /proc and change modes and "
                "times of this user's files; /dev/shm is closed to it"
            )
            return Finding("sandbox", value, ok=False, hint=hint)
        case None:
            hint = f"{choice.why}; {ALLOW_NAMESPACES}; `--allow-unsandboxed` builds without one"
            return Finding("sandbox", "none: steps are refused", ok=False, hint=hint)
        case _ as never:
            assert_never(never)


def _cache(folder: Path) -> Finding:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return Finding("cache", f"{count(len(sizes), 'file')}, {size(sum(sizes))}")
