"""Call OpenAI's Responses API without its background mode, so that the vendor does not store the response."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from orch23.features.vendors.openai_client import (
    has_broken_off,
    parse_reply,
    post_body,
    server_error,
    stream_objects,
    token_usage,
)
from orch23.features.vendors.openai_responses import ResponsesProvider, read_response, responses_request_body
from orch23.features.vendors.server_replies import MAX_RESPONSE_CHARACTERS, text_at
from orch23.model.digest import Json
from orch23.model.llm import Request, Response, Usage
from orch23.model.parsing import json_at
from orch23.providers.faults import TransportError, incomplete_error, too_long_error

if TYPE_CHECKING:
    from openai import Stream

_PATH = "/responses"
_LAST = frozenset({"response.completed", "response.incomplete", "response.failed"})
_PIECES = frozenset({"response.output_text.delta", "response.refusal.delta"})


class StreamedResponses(ResponsesProvider, frozen=True, kw_only=True):
    """The provider. A response that is not received completely is lost: no later build can collect it."""

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Call the model.

        Raises:
            TransportError: there was no complete response.
            ProviderError: the build has ended.
        """
        began = self.connection.clock()
        heard, known = list[str](), [Usage()]

        def listen(text: str) -> None:
            heard.append(text)
            on_text(text)

        try:
            reply = self._listen(request, began + deadline_s, listen, known)
        except TransportError as fault:
            is_cut = heard and has_broken_off(fault)
            raise (self._incomplete() if is_cut else fault).knowing(known[-1]) from None
        return read_response(reply, request, self.connection.server.url, self.connection.clock() - began)

    def _incomplete(self) -> TransportError:
        return incomplete_error(self.connection.server.url, "the stream ended before the response")

    def _listen(self, request: Request, until: float, on_text: Callable[[str], None], known: list[Usage]) -> Json:
        """Return the response in the last event of the stream. `known` gets each usage that is reported."""
        with self.connection.open(until) as client:
            body = responses_request_body(request, background=False, is_vendor=self.is_vendor)
            reply = post_body(client, _PATH, body, self.connection.server.url)
            if isinstance(reply, bytes):
                return parse_reply(reply, self.connection.server.url)
            return self._last(reply, on_text, known)

    def _last(self, stream: "Stream[object]", on_text: Callable[[str], None], known: list[Usage]) -> Json:
        received, found = 0, None
        for event in stream_objects(stream, self.connection.server.url):
            kind = text_at(event, "type")
            if (usage := token_usage(json_at(event, "response", "usage"), "input", "output")).total:
                known.append(usage)
            if kind == "error":
                raise server_error(text_at(event, "message"), text_at(event, "code"))
            if kind in _PIECES:
                piece = text_at(event, "delta")
                received += len(piece)
                if received > MAX_RESPONSE_CHARACTERS:
                    what = f"more than {MAX_RESPONSE_CHARACTERS:,} characters"
                    raise too_long_error(self.connection.server.url, what)
                on_text(piece)
            elif kind in _LAST:
                found = json_at(event, "response")
        if found is None:
            raise self._incomplete()
        return found
