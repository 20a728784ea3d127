"""Read scripted responses and JSON schemas of a project; check inputs against their schemas."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Json
from orch23.model.errors import InvalidInputError
from orch23.model.parsing import StrictJsonError, parse_json, to_struct
from orch23.model.pipeline import PathInput, Pipeline, Stage
from orch23.store.workspace import Workspace

if TYPE_CHECKING:
    from orch23.load.yaml_text import ParsedText
    from orch23.providers.adapter import ScriptedCase, ScriptedResponses
    from orch23.resolve.prompt_inputs import AuthorTexts


def read_scripted_responses(sources: "AuthorTexts", path: str) -> "ScriptedResponses":
    """Return the scripted responses of a YAML file: stage or `stage@item` -> a list of texts, or of cases.

    Raises:
        InvalidInputError: the file is missing or has another form.
    """
    text, problem = sources.text(path)
    if text is None:
        raise InvalidInputError(*((problem,) if problem else ()))
    from orch23.load.yaml_text import parse_yaml  # noqa: PLC0415 - a build with a stored plan does not need it

    parsed = parse_yaml(text, path)
    if parsed.diagnostics:
        raise InvalidInputError(*parsed.diagnostics)
    if not isinstance(parsed.tree, Mapping):
        raise InvalidInputError(_wrong_form(parsed, path, []))
    found = {name: cases for name, value in parsed.tree.items() if (cases := _cases(value)) is not None}
    if len(found) < len(parsed.tree):
        raise InvalidInputError(_wrong_form(parsed, path, [name for name in parsed.tree if name not in found]))
    return found


def _wrong_form(parsed: "ParsedText", path: str, names: Sequence[str]) -> Diagnostic:
    wrong = f"; wrong: {', '.join(f'`{name}`' for name in names)}" if names else ""
    hint = (
        "write stage names, each with a list of responses (text), or of cases "
        "`{when: TEXT, requests: [DIGEST], answers: [...]}`"
    )
    location = parsed.location_of("", names[0] if names else None) or Location(path, 1, 1)
    message = f"`{path}` must map stage names to lists of responses{wrong}"
    return Diagnostic("E404", message, location, hint)


def validate_by_schema(
    sources: "AuthorTexts", path: str, value: Json, *, parsed: "ParsedText | None" = None
) -> tuple[Diagnostic, ...]:
    """Return the errors of a value by the JSON schema at `path`; with their places, if `parsed` is its source."""
    text, problem = sources.text(path)
    if text is None:
        return (problem,) if problem else ()
    from orch23.load.data import validate_data  # noqa: PLC0415 - few stages have a schema

    return _with_schema(path, text, lambda schema: validate_data(value, schema, path, parsed=parsed))


def check_schema_file(sources: "AuthorTexts", path: str | None) -> tuple[Diagnostic, ...]:
    """Return the errors of a JSON schema itself: before a model is paid for a response that it cannot validate."""
    text = sources.text(path)[0] if path is not None else None
    if path is None or text is None:
        return ()
    from orch23.load.data import invalid_schema_errors  # noqa: PLC0415 - as above

    return _with_schema(path, text, lambda schema: invalid_schema_errors(schema, path))


def _with_schema(path: str, text: str, check: Callable[[Json], tuple[Diagnostic, ...]]) -> tuple[Diagnostic, ...]:
    try:
        return check(parse_json(text))
    except StrictJsonError as error:
        message = f"`{path}` is not valid JSON: {error.message}"
        return (Diagnostic("E831", message, Location(path, error.line, error.column), "fix the schema"),)


def check_input_schemas(pipeline: Pipeline, workspace: Workspace, sources: "AuthorTexts") -> None:
    """Validate the inputs that name a schema, before anything runs.

    Raises:
        InvalidInputError: with all errors.
    """
    problems: list[Diagnostic] = []
    inputs = (one for stage in pipeline.stages if isinstance(stage, Stage) for one in stage.inputs)
    for one in inputs:
        if not isinstance(one, PathInput) or one.schema is None:
            continue
        # A missing file may still be made by a stage; otherwise the plan reports it.
        if (data := workspace.read(one.path)) is not None:
            from orch23.load.yaml_text import parse_yaml  # noqa: PLC0415 - as above

            parsed = parse_yaml(data.decode("utf-8", "replace"), one.path)
            problems += parsed.diagnostics or validate_by_schema(sources, one.schema, parsed.tree, parsed=parsed)
    if problems:
        raise InvalidInputError(*problems)


def _cases(value: Json) -> "tuple[ScriptedCase, ...] | None":
    """Return the cases of one stage; None if `value` is neither a list of texts nor of cases."""
    from orch23.providers.adapter import ScriptedCase  # noqa: PLC0415 - few stages have such responses

    with contextlib.suppress(ValueError):
        return (ScriptedCase(to_struct(value, tuple[str, ...])),)
    with contextlib.suppress(ValueError):
        return to_struct(value, tuple[ScriptedCase, ...])
    return None
