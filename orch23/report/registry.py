"""Output formats of `build` by name; each is loaded when it is used."""

from typing import TYPE_CHECKING, Final

from orch23.model import features
from orch23.model.diagnostic import Diagnostic, nearest_names
from orch23.model.errors import UsageError
from orch23.model.plugins import LazyMapping, Registry, load_object, type_validator

if TYPE_CHECKING:
    from orch23.report.formats import Format


_PLACES: Final = {
    "auto": "live:AUTO",
    "plain": "live:PLAIN",
    "quiet": "text:QUIET_TEXT",
    "jsonl": "jsonl:JSONL",
}


def _load(name: str) -> "Format":
    place = features.FORMATS.get(name)
    format_: Format = load_object(f"orch23.report.{_PLACES[name]}") if place is None else features.load_feature(place)
    return format_


FORMATS: "LazyMapping[Format]" = LazyMapping((*_PLACES, *features.FORMATS), _load)


def installed_formats() -> list[str]:
    """Return the names of the formats that are a part of this installation."""
    return [name for name in FORMATS if features.has_feature(features.FORMATS, name)]


# The entry point group of output formats in plugins.
REPORT_ENTRY_POINTS: Final = "orch23.reports"


def format_of(name: str, plugins: tuple[str, ...]) -> "Format":
    """Return the output format of a name, from orch23 or from the plugins of a pipeline.

    Raises:
        UsageError: there is no such format.
        ConfigurationError: the object that a plugin has under the name is not a format.

    """
    from orch23.report.formats import Format  # noqa: PLC0415 - for pipelines with plugins alone

    formats = Registry(FORMATS, REPORT_ENTRY_POINTS, plugins, type_validator(Format))
    if name in formats:
        return formats[name]
    close = nearest_names(name, list(formats))
    hint = f"did you mean `{close[0]}`?" if close else f"the formats are {', '.join(formats)}"
    raise UsageError(Diagnostic("E641", f"there is no output format `{name}`", hint=hint))
