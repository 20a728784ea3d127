"""Hold what a stage would send or store to the secrets of its caller, and say what of the project is in a request."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from orch23.decide.secrets import Finding, Secrets, mark
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, canonical_json, digest_bytes
from orch23.model.event import SentFile
from orch23.model.llm import Message, Proposal, Request
from orch23.model.pipeline import Stage
from orch23.model.strict_json import parse
from orch23.resolve.prompts import GivenInput, ReadText, Round, Sources
from orch23.resolve.resolution import Resolved
from orch23.steps.registry import is_llm

SENT = "E601"
STORED = "E602"
ANSWERED = "E603"

_TAKE_OUT = "take it out of there, or write `llm.secrets: redact` to send the prompt without it; see docs/secrets.md"
_BELONGS = "keep it in the environment of whoever runs orch23; what a stage is made of is stored and committed"


class Reading:
    """The text of an input, read when it is asked for, and once; `text` is None until then."""

    __slots__ = ("_read", "text")

    def __init__(self, read: ReadText) -> None:
        """Take what reads it."""
        self._read = read
        self.text: str | None = None

    def __call__(self) -> str:
        """Return the text."""
        if self.text is None:
            self.text = self._read()
        return self.text


def watched(this: Round) -> Round:
    """Return a round that knows afterwards which of its inputs a prompt has read."""
    return replace(this, given=_watched(this.given), own=_watched(this.own))


# ---- secrets -----------------------------------------------------------------------------------


def guard_request(
    secrets: Secrets, request: Request, stage: Stage, this: Round, sources: Sources
) -> tuple[Request, tuple[Diagnostic, ...]]:
    """Return the request as it may be sent, or what forbids it: each secret with its file and line, never its value."""
    step = stage.step
    fixed = secrets.find(_json([request.endpoint, request.model, dict(request.params)]))
    if fixed:
        return request, tuple(_stored(stage.name, name) for name in _names(fixed))
    texts = (request.system, *(m.content for m in (*request.messages, *request.identity)), _json(request.schema))
    found = [finding for text in texts for finding in secrets.find(text)]
    if not found:
        return request, ()
    if is_llm(step) and step.secrets == "redact":
        return _redacted(secrets, request), ()
    return request, tuple(
        _sent(place, name) for name in _names(found) for place in _places(secrets, name, request, stage, this, sources)
    )


def guard_manifest(secrets: Secrets, resolved: Resolved) -> tuple[Diagnostic, ...]:
    """Return what forbids a stage because secrets stand in what would be stored of it: its environment, its command.

    The record and the lock file hold the whole manifest, and the lock file is committed.
    """
    named = {"name": resolved.stage.name, **resolved.manifest}
    if not secrets.suspects((_json(named),)):
        return ()
    aspects = {aspect: secrets.find(_json([aspect, value])) for aspect, value in named.items()}
    held = [(aspect.partition(":")[0], name) for aspect, found in aspects.items() for name in _names(found)]
    return tuple(_stored(part, name) for part, name in dict.fromkeys(held))


def guard_paths(secrets: Secrets, paths: Iterable[str]) -> tuple[Diagnostic, ...]:
    """Return what forbids to keep files because of what they are called: the lock file holds the names of outputs."""
    held = [name for path in paths for name in _names(secrets.find(path))]
    return tuple(_stored("the name of an output", name) for name in dict.fromkeys(held))


def guard_edit(secrets: Secrets, texts: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Return what forbids to keep files that a person edited: what is accepted by hand is kept with the transcripts."""
    found = [(path, finding) for path, text in texts.items() for finding in secrets.find(text)]
    return tuple(_stored(f"{path}:{finding.line}", finding.name) for path, finding in found)


def guard_proposal(secrets: Secrets, proposal: Proposal, base: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Return what is wrong with a proposal that secrets were taken out of: it is not the answer that was given."""
    marks = [mark(name) for name in secrets.names()]
    problems = []
    for write in proposal.writes:
        before = base.get(write.path, "")
        for one in marks:
            if write.content.count(one) > before.count(one) or one in write.path:
                hint = "read it from the environment instead, and write the whole file without it"
                message = f"holds `{one}`, where a secret was taken out"
                problems.append(Diagnostic(ANSWERED, message, subject=write.path, hint=hint))
    return tuple(problems)


def _redacted(secrets: Secrets, request: Request) -> Request:
    def clean(messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return tuple(replace(message, content=secrets.redact(message.content)) for message in messages)

    messages = clean(request.messages)
    head = secrets.redact(request.messages[0].content[: request.stable]) if request.messages else ""
    return replace(
        request,
        system=secrets.redact(request.system),
        messages=messages,
        identity=clean(request.identity),
        schema=parse(secrets.redact(_json(request.schema))),
        stable=len(head) if messages and messages[0].content.startswith(head) else 0,
    )


class _Text(Struct, frozen=True):
    """A text that went into a request, with the file, or the words, that it is known by."""

    place: str
    text: str
    is_file: bool = True

    def at(self, line: int) -> str:
        return f"{self.place}:{line}" if self.is_file else f"{self.place}, line {line}"


def _places(
    secrets: Secrets, name: str, request: Request, stage: Stage, this: Round, sources: Sources
) -> tuple[str, ...]:
    """Return where a secret comes from; where no text has it by itself, the line of the rendered prompt."""
    for texts in (_origins(stage, this, sources), _rendered(request)):
        found = [one.at(finding.line) for one in texts for finding in secrets.find(one.text) if finding.name == name]
        if found:
            return tuple(dict.fromkeys(found))
    return ("the rendered prompt",)


def _origins(stage: Stage, this: Round, sources: Sources) -> Iterator[_Text]:
    """Give everything that a prompt is made of, as far as it was read."""
    for path in author_files(stage, this):
        text, _ = sources.text(path)
        yield _Text(path, text or "")
    for one in (*this.given, *this.own):
        if isinstance(one.read, Reading) and one.read.text is not None:
            yield _whole(one, one.read.text, sources)
    yield _Text("the previous answer", this.previous or "", is_file=False)
    yield _Text("the report of the failed attempt", this.brief.excerpt if this.brief else "", is_file=False)


def _whole(one: GivenInput, text: str, sources: Sources) -> _Text:
    """Return an input's text; of a slice the whole file, so that the line is that of the file."""
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
    yield _Text("the schema as it is sent", _json(request.schema), is_file=False)


def _sent(place: str, name: str) -> Diagnostic:
    return Diagnostic(SENT, f"the prompt would send a secret: {name}", subject=place, hint=_TAKE_OUT)


def _stored(part: str, name: str) -> Diagnostic:
    return Diagnostic(STORED, f"a secret would be stored with the result: {name}", subject=part, hint=_BELONGS)


def _names(found: tuple[Finding, ...] | list[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(finding.name for finding in found))


def _json(value: Json) -> str:
    return canonical_json(value).decode("utf-8", "replace")


# ---- what leaves the machine -------------------------------------------------------------------


def sent_files(files: tuple[str, ...], this: Round, sources: Sources) -> tuple[SentFile, ...]:
    """Return the files of which a request holds all or a part: inputs whose text the prompt has read, and `files`.

    `files` are the author's own.
    """
    shown = [
        _shown(one.path, one.slice, one.read.text)
        for one in (*this.given, *this.own)
        if isinstance(one.read, Reading) and one.read.text is not None
    ]
    texts = {path: sources.text(path)[0] for path in files}
    return (*shown, *(_shown(path, "", text) for path, text in texts.items() if text is not None))


def sent_bytes(request: Request) -> int:
    """Return the number of bytes of a request: its messages and its schema."""
    sent = [request.system, *(message.content for message in request.messages)]
    sent += [_json(request.schema)] if request.schema is not None else []
    return sum(size_of(text) for text in sent)


def size_of(text: str) -> int:
    """Return the number of bytes of a text."""
    return len(text.encode("utf-8", "replace"))


def author_files(stage: Stage, this: Round) -> tuple[str, ...]:
    """Return the files of the author that the request of a round is made of: prompt, system prompt, schema."""
    if stage.kind != "llm":
        return ()
    again = ("retry", "prompt")
    unused = ("llm", "prompt") if this.brief is not None and again in stage.author_files else again
    return tuple(path for place, path in stage.author_files.items() if place != unused)


def _shown(path: str, part: str, text: str) -> SentFile:
    data = text.encode("utf-8", "replace")
    return SentFile(path, part, digest_bytes(data).sha256, len(data))


def _watched(given: tuple[GivenInput, ...]) -> tuple[GivenInput, ...]:
    return tuple(replace(one, read=Reading(one.read)) for one in given)
