"""Render prompts and templates, and build the request of an attempt.

The same prompt is rendered three ways: for the key (without retry feedback, previous response and own outputs), for the
request, and for its identity (the feedback reduced to kind, command and failing ids), from which the fingerprint is
computed. If the stage may be retried, it is rendered twice more, to count the characters that all attempts share.

In a request each block of data has its own delimiter, which changes with nothing else. Key and identity have the
delimiters of all versions of orch23, which change only with the data: so records and recordings stay valid (ADR 37).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Json, digest_bytes, digest_json
from orch23.model.llm import Message, Request, RetryFeedback, SystemUsers
from orch23.model.parsing import StrictJsonError, parse_json
from orch23.model.pipeline import Stage
from orch23.resolve.slices import YamlReader
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.model.dialogue import Dialogue
    from orch23.model.media import MediaKind
    from orch23.resolve.templates import RenderedPrompt, TemplateFileError
    from orch23.steps.llm.spec import LLMStep


ReadText: TypeAlias = Callable[[], str]
ReadBytes: TypeAlias = Callable[[], bytes]
MAX_PREVIOUS_LENGTH = 20_000
_SHOWN_INPUTS = 10


class AuthorTexts(Protocol):
    """Files that belong to a pipeline: prompts, templates, schemas."""

    def text(self, path: str) -> tuple[str | None, Diagnostic | None]:
        """Return a file's text, or None with an error."""


class PromptInput(Struct, frozen=True):
    """One input of a prompt: path, slice, digest, `text`, `value`, and whether it is the base of a chain.

    `own`: some other item of the foreach does not have it. `read_bytes` is for whole files, which may be pictures.
    """

    path: str
    slice: str
    digest: str
    read: ReadText
    base: bool = False
    own: bool = False
    read_bytes: ReadBytes | None = None

    @property
    def text(self) -> str:
        """Read the text."""
        return self.read()

    @property
    def value(self) -> Json:
        """Read the text as JSON. Every slice by a pointer is JSON.

        Raises:
            ValueError: it is not JSON.

        """
        try:
            return parse_json(self.text)
        except StrictJsonError as error:
            message = f"`value` of `{self.path}` cannot be used, because it is not JSON: {error}"
            raise ValueError(message) from None


_OTHER_FILE = PromptInput("?", "", "?", lambda: "?", base=True)
_OTHER_BRIEF = RetryFeedback(
    kind="?", command="?", exit_code=1, excerpt="?", failing=("?",), diagnostics=("?",), constraints=("?",)
)


class PromptInputs:
    """The inputs of a prompt: a list, and a lookup by path or by `path#slice`."""

    def __init__(self, items: tuple[PromptInput, ...], instead: PromptInput | None = None) -> None:
        """Set the items, in declared order, and what a lookup of another one returns; None: it raises an error."""
        self._items = items
        self._instead = instead

    def __iter__(self) -> Iterator[PromptInput]:
        """Iterate in declared order."""
        return iter(self._items)

    def __len__(self) -> int:
        """Return the number of inputs."""
        return len(self._items)

    def __getitem__(self, key: str | int) -> PromptInput:
        """Return the input at a position, or with a path or `path#slice`."""
        if isinstance(key, int):
            return self._items[key]
        for one in self._items:
            if key in (one.path, f"{one.path}#{one.slice}"):
                return one
        if self._instead is None:
            raise KeyError(key)
        return self._instead


class AttemptContext(Struct, frozen=True, kw_only=True):
    """The values that one attempt adds to a prompt.

    `shows_previous`: the stage's own files in `given` are those of the previous response. With `dialogue` the request
    continues the one of a former attempt.
    """

    attempt: int = 1
    previous: str | None = None
    feedback: RetryFeedback | None = None
    own: tuple[PromptInput, ...] = ()
    given: tuple[PromptInput, ...] = ()
    model: str
    sample: int = 0
    shows_previous: bool = False
    dialogue: "Dialogue | None" = None


# ---- the aspects of a key ---------------------------------------------------------------------


class KeyTexts(Struct, frozen=True):
    """The aspects and errors of a stage's prompt or template; `rendered` is the text of a template.

    `digest` is that of everything that a prompt is rendered from, without the contents of the inputs and the item.
    """

    aspects: dict[str, Json] = {}
    broken: tuple[Diagnostic, ...] = ()
    rendered: bytes | None = None
    digest: str = ""


def key_texts(
    stage: Stage,
    given: tuple[PromptInput, ...],
    sources: AuthorTexts,
    variables: Mapping[str, Json],
    read_yaml: YamlReader,
    accepts: "frozenset[MediaKind]" = frozenset(),
) -> KeyTexts:
    """Return the aspects that follow from the prompt or template of a stage; none for other steps.

    `accepts` are the kinds of media that the first model of the stage accepts.
    """
    step = stage.step
    if is_llm(step):
        from orch23.resolve.accepted_media import accepting  # noqa: PLC0415 - only for stages that call a model

        with accepting(accepts):
            return _llm_texts(stage, step, given, sources, variables, read_yaml)
    if not step.renders:
        return KeyTexts()
    text, problems = render_file(
        getattr(step, step.renders), prompt_names(stage, given, variables, schema=None), sources
    )
    rendered = (text or "").encode()
    return KeyTexts({"prompt": digest_bytes(rendered).sha256}, problems, rendered)


def _llm_texts(
    stage: Stage,
    step: "LLMStep",
    given: tuple[PromptInput, ...],
    sources: AuthorTexts,
    variables: Mapping[str, Json],
    read_yaml: YamlReader,
) -> KeyTexts:
    from orch23.resolve.accepted_media import without_media  # noqa: PLC0415 - only for stages that call a model

    # Without retry feedback: the key is the same at every attempt.
    names = prompt_names(stage, given, variables, schema=schema_text(step, sources))
    prompt, problems = render_file(step.prompt, names, sources)
    system, more = without_media(render_file, step.system, names, sources)
    broken = [*problems, *more, *_context_limits(stage.name, step, given)]
    texts = {"prompt": prompt, "system": system}
    if step.schema is not None:
        texts["schema"], problem = sources.text(step.schema)
        broken += [problem] if problem else []
    aspects: dict[str, Json] = {name: digest_bytes((text or "").encode()).sha256 for name, text in texts.items()}
    if step.answers is not None:
        aspects["answers"] = _scripted_responses(stage, step.answers, sources, read_yaml)
    return KeyTexts(aspects, tuple(broken), digest=_texts_digest(step, given, sources, variables))


def _texts_digest(
    step: "LLMStep", given: tuple[PromptInput, ...], sources: AuthorTexts, variables: Mapping[str, Json]
) -> str:
    """Return the digest of everything that a prompt is rendered from, without the contents of the inputs and the item.

    With an equal digest and equal other aspects of the manifest, the prompt is the same. So prompts can be compared
    even if the bytes of an input are lost and the prompt cannot be rendered.
    """
    # Lost inputs must not make a stage stale: the digest does not need their bytes (ADR 19).
    paths = [getattr(step, key) for key in step.author_keys]
    files = [sources.text(path)[0] if path else None for path in paths]
    return digest_json([*files, dict(variables), [[one.path, one.slice, one.base] for one in given]])


def _context_limits(stage: str, step: "LLMStep", given: tuple[PromptInput, ...]) -> list[Diagnostic]:
    """Return an error for each limit that the inputs of a prompt exceed, with the largest inputs."""
    labels = ((one, f"{one.path}#{one.slice}" if one.slice else one.path) for one in given)
    sizes = sorted(((_size_bytes(one), label) for one, label in labels), key=lambda pair: (-pair[0], pair[1]))
    size = sum(size for size, _ in sizes)
    names = ", ".join(f"{name} ({size:,})" for size, name in sizes[:_SHOWN_INPUTS])
    counted = names if len(sizes) <= _SHOWN_INPUTS else f"{names} and {len(sizes) - _SHOWN_INPUTS} more"
    problems = []
    if len(given) > step.max_files:
        text = f"{len(given)} inputs are given to the model, the limit is {step.max_files}: {counted}"
        hint = "narrow the inputs, or raise llm.context.max_files"
        problems.append(Diagnostic("E834", text, hint=hint, subject=stage))
    if size > step.max_bytes:
        text = f"{size:,} bytes of inputs are given to the model, the limit is {step.max_bytes:,}: {counted}"
        hint = "give a slice (`file.md#Heading`) instead of a file, or raise llm.context.max_bytes"
        problems.append(Diagnostic("E834", text, hint=hint, subject=stage))
    return problems


def _size_bytes(one: PromptInput) -> int:
    from orch23.resolve.accepted_media import media_of  # noqa: PLC0415 - only for stages that call a model

    media = media_of(one)
    return len(one.text.encode() if media is None else media.data)


def _scripted_responses(stage: Stage, path: str, sources: AuthorTexts, read_yaml: YamlReader) -> Json:
    """Return the digest of a stage's entry in a file of scripted responses; of the whole file if it has no entries."""
    text = sources.text(path)[0] or ""
    try:
        value = read_yaml(text)
    except ValueError:
        value = text
    # An edit of another stage's entry must not make this stage stale.
    own = value.get(stage.name, value.get(stage.family)) if isinstance(value, Mapping) else value
    return digest_json(own)


# ---- requests ----------------------------------------------------------------------------------


def make_request(
    stage: Stage,
    step: "LLMStep",
    this: AttemptContext,
    sources: AuthorTexts,
    *,
    variables: Mapping[str, Json],
    endpoint: str,
    params: Mapping[str, Json],
    wire_schema: Json = None,
) -> tuple[Request | None, tuple[Diagnostic, ...]]:
    """Return the request of one attempt, or the errors of its prompt."""
    from orch23.resolve.accepted_media import NotedText, without_media  # noqa: PLC0415 - only for stages that call a model

    template = stage.retry.prompt if this.feedback is not None and stage.retry.prompt else step.prompt
    read: set[str] = set()
    given = tuple(replace(one, read=NotedText(one, read)) for one in this.given)
    names = prompt_names(stage, given, variables, schema=schema_text(step, sources))
    names["attempt"] = this.attempt
    names["previous"] = None if this.previous is None else this.previous[:MAX_PREVIOUS_LENGTH]
    sent = {**names, "brief": this.feedback, "own": PromptInputs(this.own) if this.own else None}
    # Another version of Python may word the same failure differently. That must not cause a second call.
    same = {**names, "brief": reduced_feedback(this.feedback), "own": None}
    system, problems = without_media(render_sent, step.system, sent, sources)
    text, more = render_sent(template, sent, sources)
    is_same = text is not None and not text.has_blocks and this.feedback is None and not this.own
    identity, besides = (text.text, ()) if text and is_same else render_file(template, same, sources)
    if system is None or text is None or identity is None:
        return None, (*problems, *(more or besides))
    family, users = _shared_by_items(stage, step, this, sources, sent, text, system)
    # The files of a response are not shown a second time, as the response.
    shown = this.shows_previous and any(one.base and one.path in read for one in this.given)
    previous = None if shown else names["previous"]
    ends = [
        _appended(rendered, feedback, previous, template, step, sources, is_sent=is_sent)
        for rendered, feedback, is_sent in (
            (text.text, this.feedback, True),
            (identity, reduced_feedback(this.feedback), False),
        )
    ]
    return (
        Request(
            provider=step.provider,
            model=this.model,
            endpoint=endpoint,
            system=system.text,
            system_identity=without_media(render_file, step.system, sent, sources)[0] if system.has_blocks else None,
            messages=(Message("user", text.text + ends[0], text.media),),
            identity=(Message("user", identity + ends[1]),),
            params=params,
            returns=step.returns,
            schema=wire_schema,
            sample=this.sample,
            stable=len(text.text + ends[0])
            if stage.retry.is_conversation
            else _stable(stage, step, this, sources, sent, text),
            family=family,
            system_users=users,
            added=(ends[0], ends[1]),
            is_final=this.attempt > stage.retry.max,
        ),
        (),
    )


def _appended(
    rendered: str,
    feedback: RetryFeedback | None,
    previous: object,
    template: str | None,
    step: "LLMStep",
    sources: AuthorTexts,
    *,
    is_sent: bool,
) -> str:
    """Return the feedback for the end of a prompt whose template does not use it: without, the request is repeated."""
    if feedback is None:
        return ""
    from orch23.resolve import standard_feedback as standard  # noqa: PLC0415 - it loads jinja2

    if standard.uses_feedback(*(sources.text(path)[0] or "" for path in (template, step.system) if path)):
        return ""
    last = previous if isinstance(previous, str) else None
    text = standard.sent_feedback(feedback, last, rendered) if is_sent else standard.standard_feedback(feedback, last)
    return f"\n{text}" if rendered.endswith("\n") else f"\n\n{text}"


def _stable(
    stage: Stage,
    step: "LLMStep",
    this: AttemptContext,
    sources: AuthorTexts,
    sent: Mapping[str, object],
    now: "RenderedPrompt",
) -> int:
    """Count the leading characters of a prompt, by whole lines, that all attempts of its stage share.

    The number must be the same at every attempt, or the provider would cache a prefix that no other attempt sends. So
    a first attempt is compared with one that has feedback and other own files, whatever this attempt is. It is 0 for a
    stage without retries.
    """
    if not stage.retry.max:
        return 0
    given = tuple(one for one in this.given if not one.base)
    # Without the stage's own files: a later attempt has those of the one before it, and may look one up.
    inputs = PromptInputs(this.given) if stage.retry.start_from == "baseline" else PromptInputs(given, _OTHER_FILE)
    first = {**sent, "attempt": 1, "previous": None, "brief": None, "inputs": inputs}
    later = {**sent, "attempt": 2, "previous": "?", "brief": _OTHER_BRIEF, "inputs": _other_files(stage, this)}
    is_first = (this.attempt, this.previous, this.feedback) == (1, None, None)
    earlier = now if is_first and len(given) == len(this.given) else render_sent(step.prompt, first, sources)[0]
    revised, _ = render_sent(stage.retry.prompt or step.prompt, later, sources)
    if earlier is None or revised is None:
        return 0
    return _shared_lines(earlier.text, revised.text, now.text)


def _other_files(stage: Stage, this: AttemptContext) -> PromptInputs:
    """Return the inputs of another attempt, whose own files differ if an attempt starts from those of the last."""
    if stage.retry.start_from == "baseline":
        return PromptInputs(this.given)
    return PromptInputs((*(one for one in this.given if not one.base), _OTHER_FILE), _OTHER_FILE)


def _shared_lines(*texts: str) -> int:
    """Count the leading characters, by whole lines, that texts share, if more than blanks follows in each that goes on.

    Vendors cache a prompt by blocks and refuse a block of blanks, so what follows must be able to be a block.
    """
    low, high = min(texts), max(texts)  # in sorted order, the first and the last share the least
    differs = _shared_length(low, high)
    # A prompt that ends with its inputs has no line end after them, and the next attempt adds lines.
    is_whole = {text[differs : differs + 1] for text in texts} == {"", "\n"}
    end = differs if is_whole else low.rfind("\n", 0, differs) + 1
    while end and any(text[end:].isspace() for text in texts):
        end = low.rfind("\n", 0, end - 1) + 1
    return end


def _shared_length(one: str, other: str) -> int:
    """Count the leading characters that two texts share."""
    # By halves and not by characters, which would take longer than rendering a long prompt.
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


# ---- what items of a foreach share ---------------------------------------------------------------


def _of_other_item(stage: Stage, this: AttemptContext, sent: Mapping[str, object]) -> dict[str, object]:
    """Return the names of a first attempt of another item: no real one, so that all items get the same prefix."""
    own = PromptInput("?", "", "?", lambda: "?")
    given = PromptInputs(tuple(own if one.own else one for one in this.given if not one.base), _OTHER_FILE)
    item = _other_value(stage.item.value) if stage.item else None
    return {**sent, "attempt": 1, "previous": None, "brief": None, "own": None, "item": item, "inputs": given}


def _other_value(value: Json) -> Json:
    """Return a value of the same shape with other texts and numbers."""
    if isinstance(value, str):
        return "?"
    if isinstance(value, Mapping):
        return {key: _other_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_other_value(one) for one in value]
    return value if value is None or isinstance(value, bool) else -7


def _shared_by_items(
    stage: Stage,
    step: "LLMStep",
    this: AttemptContext,
    sources: AuthorTexts,
    sent: Mapping[str, object],
    text: "RenderedPrompt",
    system: "RenderedPrompt",
) -> tuple[int, SystemUsers]:
    """Count the leading characters of a prompt, by whole lines, that all items share; return who sends the system text.

    Nothing is shared with other items if the stage is none, or the system text, which is first, differs between items.
    """
    if stage.item is not None:
        from orch23.resolve.accepted_media import without_media  # noqa: PLC0415 - only for stages that call a model

        names = _of_other_item(stage, this, sent)
        other, _ = render_sent(step.prompt, names, sources)
        before, _ = without_media(render_sent, step.system, names, sources)
        if other is not None and before is not None and before.text == system.text:
            return _shared_lines(other.text, text.text), "stages" if system.text else ""
    return 0, "attempts" if system.text and stage.retry.max else ""


def prompt_names(
    stage: Stage, given: tuple[PromptInput, ...], variables: Mapping[str, Json], *, schema: str | None
) -> dict[str, object]:
    """Return the names that a template sees in a key; an attempt adds its own."""
    return {
        "vars": variables,
        "item": stage.item.value if stage.item else None,
        "inputs": PromptInputs(given),
        "own": None,
        "previous": None,
        "brief": None,
        "attempt": 1,
        "schema": schema,
    }


def schema_text(step: "LLMStep", sources: AuthorTexts) -> str | None:
    """Return the text of a step's JSON schema; None if it has none, or the file cannot be read."""
    return sources.text(step.schema)[0] if step.schema else None


def reduced_feedback(feedback: RetryFeedback | None) -> RetryFeedback | None:
    """Return the part of feedback that is the same for the same failure: failing ids instead of the excerpt."""
    if feedback is None:
        return None
    return replace(
        feedback,
        excerpt="\n".join(sorted(feedback.failing)),
        exit_code=None,
        constraints=(),
        diagnostics=feedback.diagnostic_codes(),
    )


def render_file(
    path: str | None, names: Mapping[str, object], sources: AuthorTexts
) -> tuple[str | None, tuple[Diagnostic, ...]]:
    """Return the rendered text of a file, or None and its errors; an empty text without a file."""
    if path is None:
        return "", ()
    text, problem = sources.text(path)
    if text is None:
        return None, (problem,) if problem else ()
    from orch23.resolve.templates import TemplateFileError, render_text  # noqa: PLC0415 - it loads jinja2

    try:
        return render_text(text, names, path), ()
    except TemplateFileError as error:
        return None, (_template_error(error, path),)


def render_sent(
    path: str | None, names: Mapping[str, object], sources: AuthorTexts
) -> tuple["RenderedPrompt | None", tuple[Diagnostic, ...]]:
    """Return a file as it is rendered for a request, or None and its errors; an empty text without a file."""
    from orch23.resolve.templates import RenderedPrompt, TemplateFileError, render_prompt  # noqa: PLC0415 - as above

    if path is None:
        return RenderedPrompt("", has_blocks=False), ()
    text, problem = sources.text(path)
    if text is None:
        return None, (problem,) if problem else ()
    try:
        return render_prompt(text, names, path), ()
    except TemplateFileError as error:
        return None, (_template_error(error, path),)


def _template_error(error: "TemplateFileError", path: str) -> Diagnostic:
    return Diagnostic("E832", error.message, Location(path, error.line or 1, 1), error.hint)
