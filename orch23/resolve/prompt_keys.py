"""The aspects of a stage's key that follow from its prompt or template."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, digest_bytes, digest_json
from orch23.model.pipeline import Stage
from orch23.resolve.accepted_media import accepting, media_of
from orch23.resolve.prompt_files import prompt_names, render_file, schema_text
from orch23.resolve.prompt_inputs import AuthorTexts, KeyTexts, PromptInput, PromptInputs
from orch23.resolve.slices import YamlReader
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.model.media import MediaKind
    from orch23.steps.llm.spec import LLMStep

_SHOWN_INPUTS = 10


def key_texts(
    stage: Stage,
    given: tuple[PromptInput, ...],
    sources: AuthorTexts,
    variables: Mapping[str, Json],
    read_yaml: YamlReader,
    accepts: "frozenset[MediaKind]" = frozenset(),
) -> KeyTexts:
    """Return the aspects that follow from the prompt or template of a stage. `accepts` is for its first model."""
    step = stage.step
    if not is_llm(step):
        names = prompt_names(stage, given, variables, schema=None)
        text, problems = render_file(getattr(step, step.renders or ""), names, sources)
        rendered = (text or "").encode()
        return KeyTexts({"prompt": digest_bytes(rendered).sha256}, problems, rendered)

    # Without retry feedback: the key is the same at every attempt.
    names = prompt_names(stage, given, variables, schema=schema_text(step, sources))
    with accepting(accepts):
        prompt, problems = render_file(step.prompt, names, sources)
        limits = _context_limits(stage.name, step, given)
    with accepting():
        system, more = render_file(step.system, names, sources)
    broken = [*problems, *more, *limits]
    texts = {"prompt": prompt, "system": system}
    if step.schema is not None:
        texts["schema"], problem = sources.text(step.schema)
        broken += [problem] if problem else []
    aspects: dict[str, Json] = {name: digest_bytes((text or "").encode()).sha256 for name, text in texts.items()}
    if step.answers is not None:
        aspects["answers"] = _scripted_responses(stage, step.answers, sources, read_yaml)
    # With an equal digest and equal other aspects, the prompt is the same. Lost inputs must not make a stage stale: the
    # digest does not need their bytes (ADR 19).
    files = [sources.text(path)[0] if path else None for path in (getattr(step, key) for key in step.author_keys)]
    digest = digest_json([*files, dict(variables), [[one.path, one.slice, one.base] for one in given]])
    return KeyTexts(aspects, tuple(broken), digest=digest)


def shown_text(
    stage: Stage,
    step: "LLMStep",
    given: tuple[PromptInput, ...],
    own: tuple[PromptInput, ...],
    sources: AuthorTexts,
    variables: Mapping[str, Json],
    accepts: "frozenset[MediaKind]",
) -> str:
    """Return the text that the first request of a stage shows to its model; `own` is the stage's last result."""
    names = prompt_names(stage, given, variables, schema=None) | {"own": PromptInputs(own) if own else None}
    with accepting(accepts):
        prompt, _ = render_file(step.prompt, names, sources)
    with accepting():
        system, _ = render_file(step.system, names, sources)
    return "\n".join(filter(None, (prompt, system)))


def shows(prompt: str, text: str) -> bool:
    """Return whether a prompt has each line of a text, also indented or as JSON."""
    lines = map(str.strip, text.splitlines())
    return all(line in prompt or json.dumps(line, ensure_ascii=False)[1:-1] in prompt for line in lines)


def _context_limits(stage: str, step: "LLMStep", given: tuple[PromptInput, ...]) -> list[Diagnostic]:
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
