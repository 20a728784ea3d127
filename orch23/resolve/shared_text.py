"""Count the leading characters of a prompt that all attempts of a stage share, and all items of a `foreach`.

A prompt is rendered once more as another attempt, and as another item, would send it, and the texts are compared.
Vendors cache what requests share at their start (ADR 38).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orch23.model.digest import Json
from orch23.model.llm import RetryFeedback, SystemUsers
from orch23.model.pipeline import Stage
from orch23.resolve.accepted_media import accepting
from orch23.resolve.prompt_files import render_sent
from orch23.resolve.prompt_inputs import AttemptContext, AuthorTexts, PromptInput, PromptInputs

if TYPE_CHECKING:
    from orch23.resolve.templates import RenderedPrompt
    from orch23.steps.llm.spec import LLMStep


_OTHER_FILE = PromptInput("?", "", "?", lambda: "?", base=True)
_OTHER_BRIEF = RetryFeedback(
    kind="?", command="?", exit_code=1, excerpt="?", failing=("?",), diagnostics=("?",), constraints=("?",)
)


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
        inputs = others = PromptInputs(this.given)
    else:
        # Without the stage's own files: a later attempt has those of the one before it, and may look one up.
        inputs, others = PromptInputs(given, _OTHER_FILE), PromptInputs((*given, _OTHER_FILE), _OTHER_FILE)
    first = {**sent, "attempt": 1, "previous": None, "brief": None, "inputs": inputs}
    later = {**sent, "attempt": 2, "previous": "?", "brief": _OTHER_BRIEF, "inputs": others}
    is_first = (this.attempt, this.previous, this.feedback) == (1, None, None)
    earlier = now if is_first and len(given) == len(this.given) else render_sent(step.prompt, first, sources)[0]
    revised, _ = render_sent(stage.retry.prompt or step.prompt, later, sources)
    if earlier is None or revised is None:
        return 0
    return _shared_lines(earlier.text, revised.text, now.text)


def _shared_lines(*texts: str) -> int:
    """Count the leading characters, by lines, that texts share, if more than blanks follows in each that goes on."""
    low, high = min(texts), max(texts)  # in sorted order, the first and the last share the least
    differs = _shared_length(low, high)
    # A prompt that ends with its inputs has no line end after them, and the next attempt adds lines.
    is_whole = {text[differs : differs + 1] for text in texts} == {"", "\n"}
    end = differs if is_whole else low.rfind("\n", 0, differs) + 1
    # Vendors cache a prompt by blocks, and refuse a block of blanks.
    bare = [(len(text.rstrip()), len(text)) for text in texts]
    while end and any(solid <= end < size for solid, size in bare):
        end = low.rfind("\n", 0, end - 1) + 1
    return end


def _shared_length(one: str, other: str) -> int:
    # By halves and not by characters, which would take longer than rendering a long prompt.
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


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
            return _shared_lines(other.text, text.text), "stages" if system.text else ""
    return 0, "attempts" if system.text and stage.retry.max else ""
