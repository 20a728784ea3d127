"""The provider `anthropic`: Messages API."""

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orch23.features.vendors.anthropic_sdk import (
    WarmUp,
    anthropic_client,
    api_error,
    context_full_error,
    invalid_event,
    is_stream,
    json_message,
    warm_up_anthropic,
)
from orch23.features.vendors.server_replies import MAX_RESPONSE_CHARACTERS, join_text, text_at
from orch23.features.vendors.vendor_adapters import ServerAdapter, VendorAdapter
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.event_data import StopReason
from orch23.model.features import BATCHES, load_feature
from orch23.model.llm import Message, Provider, Request, Response, Usage, token_count
from orch23.model.media import Media
from orch23.model.server_url import recordable_model, url_fault
from orch23.providers.adapter import CallContext, ProviderContext, library_errors, nearest_hint, unsupported_error
from orch23.providers.cache_marks import cache_marks, marked_content
from orch23.providers.connections import (
    CONNECT_S,
    LEAST_S,
    CallSockets,
    ClientConnection,
    RunConnections,
    shared_connections,
)
from orch23.providers.extra_fields import extra_fields
from orch23.providers.faults import (
    UNEXPECTED_ERRORS,
    TransportError,
    incomplete_error,
    library_error,
    timeout_error,
    too_long_error,
    unknown_stop_error,
    unreachable_error,
)
from orch23.providers.media import ANTHROPIC_MEDIA, base64_text
from orch23.providers.model_facts import facts_of
from orch23.providers.wire import wire_schema
from orch23.steps.llm.spec import LLMStep

if TYPE_CHECKING:
    from anthropic import Anthropic, Timeout
    from anthropic.lib.streaming import MessageStream
    from anthropic.types import Message as SdkMessage
    from anthropic.types import ParsedMessage
    from anthropic.types import Usage as SdkUsage

    from orch23.model.batches import Batches


ANTHROPIC_KEY = "ANTHROPIC_API_KEY"
_TOKEN = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105 - the name of a variable
ANTHROPIC_URL = "https://api.anthropic.com"
# Part of every fingerprint: with another version, no recorded response is found.
API_VERSION = "2026-10-21"
EFFORTS = ("low", "medium", "high", "xhigh", "max")
THINKING_MODES = ("adaptive", "between_tools", "disabled")
MIN_THINKING_TOKENS = 1024
STALL_S = 120.0
_CONTEXT_FULL = "model_context_window_exceeded"
_STOPS: Mapping[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "stop_sequence",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
}


class AnthropicMessages(RunConnections, frozen=True, kw_only=True):
    """The provider."""

    url: str
    key: str
    # It is named if the server refuses the key.
    variable: str = ANTHROPIC_KEY
    warm_up: WarmUp | None = None
    stall_s: float = STALL_S
    # Returns Anthropic's name of a model of a cloud.
    name_of: Callable[[str], str] = str

    def __repr__(self) -> str:
        """Describe it without the key."""
        return f"AnthropicMessages(url={self.url!r})"

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Call the model.

        Raises:
            TransportError: there is no usable response.
            ProviderError: the build has ended.
        """
        import anthropic  # noqa: F401, PLC0415 - 1.5 s, which must not count against `llm.timeout`

        # Classes that the library builds at its first response are built while that response is awaited (ADR 18).
        if self.warm_up is not None:
            self.warm_up.start_once(warm_up_anthropic)
        began = self.clock()
        until, known = began + deadline_s, [Usage()]
        with self.calls.track(max(deadline_s, LEAST_S)) as sockets:
            message = None
            try:
                message = self._converse(request, until, sockets, on_text, known)
                return read_message(message, self.url, request, self.clock() - began)
            except TransportError as fault:
                # A message that came to its end was not too late, whatever is wrong with it.
                is_late = message is None and (sockets.is_shut_down or self.clock() >= until)
                raise (timeout_error() if is_late else fault).knowing(known[-1]) from None
            except UNEXPECTED_ERRORS as error:
                raise invalid_event(self.url, error) from None

    def count_tokens(self, request: Request, deadline_s: float) -> int:
        """Return the input tokens as the server counts them.

        Raises:
            TransportError: it did not count them.
            ProviderError: the build has ended.
        """
        arguments = message_arguments(request, self.name_of(request.model))
        del arguments["max_tokens"]
        with self.opened(max(deadline_s, LEAST_S)) as (client, timeout):
            return token_count(
                getattr(client.messages.count_tokens(**arguments, timeout=timeout), "input_tokens", None)
            )

    @contextlib.contextmanager
    def opened(self, limit_s: float) -> Iterator[tuple["Anthropic", "Timeout"]]:
        """Yield a client for a request that no model responds to, and the timeout to give to each of its methods.

        Raises:
            TransportError: the request failed.
            ProviderError: the build has ended.
        """
        import anthropic  # noqa: PLC0415 - heavy
        import httpx2  # noqa: PLC0415 - heavy

        with self.calls.track(limit_s) as sockets:
            try:
                with self.clients.client_for(self.identity(), sockets, self.client) as client:
                    yield client, anthropic.Timeout(limit_s, connect=min(limit_s, CONNECT_S))
            except TransportError:
                raise
            except anthropic.APIStatusError as error:
                raise api_error(self.url, error, charged=False, variable=ANTHROPIC_KEY) from None
            except (anthropic.APIConnectionError, httpx2.HTTPError) as error:
                late = timeout_error() if sockets.is_shut_down else None
                raise late or unreachable_error(self.url, error.__cause__ or error) from None
            except (anthropic.AnthropicError, *UNEXPECTED_ERRORS) as error:
                raise library_error(error, "anthropic") from None

    def _converse(
        self, request: Request, until: float, sockets: CallSockets, on_text: Callable[[str], None], known: list[Usage]
    ) -> "SdkMessage | ParsedMessage[None]":
        """Return the final message of a stream, or of one JSON body. `known` gets each usage that a stream reports."""
        import anthropic  # noqa: PLC0415 - heavy
        import httpx2  # noqa: PLC0415 - heavy

        begun = False
        try:
            with self.clients.client_for(self.identity(), sockets, self.client) as client:
                arguments = message_arguments(request, self.name_of(request.model))
                arguments["extra_body"] = extra_fields(request, arguments)
                arguments["timeout"] = self._timeouts(until)
                if not request.is_streamed:
                    reply = client.messages.with_raw_response.create(**arguments).http_response
                    begun = True
                    message = json_message(self.url, reply)
                else:
                    with client.messages.stream(**arguments) as stream:
                        begun = True
                        if is_stream(stream.response):
                            return self._listen(stream, until, on_text, known)
                        # Some gateways do not stream. Their response is complete, and it is paid for.
                        message = json_message(self.url, stream.response)
                on_text(_text_of(message))
                return message
        except anthropic.APIStatusError as error:
            raise api_error(self.url, error, charged=begun, variable=self.variable if self.key else "") from None
        except anthropic.APIConnectionError as error:
            if isinstance(error.__cause__, httpx2.ReadTimeout):
                raise self._stalled() from None
            raise unreachable_error(self.url, error.__cause__ or error) from None
        except anthropic.AnthropicError as error:
            raise invalid_event(self.url, error) from None
        except httpx2.TimeoutException:
            raise self._stalled() from None
        except httpx2.HTTPError as error:
            raise incomplete_error(self.url, f"{error} ({type(error).__name__})") from None
        except UNEXPECTED_ERRORS as error:
            raise library_error(error, "anthropic") from None

    def identity(self) -> tuple[Hashable, ...]:
        """Return the platform, the server and the key: a client is used again for the same ones."""
        return ("anthropic", self.url, self.key)

    def client(self, connection: ClientConnection) -> Any:
        """Return a client of the library."""
        headers = {"anthropic-version": API_VERSION}
        return anthropic_client("Anthropic", self.url, connection, self.trust, headers, api_key=self.key)

    def _listen(
        self, stream: "MessageStream[None]", until: float, on_text: Callable[[str], None], known: list[Usage]
    ) -> "ParsedMessage[None]":
        """Read all events of a stream until the deadline. It must have one."""
        received, event = 0, None
        events = iter(stream)
        while True:
            if self.clock() >= until:
                raise incomplete_error(self.url, "the time was up")
            before = event
            try:
                event = next(events, None)
                if event is None and before is not None:
                    return stream.get_final_message()
                if event is not None and event.type in ("message_start", "message_delta"):
                    known.append(_usage(stream.current_message_snapshot.usage))
            except UNEXPECTED_ERRORS as error:
                raise invalid_event(self.url, error) from None
            if event is None:
                raise incomplete_error(self.url, "it ended before its first event")
            if before is None:
                on_text("")
            if event.type == "text":
                received += len(event.text)
                if received > MAX_RESPONSE_CHARACTERS:
                    raise too_long_error(self.url, f"more than {MAX_RESPONSE_CHARACTERS:,} characters")
                on_text(event.text)

    def _stalled(self) -> TransportError:
        return incomplete_error(self.url, f"nothing was received for {self.stall_s:g} s")

    def _timeouts(self, until: float) -> "Timeout":
        import anthropic  # noqa: PLC0415 - heavy

        left = max(until - self.clock(), LEAST_S)
        return anthropic.Timeout(min(left, self.stall_s), connect=min(left, CONNECT_S))


def message_arguments(request: Request, model: str = "") -> dict[str, Any]:
    """Return the arguments of a request, streamed or not, with marks for the prompt cache where they pay.

    `model` is Anthropic's name of the model, if it has another one in a cloud.
    """
    params = request.params
    marks = cache_marks(request, facts_of("anthropic", model or request.model))
    lifetime = {"ttl": "1h"} if request.writes_for_an_hour else {}
    mark = {"cache_control": {"type": "ephemeral", **lifetime}}
    sent: dict[str, Any] = {
        "model": request.model,
        "max_tokens": params["max_tokens"],
        "messages": [
            {"role": message.role, "content": marked_content(message, marks.ends_in(request, at), _part, mark)}
            for at, message in enumerate(request.messages)
        ],
    }
    if request.system:
        ends = (len(request.system),) if marks.system else ()
        sent["system"] = marked_content(Message("user", request.system), ends, _part, mark)
    config: dict[str, Json] = {"effort": params["effort"]} if "effort" in params else {}
    if request.schema is not None:
        config["format"] = {"type": "json_schema", "schema": request.schema}
    if config:
        sent["output_config"] = config
    if "thinking" in params:
        sent["thinking"] = params["thinking"]
    return sent


def _part(one: str | Media) -> dict[str, Json]:
    if isinstance(one, str):
        return {"type": "text", "text": one}
    source = {"type": "base64", "media_type": one.type, "data": base64_text(one)}
    return {"type": "document" if one.kind == "pdf" else "image", "source": source}


def read_message(
    message: "SdkMessage | ParsedMessage[None]", url: str, request: Request, duration_s: float
) -> Response:
    """Return the response of the final message.

    Raises:
        TransportError: it has no stop reason, or an unknown one.
    """
    import anthropic  # noqa: PLC0415 - heavy

    reason = message.stop_reason
    if reason is None:
        raise incomplete_error(url, "it ended without a stop reason")
    if reason == _CONTEXT_FULL:
        raise context_full_error(request, _usage(message.usage))
    if str(reason) not in _STOPS:
        raise unknown_stop_error(str(reason), _usage(message.usage))
    model = recordable_model(text_at(message.model))
    text = join_text([_text_of(message)])
    details = message.stop_details
    # The API explains some refusals beside the content.
    if reason == "refusal" and not text.strip() and details is not None:
        text = details.explanation or ""
    return Response(
        text=text,
        stop=_STOPS[reason],
        usage=_usage(message.usage),
        duration_s=duration_s,
        provenance=f"anthropic {model or request.model}",
        model=model,
        client=f"anthropic {anthropic.__version__}",
    )


def _text_of(message: "SdkMessage | ParsedMessage[None]") -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def _usage(usage: "SdkUsage") -> Usage:
    """Return the usage. The API counts cached input separately; here it is part of the input."""
    read, written = token_count(usage.cache_read_input_tokens), token_count(usage.cache_creation_input_tokens)
    lasting = token_count(getattr(usage.cache_creation, "ephemeral_1h_input_tokens", None))
    return Usage(
        input_tokens=token_count(usage.input_tokens) + read + written,
        output_tokens=token_count(usage.output_tokens),
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=min(lasting, written),
    )


# ---- what is known without a call -------------------------------------------------------------------


def _thinking_fault(value: str, step: LLMStep) -> str | None:
    if not value.isdecimal():
        return None if value in THINKING_MODES else f"is not a mode of the provider `{step.provider}`"
    if int(value) < MIN_THINKING_TOKENS:
        return f"is under {MIN_THINKING_TOKENS} tokens, the minimum"
    return None if int(value) < step.max_tokens else f"is not under `max_tokens: {step.max_tokens}`, which includes it"


class ClaudeAdapter(VendorAdapter):
    """A provider of Claude, with Anthropic's interface."""

    vendor = "anthropic"
    takes = frozenset({"effort", "thinking", "base_url", "endpoint_alias", "extra"})
    sets = frozenset({"model", "messages", "system", "max_tokens", "stream", "thinking"})
    sets |= {"output_config.effort", "output_config.format"}
    sends = ("max_tokens", "effort")
    api = f"messages {API_VERSION}"
    limits_cached_input = False
    media = ANTHROPIC_MEDIA
    streams = True

    @property
    def parameters(self) -> Mapping[str, Json]:
        """The parameters of a request, with the form of `thinking` that the interface has."""
        said = self.step.thinking
        if said is None:
            return super().parameters
        thinking: Json = {"type": "enabled", "budget_tokens": int(said)} if said.isdecimal() else {"type": said}
        return {**super().parameters, "thinking": thinking}

    def wire(self, schema: Json) -> Json:
        """Reduce a schema to what the interface takes."""
        return wire_schema(self.step, schema)

    def check(self, _root: Path | None) -> Iterator[Diagnostic]:
        """Yield the errors of the step."""
        step = self.step
        if step.effort is not None and step.effort not in EFFORTS:
            message = f"the provider `{step.provider}` has no effort `{step.effort}`"
            yield unsupported_error("effort", message, nearest_hint(step.effort, EFFORTS))
        if step.thinking is not None and (wrong := _thinking_fault(step.thinking, step)):
            hint = 'write `adaptive`, `between_tools`, `disabled`, or the maximum of thinking tokens, in quotes: "4096"'
            yield unsupported_error("thinking", f"`thinking: {step.thinking}` {wrong}", hint)
        if step.pace == "flex" and step.provider == "anthropic":
            message = "the provider `anthropic` does not have `pace: flex`"
            yield unsupported_error("pace", message, "write `pace: batch`, or remove it")
        if step.base_url is not None and (wrong := url_fault(step.base_url)):
            hint = f"write it as {ANTHROPIC_URL}, and set the key only in {ANTHROPIC_KEY}"
            yield unsupported_error("base_url", f"`base_url` {wrong}", hint)


class AnthropicAdapter(ClaudeAdapter, ServerAdapter):
    """The provider `anthropic`."""

    takes = ClaudeAdapter.takes | {"pace"}
    pricing = "anthropic"
    url = ANTHROPIC_URL
    url_variable = "ANTHROPIC_BASE_URL"
    key_variable = ANTHROPIC_KEY

    def make(self, setting: ProviderContext, _asking: CallContext) -> Provider:
        """Return the provider."""
        return AnthropicMessages(**self._access(setting), warm_up=setting.share(WarmUp, WarmUp))

    def batches(self, setting: ProviderContext) -> "Batches":
        """Return the batches of the server."""
        found: Batches = load_feature(BATCHES["anthropic"])(provider=AnthropicMessages(**self._access(setting)))
        return found

    def prepare(self, setting: ProviderContext) -> None:
        """Import the library, and start what it builds at its first response."""
        AnthropicMessages(**self._access(setting)).client(ClientConnection()).close()
        setting.share(WarmUp, WarmUp).start_once(warm_up_anthropic)

    def ready(self, environ: Mapping[str, str], _root: Path | None) -> Iterator[Diagnostic]:
        """Yield an error for a missing key and for a missing library."""
        yield from ServerAdapter.ready(self, environ, _root)
        key, variable = self.key(environ), self.variable_of_key(environ)
        if not key:
            hint = f"set {ANTHROPIC_KEY}, or build with --replay from recorded responses"
            yield Diagnostic("E412", f"the provider `anthropic` needs {ANTHROPIC_KEY}, which is not set", hint=hint)
        elif not (key.isascii() and key.isprintable()) or " " in key:
            hint = "set it to the key and nothing else"
            yield Diagnostic("E412", f"{variable} has a character that no key has", hint=hint)
        yield from library_errors("anthropic")

    def look_up(self, environ: Mapping[str, str], timeout_s: float) -> object:
        """Ask the server for the model. A server on this machine may need no key.

        Raises:
            TransportError: the server does not have it, or cannot be reached.
        """
        provider = AnthropicMessages(url=self.server(environ)[0], key=self.key(environ) or "none")
        with provider.opened(timeout_s) as (client, timeout):
            return getattr(client.models.retrieve(self.step.model, timeout=timeout), "id", None)

    def _access(self, setting: ProviderContext) -> dict[str, Any]:
        url, key = self.server(setting.environ)[0], self.key(setting.environ)
        variable = self.variable_of_key(setting.environ)
        return {"url": url, "key": key, "variable": variable, **shared_connections(setting.share)}

    def variable_of_key(self, environ: Mapping[str, str]) -> str:
        """Return the variable of the key; that of the token if only this one is set, which is sent as a key is."""
        has_token = environ.get(_TOKEN, "").strip() and not environ.get(ANTHROPIC_KEY, "").strip()
        return _TOKEN if has_token else ANTHROPIC_KEY
