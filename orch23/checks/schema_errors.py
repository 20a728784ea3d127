"""Describe each error of a JSON schema validator: a JSON pointer and one sentence."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from orch23.model.diagnostic import Diagnostic, did_you_mean
from orch23.model.digest import Json
from orch23.model.text import join_first, json_pointer

if TYPE_CHECKING:
    from jsonschema import Draft7Validator
    from jsonschema.exceptions import ValidationError


_MAX_SHOWN = 80
_MAX_NAMED = 5
_TYPES = {"object": "an object", "array": "a list", "string": "text", "integer": "an integer", "null": "null"}

# A value of a JSON document can have any type, so a narrower type would be wrong.
_Value: TypeAlias = Any


def schema_errors(
    schema: "Draft7Validator | Mapping[str, Json]", value: Json, path: str, hint: str
) -> Iterator[Diagnostic]:
    """Yield E314 for each violation of a schema, sorted by place. `path` is the file of the value."""
    for pointer, message in schema_violations(schema, value):
        yield Diagnostic("E314", message, hint=hint, subject=f"{path}#{json_pointer(pointer)}")


def schema_violations(
    schema: "Draft7Validator | Mapping[str, Json]", value: Json
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield path (keys and indexes) and message of each violation of a schema (a mapping: of draft 7), sorted."""
    from jsonschema import Draft7Validator  # noqa: PLC0415 - 80 ms, and only a stage with such a check needs it

    validator = Draft7Validator(schema) if isinstance(schema, Mapping) else schema
    found = validator.iter_errors(value)
    for error in sorted(found, key=lambda one: ([*map(str, one.absolute_path)], str(one.validator))):
        yield from ((tuple(error.absolute_path), message) for message in _messages(error))


def _messages(error: "ValidationError") -> Iterator[str]:
    keyword, wanted, value = str(error.validator), error.validator_value, error.instance
    match keyword:
        case "required":
            # jsonschema reports each missing key by itself; only its message says which key it is.
            keys: _Value = wanted
            yield from (f"lacks the key `{key}`" for key in keys if error.message.startswith(f"{key!r} "))
        case "additionalProperties":
            yield _unknown_keys(error)
        case "anyOf" | "oneOf":
            yield _nearest_branch(error)
        case "None":
            yield "is not allowed here"
        case _:
            describe = _SENTENCES.get(keyword)
            sentence = describe(wanted, value) if describe else f"breaks the rule `{keyword}` of the schema"
            of_key = list(error.absolute_schema_path)[-2:-1] == ["propertyNames"]
            yield f"has a key that {sentence}" if of_key else sentence


_SENTENCES: Mapping[str, Callable[[_Value, _Value], str]] = {
    "type": lambda wanted, value: f"is {_kind(value)}, not {_kinds(wanted)}",
    "enum": lambda wanted, value: f"is {_show(value)}, which is not one of {_list(wanted)}{_guess(value, wanted)}",
    "const": lambda wanted, value: f"is {_show(value)}, not {_show(wanted)}",
    "pattern": lambda wanted, value: f"is {_show(value)}, which does not match the pattern `{wanted}`",
    "minLength": lambda wanted, value: f"has {len(value)} characters, fewer than {wanted}",
    "maxLength": lambda wanted, value: f"has {len(value)} characters, more than {wanted}",
    "minItems": lambda wanted, value: f"has {len(value)} items, fewer than {wanted}",
    "maxItems": lambda wanted, value: f"has {len(value)} items, more than {wanted}",
    "minProperties": lambda wanted, value: f"has {len(value)} keys, fewer than {wanted}",
    "maxProperties": lambda wanted, value: f"has {len(value)} keys, more than {wanted}",
    "minimum": lambda wanted, value: f"is {_show(value)}, less than {wanted}",
    "maximum": lambda wanted, value: f"is {_show(value)}, more than {wanted}",
    "exclusiveMinimum": lambda wanted, value: f"is {_show(value)}, not more than {wanted}",
    "exclusiveMaximum": lambda wanted, value: f"is {_show(value)}, not less than {wanted}",
    "multipleOf": lambda wanted, value: f"is {_show(value)}, not a multiple of {wanted}",
    "uniqueItems": lambda _wanted, _value: "contains the same item twice",
    "contains": lambda _wanted, _value: "contains no item that matches `contains` of the schema",
    "not": lambda _wanted, value: f"is {_show(value)}, which the schema excludes",
    "unevaluatedProperties": lambda _wanted, _value: "has keys that the schema does not allow",
    "unevaluatedItems": lambda _wanted, _value: "has items that the schema does not allow",
    "items": lambda _wanted, _value: "has more items than the schema allows",
    "dependentRequired": lambda _wanted, _value: "has a key that requires another key",
    "additionalItems": lambda _wanted, _value: "has more items than the schema allows",
    "dependencies": lambda _wanted, _value: "has a key that requires another key",
}


def _unknown_keys(error: "ValidationError") -> str:
    from orch23.checks.schema_validator import undeclared_keys  # noqa: PLC0415 - the validator has loaded it

    schema: _Value = error.schema
    instance: _Value = error.instance
    extra = undeclared_keys(instance, schema)
    named = join_first([f"`{key}`" for key in extra], _MAX_NAMED)
    return f"has unknown keys: {named}{_guess(extra[0], schema.get('properties', {}))}"


def _nearest_branch(error: "ValidationError") -> str:
    """Return why no branch of `anyOf` or `oneOf` matches, by the errors of the branch that matches most."""
    branches = error.context or []
    if not branches:
        return "matches more than one of the forms of `oneOf`"
    # The branch whose first error is deepest matched the most; a wrong type at its root matched nothing.
    nearest = max(branches, key=lambda branch: (len(branch.absolute_path), branch.validator != "type"))
    pointer = json_pointer(nearest.absolute_path) or "/"
    return f"matches none of the allowed forms; nearest: `{pointer}` {next(_messages(nearest))}"


def _kinds(wanted: _Value) -> str:
    names = [wanted] if isinstance(wanted, str) else wanted
    return " or ".join(_TYPES.get(name, f"a {name}") for name in names)


def _kind(value: _Value) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return f"the number {_show(value)}"
        case str():
            return f"the text {_show(value)}"
        case Mapping():
            return "an object"
        case _:
            return "a list"


def _guess(value: _Value, known: _Value) -> str:
    hint = did_you_mean(value, (word for word in known if isinstance(word, str))) if isinstance(value, str) else None
    return f" ({hint})" if hint else ""


def _list(values: _Value) -> str:
    return ", ".join(_show(value) for value in values)


def _show(value: _Value) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
