"""Control what requests to models contain: no secrets, and which files."""

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from orch23.attempt.safeguards import json_text, names_of, stored_secret
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import digest_bytes
from orch23.model.event_data import SentFile
from orch23.model.llm import Message, Proposal, Request
from orch23.model.parsing import parse_json
from orch23.model.pipeline import Stage
from orch23.resolve.prompt_inputs import AttemptContext, AuthorTexts, PromptInput, ReadText
from orch23.resolve.resolution import never_sent_error
from orch23.steps.registry import is_llm
from orch23.text.secrets import REDACTION_HEAD, Secrets, redaction_mark

_TAKE_OUT = "remove it, or set `llm.secrets: redact` to send the prompt without it; see `orch23 help secrets`"
_LEAVE_OUT = "make another file without it, and show that; see `orch23 help secrets`"


class TrackedText:
    """The text of an input, read at most once and only on demand; `text` is None until then."""

    __slots__ = ("_known", "_read", "text")

    def __init__(self, read: ReadText) -> None:
        """Set the function that reads the text. If that is a `TrackedText`, it does not note this use."""
        self._read = read.peek if isinstance(read, TrackedText) else read
        self._known: str | None = None
        self.text: str | None = None

    def __call__(self) -> str:
        """Return the text."""
        self.text = self.peek()
        return self.text

    def peek(self) -> str:
        """Return the text without noting that a prompt has read it."""
        if self._known is None:
            self._known = self._read()
        return self._known


def track_reads(this: AttemptContext) -> AttemptContext:
    """Return a copy of a context that notes which inputs a prompt reads. It starts with none."""
    return replace(this, given=_watched(this.given), own=_watched(this.own))


def guard_request(
    secrets: Secrets, request: Request, stage: Stage, this: AttemptContext, sources: AuthorTexts
) -> tuple[Request, tuple[Diagnostic, ...]]:
    """Return the request as it may be sent, and the errors that forbid it: each secret with file and line."""
    step = stage.step
    stored = json_text([request.endpoint, request.model, dict(request.params)])
    # The rendered request is checked, not its parts: rendering can join two harmless texts to a secret.
    systems = (request.system, request.system_identity or "")
    texts = (*systems, *(m.content for m in (*request.messages, *request.identity)), json_text(request.schema))
    # One search for all texts: nearly every request ends here.
    if not request.media and not secrets.may_contain((stored, *texts)):
        return request, ()
    # Endpoint, model and parameters are stored in the manifest: a secret in them is refused, and never redacted.
    if fixed := secrets.find(stored):
        return request, tuple(stored_secret(stage.name, name) for name in names_of(fixed))
    # A picture or a PDF is compressed, but its notes may be readable. A secret cannot be removed from it.
    in_media = [
        (name, one.path) for one in request.media for name in names_of(secrets.find(one.data.decode("latin-1")))
    ]
    if in_media:
        return request, tuple(_sent(name, path, _LEAVE_OUT) for name, path in in_media)
    found = [finding for text in texts for finding in secrets.find(text)]
    if not found:
        return request, ()
    # Only values that this machine has in its environment are redacted (docs/secrets.md).
    if is_llm(step) and step.secrets == "redact":
        clean = _redacted(secrets, request)
        unplaced = {
            one.path for message in clean.messages for one in message.media if one.marker not in message.content
        }
        named = [(name, path) for path in sorted(unplaced) for name in names_of(found)]
        return clean, tuple(_sent(name, path, _LEAVE_OUT) for name, path in named)
    places = [
        (name, place) for name in names_of(found) for place in _places(secrets, name, request, stage, this, sources)
    ]
    return request, tuple(_sent(name, place, _TAKE_OUT) for name, place in places)


def guard_files(
    never_send: tuple[str, ...], request: Request, stage: Stage, this: AttemptContext, sources: AuthorTexts
) -> tuple[Diagnostic, ...]:
    """Return an error for each file of a request that matches a pattern of `never_send`."""
    if not never_send:
        return ()
    sent = (*sent_files(author_files(stage, this), this, sources), *sent_media(request))
    return tuple(dict.fromkeys(found for one in sent if (found := never_sent_error(never_send, one.path)) is not None))


def guard_proposal(secrets: Secrets, proposal: Proposal, base: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Return the errors of a proposal that secrets were removed from: it is not the response that the model gave."""
    if not any(REDACTION_HEAD in text for write in proposal.writes for text in (write.content, write.path)):
        return ()
    hint = "read it from the environment instead, and write the whole file without it"
    marks = [redaction_mark(name) for name in secrets.names()]
    return tuple(
        Diagnostic("E603", f"holds `{mark}`, where a secret was taken out", subject=write.path, hint=hint)
        for write in proposal.writes
        for mark in marks
        if write.content.count(mark) > base.get(write.path, "").count(mark) or mark in write.path
    )


def _redacted(secrets: Secrets, request: Request) -> Request:
    def clean(messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return tuple(replace(message, content=secrets.redact(message.content)) for message in messages)

    messages = clean(request.messages)

    def length_of(count: int) -> int:
        # The part that a provider caches must be a prefix of the redacted text; otherwise nothing is cached.
        head = secrets.redact(request.messages[0].content[:count]) if request.messages else ""
        return len(head) if messages and messages[0].content.startswith(head) else 0

    return replace(
        request,
        system=secrets.redact(request.system),
        system_identity=None if request.system_identity is None else secrets.redact(request.system_identity),
        messages=messages,
        identity=clean(request.identity),
        schema=parse_json(secrets.redact(json_text(request.schema))),
        added=(secrets.redact(request.added[0]), secrets.redact(request.added[1])),
        stable=length_of(request.stable),
        family=length_of(request.family),
        beginnings=(),
    )


class _Text(Struct, frozen=True):
    """A text that went into a request, with its file or a description."""

    place: str
    text: str
    is_file: bool = True

    def at(self, line: int) -> str:
        return f"{self.place}:{line}" if self.is_file else f"{self.place}, line {line}"


def _places(
    secrets: Secrets, name: str, request: Request, stage: Stage, this: AttemptContext, sources: AuthorTexts
) -> tuple[str, ...]:
    """Return where a secret comes from. If no single source contains it, return the line of the rendered prompt."""
    for texts in (_origins(stage, this, sources), _rendered(request)):
        found = [one.at(finding.line) for one in texts for finding in secrets.find(one.text) if finding.name == name]
        if found:
            return tuple(dict.fromkeys(found))
    return ("the rendered prompt",)


def _origins(stage: Stage, this: AttemptContext, sources: AuthorTexts) -> Iterator[_Text]:
    """Yield every text that the prompt has read."""
    for path in author_files(stage, this):
        text, _ = sources.text(path)
        yield _Text(path, text or "")
    for one in (*this.given, *this.own):
        if isinstance(one.read, TrackedText) and one.read.text is not None:
            yield _whole(one, one.read.text, sources)
    yield _Text("the previous answer", this.previous or "", is_file=False)
    yield _Text("the report of the failed attempt", this.feedback.excerpt if this.feedback else "", is_file=False)


def _whole(one: PromptInput, text: str, sources: AuthorTexts) -> _Text:
    """Return an input's text; a slice with as many empty lines before it as its file has lines, for line numbers."""
    if not one.slice:
        return _Text(one.path, text)
    whole, _ = sources.text(one.path) if one.slice != "list" else (None, None)
    begin = -1 if whole is None else whole.find(text)
    if whole is None or begin < 0:
        return _Text(f"{one.path}#{one.slice}", text, is_file=False)
    return _Text(one.path, "\n" * whole.count("\n", 0, begin) + text)


def _rendered(request: Request) -> Iterator[_Text]:
    yield _Text("the rendered system prompt", request.system, is_file=False)
    for message in request.messages:
        yield _Text("the rendered prompt", message.content, is_file=False)
    yield _Text("the schema as it is sent", json_text(request.schema), is_file=False)


def _sent(name: str, place: str, hint: str) -> Diagnostic:
    return Diagnostic("E601", f"the prompt would send a secret: {name}", subject=place, hint=hint)


# ---- what leaves the machine -------------------------------------------------------------------


def sent_files(files: tuple[str, ...], this: AttemptContext, sources: AuthorTexts) -> tuple[SentFile, ...]:
    """Return the files that a request contains, whole or in part: inputs that the prompt read, and `files`.

    `files` are the author's own. If the request continues a conversation, the files of that come first.
    """
    before = this.dialogue.files if this.dialogue is not None else ()
    if this.dialogue is not None and this.dialogue.response is None:
        return before  # the same messages again
    shown = [
        _shown(one.path, one.slice, one.read.text)
        for one in (*this.given, *this.own)
        if isinstance(one.read, TrackedText) and one.read.text is not None
    ]
    texts = {path: sources.text(path)[0] for path in files}
    authored = [_shown(path, "", text) for path, text in texts.items() if text is not None]
    return tuple(dict.fromkeys((*before, *shown, *authored)))


def sent_media(request: Request) -> tuple[SentFile, ...]:
    """Return the pictures and PDFs of a request."""
    return tuple(SentFile(one.path, "", one.sha256, len(one.data)) for one in request.media)


def sent_bytes(request: Request) -> int:
    """Return the number of bytes of a request: its messages, their pictures and PDFs, and its schema."""
    sent = [request.system, *(message.content for message in request.messages)]
    sent += [json_text(request.schema)] if request.schema is not None else []
    return sum(utf8_size(text) for text in sent) + sum(len(one.data) for one in request.media)


def utf8_size(text: str) -> int:
    """Return the number of bytes of a text."""
    return len(text.encode("utf-8", "replace"))


def author_files(stage: Stage, this: AttemptContext) -> tuple[str, ...]:
    """Return the author's files of a request: prompt, system prompt, schema."""
    if stage.kind != "llm":
        return ()
    again = ("retry", "prompt")
    unused = ("llm", "prompt") if this.feedback is not None and again in stage.author_files else again
    return tuple(path for place, path in stage.author_files.items() if place != unused)


def _shown(path: str, part: str, text: str) -> SentFile:
    data = text.encode("utf-8", "replace")
    return SentFile(path, part, digest_bytes(data).sha256, len(data))


def _watched(given: tuple[PromptInput, ...]) -> tuple[PromptInput, ...]:
    return tuple(replace(one, read=TrackedText(one.read)) for one in given)
