"""The forms in which a build is shown, by the name that `--output` takes; each is loaded when it is asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from orch23.model.on_demand import OnDemand

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
