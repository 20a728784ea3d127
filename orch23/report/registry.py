"""Output formats of `build` by name; each is loaded when it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from orch23.report.formats import Format


_PLACES: Final = {
    "auto": "live:AUTO",
    "plain": "live:PLAIN",
    "quiet": "text:QUIET_TEXT",
    "jsonl": "jsonl:JSONL",
}


def own_format(name: str) -> "Format | None":
    """Return the output format of a name, from the core or from a feature; None if orch23 has none.

    Raises:
        ConfigurationError: it is of a feature that is not a part of this installation.
    """
    if name in _PLACES:
        module, _, attribute = _PLACES[name].partition(":")
        found: Format = getattr(import_module(f"orch23.report.{module}"), attribute)
        return found
    from orch23.model import features  # noqa: PLC0415 - most builds use a format of the core

    return features.load_feature(features.FORMATS[name]) if name in features.FORMATS else None


def installed_formats() -> list[str]:
    """Return the names of the formats that are a part of this installation."""
    from orch23.model import features  # noqa: PLC0415 - as above

    return [*_PLACES, *(name for name in features.FORMATS if features.has_feature(features.FORMATS, name))]


# The entry point group of output formats in plugins.
REPORT_ENTRY_POINTS: Final = "orch23.reports"


def format_of(name: str, plugins: tuple[str, ...]) -> "Format":
    """Return the output format of a name, from orch23 or from the plugins of a pipeline.

    Raises:
        UsageError: there is no such format.
        ConfigurationError: the object that a plugin has under the name is not a format.
    """
    from orch23.model import features  # noqa: PLC0415 - for pipelines with plugins alone
    from orch23.model.diagnostic import Diagnostic, did_you_mean  # noqa: PLC0415 - as above
    from orch23.model.errors import UsageError  # noqa: PLC0415 - as above
    from orch23.model.plugins import LazyMapping, Registry, type_validator  # noqa: PLC0415 - as above
    from orch23.report.formats import Format  # noqa: PLC0415 - as above

    own: LazyMapping[Any] = LazyMapping((*_PLACES, *features.FORMATS), own_format)
    formats = Registry(own, REPORT_ENTRY_POINTS, plugins, type_validator(Format))
    if name in formats:
        found: Format = formats[name]
        return found
    hint = did_you_mean(name, formats, f"the formats are {', '.join(formats)}")
    raise UsageError(Diagnostic("E641", f"there is no output format `{name}`", hint=hint))
