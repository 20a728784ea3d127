"""Call OpenAI's Chat Completions interface, streamed."""

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from orch23.features.vendors.openai_client import (
    ServerConnection,
    has_broken_off,
    invalid_reply_error,
    message_contents,
    openai_version,
    pace_fields,
    parse_reply,
    post_body,
    reported_usage,
    response_format,
    served_pace,
    stream_objects,
    token_usage,
)
from orch23.features.vendors.server_replies import MAX_RESPONSE_CHARACTERS, join_text, text_at
from orch23.model.digest import Json
from orch23.model.event_data import StopReason
from orch23.model.llm import Pace, Request, Response, Usage
from orch23.model.media import Media
from orch23.model.parsing import json_at
from orch23.model.server_url import recordable_model
from orch23.providers.adapter import seed_of
from orch23.providers.cache_marks import cache_fields
from orch23.providers.extra_fields import extra_fields
from orch23.providers.faults import TransportError, incomplete_error, timeout_error, too_long_error, unknown_stop_error
from orch23.providers.media import data_url

_PATH = "/chat/completions"
_UNFINISHED = "it has no finish reason"
_STOPS: Mapping[str, StopReason] = {"stop": "end", "length": "max_tokens", "content_filter": "refusal"}


class ChatCompletions(Struct, frozen=True, kw_only=True):
    """The provider. `limit_field` is the name of the token limit, which the vendor has renamed.

    `is_vendor`: the server is the vendor's own. Another one may refuse fields that it does not know.
    """

    connection: ServerConnection
    limit_field: str = "max_tokens"
    is_vendor: bool = False

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Call the model.

        Raises:
            TransportError: there was no complete response.
            ProviderError: the build has ended.
        """
        began = self.connection.clock()
        until = began + deadline_s
        partial = _PartialResponse()
        try:
            self._listen(request, until, partial, on_text)
            text, stop = self._judged(partial, until)
        except TransportError as fault:
            broke_off = partial.began and has_broken_off(fault)
            fault = incomplete_error(self.connection.server.url, _UNFINISHED) if broke_off else fault
            raise fault.knowing(partial.counted) from None
        return Response(
            text=text,
            stop=stop,
            usage=partial.counted,
            duration_s=self.connection.clock() - began,
            provenance=f"openai {partial.model or request.model}",
            model=partial.model,
            client=openai_version(),
            pace=partial.pace,
        )

    def _listen(
        self, request: Request, until: float, partial: "_PartialResponse", on_text: Callable[[str], None]
    ) -> None:
        with self.connection.open(until) as client:
            url = self.connection.server.url
            body = chat_request_body(request, self.limit_field, is_vendor=self.is_vendor)
            reply = post_body(client, _PATH, body, url)
            if isinstance(reply, bytes):
                on_text(partial.take(self._whole(reply)))
                return
            for chunk in stream_objects(reply, url):
                said = partial.take(chunk)
                if partial.length > MAX_RESPONSE_CHARACTERS:
                    raise too_long_error(url, f"more than {MAX_RESPONSE_CHARACTERS:,} characters")
                on_text(said)

    def _whole(self, body: bytes) -> Json:
        """Return a reply that is one JSON body in the form of a chunk of a stream."""
        url = self.connection.server.url
        reply = parse_reply(body, url)
        choice = json_at(reply, "choices", 0)
        if not isinstance(choice, Mapping) or not text_at(choice, "finish_reason"):
            raise invalid_reply_error(url, "it sent application/json that is not a completion, not a stream")
        return {**reply, "choices": [{**choice, "delta": choice.get("message")}]}

    def _judged(self, partial: "_PartialResponse", until: float) -> tuple[str, StopReason]:
        if partial.finish is None:
            raise (
                timeout_error()
                if self.connection.clock() >= until
                else incomplete_error(self.connection.server.url, _UNFINISHED)
            )
        try:
            text, refusal = join_text(partial.texts), join_text(partial.refusals)
        except ValueError:
            raise incomplete_error(self.connection.server.url, "half of a character is missing") from None
        if refusal:
            return refusal, "refusal"
        if partial.finish not in _STOPS:
            raise unknown_stop_error(partial.finish, reported_usage(partial.counted))
        return text, _STOPS[partial.finish]


class _PartialResponse(Struct):
    finish: str | None = None
    usage: Json = None
    pace: Pace | None = None
    model: str = ""
    began: bool = False
    length: int = 0
    texts: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    @property
    def counted(self) -> Usage:
        """The tokens that the server has reported; some servers report them with each part."""
        return token_usage(self.usage, "prompt", "completion")

    def take(self, chunk: Json) -> str:
        """Add one part of the stream, and return its text. The last part has no choice, only the usage."""
        self.began = True
        self.pace = served_pace(chunk) or self.pace
        self.model = recordable_model(text_at(chunk, "model")) or self.model
        usage, choice = json_at(chunk, "usage"), json_at(chunk, "choices", 0)
        self.usage = usage if isinstance(usage, Mapping) else self.usage
        said = text_at(choice, "delta", "content")
        self.texts.append(said)
        refusal = text_at(choice, "delta", "refusal")
        self.refusals.append(refusal)
        self.length += len(said) + len(refusal)
        self.finish = text_at(choice, "finish_reason") or self.finish
        return said + refusal


def _part(part: str | Media) -> Mapping[str, Json]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.kind == "image":
        return {"type": "image_url", "image_url": {"url": data_url(part)}}
    return {"type": "file", "file": {"filename": part.path.rpartition("/")[2], "file_data": data_url(part)}}


def chat_request_body(request: Request, limit_field: str, *, is_vendor: bool = False) -> dict[str, Json]:
    """Return the body of `/chat/completions`."""
    params = request.params
    sent: list[Json] = [{"role": "system", "content": request.system}] if request.system else []
    sent += message_contents(request, _part, is_vendor=is_vendor)
    body: dict[str, Json] = {
        "model": request.model,
        "messages": sent,
        limit_field: params.get("max_tokens"),
    }
    if request.is_streamed:
        # Without this option, a streamed response has no token counts.
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    names = {"effort": "reasoning_effort", "temperature": "temperature"}
    body |= {sent_as: params[name] for name, sent_as in names.items() if name in params}
    body |= {**seed_of(request), **(cache_fields(request) if is_vendor else {}), **pace_fields(request)}
    if request.schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": response_format(request.schema)}
    return body | extra_fields(request, body)
