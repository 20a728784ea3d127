"""Emit the events of a conversation with a model: requests and responses."""

from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.run_events import StageReporter
from orch23.attempt.sent_data import sent_bytes, sent_files, sent_media, utf8_size
from orch23.attempt.stage_outcomes import StageUsage
from orch23.model.event import LlmRequest, LlmResponse
from orch23.model.event_data import RecordingMode
from orch23.model.llm import Request, Response
from orch23.model.text import LineSplitter
from orch23.resolve.prompt_inputs import AttemptContext, AuthorTexts


class LlmEvents(Struct, kw_only=True):
    """Reports the conversation of one attempt. `usage` sums up all its responses, also truncated ones.

    `files` are the author's files that a request is built from.
    """

    report: StageReporter
    files: tuple[str, ...]
    context: AttemptContext
    mode: RecordingMode
    sources: AuthorTexts
    is_recorded: Callable[[Request], bool]
    lines: LineSplitter
    usage: StageUsage = field(default_factory=StageUsage)

    def requested(self, request: Request) -> None:
        """Keep and report a request, before it is sent."""
        # Bytes of former responses: those that are turns, else the one that the prompt may show.
        turns = [message.content for message in request.messages if message.role == "assistant"]
        self._keep("prompt.txt", f"{request.system}\n\n{request.text}" if request.system else request.text)
        data = LlmRequest(
            fingerprint=request.fingerprint(),
            model=request.model,
            provider=request.provider,
            endpoint=request.endpoint,
            attempt=self.context.attempt,
            recorded=self.is_recorded(request),
            mode=self.mode,
            files=(*sent_files(self.files, self.context, self.sources), *sent_media(request)),
            bytes=sent_bytes(request),
            previous_bytes=sum(map(utf8_size, turns or [self.context.previous or ""])),
            brief_bytes=utf8_size(self.context.feedback.excerpt) if self.context.feedback else 0,
        )
        self.report.emit(data, f"calling {request.provider} {request.model}")

    def received(self, text: str) -> None:
        """Report a part of a response, if live output is enabled."""
        self.lines.feed(text)
        self.report.watch(self.lines.rest)

    def responded(self, request: Request, response: Response) -> None:
        """Keep and report a response."""
        self.lines.flush()
        self._keep("response.txt", response.text)
        self.usage = self.usage.plus(response, is_fallback=request.fallback)
        data = replace(
            response_data(request.fingerprint(), response),
            attempt=self.context.attempt,
            mode=self.mode,
            fallback=request.fallback,
        )
        text = "response from the transcripts" if response.replayed else "response received"
        text += f" of the fallback {request.provider} {request.model}" if request.fallback else ""
        self.report.emit(data, text)

    def _keep(self, name: str, text: str) -> None:
        self.report.keep(self.context.attempt, name, text)


def response_data(fingerprint: str, response: Response) -> LlmResponse:
    """Return the event of a response, without the attempt that uses it."""
    return LlmResponse(
        fingerprint=fingerprint,
        replayed=response.replayed,
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        cache_read_tokens=response.usage.cache_read_tokens,
        cache_write_tokens=response.usage.cache_write_tokens,
        cost=response.cost,
        uncached_cost=response.uncached_cost,
        prices=response.prices,
        requests=response.requests,
        model=response.model,
        stop=response.stop,
        provenance=response.provenance,
    )
