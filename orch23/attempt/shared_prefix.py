"""Report prompts in which much text comes after a line that differs between attempts, or between items.

orch23 never reorders the text of a prompt: its author may have reasons for the order.
"""

import contextlib
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from orch23.attempt.estimate import CHARACTERS_PER_TOKEN
from orch23.decide.decisions import StageDecider
from orch23.decide.stage_view import StageTree
from orch23.model.diagnostic import Diagnostic, Location, Severity
from orch23.model.errors import MissingBytesError, Orch23Error
from orch23.model.pipeline import Stage
from orch23.model.record import Facts
from orch23.resolve.prompt_inputs import PromptInput
from orch23.resolve.resolution import resolve_stage
from orch23.resolve.shared_prefix import INPUTS, VolatileLine, find_volatile_line
from orch23.steps.registry import is_llm

W_EARLY_END = "W836"
# Providers cache no shorter prefix than 1,024 tokens, so less text makes no difference.
MIN_CHARACTERS = 4000

_OF_ATTEMPTS = frozenset({"attempt", "brief", "previous"})
_OF_ITEMS = frozenset({"item", "own"})
_HINT = "move it to the end, after what is the same for all {each}s, so that a provider can cache that"
_INPUTS_HINT = "in `inputs`, list those that all items share first, so that a provider can cache them"


class _Shared(Struct, frozen=True):
    """The inputs of prompts, without own files of the stage: those that are shared, and those after the first other."""

    all: Sequence[PromptInput]
    later: Sequence[PromptInput]


def early_end_notes(decider: StageDecider) -> tuple[Diagnostic, ...]:
    """Return a note for each prompt that shares less than it could. Inputs that do not exist yet are not counted."""
    families: dict[str, list[Stage]] = {}
    for node in decider.state.plan.nodes.values():
        if isinstance(node, Stage) and is_llm(node.step):
            families.setdefault(node.family, []).append(node)
    notes: list[Diagnostic] = []
    for stages in families.values():
        with contextlib.suppress(Orch23Error, MissingBytesError):  # the stage reports it when it is built
            notes += _notes(decider, stages)
    return tuple(notes)


def _notes(decider: StageDecider, stages: Sequence[Stage]) -> Iterator[Diagnostic]:
    first = stages[0]
    # With a prompt of its own for retries, the second attempt is the first to have it.
    # In a conversation, the first message is the same for all attempts, whatever its template names.
    if not first.retry.is_conversation and first.retry.max > (1 if first.retry.prompt else 0):
        files = _files(decider, first, again=True)
        # With the files of the last attempt, the list of inputs ends with other ones.
        is_continued = first.retry.start_from != "baseline"
        found = find_volatile_line(files, {*_OF_ATTEMPTS, INPUTS} if is_continued else _OF_ATTEMPTS)
        if found is not None:
            yield from _note(first, found, _Shared(_given(decider, first), ()), "attempt")
    if len(stages) > 1:
        yield from _note_of_items(decider, stages)


def _note_of_items(decider: StageDecider, stages: Sequence[Stage]) -> Iterator[Diagnostic]:
    files = _files(decider, stages[0], again=False)
    if find_volatile_line(files, {*_OF_ITEMS, INPUTS}) is None:
        return
    shared = _shared(_given(decider, stages[0]), _given(decider, stages[1]))
    found = find_volatile_line(files, {*_OF_ITEMS, INPUTS} if shared.later else _OF_ITEMS)
    if found is not None:
        # Those after the first other one only matter in the list of inputs.
        later = shared.later if found.name == INPUTS else ()
        yield from _note(stages[0], found, _Shared(shared.all, later), "item")


def _shared(one: Sequence[PromptInput], other: Sequence[PromptInput]) -> _Shared:
    known = {(shown.path, shown.slice) for shown in other}
    pairs = enumerate(zip(one, other, strict=False))
    differs = next((at for at, (a, b) in pairs if (a.path, a.slice) != (b.path, b.slice)), len(one))
    both = [shown for shown in one if (shown.path, shown.slice) in known]
    return _Shared(both, [shown for shown in one[differs:] if (shown.path, shown.slice) in known])


def _note(stage: Stage, found: VolatileLine, shared: _Shared, each: str) -> Iterator[Diagnostic]:
    named = [one for one in shared.all if not found.keys.isdisjoint((one.path, f"{one.path}#{one.slice}"))]
    inputs = shared.all if found.shows_all else [*shared.later, *named]
    count = found.literal + sum(len(one.text) for one in inputs)
    if count < MIN_CHARACTERS:
        return
    if shared.later:
        what = "inputs that differ come before inputs"
    elif found.name == INPUTS:
        what = "`inputs`, which end with the files of the last attempt, come before text"
    else:
        what = f"`{found.name}` comes before text"
    yield Diagnostic(
        W_EARLY_END,
        f"{what} that all {each}s of `{stage.family}` share: each {each} pays in full for {count:,} characters "
        f"(about {count // CHARACTERS_PER_TOKEN:,} tokens) after this line",
        Location(found.path, found.line, 1),
        _INPUTS_HINT if shared.later else _HINT.format(each=each),
        Severity.NOTE,
    )


def _given(decider: StageDecider, stage: Stage) -> Sequence[PromptInput]:
    state = decider.state
    # Without facts about the machine, on which the inputs do not depend: no tool is looked up and no plugin is called.
    tree, variables = StageTree(state, stage.name), state.plan.pipeline.vars
    found = resolve_stage(stage, tree, Facts(), decider.sources, variables=variables, read_yaml=decider.read_yaml)
    return [one for one in found.given if not one.base]


def _files(decider: StageDecider, stage: Stage, *, again: bool) -> Collection[tuple[str, str]]:
    """Return the prompt files of a stage in the order of a request: the system prompt, then the prompt."""
    step = stage.step
    if not is_llm(step):
        return ()
    prompt = stage.retry.prompt if again and stage.retry.prompt else step.prompt
    texts = ((path, decider.sources.text(path)[0]) for path in (step.system, prompt) if path)
    return [(path, text) for path, text in texts if text is not None]
