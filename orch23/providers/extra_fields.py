"""Fields that `llm.extra` adds to the body of a request: parameters of a vendor that orch23 has no key for."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.llm import Request
from orch23.providers.adapter import unsupported_error
from orch23.text.secret_patterns import is_secret_key

if TYPE_CHECKING:
    from orch23.providers.adapter import Adapter

_UNPRICED = {"service_tier": "write `pace`", "speed": "remove it", "inference_geo": "remove it"}
_OTHER_RESPONSES = frozenset(
    {"tools", "tool_choice", "functions", "function_call", "parallel_tool_calls", "mcp_servers"}
)
_OTHER_RESPONSES |= {"n", "best_of", "modalities", "audio", "container", "web_search_options"}
_OTHER_RESPONSES |= {"previous_response_id", "conversation", "prompt"}


def extra_errors(extra: Mapping[str, Json], adapter: "Adapter") -> Iterator[Diagnostic]:
    """Yield the errors of secrets, and of fields that the adapter sets, with an unknown price or another response."""
    for path in sorted(_paths(extra)):
        name = path.partition(".")[0]
        if any(map(is_secret_key, path.split("."))):
            yield _refused(path, "is named like a secret, which may not be in a pipeline", "remove it")
        elif not adapter.sets:
            continue  # the program of the user knows its own parameters
        elif name in _UNPRICED:
            yield _refused(path, "changes the price, which orch23 then does not know", _UNPRICED[name])
        elif name in _OTHER_RESPONSES:
            yield _refused(path, "asks for a response that is not one text", "remove it")
        elif any(f"{path}.".startswith(f"{one}.") or f"{one}.".startswith(f"{path}.") for one in adapter.sets):
            last = path.rpartition(".")[2]
            hint = f"write `{last}` of `llm`" if last in adapter.takes or last in adapter.sends else "remove it"
            yield _refused(path, f"is set by orch23 for the provider `{adapter.step.provider}`", hint)


def extra_fields(request: Request, body: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields to add to a body, or to replace in it: with what the body has in the same mappings."""
    extra = request.params.get("extra")
    return {name: _merged(value, body.get(name)) for name, value in extra.items()} if isinstance(extra, Mapping) else {}


def _merged(extra: Json, body: Json) -> Json:
    if not isinstance(extra, Mapping) or not isinstance(body, Mapping):
        return extra if body is None else body
    return {**body, **{name: _merged(value, body.get(name)) for name, value in extra.items()}}


def _paths(extra: Mapping[str, Json], above: str = "") -> Iterator[str]:
    for name, value in extra.items():
        if isinstance(value, Mapping) and value:
            yield from _paths(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def _refused(path: str, why: str, hint: str) -> Diagnostic:
    return unsupported_error("extra", f"`extra.{path}` {why}", hint)
