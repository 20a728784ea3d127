"""The forms in which a build is shown, by the name that `--output` takes; each is loaded when it is asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import UsageError
from orch23.model.nearest import nearest
from orch23.model.on_demand import OnDemand
from orch23.model.plugins import Registry, is_a

if TYPE_CHECKING:
    from orch23.report.formats import Format

_PLACES: Final = {
    "auto": "text:PLAIN",
    "plain": "text:PLAIN",
    "quiet": "text:QUIET",
    "jsonl": "jsonl:FORMAT",
    "junit": "junit:FORMAT",
}


def _load(name: str) -> "Format":
    module, _, attribute = _PLACES[name].partition(":")
    found: Format = getattr(import_module(f"orch23.report.{module}"), attribute)
    return found


FORMATS = OnDemand(_PLACES, _load)
GROUP: Final = "orch23.reports"
"""The entry points of plugins that are forms."""


def format_of(name: str, plugins: tuple[str, ...]) -> "Format":
    """Return the form of a name: of orch23, else of the plugins of a pipeline.

    Raises:
        UsageError: there is none.
        ConfigurationError: what a plugin has under the name cannot be used.

    """
    from orch23.report.formats import Format  # noqa: PLC0415 - for pipelines with plugins alone

    formats = Registry(FORMATS, GROUP, plugins, is_a(Format))
    if name in formats:
        return formats[name]
    close = nearest(name, list(formats))
    hint = f"did you mean `{close[0]}`?" if close else f"there are: {', '.join(formats)}"
    raise UsageError(Diagnostic("E641", f"there is no output format `{name}`", hint=hint))
