"""Call OpenAI's Responses API in the background (submit, record the id, poll), or streamed and not stored."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

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
    server_error,
    server_message,
    stream_objects,
    token_usage,
)
from orch23.features.vendors.server_replies import MAX_RESPONSE_CHARACTERS, list_at, text_at, token_count_at
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import ProviderError
from orch23.model.event import CallSubmitted, Event, Warned
from orch23.model.event_data import StopReason
from orch23.model.llm import Request, Response, Usage
from orch23.model.media import Media
from orch23.model.parsing import json_at
from orch23.model.server_url import recordable_model
from orch23.providers.cache_marks import cache_fields
from orch23.providers.connections import OpenCalls
from orch23.providers.extra_fields import extra_fields
from orch23.providers.faults import (
    NotCollectedError,
    TransportError,
    incomplete_error,
    timeout_error,
    too_long_error,
    unknown_stop_error,
)
from orch23.providers.media import data_url

if TYPE_CHECKING:
    from openai import Stream

_WAITING = frozenset({"queued", "in_progress"})
_ENDED = frozenset({"completed", "incomplete"})
_GONE = 404
_SLOWER = 2.0
_LONGEST_POLL_S = 5.0
_LONGEST_WAIT_S = 60.0
_FAULTS_IN_A_ROW = 5
_CANCEL_S = 5.0
_STOPS: Mapping[str, StopReason] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class SubmittedResponses(Struct):
    """The submitted responses of a run. `close` cancels those that are not complete.

    A run that crashes cancels nothing: the server continues, and the next run collects the responses. `lost` are the
    ids of responses of an earlier run that could not be collected.
    """

    cancel_timeout_s: float = 0.5
    lost: set[str] = field(default_factory=set)
    _cancels: dict[str, Callable[[], None]] = field(default_factory=dict)
    _closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, response_id: str, cancel: Callable[[], None]) -> None:
        """Add a response; cancel it at once if the run is over."""
        with self._lock:
            self._cancels[response_id] = cancel
            closed = self._closed
        if closed:
            cancel()

    def drop(self, response_id: str) -> None:
        """Remove a response: it has ended, or the next run collects it."""
        with self._lock:
            self._cancels.pop(response_id, None)

    def close(self) -> None:
        """Cancel all open responses in parallel. The next run collects those that are not cancelled in time."""
        with self._lock:
            self._closed = True
            cancels = [threading.Thread(target=cancel, daemon=True) for cancel in self._cancels.values()]
            self._cancels.clear()
        for cancel in cancels:
            cancel.start()
        until = time.monotonic() + self.cancel_timeout_s
        for cancel in cancels:
            cancel.join(max(0.0, until - time.monotonic()))


class ResponsesProvider(Struct, frozen=True, kw_only=True):
    """What both ways have in common. `is_vendor`: the server is the vendor's own; others may not know all fields."""

    connection: ServerConnection
    is_vendor: bool = False

    def count_tokens(self, request: Request, deadline_s: float) -> int:
        """Return the input tokens as the server counts them.

        Raises:
            TransportError: it did not count them.
            ProviderError: the build has ended.
        """
        body = responses_request_body(request)
        sent = {name: body[name] for name in ("model", "input", "instructions", "reasoning", "text") if name in body}
        with self.connection.open(self.connection.clock() + deadline_s) as client:
            counter: Any = client.responses.input_tokens.with_raw_response
            reply = parse_reply(counter.count(**sent).content, self.connection.server.url)
            return token_count_at(reply, "input_tokens")


class ResponsesApi(ResponsesProvider, frozen=True, kw_only=True):
    """The provider. `submitted_earlier` maps fingerprints to response ids that an earlier run did not collect."""

    stage: str
    emit: Callable[[Event], None]
    submitted_earlier: Mapping[str, str] = field(default_factory=dict)
    submitted: SubmittedResponses = field(default_factory=SubmittedResponses)
    first_poll_s: float = 0.25

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response, from an earlier run if the server still has it.

        Raises:
            TransportError: it could not be submitted, or it failed at the server. A retry may submit it again.
            NotCollectedError: the server does not have the response of the earlier run. A second call submits it again.
            ProviderError: it was submitted and could not be collected. A later build tries again.
        """
        began = self.connection.clock()
        until = began + deadline_s
        reply = self._resume(self.submitted_earlier.get(request.fingerprint()), until)
        if reply is None:
            with self.connection.open(until) as client:
                create: Any = client.responses.with_raw_response.create
                body = responses_request_body(request, is_vendor=self.is_vendor)
                more = {name: body.pop(name) for name in extra_fields(request, {})}
                answer = create(**body, extra_body=more)
            reply = parse_reply(answer.content, self.connection.server.url)
        if text_at(reply, "status") in _WAITING:
            reply = self._await(reply, request, until)
        response = read_response(reply, request, self.connection.server.url, self.connection.clock() - began)
        on_text(response.text)
        return response

    def _await(self, reply: Json, request: Request, until: float) -> Json:
        """Return a submitted response that has ended. Its id is stored first, so a killed build loses nothing."""
        response_id = text_at(reply, "id")
        if not response_id:
            raise invalid_reply_error(self.connection.server.url, "the response is not ready and has no id")
        data = CallSubmitted(fingerprint=request.fingerprint(), response_id=response_id, provider=request.provider)
        # On disk before the first poll: after a kill, the next run collects the response instead of paying for another.
        self.emit(Event(data, f"submitted as {response_id}", self.stage))
        try:
            return self._collect(response_id, until, self.first_poll_s)
        except TransportError as fault:
            if fault.status == _GONE:
                message = f"{self.connection.server.url} accepted the request as {response_id} and no longer has it"
                hint = "for a server without background responses, set `llm.api: chat`"
                raise ProviderError(Diagnostic("E425", message, hint=hint)) from None
            raise ProviderError(fault.diagnostic) from None

    def _resume(self, response_id: str | None, until: float) -> Json:
        """Return the ended response that an earlier run submitted; None if there is none any more."""
        if response_id is None or response_id in self.submitted.lost:
            return None
        try:
            reply = self._collect(response_id, until, 0.0)
        except TransportError as fault:
            if fault.status != _GONE:
                raise ProviderError(fault.diagnostic) from None
            reply = None
        if text_at(reply, "status") in _ENDED:
            return reply
        became = text_at(reply, "status") or "gone"
        if became != "cancelled":  # the interrupted run cancelled it: no warning
            text = f"the response {response_id}, submitted by an earlier run, is {became}; sending the request again"
            data = Warned(code="W425", response_id=response_id)
            self.emit(Event(data, text, self.stage, "warning"))
        self.submitted.lost.add(response_id)
        raise NotCollectedError(reported_usage(token_usage(json_at(reply, "usage"), "input", "output")))

    def _collect(self, response_id: str, until: float, wait_s: float) -> Json:
        """Poll until a response has ended. It is cancelled at the deadline and when the build ends, not by a crash."""
        self.submitted.add(response_id, lambda: self._cancel(response_id))
        try:
            reply = self._poll(response_id, until, wait_s)
        except TransportError as fault:
            self.submitted.drop(response_id)
            if fault.diagnostic.code == "E402":
                self._cancel(response_id)
            raise
        self.submitted.drop(response_id)
        return reply

    def _poll(self, response_id: str, until: float, wait_s: float) -> Json:
        """Poll until a response has ended. A few failed polls in a row are allowed: they do not affect the response."""
        faults = 0
        while True:
            self.connection.calls.wait(min(wait_s, self.connection.seconds_left(until)))
            if self.connection.clock() >= until:
                raise timeout_error()
            wait_s = min(_LONGEST_POLL_S, max(wait_s, self.first_poll_s) * _SLOWER)
            try:
                with self.connection.open(until) as client:
                    found = client.responses.with_raw_response.retrieve(response_id)
                reply = parse_reply(found.content, self.connection.server.url)
            except TransportError as fault:
                faults += 1
                asked_s = fault.retry_after_s or 0.0
                if not fault.transient or faults == _FAULTS_IN_A_ROW or asked_s > _LONGEST_WAIT_S:
                    raise
                wait_s = max(wait_s, asked_s)
                continue
            faults = 0
            if text_at(reply, "status") not in _WAITING:
                return reply

    def _cancel(self, response_id: str) -> None:
        """Cancel a response, so that the server stops working and charging. The build may be over."""
        line = replace(self.connection, calls=OpenCalls())
        with suppress(TransportError), line.open(line.clock() + _CANCEL_S) as client:
            client.responses.with_raw_response.cancel(response_id)


def read_response(reply: Json, request: Request, url: str, duration_s: float) -> Response:
    """Return the response in a reply that has ended.

    Raises:
        TransportError: it failed, or has another form. The error has the usage, if the server reported one.
    """
    usage = token_usage(json_at(reply, "usage"), "input", "output")
    try:
        text, stop = _judged(reply, url)
    except TransportError as fault:
        fault.usage = reported_usage(usage)
        raise
    model = recordable_model(text_at(reply, "model"))
    limit = request.params.get("max_tokens")
    # llama.cpp reports a truncated response as completed.
    is_full = isinstance(limit, int) and usage.output_tokens >= limit
    return Response(
        text=text,
        stop="max_tokens" if stop == "end" and is_full else stop,
        usage=usage,
        duration_s=duration_s,
        provenance=f"openai {model or request.model}",
        model=model,
        client=openai_version(),
        pace=served_pace(reply),
    )


def _judged(reply: Json, url: str) -> tuple[str, StopReason]:
    status = text_at(reply, "status")
    if status == "failed":
        error = json_at(reply, "error")
        raise server_error(server_message(error), text_at(error, "code"))
    if status == "cancelled":
        what = "the response was cancelled"
        raise server_error(what)
    if status not in _ENDED:
        raise invalid_reply_error(url, f"a response of status {status!r}" if status else "it has no status")
    text, refusal = _texts(reply)
    if refusal:
        return refusal, "refusal"
    if status == "completed":
        return text, "end"
    reason = text_at(reply, "incomplete_details", "reason")
    if reason not in _STOPS:
        raise unknown_stop_error(reason or "incomplete, without a reason")
    return text, _STOPS[reason]


def _part(part: str | Media) -> Mapping[str, Json]:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.kind == "image":
        return {"type": "input_image", "image_url": data_url(part), "detail": "auto"}
    return {"type": "input_file", "filename": part.path.rpartition("/")[2], "file_data": data_url(part)}


def responses_request_body(request: Request, *, background: bool = True, is_vendor: bool = False) -> dict[str, Json]:
    """Return the body of `/responses`: stored and processed in the background, or not stored, and streamed if long."""
    params = request.params
    streamed = {"stream": True} if request.is_streamed else {}
    sent = message_contents(request, _part, is_vendor=is_vendor)
    body: dict[str, Json] = {
        "model": request.model,
        "input": sent,
        "max_output_tokens": params.get("max_tokens"),
        # In the background and stored: a later run can collect the response if this one is killed.
        **({"background": True, "store": True} if background else {**streamed, "store": False}),
        **(cache_fields(request) if is_vendor else {}),
        **pace_fields(request),
    }
    if request.system:
        body["instructions"] = request.system
    if "effort" in params:
        body["reasoning"] = {"effort": params["effort"]}
    if "temperature" in params:
        body["temperature"] = params["temperature"]
    if request.schema is not None:
        body["text"] = {"format": {"type": "json_schema", **response_format(request.schema)}}
    return body | extra_fields(request, body)


def _texts(reply: Json) -> tuple[str, str]:
    """Return the final text and the text of a refusal, without commentary."""
    messages = [item for item in list_at(reply, "output") if text_at(item, "type") == "message"]
    final = [item for item in messages if text_at(item, "phase") != "commentary"]
    parts = [part for item in final for part in list_at(item, "content")]
    said_texts = "".join(text_at(part, "text") for part in parts if text_at(part, "type") == "output_text")
    refusals = "".join(text_at(part, "refusal") for part in parts if text_at(part, "type") == "refusal")
    return said_texts, refusals


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
