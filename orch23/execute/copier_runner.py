"""Run git and copier for templates, isolated from the user's configuration."""

import json
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import asdict

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError
from orch23.model.parsing import JsonObject, parse_json, to_struct

_TIMEOUT_S = 300.0
_SIGINT = 130
_REMOTE = "file:git:http:https:ssh"
_CHILD = Path(__file__).with_name("copier_child.py")
_STARTS = "<<<<<<< "
_BINARY_OR_BROKEN = 128
# What git is told by a hook, or by a person, of another repository than the one that is meant.
_OF_REPOSITORY = re.compile(
    r"GIT_(?:DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE.*|COMMON_DIR|NAMESPACE|PREFIX)"
)


class CopierCall(Struct, frozen=True, kw_only=True):
    """One template to render into an empty folder, which may hold the answers of last time."""

    source: str
    destination: str
    answers_file: str
    ref: str | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    suggested: Mapping[str, str] = field(default_factory=dict)
    ask: bool = False


class MergeResult(Struct, frozen=True, kw_only=True):
    """What a three-way merge gave: the text, and the lines at which conflicts begin; no text if it is not to merge."""

    data: bytes | None
    lines: tuple[int, ...] = ()


def find_git(environ: Mapping[str, str]) -> str:
    """Return git, as the user's PATH has it.

    Raises:
        ConfigurationError: there is none.

    """
    program = shutil.which("git", path=environ.get("PATH", ""))
    if program is None:
        hint = "install git; templates are kept in git repositories"
        raise ConfigurationError(Diagnostic("E482", "`git` was not found on PATH", hint=hint))
    return program


def clone_mirror(source: str, into: Path, environ: Mapping[str, str]) -> str | None:
    """Clone all of a repository, with the user's own access to it; return what git says if it fails."""
    own = {name: value for name, value in environ.items() if not _OF_REPOSITORY.fullmatch(name)}
    steering = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": _REMOTE, "LC_ALL": "C"}
    command = [find_git(environ), "-c", "core.hooksPath=/dev/null", "clone", "--quiet", "--mirror"]
    return _failure([*command, "--", source, str(into)], {**own, **steering})


def clone_bundle(bundle: Path, into: Path, environ: Mapping[str, str]) -> str | None:
    """Clone a bundle, with nothing of the user's; return what git says if it fails."""
    command = [find_git(environ), "clone", "--quiet", "--mirror", "--", str(bundle), str(into)]
    return _failure(command, _hermetic(environ, into.parent))


def render_templates(
    calls: Sequence[CopierCall], *, mirrored: Path, url: str, folder: Path, environ: Mapping[str, str]
) -> list[JsonObject]:
    """Let copier render, from a mirror that stands for a URL; a call's result is that of `copier_child`.

    Raises:
        KeyboardInterrupt: the user left at a question.

    """
    asked, results = folder / "calls.json", folder / "results.json"
    asked.write_text(json.dumps([asdict(call) for call in calls]), encoding="utf-8")
    settings = {
        f"url.{mirrored}.insteadOf": url,
        "core.hooksPath": "/dev/null",
        "init.defaultBranch": "main",
        "protocol.allow": "never",
        "protocol.file.allow": "user",  # of the mirror; of a submodule it would be any folder of the machine
        "advice.detachedHead": "false",
    }
    child = _hermetic(environ, folder)
    del child["GIT_ALLOW_PROTOCOL"]  # it would be more than `protocol.*`, which tells submodules apart
    child["GIT_CONFIG_COUNT"] = str(len(settings))
    child["PYTHONUSERBASE"] = site.getuserbase()  # copier may be installed below the user's home, which is another now
    for number, (name, value) in enumerate(settings.items()):
        child |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    asking = any(call.ask for call in calls)
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-W", "ignore", str(_CHILD), str(asked), str(results)],
            cwd=folder,
            env=child,
            stdin=None if asking else subprocess.DEVNULL,
            stdout=sys.__stderr__ if asking else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=None if asking else _TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [{"error": "broken", "message": f"no end after {_TIMEOUT_S:g} s"}]
    if ended.returncode == _SIGINT:
        raise KeyboardInterrupt
    if ended.returncode:
        lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        return [{"error": "broken", "message": lines[-1] if lines else f"copier ended with {ended.returncode}"}]
    try:
        return to_struct(parse_json(results.read_bytes(), max_bytes=None), list[JsonObject])
    except ValueError as error:  # the child writes what a template says: a default may be NaN
        return [{"error": "broken", "message": f"what copier answered is no JSON: {error}"}]


def merge_texts(
    versions: tuple[bytes, bytes, bytes], labels: tuple[str, str, str], folder: Path, git: str
) -> MergeResult:
    """Merge two texts that come from one: `versions` and `labels` are of mine, the base, and theirs."""
    names = ("mine", "base", "theirs")
    for name, data in zip(names, versions, strict=True):
        (folder / name).write_bytes(data)
    marked = [part for label in labels for part in ("-L", label)]
    ended = subprocess.run(
        [git, "merge-file", "-p", *marked, *names],
        cwd=folder,
        env=_hermetic({"PATH": str(Path(git).parent)}, folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if not 0 <= ended.returncode < _BINARY_OR_BROKEN:
        return MergeResult(data=None)
    starts = _STARTS.encode() + labels[0].encode()
    lines = tuple(number for number, line in enumerate(ended.stdout.splitlines(), 1) if line == starts)
    return MergeResult(data=ended.stdout, lines=lines)


def _failure(command: list[str], environ: Mapping[str, str]) -> str | None:
    try:
        ended = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_TIMEOUT_S:g} s"
    if ended.returncode == 0:
        return None
    lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    fatal = [line.partition(": ")[2] for line in lines if line.startswith(("fatal: ", "error: "))]
    return (fatal or lines or ["git failed"])[0]


def _hermetic(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return an environment in which all that is written goes below a folder, and no protocol leaves the machine."""
    kept = {name: environ[name] for name in ("PATH", "TERM", "COLORTERM", "NO_COLOR") if name in environ}
    return {
        **kept,
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
