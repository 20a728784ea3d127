"""The check `json_schema`: JSON outputs must be valid by a JSON schema."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from orch23.checks.check import (
    Check,
    CheckInput,
    exclusion,
    parse_json_output,
    text_items,
    unknown_options,
    wrong_option,
)
from orch23.checks.schema_errors import schema_errors
from orch23.model.diagnostic import Diagnostic, quoted_names
from orch23.model.digest import Json
from orch23.model.fields import normalize_path
from orch23.model.paths import match_any

if TYPE_CHECKING:
    from orch23.checks.schema_validator import SchemaValidator

_NAME = "json_schema"
_SUBJECT = f"check `{_NAME}`"
_OPTIONS = {
    "schema": "Path of a JSON schema (required), of draft 7 unless its `$schema` names another one. "
    "Declare the file in `inputs` or `verify.inputs`.",
    "files": "Pattern, or list of patterns, of the outputs to check. Default: `**/*.json`.",
}
_DEFAULT_FILES = ("**/*.json",)


def _run(given: CheckInput) -> tuple[Diagnostic, ...]:
    found = list(unknown_options(_NAME, given.options, tuple(_OPTIONS)))
    files = _files(given.options)
    if isinstance(files, Diagnostic):
        return (*found, files)
    validator = _validator(given)
    if isinstance(validator, Diagnostic):
        return (*found, validator)
    paths = sorted(path for path in given.outputs if match_any(files, path))
    if not paths:
        hint = "correct `files`, or add the output"
        found.append(Diagnostic("E310", f"no output matches {quoted_names(files)}", hint=hint, subject=_SUBJECT))
    return (*found, *(error for path in paths for error in _judge(path, given.outputs[path], validator)))


# Revision 2: patterns are searched for by RE2, whose classes are ASCII as in ECMA 262 (ADR 33).
JSON_SCHEMA = Check(
    _NAME,
    2,
    _run,
    is_portable=True,
    summary="Each JSON output is valid by a JSON schema.",
    codes=("E316",),
    options=_OPTIONS,
    example="""- check: json_schema
  with: {schema: specs/plan.schema.json, files: [build/*.json]}
""",
)


def _files(options: Mapping[str, Json]) -> tuple[str, ...] | Diagnostic:
    files = options.get("files", _DEFAULT_FILES)
    listed = text_items((files,) if isinstance(files, str) else files)
    if not listed:
        return wrong_option(_NAME, "files", "is not a pattern or a list of patterns", "write `files: [build/*.json]`")
    return exclusion(_NAME, "files", listed) or listed


def _validator(given: CheckInput) -> "SchemaValidator | Diagnostic":
    path = given.options.get("schema")
    if not isinstance(path, str):
        what = "is missing" if path is None else "is not a path"
        return wrong_option(_NAME, "schema", what, "write `with: {schema: specs/schemas/plan.json}`")
    if (path := normalize_path(path)) not in given.inputs:
        return _unusable(path, "is not a declared input", "list it under the stage's `inputs` or under `verify.inputs`")
    schema = parse_json_output(path, given.inputs[path], "E316")
    if isinstance(schema, Diagnostic):
        return replace(schema, message=f"schema {schema.message}")
    if not isinstance(schema, (Mapping, bool)):
        return _unusable(path, "is not a schema", "write an object, true or false")
    from orch23.checks.schema_validator import make_validator, schema_fault  # noqa: PLC0415 - it imports jsonschema

    fault = schema_fault(schema)
    if fault is not None:
        return _unusable(f"{path}#{fault[1]}", f"cannot be used: {fault[0]}", "correct the schema")
    return make_validator(schema)


def _judge(path: str, data: bytes, validator: "SchemaValidator") -> Iterator[Diagnostic]:
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - the validator has imported it

    from orch23.checks.schema_validator import PATTERN_HINT, PatternError  # noqa: PLC0415 - as above

    value = parse_json_output(path, data, "E313")
    if isinstance(value, Diagnostic):
        yield value
        return
    title = str(validator.schema.get("title", "")) if isinstance(validator.schema, Mapping) else ""
    try:
        yield from schema_errors(validator, value, path, f"see the schema `{title}`" if title else "see the schema")
    except Unresolvable as error:
        yield _unusable(_SUBJECT, f"refers to `{error.ref}`, which is not in it", "keep references within the schema")
    except PatternError as error:
        yield _unusable(_SUBJECT, f"has the pattern {error}", PATTERN_HINT)
    except RecursionError:
        yield _unusable(_SUBJECT, "refers to itself without end", "let each reference go one level down")


def _unusable(subject: str, why: str, hint: str) -> Diagnostic:
    return Diagnostic("E316", f"schema {why}", hint=hint, subject=subject)
