"""What `doctor` passes to the features that check what a build would share: the shared cache and executors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from orch23.cli.consent import Consent
from orch23.cli.opening import cache_address
from orch23.model.pipeline import Pipeline
from orch23.model.shared_cache import CacheOptions, CacheSettings
from orch23.model.step import Grant

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
