"""Name the models that a server has, after it refused one that it does not know."""

import re
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from orch23.model.diagnostic import nearest_names, quoted_names
from orch23.providers.faults import TransportError, printable_line

_NOT_FOUND = 404
_MOST = 6
_LONGEST = 100
_MAX_NAMES = 1_000
_NO_LIST = (
    "the server does not list its models: write the exact name from its documentation in `llm.model`; if it is written "
    "like that, the account of your key has no access to it"
)
_QUOTED = re.compile(r"[`'\"]([^`'\"\s]{1,100})[`'\"]")


def is_unknown_model(fault: TransportError) -> bool:
    """Return whether a server replied that it does not have a model."""
    return (
        fault.status == _NOT_FOUND
        and fault.diagnostic.code == "E415"
        and "model" in fault.diagnostic.message.casefold()
    )


def with_known_models(fault: TransportError, names: Callable[[], Iterable[str]]) -> TransportError:
    """Return the fault with the models of the server in its hint; without them if the server does not list them."""
    try:
        known = sorted({printable_line(name) for name, _ in zip(names(), range(_MAX_NAMES), strict=False)})
    except Exception:  # noqa: BLE001 - the request has failed already, and the list only helps to correct it
        known = []
    known = [name for name in known if 0 < len(name) <= _LONGEST]
    if not known:
        return TransportError(replace(fault.diagnostic, hint=_NO_LIST), status=fault.status)
    words = _QUOTED.findall(fault.diagnostic.message)
    fix = next(((word, found) for word in words for found in nearest_names(word, known)), None)
    known.sort(key=lambda name: fix is None or name != fix[1])  # the nearest one first
    mean = f"did you mean `{fix[1]}`? " if fix else ""
    more = f" and {len(known) - _MOST} more" if len(known) > _MOST else ""
    hint = f"{mean}write a model of this server in `llm.model`; it has {quoted_names(known[:_MOST])}{more}"
    return TransportError(replace(fault.diagnostic, hint=hint, fix=fix), status=fault.status)
