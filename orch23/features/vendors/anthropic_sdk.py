"""Handle Anthropic's SDK: map its errors to faults, and warm it up during the first call.

The SDK builds its validators at the first response. This takes as long as reading twenty responses, and it happens
eight times if eight responses arrive at once. The warm-up makes no connection: it uses the mock transport of the HTTP
library.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from orch23.features.vendors.server_replies import (
    AWS_STREAM,
    EVENT_STREAM,
    http_client,
    require_event_names,
)
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.llm import Request, Usage
from orch23.model.parsing import json_at
from orch23.providers.connections import ClientConnection, TlsContexts
from orch23.providers.faults import (
    DamagedTextError,
    TransportError,
    invalid_reply_diagnostic,
    printable_line,
    status_error,
    with_key_variable,
)

if TYPE_CHECKING:
    from anthropic import APIStatusError
    from anthropic.types import Message


# An error in the middle of a stream has a type and no status.
_STATUS_OF_ERROR: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}

# Some gateways report no tokens: the response is complete, and the ledger then counts what it can have taken.
_EVENTS_WITH_USAGE = (b"message_start", b"message_delta")
_NO_USAGE: Mapping[str, Json] = {"input_tokens": 0, "output_tokens": 0}


def anthropic_client(
    kind: str, url: str, connection: ClientConnection, trust: TlsContexts, headers: Mapping[str, str], **login: Any
) -> Any:
    """Return a client of this class of the SDK that does not depend on the environment.

    The SDK reads eight environment variables and a file of profiles. With login and address given, it ignores all but
    ANTHROPIC_CUSTOM_HEADERS. The client makes no retries, which would hide requests, and follows no redirects, which
    would send the prompt elsewhere. It uses the machine's proxies, but not for addresses of this machine. Each call
    sets its own timeout.
    """
    import anthropic  # noqa: PLC0415 - heavy

    client = getattr(anthropic, kind)(
        base_url=url,
        max_retries=0,
        open_telemetry=False,
        default_headers=headers,
        http_client=http_client(anthropic, url, connection, trust),
        **login,
    )
    client._custom_headers = headers  # noqa: SLF001 - no argument disables ANTHROPIC_CUSTOM_HEADERS
    return client


def is_stream(response: Any) -> bool:
    """Return whether a reply is an event stream. Each of its events is then checked as it is read.

    The SDK skips events without a name.
    """
    kind = response.headers.get("content-type", "")
    if not kind.startswith(EVENT_STREAM):
        return bool(kind.startswith(AWS_STREAM))
    pieces = response.iter_bytes
    response.iter_bytes = lambda *args, **more: map(_with_usage, require_event_names(pieces(*args, **more)))
    return True


def _with_usage(event: bytes) -> bytes:
    """Return an event of a stream, with a usage of no tokens if a gateway left it out: the SDK requires it."""
    if not any(name in event for name in _EVENTS_WITH_USAGE):
        return event
    name, found, data = event.partition(b"data:")
    with contextlib.suppress(ValueError):
        value = json.loads(data)
        if isinstance(value, dict) and _add_usage(value.get("message", value)):
            return name + found + json.dumps(value).encode() + b"\n\n"
    return event


def _add_usage(owner: object) -> bool:
    """Add a usage of no tokens to a message or an event without one; return whether it had none."""
    if not isinstance(owner, dict) or owner.get("type") not in ("message", "message_delta"):
        return False
    stated = owner.get("usage")
    if stated is not None and not isinstance(stated, dict):
        return False
    complete = {**_NO_USAGE, **(stated or {})}
    owner["usage"] = (
        complete if owner["type"] == "message" else {**(stated or {}), "output_tokens": complete["output_tokens"]}
    )
    return bool(owner["usage"] != stated)


def json_message(url: str, response: Any) -> "Message":
    """Return the message of a reply that is one JSON body.

    Raises:
        TransportError: it is something else; a retry would return the same page.
    """
    kind = response.headers.get("content-type", "no content type")
    body = response.read()
    if "json" in kind:
        from anthropic.types import Message  # noqa: PLC0415 - heavy

        with contextlib.suppress(ValueError):
            value = json.loads(body)
            _add_usage(value)
            return Message.model_validate(value)
    said = printable_line(body.decode("utf-8", "replace"))
    said = f"{said} (with bytes that are not UTF-8)" if "\ufffd" in said else said
    message = f"{url} replied 200 with {printable_line(kind)}, not a message: {said}"
    charged = "json" in kind or kind.startswith(EVENT_STREAM)  # a model may have responded
    raise TransportError(invalid_reply_diagnostic(message), charged=charged, status=200)


def invalid_event(url: str, error: Exception) -> TransportError:
    """Return the error of an event that does not match the API. It was damaged in transit, so a retry may succeed."""
    if isinstance(error, UnicodeDecodeError) and error.encoding == "utf-8":  # not half of a character
        return DamagedTextError(url)
    what = printable_line(str(error)) or type(error).__name__
    message = f"an event of the response of {url} does not match the API: {what}"
    return TransportError(invalid_reply_diagnostic(message), transient=True, charged=True)


def api_error(url: str, error: "APIStatusError", *, charged: bool, variable: str = "") -> TransportError:
    """Return the error for an API error, in a reply of its own or in the middle of a stream.

    `variable` is the variable that the key came from; empty for a login of another kind.
    """
    status = _STATUS_OF_ERROR.get(str(error.type), 500) if charged else error.status_code
    said = error.api_message or (error.body if isinstance(error.body, str) else "")
    headers, marks = dict(error.response.headers), (str(error.type),)
    fields = json_at(error.body, "error")  # type: ignore[arg-type]  # it is JSON or None
    fault = status_error(url, status, said, headers, charged=charged, marks=marks, error=fields)
    return with_key_variable(fault, variable, has_key=True) if variable else fault


def context_full_error(request: Request, usage: Usage) -> TransportError:
    """Return the error of a full context. A higher `max_tokens` does not help, and a retry prompt would be longer."""
    message = f"the context of {request.model} is full: prompt and response do not fit into it together"
    hint = "give the stage fewer or shorter inputs, or another model"
    return TransportError(Diagnostic("E415", message, hint=hint), charged=True, usage=usage)


class WarmUp(Struct):
    """The warm-up of a run: it is done once, while the providers wait for their responses."""

    _begun: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start_once(self, act: Callable[[], object]) -> None:
        """Start it in a thread, unless it was started. No one waits for it, and its failure is ignored."""
        with self._lock:
            if self._begun:
                return
            self._begun = True
        threading.Thread(target=_quietly, args=(act,), name="warm-up", daemon=True).start()

    def close(self) -> None:
        """Prevent a later start."""
        with self._lock:
            self._begun = True


def _quietly(act: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        act()


_USAGE = {"input_tokens": 1, "output_tokens": 1}
_MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": _USAGE}
_EVENTS: Sequence[Mapping[str, Any]] = (
    {"type": "message_start", "message": {**_MESSAGE, "stop_reason": None, "stop_sequence": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": _USAGE},
    {"type": "message_stop"},
)


def warm_up_anthropic() -> str:
    """Read a sample response in the same way as a real one, and return its text."""
    import anthropic  # noqa: PLC0415 - heavy
    import httpx2  # noqa: PLC0415 - heavy

    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _EVENTS)
    headers = {"content-type": EVENT_STREAM}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=text.encode()))
    with (
        httpx2.Client(transport=transport, trust_env=False) as client_of_mock,
        anthropic.Anthropic(
            api_key="none", base_url="http://127.0.0.1", max_retries=0, http_client=client_of_mock
        ) as client,
        client.messages.stream(model="m", max_tokens=1, messages=[{"role": "user", "content": "a"}]) as stream,
    ):
        return stream.get_final_text()
