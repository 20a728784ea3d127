"""Run git and copier for templates, isolated from the user's configuration."""

import json
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError
from orch23.model.parsing import JsonObject, parse_json, to_struct

_TIMEOUT_S = 300.0
_SIGINT = 130
_REMOTE = "file:git:http:https:ssh"
_CHILD = Path(__file__).with_name("copier_child.py")
_CONFLICT_START = "<<<<<<< "
_MERGE_FAILED = 128
# Inside a git hook, or if the user sets them, these name another repository than the one that is meant.
_REPOSITORY_VARIABLES = re.compile(
    r"GIT_(?:DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE.*|COMMON_DIR|NAMESPACE|PREFIX)"
)


class CopierCall(Struct, frozen=True, kw_only=True):
    """One template to render into a folder, which is empty or has the answers of the last rendering."""

    source: str
    destination: str
    answers_file: str
    ref: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    suggested: Mapping[str, Any] = field(default_factory=dict)
    ask: bool = False


def find_git(environ: Mapping[str, str]) -> str:
    """Return the path of git from the user's PATH.

    Raises:
        ConfigurationError: it is not there.
    """
    program = shutil.which("git", path=environ.get("PATH", ""))
    if program is None:
        hint = "install git; templates are kept in git repositories"
        raise ConfigurationError(Diagnostic("E482", "`git` was not found on PATH", hint=hint))
    return program


def clone_mirror(source: str, into: Path, environ: Mapping[str, str]) -> str | None:
    """Clone a whole repository with the user's own access to it; return the error of git, or None."""
    own = {name: value for name, value in environ.items() if not _REPOSITORY_VARIABLES.fullmatch(name)}
    steering = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": _REMOTE, "LC_ALL": "C"}
    command = [find_git(environ), "-c", "core.hooksPath=/dev/null", "clone", "--quiet", "--mirror"]
    return _failure([*command, "--", source, str(into)], {**own, **steering})


def clone_bundle(bundle: Path, into: Path, environ: Mapping[str, str]) -> str | None:
    """Clone a bundle, without settings of the user; return the error of git, or None."""
    command = [find_git(environ), "clone", "--quiet", "--mirror", "--", str(bundle), str(into)]
    return _failure(command, _hermetic(environ, into.parent))


def render_templates(
    calls: Sequence[CopierCall], *, mirrored: Path, url: str, folder: Path, environ: Mapping[str, str]
) -> list[JsonObject]:
    """Render templates with copier from a mirror of a URL; the results are those of `copier_child`.

    Raises:
        KeyboardInterrupt: the user pressed Ctrl-C at a question.
    """
    requests, results = folder / "calls.json", folder / "results.json"
    requests.write_text(json.dumps([asdict(call) for call in calls]), encoding="utf-8")
    is_interactive = any(call.ask for call in calls)
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-W", "ignore", str(_CHILD), str(requests), str(results)],
            cwd=folder,
            env=_copier_environment(mirrored, url, folder, environ),
            stdin=None if is_interactive else subprocess.DEVNULL,
            stdout=sys.__stderr__ if is_interactive else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=None if is_interactive else _TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [{"error": "broken", "message": f"copier did not end within {_TIMEOUT_S:g} s"}]
    if ended.returncode == _SIGINT:
        raise KeyboardInterrupt
    if ended.returncode:
        lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        return [{"error": "broken", "message": lines[-1] if lines else f"copier exited with status {ended.returncode}"}]
    try:
        return to_struct(parse_json(results.read_bytes(), max_bytes=None), list[JsonObject])
    except ValueError as error:
        # The child writes values of the template, and a default may be NaN.
        return [{"error": "broken", "message": f"the result of copier is not valid JSON: {error}"}]


def _copier_environment(mirrored: Path, url: str, folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    settings = {
        f"url.{mirrored}.insteadOf": url,
        "core.hooksPath": "/dev/null",
        "init.defaultBranch": "main",
        "protocol.allow": "never",
        # "user" allows the mirror, but no submodules, which could be any folder of the machine.
        "protocol.file.allow": "user",
        "advice.detachedHead": "false",
    }
    child = _hermetic(environ, folder)
    # It overrides `protocol.*`, and does not distinguish submodules.
    del child["GIT_ALLOW_PROTOCOL"]
    child["GIT_CONFIG_COUNT"] = str(len(settings))
    # copier may be installed below the user's home, and HOME is another folder now.
    child["PYTHONUSERBASE"] = site.getuserbase()
    for number, (name, value) in enumerate(settings.items()):
        child |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return child


def merge_texts(
    labels: tuple[str, str, str], folder: Path, git: str, *versions: bytes
) -> tuple[bytes | None, tuple[int, ...]]:
    """Merge two versions of a text; return None if that cannot be done, and the lines at which conflicts begin.

    `versions` and `labels` are those of mine, the base, and theirs.
    """
    names = ("mine", "base", "theirs")
    for name, data in zip(names, versions, strict=True):
        (folder / name).write_bytes(data)
    marked = [part for label in labels for part in ("-L", label)]
    environ = _hermetic({"PATH": str(Path(git).parent)}, folder)
    ended = _run([git, "merge-file", "-p", *marked, *names], environ, folder)
    if not 0 <= ended.returncode < _MERGE_FAILED:
        return None, ()
    starts = _CONFLICT_START.encode() + labels[0].encode()
    return ended.stdout, tuple(number for number, line in enumerate(ended.stdout.splitlines(), 1) if line == starts)


def _failure(command: list[str], environ: Mapping[str, str]) -> str | None:
    try:
        ended = _run(command, environ)
    except subprocess.TimeoutExpired:
        return f"git did not end within {_TIMEOUT_S:g} s"
    if ended.returncode == 0:
        return None
    lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    fatal = [line.partition(": ")[2] for line in lines if line.startswith(("fatal: ", "error: "))]
    return (fatal or lines or ["git failed"])[0]


def _run(
    command: list[str], environ: Mapping[str, str], cwd: Path | None = None
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        command,
        cwd=cwd,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def _hermetic(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return an environment in which git and copier write below a folder only, and clone from files only."""
    return {
        **{name: environ[name] for name in ("PATH", "TERM", "COLORTERM", "NO_COLOR") if name in environ},
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "COPIER_CACHE_DIR": str(folder / "cache"),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ALLOW_PROTOCOL": "file",
        "GIT_TERMINAL_PROMPT": "0",
    }
