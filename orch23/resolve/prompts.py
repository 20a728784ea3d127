"""Build the request of an attempt.

The same prompt is rendered three ways: for the key (without retry feedback, previous response and own outputs), for the
request, and for its identity (the feedback reduced to kind, command and failing ids), from which the fingerprint is
computed. If the stage may be retried, it is rendered twice more, to count the characters that all attempts share:
vendors cache what requests share at their start (ADR 38).

In a request each block of data has its own delimiter, which changes with nothing else. Key and identity have the
delimiters of all versions of orch23, which change only with the data: so records and recordings stay valid (ADR 37).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.llm import Message, Request, RetryFeedback, SystemUsers
from orch23.model.media import accepting, peeked
from orch23.model.pipeline import Stage
from orch23.resolve.prompt_files import prompt_names, render_file, render_sent, schema_text
from orch23.resolve.prompt_inputs import MAX_PREVIOUS_LENGTH, AttemptContext, AuthorTexts, PromptInput, PromptInputs
from orch23.text.beginnings import shared_lines

if TYPE_CHECKING:
    from orch23.resolve.templates import RenderedPrompt
    from orch23.steps.llm.spec import LLMStep


_OTHER_FILE = PromptInput("?", "", "?", lambda: "?", base=True)
_OTHER_BRIEF = RetryFeedback(
    kind="?", command="?", exit_code=1, excerpt="?", failing=("?",), diagnostics=("?",), constraints=("?",)
)


class NotedText(Struct, frozen=True):
    """The text of an input, which adds its path, and its path with its slice, to `paths` when it is read."""

    one: PromptInput
    paths: set[str]

    def __call__(self) -> str:
        """Return the text."""
        self.paths.update((self.one.path, f"{self.one.path}#{self.one.slice}"))
        return self.one.text

    def peek(self) -> str:
        """Return the text without noting it."""
        return peeked(self.one.read)


def make_request(
    stage: Stage, step: "LLMStep", this: AttemptContext, sources: AuthorTexts, variables: Mapping[str, Json]
) -> tuple[Request | None, tuple[Diagnostic, ...]]:
    """Return the request of one attempt without its endpoint and parameters, or the errors of its prompt."""
    template = stage.retry.prompt if this.feedback is not None and stage.retry.prompt else step.prompt
    read: set[str] = set()
    given = tuple(replace(one, read=NotedText(one, read)) for one in this.given)
    names = prompt_names(stage, given, variables, schema=schema_text(step, sources))
    names["attempt"] = this.attempt
    names["previous"] = None if this.previous is None else this.previous[:MAX_PREVIOUS_LENGTH]
    sent = {**names, "brief": this.feedback, "own": PromptInputs(this.own) if this.own else None}
    # Another version of Python may word the same failure differently. That must not cause a second call.
    same = {**names, "brief": this.reduced_feedback, "own": None}
    with accepting():
        system, problems = render_sent(step.system, sent, sources)
        has_blocks = system is not None and system.has_blocks
        system_identity = render_file(step.system, sent, sources)[0] if has_blocks else None
    text, more = render_sent(template, sent, sources)
    is_same = text is not None and not text.has_blocks and this.feedback is None and not this.own
    identity, besides = (text.text, ()) if text and is_same else render_file(template, same, sources)
    if system is None or text is None or identity is None:
        return None, (*problems, *(more or besides))
    family, users = shared_by_items(stage, step, this, sources, sent, text, system)
    unread = [one for one in this.given if one.explored and f"{one.path}#{one.slice}" not in read]
    if unread:
        text, identity = replace(text, text=_with_parts(text.text, unread, is_sent=True)), _with_parts(identity, unread)
    # The files of a response are not shown a second time, as the response.
    shown = this.shows_previous and any(one.base and one.path in read for one in this.given)
    previous = None if shown else names["previous"]
    appended = partial(_appended, previous=previous, template=template, step=step, sources=sources)
    end = appended(text.text, this.feedback, is_sent=True)
    same_end = appended(identity, this.reduced_feedback, is_sent=False)
    is_conversation = stage.retry.is_conversation
    whole = Message("user", text.text + end, text.media)
    request = Request(
        provider=step.provider,
        model=this.model,
        endpoint="",
        system=system.text,
        system_identity=system_identity,
        messages=(whole,),
        identity=(Message("user", identity + same_end),),
        returns=step.returns,
        sample=this.sample,
        stable=len(whole.content) if is_conversation else shared_by_attempts(stage, step, this, sources, sent, text),
        family=family,
        system_users=users,
        added=(end, same_end),
        is_final=this.attempt > stage.retry.max,
    )
    return request, ()


def _with_parts(rendered: str, parts: Sequence[PromptInput], *, is_sent: bool = False) -> str:
    """Return a prompt with the parts that the model asked for, if its template does not show them."""
    from orch23.resolve.dialogue import as_sent  # noqa: PLC0415 - only for such stages
    from orch23.resolve.prompt_blocks import DataBlock, render_blocks  # noqa: PLC0415 - as above

    blocks = [DataBlock("file", one.text, one.path, one.slice) for one in parts]
    text = as_sent(partial(render_blocks, blocks), rendered if is_sent else None)
    return f"{rendered.rstrip()}\n\nThe parts of the repository that you asked to see:\n\n{text}\n"


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
    from orch23.resolve.dialogue import as_sent, standard_feedback, uses_feedback  # noqa: PLC0415 - it loads jinja2

    if uses_feedback(*(sources.text(path)[0] or "" for path in (template, step.system) if path)):
        return ""
    last = previous if isinstance(previous, str) else None
    text = as_sent(partial(standard_feedback, feedback, last), rendered if is_sent else None)
    return f"\n{text}" if rendered.endswith("\n") else f"\n\n{text}"


def shared_by_attempts(
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
    if stage.retry.start_from == "baseline":
        choices = [PromptInputs(this.given)]
    else:
        # Without the stage's own files: a later attempt may have those of the one before it, and may look one up.
        choices = [PromptInputs(given, _OTHER_FILE), PromptInputs((*given, _OTHER_FILE), _OTHER_FILE)]
    first = {**sent, "attempt": 1, "previous": None, "brief": None, "inputs": choices[0]}
    later = {**sent, "attempt": 2, "previous": "?", "brief": _OTHER_BRIEF}
    is_first = (this.attempt, this.previous, this.feedback) == (1, None, None)
    texts: list[RenderedPrompt | None] = [now]
    if not is_first or len(given) != len(this.given):
        texts.append(render_sent(step.prompt, first, sources)[0])
    template = stage.retry.prompt or step.prompt
    texts += [render_sent(template, {**later, "inputs": one}, sources)[0] for one in choices]
    rendered = [one.text for one in texts if one is not None]
    return shared_lines(*rendered) if len(rendered) == len(texts) else 0


def _other_value(value: Json) -> Json:
    """Return a value of the same shape with other texts and numbers."""
    if isinstance(value, str):
        return "?"
    if isinstance(value, Mapping):
        return {key: _other_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_other_value(one) for one in value]
    return value if value is None or isinstance(value, bool) else -7


def shared_by_items(
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
        # The values of a first attempt of an item that does not exist, so that all items get the same prefix.
        own = PromptInput("?", "", "?", lambda: "?")
        inputs = PromptInputs(tuple(own if one.own else one for one in this.given if not one.base), _OTHER_FILE)
        names = {**sent, "attempt": 1, "previous": None, "brief": None, "own": None, "inputs": inputs}
        names["item"] = _other_value(stage.item.value)
        other, _ = render_sent(step.prompt, names, sources)
        with accepting():
            before, _ = render_sent(step.system, names, sources)
        if other is not None and before is not None and before.text == system.text:
            return shared_lines(other.text, text.text), "stages" if system.text else ""
    return 0, "attempts" if system.text and stage.retry.max else ""
