"""What is known of the provider `openai` without asking it: whom a step asks, how, and what it lacks for that."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from orch23.model.address import is_loopback, normal_url, url_fault
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.llm import OnTruncated, Provider
from orch23.providers import codes
from orch23.providers.adapter import Adapter, Asking, Setting
from orch23.providers.calls import Calls
from orch23.providers.consent import server_grant
from orch23.providers.openai_chat import Chat
from orch23.providers.openai_client import KEY_VARIABLE, Line, Server
from orch23.providers.openai_responses import Responses, Submitted
from orch23.providers.openai_schema import is_object
from orch23.providers.trust import Trust
from orch23.providers.wire import wire_schema
from orch23.steps.llm.spec import LLMStep

VENDOR_URL = "https://api.openai.com/v1"
_NO_KEY_NEEDED = "none"
"""What a server on this machine gets where there is no key: the library does not go without one."""


def url_of(step: LLMStep) -> str:
    """Return the normal form of the address that a step asks."""
    return normal_url(step.base_url or VENDOR_URL)


def api_of(step: LLMStep) -> str:
    """Return the interface: what the step says, or else `chat` where it names an address, since all servers have it."""
    return step.api or ("chat" if step.base_url else "responses")


def _make(setting: Setting, asking: Asking) -> Provider:
    step = asking.step
    url = url_of(step)
    server = Server(url, _key(setting.environ) or _NO_KEY_NEEDED)
    line = Line(server=server, calls=setting.share(Calls, Calls), trust=setting.share(Trust, Trust))
    if api_of(step) == "chat":
        return Chat(line=line, room="max_completion_tokens" if url == VENDOR_URL else "max_tokens")
    return Responses(
        line=line,
        stage=asking.stage,
        notice=setting.notice,
        earlier=setting.submitted,
        submitted=setting.share(Submitted, Submitted),
    )


def _parameters(step: LLMStep) -> Mapping[str, Json]:
    given = {"effort": step.effort, "seed": step.seed, "temperature": step.temperature}
    return {"max_tokens": step.max_tokens, **{name: value for name, value in given.items() if value is not None}}


def _wire(step: LLMStep, schema: Json) -> Json:
    """Return the reduced schema; none where the interface would refuse it, since the answer is no object."""
    reduced = wire_schema(step, schema)
    return reduced if api_of(step) == "chat" or is_object(reduced) else None


def _check(step: LLMStep, environ: Mapping[str, str], root: Path | None) -> tuple[Diagnostic, ...]:
    del environ, root
    found = []
    fault = url_fault(step.base_url) if step.base_url is not None else None
    if fault is not None:
        hint = f"give it as `https://host/v1`; the key comes from {KEY_VARIABLE}"
        found.append(Diagnostic(codes.PARAMETER, f"`llm.base_url` {fault}", hint=hint))
    if step.seed is not None and api_of(step) == "responses":
        hint = "remove it, or name the other interface: `api: chat`"
        found.append(Diagnostic(codes.PARAMETER, "OpenAI's Responses API does not take `seed`", hint=hint))
    return tuple(found)


def _ready(step: LLMStep, environ: Mapping[str, str], root: Path | None) -> tuple[Diagnostic, ...]:
    del root
    found = []
    if importlib.util.find_spec("openai") is None:
        hint = "pip install 'orch23[openai]'"
        found.append(Diagnostic(codes.NO_LIBRARY, "the library `openai` is not installed", hint=hint))
    if not _key(environ) and not is_loopback(url_of(step)):
        hint = f"set {KEY_VARIABLE}" + (" (to any text, if the server wants none)" if step.base_url else "")
        found.append(Diagnostic(codes.NO_KEY, f"there is no key for {url_of(step)}", hint=hint))
    return tuple(found)


def _key(environ: Mapping[str, str]) -> str:
    return environ.get(KEY_VARIABLE, "").strip()


ADAPTER = Adapter(
    make=_make,
    takes=frozenset({"effort", "base_url", "endpoint_alias", "seed", "temperature", "api"}),
    parameters=_parameters,
    endpoint=url_of,
    api=api_of,
    pricing="openai",
    remote=lambda step: not is_loopback(url_of(step)),
    wire=_wire,
    check=_check,
    ready=_ready,
    consent=lambda step, *_: server_grant(url_of(step), VENDOR_URL, KEY_VARIABLE),
    on_truncated=OnTruncated(1, 2),
)
