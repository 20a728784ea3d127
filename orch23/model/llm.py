"""Requests to models, their responses, the exchanges that record both, and the provider port."""

from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, digest_json

RecordingMode: TypeAlias = Literal["cached", "record", "replay"]
"""Which recorded answers are used: all, those of this run alone, or nothing else."""

StopReason: TypeAlias = Literal["end", "max_tokens", "stop_sequence", "refusal", "unknown"]

ExchangeOutcome: TypeAlias = Literal[
    "pending", "accepted", "invalid", "refused", "truncated", "empty", "accepted_by_hand"
]


class Message(Struct, frozen=True):
    """One message of a request."""

    role: Literal["user", "assistant"]
    content: str


class Request(Struct, frozen=True, kw_only=True):
    """One request, ready to send. `identity` is what stands for the messages in the fingerprint.

    They differ in the failure brief alone: its excerpt is sent, but only its kind, command and failing ids are
    identity, so that another Python's wording of a traceback is no new request. `api` names the interface of the
    endpoint and its version; `schema` is the reduced schema that is sent, None where the provider is sent none.
    `stable` counts the leading characters of the first message that other requests of the stage share: where a
    provider may set its mark for prompt caching. It is no part of the fingerprint.
    """

    provider: str
    model: str
    endpoint: str
    api: str = ""
    system: str
    messages: tuple[Message, ...]
    identity: tuple[Message, ...]
    params: Mapping[str, Json] = field(default_factory=dict)
    returns: str = "files"
    schema: Json = None
    sample: int = 0
    stable: int = 0

    def parts(self) -> dict[str, Json]:
        """Return everything that the fingerprint is made of, by name."""
        return {
            "provider": self.provider,
            "endpoint": self.endpoint,
            "api": self.api,
            "model": self.model,
            "system": self.system,
            "messages": [{"role": m.role, "content": m.content} for m in self.identity],
            "params": dict(self.params),
            "returns": self.returns,
            "schema": self.schema,
            "sample": self.sample,
        }

    def fingerprint(self) -> str:
        """Return the identity of the request: sha256 in hex of the canonical JSON of its parts."""
        return digest_json(self.parts())


class OnTruncated(Struct, frozen=True, omit_defaults=True):
    """What follows an answer that was cut off at `max_tokens`: so many further calls, each with `factor` times more."""

    retries: int = 0
    factor: int = 2


class Usage(Struct, frozen=True):
    """Tokens that a provider counted. `input_tokens` are all of them, those of the prompt cache included."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def total(self) -> int:
        """Return input and output together: what `max_tokens` of a run counts."""
        return self.input_tokens + self.output_tokens


class Response(Struct, frozen=True, kw_only=True):
    """What a provider answered. `replayed` says that it was a recording and cost nothing now.

    `model` is the one that says it answered, `client` the library and its version, `requests` how many requests the
    transport made for it. `cost` is in US dollars, as a decimal string, by the price table that `prices` names; None
    where no price is known.
    """

    text: str
    stop: StopReason = "end"
    usage: Usage = Usage()
    duration_s: float = 0.0
    provenance: str = ""
    replayed: bool = False
    model: str = ""
    client: str = ""
    requests: int = 1
    cost: str | None = None
    prices: str = ""


class Provider(Protocol):
    """The port to a model: one verb."""

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Answer one request within `deadline_s` seconds; `on_text` is given the answer in pieces, as it comes.

        Raises:
            ProviderError: the provider failed, or could not be reached.

        """


class Exchange(Struct, frozen=True, kw_only=True):
    """One recorded request and response. Written before the answer is judged, and again with the outcome.

    `request` holds `Request.parts()` plus `sent`, the messages as they were sent. An edit accepted by hand is an
    exchange too: it has no request, and its files are in `files`. `superseded` says that a later sample was asked for
    in its place: builds take that one, and results that rest on this one can still be laid from it.
    """

    fingerprint: str
    stage: str
    request: Mapping[str, Json]
    response: str
    stop: StopReason = "end"
    usage: Usage = Usage()
    outcome: ExchangeOutcome = "pending"
    diagnostics: tuple[str, ...] = ()
    duration_s: float = 0.0
    provenance: str = ""
    model: str = ""
    client: str = ""
    requests: int = 1
    cost: str | None = None
    prices: str = ""
    superseded: bool = False
    files: Mapping[str, str | None] = field(default_factory=dict)


class ProposedWrite(Struct, frozen=True):
    """One file that a model proposes, whole. `base_sha256` is what it says the file had; `""` where it says nothing."""

    path: str
    content: str
    base_sha256: str | None = ""


class Proposal(Struct, frozen=True):
    """Files that a model proposes, by path relative to the root of the project; nothing is written yet."""

    summary: str
    writes: tuple[ProposedWrite, ...]
    deletes: tuple[str, ...] = ()

    def digest(self) -> str:
        """Return the identity of what it would write, by which a repeated proposal is noticed."""
        return digest_json({"writes": {w.path: w.content for w in self.writes}, "deletes": sorted(self.deletes)})


class RefusedResponse(Struct, frozen=True):
    """An answer that may not be written, with everything that is wrong with it and the kind of failure it is."""

    kind: str
    outcome: ExchangeOutcome
    diagnostics: tuple[Diagnostic, ...]


Judgement: TypeAlias = Proposal | RefusedResponse


class RetryFeedback(Struct, frozen=True, kw_only=True):
    """What the next attempt is told of a failure. `identity` is the part of it that is in the fingerprint."""

    kind: str
    command: str = ""
    exit_code: int | None = None
    excerpt: str = ""
    failing: tuple[str, ...] = ()
    diagnostics: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()

    def identity(self) -> dict[str, Json]:
        """Return kind, command, failing ids and codes: what two failures must share to be the same failure."""
        return {
            "kind": self.kind,
            "command": self.command,
            "failing": sorted(self.failing),
            "diagnostics": list(self.diagnostic_codes()),
        }

    def diagnostic_codes(self) -> tuple[str, ...]:
        """Return the diagnostics by code and subject alone: their wording may be another Python's."""
        return tuple(line.partition(": ")[0] for line in self.diagnostics)
