"""Render the files of a prompt: for a key, and as they are sent."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.pipeline import Stage
from orch23.resolve.prompt_inputs import AuthorTexts, PromptInput, PromptInputs

if TYPE_CHECKING:
    from orch23.resolve.templates import RenderedPrompt, TemplateFileError
    from orch23.steps.llm.spec import LLMStep


PROMPT_NAMES = ("vars", "item", "inputs", "own", "previous", "brief", "attempt", "schema")
"""The names that `prompt_names` returns."""


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
    text, problem = sources.text(path)
    if text is None:
        return None, (problem,) if problem else ()
    from orch23.resolve.templates import TemplateFileError, render_text  # noqa: PLC0415 - it loads jinja2

    try:
        return render_text(text, names, path), ()
    except TemplateFileError as error:
        return None, (_template_error(error, path, text),)


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
        return None, (_template_error(error, path, text),)


def _template_error(error: "TemplateFileError", path: str, text: str) -> Diagnostic:
    from orch23.resolve.template_errors import template_error  # noqa: PLC0415 - only for errors

    return template_error(error, path, text)
