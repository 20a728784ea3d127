"""Read scripted responses and JSON schemas of a project; check inputs against their schemas."""

import contextlib
from collections.abc import Mapping

from msgspec import Struct

from orch23.load.data import invalid_schema_errors, validate_data
from orch23.load.yaml_text import ParsedText, parse_yaml
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Json
from orch23.model.errors import InvalidInputError
from orch23.model.parsing import StrictJsonError, parse_json, to_struct
from orch23.model.pipeline import PathInput, Pipeline, Stage
from orch23.providers.adapter import ScriptedCase, ScriptedResponses
from orch23.providers.codes import NO_SCRIPTED_RESPONSE
from orch23.resolve.prompts import AuthorTexts
from orch23.store.workspace import Workspace


class _Case(Struct, frozen=True, forbid_unknown_fields=True):
    answers: tuple[str, ...]
    when: str = ""


def read_scripted_responses(sources: AuthorTexts, path: str) -> ScriptedResponses:
    """Return the scripted answers of a YAML file: stage or `stage@item` -> a list of texts, or of cases.

    Raises:
        InvalidInputError: the file is missing or is not of that form.

    """
    text, problem = sources.text(path)
    if text is None:
        raise InvalidInputError(*((problem,) if problem else ()))
    parsed = parse_yaml(text, path)
    value = parsed.tree
    if parsed.diagnostics:
        raise InvalidInputError(*parsed.diagnostics)
    answers = {name: _cases(one) for name, one in value.items()} if isinstance(value, Mapping) else {}
    found = {name: cases for name, cases in answers.items() if cases is not None}
    if not isinstance(value, Mapping) or len(found) < len(answers):
        wrong = ", ".join(f"`{name}`" for name in answers if name not in found)
        hint = "write stage names, each with a list of answers (text), or of cases `{when: TEXT, answers: [...]}`"
        message = f"`{path}` is no mapping of stages to lists of answers{f': {wrong}' if wrong else ''}"
        first = next((name for name in answers if name not in found), None)
        place = parsed.location_of("", first) or Location(path, 1, 1)
        raise InvalidInputError(Diagnostic(NO_SCRIPTED_RESPONSE, message, place, hint))
    return found


def validate_by_schema(
    sources: AuthorTexts, path: str, value: Json, *, parsed: ParsedText | None = None
) -> tuple[Diagnostic, ...]:
    """Return what is wrong with a value by the schema file at a path; with its place, if it was read from a file."""
    text, problem = sources.text(path)
    if text is None:
        return (problem,) if problem else ()
    try:
        return validate_data(value, parse_json(text), path, parsed=parsed)
    except StrictJsonError as error:
        return (_no_json(path, error),)


def check_schema_file(sources: AuthorTexts, path: str | None) -> tuple[Diagnostic, ...]:
    """Return what makes a schema of the author's unusable, before anybody is asked for what is held to it."""
    text = sources.text(path)[0] if path is not None else None
    if path is None or text is None:
        return ()
    try:
        return invalid_schema_errors(parse_json(text), path)
    except StrictJsonError as error:
        return (_no_json(path, error),)


def _no_json(path: str, error: StrictJsonError) -> Diagnostic:
    message = f"`{path}` is not valid JSON: {error.message}"
    return Diagnostic("E831", message, Location(path, error.line, error.column), "mend the schema")


def check_input_schemas(pipeline: Pipeline, workspace: Workspace, sources: AuthorTexts) -> None:
    """Hold the inputs that name a schema to it, before anything runs.

    Raises:
        InvalidInputError: with all that is wrong.

    """
    problems: list[Diagnostic] = []
    for stage in pipeline.stages:
        for one in stage.inputs if isinstance(stage, Stage) else ():
            if not isinstance(one, PathInput) or one.schema is None:
                continue
            data = workspace.read(one.path)
            if data is None:
                continue
            parsed = parse_yaml(data.decode("utf-8", "replace"), one.path)
            problems += parsed.diagnostics or validate_by_schema(sources, one.schema, parsed.tree, parsed=parsed)
    if problems:
        raise InvalidInputError(*problems)


def _cases(value: Json) -> tuple[ScriptedCase, ...] | None:
    """Return the cases of one stage; None where it is neither a list of texts nor one of cases."""
    with contextlib.suppress(ValueError):
        return (ScriptedCase(to_struct(value, tuple[str, ...])),)
    with contextlib.suppress(ValueError):
        return tuple(ScriptedCase(one.answers, one.when) for one in to_struct(value, tuple[_Case, ...]))
    return None
