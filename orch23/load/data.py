"""Validate values by a JSON schema."""

from collections.abc import Mapping
from typing import Any, cast

from orch23.load.yaml_text import ParsedText
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Json

_INSIDE = "`$ref` may only point inside the schema itself, as in `#/definitions/name`"
_FLATTER = "write a flatter schema, and no `$ref` that leads back to itself"


def validate_data(
    value: Json, schema_json: Json, file: str, *, parsed: ParsedText | None = None
) -> tuple[Diagnostic, ...]:
    """Return the errors of a value by a JSON schema, with locations if `parsed` is the text that it was read from."""
    from orch23.checks import schema_validator  # noqa: PLC0415 - it imports jsonschema
    from orch23.language.schema_errors import schema_errors_of  # noqa: PLC0415 - as above

    unusable = invalid_schema_errors(schema_json, file)
    if unusable:
        return unusable
    try:
        validator = schema_validator.make_validator(cast("Mapping[str, Any]", schema_json))
        found = schema_errors_of(validator, value, schema_validator.undeclared_keys)
    except RecursionError:
        return _unusable(file, "the schema refers to itself without end, or the data is nested too deeply", _FLATTER)
    except schema_validator.PatternError as error:
        return _unusable(file, f"the pattern {error}", schema_validator.PATTERN_HINT)
    except Exception as error:  # noqa: BLE001 - an author wrote the schema, and the library raises errors of many types
        reason = schema_validator.first_line(str(getattr(error, "message", "") or error))
        return _unusable(file, f"the schema cannot be used: {reason}", _INSIDE)
    places = ((one, None if parsed is None else parsed.location_of(one.path, one.key)) for one in found)
    return tuple(Diagnostic("E860", one.message, place, one.hint, subject=_dotted(one.path)) for one, place in places)


def invalid_schema_errors(schema_json: Json, file: str) -> tuple[Diagnostic, ...]:
    """Return why a value is not a JSON schema of its draft."""
    from orch23.checks.schema_validator import schema_fault  # noqa: PLC0415 - heavy, and hardly ever needed

    if not isinstance(schema_json, Mapping | bool):
        return _unusable(file, "a schema must be a mapping", "write a JSON schema")
    fault = schema_fault(schema_json)
    if fault is None:
        return ()
    message, pointer = fault
    return _unusable(file, message, f"see `{file}#{pointer}`" + f"; {_INSIDE}" * pointer.endswith(("$ref", "Ref")))


def _unusable(file: str, message: str, hint: str) -> tuple[Diagnostic, ...]:
    return (Diagnostic("E861", message, Location(file, 1, 1), hint),)


def _dotted(path: str) -> str | None:
    """Return `tasks[0].id` for `tasks/0/id`."""
    out = ""
    for name in path.split("/") if path else ():
        out += f"[{name}]" if name.isdigit() else f".{name}" if out else name
    return out or None
