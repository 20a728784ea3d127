"""The result of one check of `doctor`, and those of providers, which `init` shows too."""

import importlib.metadata
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from orch23.cli.consent import Consent
from orch23.cli.opening import cache_address
from orch23.model.errors import ConfigurationError
from orch23.model.features import CHECKS, load_feature
from orch23.model.pipeline import Pipeline
from orch23.model.shared_cache import CacheOptions, CacheSettings
from orch23.model.step import Grant
from orch23.providers.installation import install_command

VENDOR_KEYS: Final = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}


class DoctorFinding(Struct, frozen=True):
    """The result of one check; `hint` says what to do if it is not `ok`."""

    name: str
    value: str
    ok: bool = True
    hint: str = ""


def caught(name: str, check: Callable[[], Iterator[DoctorFinding]]) -> Iterator[DoctorFinding]:
    """Give the findings of a check, and why it cannot go on."""
    try:
        yield from check()
    except ConfigurationError as error:
        first = error.diagnostics[0]
        yield DoctorFinding(name, first.message, ok=False, hint=first.hint or "")


def vendor_finding(name: str, variable: str, environ: Mapping[str, str]) -> DoctorFinding:
    """Look for the library and the key. The key is not shown."""
    # The version is read without an import: `import anthropic` loads 2,900 modules, in over a second.
    try:
        library, hints = f"library {importlib.metadata.version(name)}", []
    except importlib.metadata.PackageNotFoundError:
        library, hints = "its library is not installed", [install_command(name)]
    key = f"{variable} is set"
    if not environ.get(variable, "").strip():
        key = f"{variable} is not set"
        hints.append(f"set {variable}; recorded responses work without it")
    return DoctorFinding(f"provider {name}", f"{library}, {key}", ok=not hints, hint=", ".join(hints))


def provider_finding(provider: str, environ: Mapping[str, str]) -> DoctorFinding:
    """Return the check of a vendor, or of a provider that needs weights, without them."""
    if provider in CHECKS:
        found: DoctorFinding = load_feature(CHECKS[provider])(environ)[0]
        return found
    return vendor_finding(provider, VENDOR_KEYS[provider], environ)


# Variables of options of `orch23 build`.
CACHE_OPTION: Final = "ORCH23_BUILD_CACHE"
WRITE_OPTION: Final = "ORCH23_BUILD_CACHE_WRITE"
_YES: Final = frozenset({"1", "true", "t", "yes", "y", "on"})


class SharedSetup(Struct, frozen=True, kw_only=True):
    """What a build would share, as `doctor` is asked for it.

    `here` is the folder of a relative path in the environment. With `online`, each server gets one request.
    """

    here: Path
    root: Path
    pipeline: Pipeline | None
    environ: Mapping[str, str]
    trust_command: str
    online: bool

    @property
    def options(self) -> CacheOptions:
        """The options of a build, by their variables."""
        url = cache_address(self.here, self.environ.get(CACHE_OPTION))
        return CacheOptions(url=url, write=self.environ.get(WRITE_OPTION, "").lower() in _YES)

    def settings(self) -> tuple[CacheSettings, Grant | None]:
        """Return the settings of the cache, and the grant that the user has not given, as `Consent.cache_settings`."""
        declared = {} if self.pipeline is None else self.pipeline.cache
        return Consent.of(self.root, self.environ).cache_settings(declared, self.environ, self.options)
