"""What goes wrong with Anthropic's Messages API: each fault with its code, and whether it is charged or may pass."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import Request
from orch23.providers import codes
from orch23.providers.event_stream import named_events
from orch23.providers.faults import TransportError, no_answer_of_api, refused, shown

if TYPE_CHECKING:
    from anthropic import APIStatusError

_EVENT_STREAM = "text/event-stream"
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


def hold_to_stream(url: str, response: Any) -> None:
    """Refuse a reply that is no stream of events, and watch one that is: the SDK passes over events without a name.

    Raises:
        TransportError: it is not; asking again would give the same page.

    """
    kind = response.headers.get("content-type", "no content type")
    if kind.startswith(_EVENT_STREAM):
        pieces = response.iter_bytes
        response.iter_bytes = lambda *args, **more: named_events(pieces(*args, **more))
        return
    said = shown(response.read().decode("utf-8", "replace"))
    message = f"{url} answered 200 with {shown(kind)}, no stream of events: {said}"
    charged = "json" in kind  # then something answered, and did not stream
    raise TransportError(no_answer_of_api(message), charged=charged, status=200)


def garbled(url: str, error: Exception) -> TransportError:
    """Return the fault of an event that is none of the API's: damaged on its way, so the next one may be whole."""
    message = f"an event of the answer of {url} is none of the API's: {shown(str(error)) or type(error).__name__}"
    return TransportError(no_answer_of_api(message), transient=True, charged=True)


def refusal(url: str, error: "APIStatusError", *, charged: bool) -> TransportError:
    """Return the fault of an error of the API, as a reply of its own or in the middle of a stream."""
    status = _STATUS_OF_ERROR.get(str(error.type), 500) if charged else error.status_code
    said = error.api_message or (error.body if isinstance(error.body, str) else "")
    return refused(url, status, said, dict(error.response.headers), charged=charged)


def context_full(request: Request) -> TransportError:
    """Return the fault of a full context: more `max_tokens` do not help, and a revision would be longer still."""
    message = f"the context of {request.model} is full: prompt and answer do not fit into it together"
    hint = "give the stage fewer or shorter inputs, or another model"
    return TransportError(Diagnostic(codes.BAD_REQUEST, message, hint=hint), charged=True)
