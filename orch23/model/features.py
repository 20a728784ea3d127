"""The features of orch23 by what they supply: parts in folders of `orch23/features` that a build can do without.

They are in the same distribution as the core, which loads their objects by name and never imports them. A feature
whose folder is removed is missing, and everything else works.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError

# Objects by name, as `FEATURE.MODULE:ATTRIBUTE`.
COMMANDS: Final[Mapping[str, str]] = {
    "watch": "watch.command:watch_command",
}


def load_feature(place: str) -> Any:
    """Return an object of a feature, by its place `FEATURE.MODULE:ATTRIBUTE`.

    Raises:
        ConfigurationError: the folder of the feature is not a part of this installation.

    """
    module, _, name = place.partition(":")
    if not is_installed(place):
        feature = module.partition(".")[0]
        message = f"this installation of orch23 does not have the feature `{feature}`"
        raise ConfigurationError(Diagnostic("E668", message, hint="install orch23 again"))
    return getattr(import_module(f"orch23.features.{module}"), name)


def is_installed(place: str) -> bool:
    """Return whether the feature of a place is a part of this installation. Nothing of it is imported."""
    found = find_spec(f"orch23.features.{place.partition('.')[0]}")
    return found is not None and found.origin is not None  # a folder without modules can remain of a removed one
