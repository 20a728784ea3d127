"""Render the files of a prompt: for the aspects of a key, and as they are sent."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, digest_bytes, digest_json
from orch23.model.media import accepting, media_of
from orch23.model.parsing import YamlReader
from orch23.model.pipeline import Stage
from orch23.model.record import KeyTexts
from orch23.model.text import join_first
from orch23.resolve.prompt_inputs import AuthorTexts, PromptInput, PromptInputs
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.model.media import MediaKind
    from orch23.resolve.templates import RenderedPrompt
    from orch23.steps.llm.spec import LLMStep


Rendered = TypeVar("Rendered")

PROMPT_NAMES = ("vars", "item", "inputs", "own", "previous", "brief", "attempt", "schema")
"""The names that `prompt_names` returns."""
_SHOWN_INPUTS = 10


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


def render_file(
    path: str | None, names: Mapping[str, object], sources: AuthorTexts
) -> tuple[str | None, tuple[Diagnostic, ...]]:
    """Return the rendered text of a file, or None and its errors; an empty text without a file."""
    if path is None:
        return "", ()
    from orch23.resolve.templates import render_text  # noqa: PLC0415 - it loads jinja2

    return _rendered(render_text, path, names, sources)


def render_sent(
    path: str | None, names: Mapping[str, object], sources: AuthorTexts
) -> tuple["RenderedPrompt | None", tuple[Diagnostic, ...]]:
    """Return a file as it is rendered for a request, or None and its errors; an empty text without a file."""
    from orch23.resolve.templates import RenderedPrompt, render_prompt  # noqa: PLC0415 - as above

    if path is None:
        return RenderedPrompt("", has_blocks=False), ()
    return _rendered(render_prompt, path, names, sources)


def _rendered(
    render: Callable[[str, Mapping[str, object], str], Rendered],
    path: str,
    names: Mapping[str, object],
    sources: AuthorTexts,
) -> tuple[Rendered | None, tuple[Diagnostic, ...]]:
    from orch23.resolve.templates import TemplateFileError  # noqa: PLC0415 - as above

    text, problem = sources.text(path)
    if text is None:
        return None, (problem,) if problem else ()
    try:
        return render(text, names, path), ()
    except TemplateFileError as error:
        from orch23.resolve.template_errors import template_error  # noqa: PLC0415 - only for errors

        return None, (template_error(error, path, text),)


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
    sizes = sorted(((_size_bytes(one), one.place) for one in given), key=lambda pair: (-pair[0], pair[1]))
    size = sum(size for size, _ in sizes)
    counted = join_first([f"{name} ({size:,})" for size, name in sizes], _SHOWN_INPUTS)
    problems = []
    if len(given) > step.max_files:
        text = f"{len(given)} inputs are given to the model, the limit is {step.max_files}: {counted}"
        hint = "narrow the inputs, let the model find the files (`explore`), or raise llm.context.max_files"
        problems.append(Diagnostic("E834", text, hint=hint, subject=stage))
    if size > step.max_bytes:
        text = f"{size:,} bytes of inputs are given to the model, the limit is {step.max_bytes:,}: {counted}"
        hint = f"{_smaller(max(given, key=_size_bytes).path, step.returns)}, or raise llm.context.max_bytes"
        problems.append(Diagnostic("E834", text, hint=hint, subject=stage))
    return problems


def _smaller(path: str, returns: str) -> str:
    """Return the ways to show less of the largest file of a prompt."""
    part = {"py": "def NAME", "md": "Heading", "json": "/pointer", "yaml": "/pointer"}.get(path.rpartition(".")[2])
    parts = " or ".join(f"`{path}#{one}`" for one in filter(None, (part, "L10-40")))
    edited = "" if returns == "edits" else ", with `returns: edits` if it changes the file"
    return f"give a part, such as {parts}{edited}, or let the model find the parts (`explore`)"


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
