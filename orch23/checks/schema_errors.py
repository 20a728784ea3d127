"""Describe each error of a draft-07 validator: a JSON pointer and one sentence."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from orch23.model.diagnostic import nearest_names
from orch23.model.text import json_pointer

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError


_MAX_SHOWN = 80
_MAX_NAMED = 5
_TYPES = {"object": "an object", "array": "a list", "string": "text", "integer": "an integer", "null": "null"}

# jsonschema's values are whatever a JSON document holds; nothing narrower is true of them.
_Value: TypeAlias = Any


def describe_violation(error: "ValidationError") -> Iterator[tuple[str, str]]:
    """Give the pointer and the message of each thing that one violation says."""
    at = json_pointer(error.absolute_path)
    keyword, wanted, value = str(error.validator), error.validator_value, error.instance
    match keyword:
        case "required":
            yield from ((at, f"lacks the key `{key}`") for key in _missing(error))
        case "additionalProperties":
            yield at, _unwelcome(error)
        case "anyOf" | "oneOf":
            yield at, _none_of(error)
        case "None":
            yield at, "is not allowed here"
        case _:
            say = _SENTENCES.get(keyword)
            sentence = say(wanted, value) if say else f"breaks the rule `{keyword}` of the schema"
            yield at, f"has a key that {sentence}" if _is_of_a_key(error) else sentence


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
    "multipleOf": lambda wanted, value: f"is {_show(value)}, no multiple of {wanted}",
    "uniqueItems": lambda _wanted, _value: "holds the same item twice",
    "contains": lambda _wanted, _value: "holds no item of the kind that the schema asks for",
    "not": lambda _wanted, value: f"is {_show(value)}, which the schema excludes",
    "additionalItems": lambda _wanted, _value: "has more items than the schema knows",
    "dependencies": lambda _wanted, _value: "has a key without another that must come with it",
}


def _missing(error: "ValidationError") -> tuple[str, ...]:
    """Return the one key that this violation is about: jsonschema reports each missing key by itself."""
    required: _Value = error.validator_value
    return tuple(key for key in required if error.message.startswith(f"{key!r} "))


def _is_of_a_key(error: "ValidationError") -> bool:
    """Say whether the violation is one of an object's key, not of a value: it came out of `propertyNames`."""
    path = list(error.absolute_schema_path)
    return len(path) > 1 and path[-2] == "propertyNames"


def _unwelcome(error: "ValidationError") -> str:
    """Name the keys that an object may not have."""
    from orch23.checks.schema_validator import undeclared_keys  # noqa: PLC0415 - what found the error has loaded it

    schema: _Value = error.schema
    instance: _Value = error.instance
    known = sorted(schema.get("properties", {}))
    extra = undeclared_keys(instance, schema)
    named = ", ".join(f"`{key}`" for key in extra[:_MAX_NAMED])
    more = f" and {len(extra) - _MAX_NAMED} more" if len(extra) > _MAX_NAMED else ""
    return f"has keys that the schema does not know: {named}{more}{_guess(extra[0], known)}"


def _none_of(error: "ValidationError") -> str:
    """Say why no branch of a choice holds, in the words of the branch that came nearest."""
    branches = error.context or []
    if not branches:
        return "fits more than one of the forms that exclude each other"
    nearest = max(branches, key=lambda branch: (len(branch.absolute_path), branch.validator != "type"))
    pointer, message = next(describe_violation(nearest))
    return f"fits none of the forms that the schema allows; nearest: `{pointer or '/'}` {message}"


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
    words = [word for word in known if isinstance(word, str)]
    near = nearest_names(value, words) if isinstance(value, str) else []
    return f" (did you mean `{near[0]}`?)" if near else ""


def _list(values: _Value) -> str:
    return ", ".join(_show(value) for value in values)


def _show(value: _Value) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
