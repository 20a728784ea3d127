"""The check `json_schema`: JSON outputs must be valid by a draft-07 schema."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from orch23.checks.check import Check, CheckInput, Codes, exclusion, unknown_options, wrong_option
from orch23.checks.schema_errors import describe_violation
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Json
from orch23.model.parsing import StrictJsonError, parse_json
from orch23.model.paths import match_any
from orch23.model.text import json_pointer

CODES: Codes = {
    "E316": (
        "a schema cannot be used",
        "The file that the option `schema` names is no declared input, is no strict JSON, is no valid draft-07 "
        "schema, or refers to a schema outside itself, which is never fetched. List it under the stage's "
        "`inputs` or under `verify.inputs`, and keep its references within the file.",
    ),
}
"""The codes of this check alone."""


if TYPE_CHECKING:
    from jsonschema import Draft7Validator

_NAME = "json_schema"
_SUBJECT = f"check `{_NAME}`"
_OPTIONS = ("schema", "files")
_DEFAULT_FILES = ("**/*.json",)


def _run(given: CheckInput) -> tuple[Diagnostic, ...]:
    """Judge every output that `files` means, by default every `.json` file."""
    found = list(unknown_options(_NAME, given.options, _OPTIONS))
    files = _files(given.options)
    if isinstance(files, Diagnostic):
        return (*found, files)
    validator = _validator(given)
    if isinstance(validator, Diagnostic):
        return (*found, validator)
    paths = sorted(path for path in given.outputs if match_any(files, path))
    if not paths:
        meant = ", ".join(f"`{pattern}`" for pattern in files)
        hint = "correct `files`, or add the output"
        found.append(Diagnostic(code="E310", message=f"no output is meant by {meant}", hint=hint, subject=_SUBJECT))
    for path in paths:
        found.extend(_judge(path, given.outputs[path], validator))
    return tuple(found)


JSON_SCHEMA = Check(_NAME, 2, _run)


def _files(options: Mapping[str, Json]) -> tuple[str, ...] | Diagnostic:
    """Read `files`, a pattern or a list of them."""
    files = options.get("files", _DEFAULT_FILES)
    listed = (files,) if isinstance(files, str) else files
    if isinstance(listed, Sequence) and listed and all(isinstance(pattern, str) for pattern in listed):
        if excluding := exclusion(_NAME, "files", listed):
            return excluding
        return tuple(str(pattern) for pattern in listed)
    return wrong_option(_NAME, "files", "is not a pattern or a list of patterns", "write `files: [build/*.json]`")


def _validator(given: CheckInput) -> "Draft7Validator | Diagnostic":
    """Make the validator of the schema that the options name, or say why there is none."""
    path = given.options.get("schema")
    if not isinstance(path, str):
        what = "is missing" if path is None else "is not a path"
        return wrong_option(_NAME, "schema", what, "write `with: {schema: specs/schemas/plan.json}`")
    if path not in given.inputs:
        return _unusable(path, "is no declared input", "list it under the stage's `inputs` or under `verify.inputs`")
    schema = _parse(path, given.inputs[path])
    if isinstance(schema, Diagnostic):
        return _unusable(path, f"is no strict JSON: {schema.message}", "write it as plain JSON", schema.location)
    if not isinstance(schema, (Mapping, bool)):
        return _unusable(path, "is not a schema", "a schema is an object, or true, or false")
    from orch23.checks.schema_validator import make_validator, schema_fault  # noqa: PLC0415 - heavy, and hardly ever needed

    fault = schema_fault(schema)
    if fault is not None:
        return _unusable(f"{path}#{fault[1]}", f"cannot be used: {fault[0]}", "see the keywords of draft-07")
    return make_validator(schema)


def _judge(path: str, data: bytes, validator: "Draft7Validator") -> Iterator[Diagnostic]:
    """Give everything that is wrong with one file."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - heavy, and hardly ever needed

    from orch23.checks.schema_validator import PATTERN_HINT, PatternError  # noqa: PLC0415 - as below

    value = _parse(path, data)
    if isinstance(value, Diagnostic):
        yield value
        return
    schema = str(validator.schema.get("title", "")) if isinstance(validator.schema, Mapping) else ""
    try:
        for error in sorted(
            validator.iter_errors(value), key=lambda error: (json_pointer(error.absolute_path), str(error.validator))
        ):
            for pointer, message in describe_violation(error):
                yield Diagnostic(
                    code="E314",
                    message=message,
                    hint=f"see the schema `{schema}`" if schema else "see the schema",
                    subject=f"{path}#{pointer}",
                )
    except Unresolvable as error:
        yield _unusable(_SUBJECT, f"refers to `{error.ref}`, which is not in it", "keep references within the schema")
    except PatternError as error:
        yield _unusable(_SUBJECT, f"has the pattern {error}", PATTERN_HINT)
    except RecursionError:
        yield _unusable(_SUBJECT, "refers to itself without end", "let each reference go one level down")


def _parse(path: str, data: bytes) -> "Json | Diagnostic":
    """Read strict JSON, or say where it is none."""
    hint = "write one JSON document and nothing else"
    try:
        return parse_json(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        before = data[: error.start]
        place = Location(path, before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        return Diagnostic(code="E313", message="is not UTF-8", location=place, hint=hint, subject=path)
    except StrictJsonError as error:
        place = Location(path, error.line, error.column)
        return Diagnostic(code="E313", message=error.message, location=place, hint=hint, subject=path)


def _unusable(what: str, why: str, hint: str, location: Location | None = None) -> Diagnostic:
    return Diagnostic(code="E316", message=f"schema {why}", location=location, hint=hint, subject=what)
