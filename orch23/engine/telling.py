"""Tell the journal of each question and each answer of an attempt, and keep both for people."""

from collections.abc import Callable

from msgspec import Struct, field

from orch23.engine.guarding import sent_bytes, sent_files, size_of
from orch23.engine.reporting import StageReporter
from orch23.engine.spending import Spent
from orch23.model.event import LlmRequest, LlmResponse
from orch23.model.lines import Lines
from orch23.model.llm import Mode, Request, Response
from orch23.resolve.prompts import Round, Sources


class Telling(Struct, kw_only=True):
    """Hears the conversation of one attempt. `spent` sums up what its answers took, those that were cut off as well.

    `files` are the author's files that a request is made of.
    """

    report: StageReporter
    files: tuple[str, ...]
    this: Round
    mode: Mode
    sources: Sources
    is_recorded: Callable[[Request], bool]
    lines: Lines
    spent: Spent = field(default_factory=Spent)

    def asking(self, request: Request) -> None:
        """Keep and tell what is asked, before anything is sent."""
        sent = "\n\n".join(message.content for message in request.messages)
        self._keep("prompt.txt", f"{request.system}\n\n{sent}" if request.system else sent)
        data = LlmRequest(
            fingerprint=request.fingerprint(),
            model=request.model,
            provider=request.provider,
            endpoint=request.endpoint,
            attempt=self.this.attempt,
            recorded=self.is_recorded(request),
            mode=self.mode,
            files=sent_files(self.files, self.this, self.sources),
            bytes=sent_bytes(request),
            previous_bytes=size_of(self.this.previous or ""),
            brief_bytes=size_of(self.this.brief.excerpt) if self.this.brief else 0,
        )
        self.report.tell(data, f"asking {request.provider} {request.model}")

    def wrote(self, text: str) -> None:
        """Tell a piece of an answer, if somebody wants to know."""
        self.lines.take(text)

    def answered(self, request: Request, response: Response) -> None:
        """Keep and tell what was answered."""
        self.lines.end()
        self._keep("response.txt", response.text)
        self.spent = self.spent.plus(response)
        data = LlmResponse(
            fingerprint=request.fingerprint(),
            attempt=self.this.attempt,
            mode=self.mode,
            replayed=response.replayed,
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            cache_read_tokens=response.usage.cache_read_tokens,
            cost=response.cost,
            prices=response.prices,
            requests=response.requests,
            model=response.model,
            stop=response.stop,
            provenance=response.provenance,
        )
        text = "answered from the transcripts" if response.replayed else "answered"
        self.report.tell(data, text)

    def _keep(self, name: str, text: str) -> None:
        self.report.keep(self.this.attempt, name, text)
