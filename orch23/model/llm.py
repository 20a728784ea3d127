"""Requests to models, their responses, the exchanges that record both, and the provider port."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, digest_json
from orch23.model.event import LlmResponse
from orch23.model.event_data import StopReason
from orch23.model.parsing import NaturalNumber

if TYPE_CHECKING:
    from orch23.model.media import Media


Pace: TypeAlias = Literal["standard", "flex", "batch"]
"""How soon a response is needed. The vendor charges less for slower ones."""

SystemUsers: TypeAlias = Literal["", "attempts", "stages"]
"""Who sends the system text of a request again."""

ExchangeOutcome: TypeAlias = Literal[
    "pending",
    "accepted",
    "failed",
    "invalid",
    "refused",
    "truncated",
    "empty",
    "accepted_by_hand",
    "approved",
    "rejected",
]
"""What became of a response. `failed`: its files were valid, and their verification failed.

The last three are of a user: an edit, and what was decided about the changes of a stage.
"""


MAX_WHOLE_TOKENS: Final = 1_024
"""A response with at most so many tokens is requested as a whole, unless someone watches it."""


class CachePolicy(Struct, frozen=True, omit_defaults=True):
    """How the vendor's prompt cache is used: for how long, and whether for text that several stages share."""

    ttl: Literal["5m", "1h"] = "5m"
    share: bool = True


class Message(Struct, frozen=True):
    """One message of a request. `media` are the pictures and PDFs in it; the content has their places and digests."""

    role: Literal["user", "assistant"]
    content: str
    media: "tuple[Media, ...]" = ()


class Request(Struct, frozen=True, kw_only=True, dict=True):
    """One request, ready to send. `identity` replaces the messages in the fingerprint.

    `identity` and `messages` differ in the retry feedback and in the delimiters of data blocks. The messages have the
    excerpt of the feedback; the identity has only its kind, command and failing ids, so a traceback that another Python
    words differently is not a new request. `system_identity` replaces the system prompt if that has blocks. `api` is
    the interface of the endpoint with its version; `schema` is the reduced schema that is sent, or None, and
    `schema_identity` replaces it in the fingerprint if earlier versions sent another one. `stable` is the number of
    leading characters of the first message that all attempts of the stage share, `family` the number of those that all
    items of its foreach share; `beginnings` are such numbers that other stages of the run share. `is_repeated`: another
    attempt is likely. `system_users` are those who send the same system text: no one else, the further
    attempts of the stage, or other stages too. With these and `cache` an adapter marks text for the prompt cache.
    `pace` is how soon the response is needed, and what it costs. These are not part of the fingerprint. `added` are the
    ends of the last message and of the last identity that orch23 appended to what the template rendered. `is_live`:
    someone reads the response while it arrives. `fallback`: it goes to an entry of `llm.fallback`. `is_final`: no
    further attempt can send all of these messages again. `input_tokens` are those that the
    vendor counted, if it was asked. `program` are the digests of the files of the project that the program consists of,
    by path; with `adopts`, a response that an earlier version recorded without them answers the request, too.
    """

    provider: str
    model: str
    endpoint: str
    api: str = ""
    system: str
    system_identity: str | None = None
    messages: tuple[Message, ...]
    identity: tuple[Message, ...]
    params: Mapping[str, Json] = field(default_factory=dict)
    returns: str = "files"
    schema: Json = None
    schema_identity: Json = None
    # Two attempts can make the same request. The first response failed, so the second needs another one (ADR 6).
    sample: int = 0
    stable: int = 0
    family: int = 0
    beginnings: tuple[int, ...] = ()
    is_repeated: bool = True
    system_users: SystemUsers = ""
    cache: CachePolicy | None = None
    pace: Pace = "standard"
    added: tuple[str, str] = ("", "")
    is_live: bool = True
    fallback: bool = False
    is_final: bool = False
    input_tokens: int | None = None
    program: Mapping[str, Json] = field(default_factory=dict)
    adopts: bool = False

    @property
    def is_streamed(self) -> bool:
        """Return whether the response should arrive as a stream. A short one that no one watches costs less whole."""
        limit = self.params.get("max_tokens")
        return self.is_live or not isinstance(limit, int) or limit > MAX_WHOLE_TOKENS

    @property
    def media(self) -> "tuple[Media, ...]":
        """Return the pictures and PDFs of all messages."""
        return tuple(one for message in self.messages for one in message.media)

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the system prompt and the text of each message."""
        return (self.system, *(message.content for message in self.messages))

    @property
    def text(self) -> str:
        """The messages as one text, with the roles of all but the first."""
        return joined_messages((one.role, one.content) for one in self.messages)

    @property
    def writes_for_an_hour(self) -> bool:
        """Return whether the request may write to the prompt cache for an hour, which costs most."""
        return self.cache is not None and self.cache.ttl == "1h"

    def without_added(self) -> "Request | None":
        """Return the request as the template alone rendered it; None if nothing was appended."""
        sent, same = self.added
        if not sent or not self.messages[-1].content.endswith(sent) or not self.identity[-1].content.endswith(same):
            return None
        return replace(
            self,
            messages=(*self.messages[:-1], _without_end(self.messages[-1], sent)),
            identity=(*self.identity[:-1], _without_end(self.identity[-1], same)),
            added=("", ""),
        )

    def earlier_forms(self) -> "Iterator[Request]":
        """Yield the request as earlier versions would have sent it, the nearest form first."""
        plain = self.without_added()
        unnamed = replace(self, program={}) if self.program and self.adopts else None
        both = plain and unnamed and replace(plain, program={})
        yield from (one for one in (plain, unnamed, both) if one is not None)

    def parts(self) -> dict[str, Json]:
        """Return the parts of the fingerprint by name."""
        return {
            "provider": self.provider,
            "endpoint": self.endpoint,
            "api": self.api,
            "model": self.model,
            "system": self.system if self.system_identity is None else self.system_identity,
            "messages": [{"role": m.role, "content": m.content} for m in self.identity],
            "params": dict(self.params),
            "returns": self.returns,
            "schema": self.schema if self.schema_identity is None else self.schema_identity,
            "sample": self.sample,
            **({"program": dict(self.program)} if self.program else {}),
        }

    def fingerprint(self) -> str:
        """Return the identity of the request: sha256 in hex of the canonical JSON of its parts."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        # A call needs it a dozen times, and a prompt may have megabytes.
        return digest_json(self.parts())


def joined_messages(messages: Iterable[tuple[str, str]]) -> str:
    """Return messages (role and content) as one text: after the first one, each has its role before it."""
    texts = [text if not at else f"=== {role} ===\n\n{text}" for at, (role, text) in enumerate(messages)]
    return "\n\n".join(texts)


def _without_end(message: Message, end: str) -> Message:
    return replace(message, content=message.content.removesuffix(end))


class OnTruncated(Struct, frozen=True, omit_defaults=True):
    """How a response that is cut off at `max_tokens` is requested again: each retry has `factor` times more tokens."""

    retries: int = 0
    factor: int = 2


SCRIPTED_PROVENANCE = "scripted: written by hand, no model was asked"
"""The origin of a scripted response, in its record."""


class Usage(Struct, frozen=True):
    """Tokens that a provider counted. `input_tokens` includes those of the prompt cache.

    `cache_write_1h_tokens` are those of `cache_write_tokens` that are kept for an hour.
    """

    input_tokens: NaturalNumber = 0
    output_tokens: NaturalNumber = 0
    cache_read_tokens: NaturalNumber = 0
    cache_write_tokens: NaturalNumber = 0
    cache_write_1h_tokens: NaturalNumber = 0

    @property
    def total(self) -> int:
        """Return input and output together: what `max_tokens` of a run counts."""
        return self.input_tokens + self.output_tokens


# Far more than any request has: a larger number is not a count.
_MOST_TOKENS = 10**12


def token_count(value: object) -> int:
    """Return a number of tokens; 0 for anything else. A negative number would reduce the cost of the run."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_TOKENS else 0


class ResponseFacts(Struct, frozen=True, kw_only=True):
    """What is recorded of a response besides its text.

    `model` is the model that the response names, `client` the library with its version, `requests` the number of
    requests that the transport made for it. `cost` is in US dollars, as a decimal string, by the price table that
    `prices` names; None if the price is not known.
    """

    stop: StopReason = "end"
    usage: Usage = Usage()
    duration_s: float = 0.0
    provenance: str = ""
    model: str = ""
    client: str = ""
    requests: NaturalNumber = 1
    cost: str | None = None
    prices: str = ""


class Response(ResponseFacts, frozen=True, kw_only=True):
    """The response of a provider. With `replayed` it was recorded, and cost nothing now.

    `uncached_cost` is what it had cost without the prompt cache; None if that is not known, or the response was
    recorded. `pace` is the one that the server charges for, None for that of the request.
    """

    text: str
    replayed: bool = False
    uncached_cost: str | None = None
    pace: Pace | None = None

    @property
    def is_scripted(self) -> bool:
        """Return whether the user wrote the response, and no model was called."""
        return self.provenance == SCRIPTED_PROVENANCE


def response_data(fingerprint: str, response: Response) -> LlmResponse:
    """Return the event of a response, without the attempt that uses it."""
    known: dict[str, Any] = asdict(response.usage) | asdict(response)
    shared = {name: known[name] for name in LlmResponse.__struct_fields__ if name in known}
    return LlmResponse(fingerprint=fingerprint, **shared)


class Provider(Protocol):
    """The port to models."""

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the response to a request within `deadline_s` seconds; `on_text` gets its text in pieces as it comes.

        The first piece may be empty: the response has begun.

        Raises:
            ProviderError: the provider failed, or could not be reached.
        """


class Exchange(ResponseFacts, frozen=True, kw_only=True):
    """One recorded request and response. It is written before the response is checked, and again with the outcome.

    `request` is `Request.parts()` and `sent`, the messages as they were sent (`sent_system` and `sent_schema` the
    system prompt and the schema, if these differ). A user edit that is accepted is an exchange too: it has no request,
    and its files are in `files`. `superseded` is set when the user requested another sample: builds then use the newer
    exchange, but results of this one can still be restored.
    """

    fingerprint: str
    stage: str
    request: Mapping[str, Json]
    response: str
    outcome: ExchangeOutcome = "pending"
    diagnostics: tuple[str, ...] = ()
    # The exchange is marked and not deleted: records may refer to it (ADR 7).
    superseded: bool = False
    files: Mapping[str, str | None] = field(default_factory=dict)


class ProposedWrite(Struct, frozen=True):
    """One complete file that a model proposes; `base_sha256` is the digest that it gives for the old file, or `""`."""

    path: str
    content: str
    base_sha256: str | None = ""


class Proposal(Struct, frozen=True):
    """Files that a model proposes, by path relative to the root of the project; nothing is written yet."""

    summary: str
    writes: tuple[ProposedWrite, ...]
    deletes: tuple[str, ...] = ()

    @property
    def keeps(self) -> bool:
        """Whether no file needs a change: those that are there stay."""
        return not (self.writes or self.deletes)

    def digest(self) -> str:
        """Return the identity of its writes and deletes, by which a repeated proposal is recognized."""
        return digest_json({"writes": {w.path: w.content for w in self.writes}, "deletes": sorted(self.deletes)})


class RefusedResponse(Struct, frozen=True):
    """A response that is refused, with all of its errors and the kind of failure."""

    kind: str
    outcome: ExchangeOutcome
    diagnostics: tuple[Diagnostic, ...]


Judgement: TypeAlias = Proposal | RefusedResponse


class RetryFeedback(Struct, frozen=True, kw_only=True):
    """The part of the next prompt that describes a failure. Only `identity` is part of the fingerprint.

    `codes` are those of the diagnostics, with paths relative to the root, if the diagnostics have other paths.
    """

    kind: str
    command: str = ""
    exit_code: int | None = None
    excerpt: str = ""
    failing: tuple[str, ...] = ()
    diagnostics: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()

    def identity(self) -> dict[str, Json]:
        """Return kind, command, failing ids and codes: two failures with the same identity are the same failure."""
        return {
            "kind": self.kind,
            "command": self.command,
            "failing": sorted(self.failing),
            "diagnostics": list(self.diagnostic_codes()),
        }

    def diagnostic_codes(self) -> tuple[str, ...]:
        """Return code and subject of each diagnostic: the wording may differ between versions of Python."""
        return self.codes or tuple(line.partition(": ")[0] for line in self.diagnostics)
