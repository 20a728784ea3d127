"""Describe what breaks a JSON schema: each broken rule once, at the right node.

This module imports jsonschema, so it is imported only where something is wrong.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from jsonschema import Draft7Validator, ValidationError
from jsonschema.validators import extend
from msgspec import Struct
from msgspec.structs import replace

from orch23.language.unknown_keys import hint_of_place, hint_of_secret, meant_keys
from orch23.model.diagnostic import nearest_names, question, quoted_names
from orch23.model.digest import Json
from orch23.model.fields import BOOLEANS, QUOTED, describe_value
from orch23.text.secret_patterns import is_secret_key

_KINDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
    "null": "null",
}
# jsonschema's ValidationError. In its stubs every field may be unset, which is not so in errors of a validator.
_Error: TypeAlias = Any
_BOUNDS = {
    "minimum": "is {value}; the minimum is {limit}",
    "maximum": "is {value}; the maximum is {limit}",
    "exclusiveMinimum": "is {value}; it must be more than {limit}",
    "exclusiveMaximum": "is {value}; it must be less than {limit}",
    "multipleOf": "is {value}, which is not a multiple of {limit}",
    "uniqueItems": "holds the same item twice",
    "contains": "lacks an item that the schema requires",
    "dependencies": "has a key that requires another key",
    "dependentRequired": "has a key that requires another key",
    "items": "has more items than the schema allows",
    "unevaluatedItems": "has items that the schema does not allow",
    "unevaluatedProperties": "has keys that the schema does not allow",
}
# Code, message, hint, and what to write in place of the value or key, or an empty text; then `otherwise` and `others`.
_Words: TypeAlias = tuple[Any, ...]
# A hint, and what to write.
_Way: TypeAlias = tuple[str | None, str]

_NUMBERS = {"once": 1, "one": 1, "twice": 2, "two": 2, "thrice": 3, "three": 3, "four": 4, "five": 5}
_NUMBER = re.compile(r"(?i)([0-9]{1,3}|[a-z]+)(?: (?:times|attempts|retries|x))?")
# A text that needs no quotes; YAML reads `true`, `null` and `3` as other values.
_PLAIN = re.compile(r"(?!(?:true|false|null)$|-?[0-9])[\w./+-][\w./@+*?-]*(?:#[\w./-]+)?")
_LIKE_A_PATH = re.compile(r"[./*]")
# Keys whose lists have words that are not paths.
_OF_WORDS = frozenset({"needs", "pools", "args"})

# Durations as people write them: `5 minutes`, `5min`.
_DURATION = re.compile(r"([0-9]{1,9})\s*(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)", re.IGNORECASE)
# What people write around amounts: `1h 30m`, `$2`, `2 USD`.
_SIGNS = re.compile(r"\s|\$|€|usd", re.IGNORECASE)

# Characters. A shorter text is a part of many words.
_SHORTEST_PART = 4
_UNITS = {"Length": "characters", "Items": "items", "Properties": "keys"}


class SchemaError(Struct, frozen=True):
    """A broken rule: the path of the node, the key in it that is wrong or missing (if any), code, message and hint.

    `write` is what to write in place of the key, or else of the node; empty if that is not known. `others` are further
    readings, also of the key with its value; `otherwise` is the hint if `write` turns out wrong.
    """

    path: str
    key: str | None
    code: str
    message: str
    hint: str | None = None
    write: str = ""
    otherwise: str | None = None
    others: tuple[str, ...] = ()


ExtraKeys: TypeAlias = Callable[[Mapping[str, Json], Mapping[str, Any]], Sequence[str]]
"""Returns the keys of a value that a schema does not declare."""


def _const(_validator: object, rule: Json, value: Json, _schema: object) -> Iterator[_Error]:
    if value != rule or type(value) is not type(rule):
        yield ValidationError(f"{rule!r} was expected")


# jsonschema accepts `1.0` as an integer, msgspec does not. The stricter one decides (ADR 29).
_INTEGERS: Final = Draft7Validator.TYPE_CHECKER.redefine(
    "integer", lambda _checker, value: isinstance(value, int) and not isinstance(value, bool)
)
_OwnValidator: Final = extend(  # type: ignore[no-untyped-call]  # not in the stubs
    Draft7Validator, validators={"const": _const}, type_checker=_INTEGERS
)


def language_errors(value: Json, schema: Mapping[str, Any]) -> tuple[SchemaError, ...]:
    """Return what in a value breaks a schema of the language. Like msgspec, it does not take `1.0` for an integer."""
    return schema_errors_of(_OwnValidator(schema), value, _undeclared, value)


def schema_errors_of(validator: Any, value: Json, extra_keys: ExtraKeys, whole: Json = None) -> tuple[SchemaError, ...]:
    """Return everything in a value that breaks a schema; for alternatives, what breaks the one of the value's type.

    `whole` is the pipeline; None if the value is not one.
    """
    found: dict[SchemaError, None] = {}
    errors = [meant for error in validator.iter_errors(value) for meant in _meant(error) if not _is_misspelled(meant)]
    # A value of the wrong type breaks other rules too, such as `minimum`. Only its type is reported.
    mistyped = {tuple(error.absolute_path) for error in errors if error.validator == "type"}
    for error in errors:
        if error.validator == "type" or tuple(error.absolute_path) not in mistyped:
            described = _described(error, extra_keys, whole)
            schema = {} if whole is None else validator.schema
            found.update(dict.fromkeys(_with_example(one, error, schema) for one in described))
    return tuple(found)


def _with_example(found: SchemaError, error: _Error, schema: Mapping[str, Any]) -> SchemaError:
    """Return an error whose hint has an example, unless it has what to write, and what the value means."""
    example, node = "", schema
    for part in error.absolute_schema_path if schema else ():
        node = node[part]
        example = node.get("x-example", example) if isinstance(node, Mapping) else example
    hint = _extended(found.hint, found, example, error)
    other = _extended(found.otherwise, replace(found, write="", others=()), example, error) if found.write else None
    return replace(found, hint=hint, otherwise=other)


def _extended(hint: str | None, found: SchemaError, example: str, error: _Error) -> str | None:
    way, key = hint or "", example.partition(":")[0]
    is_said = found.code in ("E802", "E810", "E813") and not way.startswith("known here")
    if example and found.write in ("", QUOTED) and not is_said and f"`{key}: " not in way and way[-1:] != '"':
        way = f"{f'{way}, ' if way else 'write it '}as in `{example}`"
    is_meant = found.key or found.others or found.write[:1] == "["
    return ". ".join(filter(None, (way, None if is_meant else _meaning(error)))).replace("?. ", "? ") or None


def _undeclared(value: Mapping[str, Json], schema: Mapping[str, Any]) -> list[str]:
    return [key for key in value if key not in schema.get("properties", ())]


def _meant(error: _Error) -> Iterator[_Error]:
    """Replace a failed alternative by the errors of the branch that fits the value's type, if only one does."""
    fitting = _fitting(error)
    if len(fitting) == 1:
        for below in fitting[0]:
            yield from _meant(below)
    else:
        yield error


def _fitting(error: _Error) -> list[list[_Error]]:
    branches: dict[int, list[_Error]] = {}
    if error.validator in ("oneOf", "anyOf"):
        for below in error.context or ():
            branches.setdefault(int(below.schema_path[0]), []).append(below)
    # A branch that is for another type has an error about the value itself, and not about a part of it.
    return [errors for errors in branches.values() if not any(map(_is_of_another_type, errors))]


def _is_of_another_type(error: _Error) -> bool:
    """Return whether a branch is for values of another type. A mapping or a list is never meant as one of its words."""
    if error.path:
        return False
    if error.validator == "additionalProperties":
        return _unquoted(error) is not None
    if error.validator == "const":
        return not isinstance(error.instance, str) or not nearest_names(error.instance, [str(error.validator_value)])
    return error.validator == "type" or (error.validator == "enum" and not isinstance(error.instance, str))


def _described(error: _Error, extra_keys: ExtraKeys, whole: Json) -> Iterator[SchemaError]:
    path = "/".join(str(part) for part in error.absolute_path)
    if "propertyNames" in list(error.schema_path)[-2:-1]:
        name = str(error.instance)
        yield SchemaError(path, name, "E812", f"`{_short(name)}` may not be a name here", _meaning(error))
        return
    match error.validator:
        case "additionalProperties":
            for key in extra_keys(error.instance, error.schema):
                yield SchemaError(path, key, *_unknown(error, key, whole))
        case "required":
            for key in error.validator_value:
                if key not in error.instance:
                    yield SchemaError(path, key, "E810", f"`{key}` is missing{_in(error)}", _description(error, key))
        case _:
            yield SchemaError(path, None, *_words(error, whole))


def _words(error: _Error, whole: Json) -> _Words:
    rule: Any = error.validator_value
    match error.validator:
        case "type":
            return _wrong_type(error, [rule] if isinstance(rule, str) else rule, whole)
        case "enum" | "const":
            return _not_allowed(error, rule if error.validator == "enum" else [rule])
        case "oneOf" | "anyOf":
            return _no_alternative(error, whole)
        case "pattern" | "format":
            return _malformed(error)
        case None | "not":
            return "E812", f"{_name(error)} may not be {describe_value(error.instance)}", None, ""
        case _:
            text = f"{_name(error)} {_bound(str(error.validator), rule, error.instance)}"
            return "E812", text, error.schema.get("x-form"), ""


def _malformed(error: _Error) -> _Words:
    code, form = error.schema.get("x-code", "E812"), error.schema.get("x-form")
    if error.validator == "pattern" and not error.instance.strip():
        return code, f"{_name(error)} is empty", form, ""
    message = f"{_name(error)} is {describe_value(error.instance)}, which is malformed"
    short = _DURATION.fullmatch(error.instance.strip()) if code == "E815" else None
    write = f"{short[1]}{short[2][0].lower()}" if short else _SIGNS.sub("", error.instance) if code == "E815" else ""
    is_right = bool(write) and _OwnValidator(error.schema).is_valid(write)
    return code, message, f"write {write}" if is_right else form, write if is_right else ""


def _unknown(error: _Error, key: str, whole: Json) -> _Words:
    where = _in(error)
    if key in error.schema.get("x-later", ()):
        message = f"this version does not have `{key}`{where} yet"
        way = "write `foreach: {in: [a, b]}` for one stage per value" if key == "matrix" else "remove it"
        return "E813", message, f"{way}; it comes with a later version of orch23", ""
    known = error.schema.get("properties", {})
    path = list(error.absolute_path)
    if whole is not None and is_secret_key(key):
        way = hint_of_secret(path, error.instance, whole)
        return "E802", f"a secret may not be in a pipeline: `{_short(key)}`{where}", way, ""
    if whole is not None and (way := hint_of_place(key, path, error.instance, error.schema, whole)):
        return "E802", f"unknown key `{_short(key)}`{where}", way, ""
    meant = meant_keys(key, known)
    otherwise = f"known here: {quoted_names(known)}" if known else None
    hint = question(meant) if meant else otherwise
    return "E802", f"unknown key `{_short(key)}`{where}", hint, "".join(meant[:1]), otherwise, tuple(meant[1:])


def _wrong_type(error: _Error, kinds: Sequence[str], whole: Json) -> _Words:
    file = error.instance if list(error.absolute_path)[-2:] == ["foreach", "in"] else None
    if isinstance(file, str) and _PLAIN.fullmatch(file) and _LIKE_A_PATH.search(file):
        message = f"{_name(error)} is {describe_value(file)}; it must be a list"
        both = f"write `from: {file}` for the values in this file, or `in: [{file}]` for this one value"
        otherwise = "`in` is a list of values; `from: FILE` reads them from a file"
        return "E811", message, both, f"from: {file}", otherwise, (f"in: [{file}]",)
    wanted = " or ".join(_KINDS.get(kind, kind) for kind in kinds)
    found = describe_value(error.instance) + ", since `: ` begins one" * (_unquoted(error) is not None)
    # The rules of a user are not tried, only the type.
    ways = (
        way
        for way, meant in _conversions(error)
        if any(kind not in _KINDS or _INTEGERS.is_type(meant, kind) for kind in kinds)
        and (whole is None or _OwnValidator(error.schema).is_valid(meant))
    )
    form = error.schema.get("x-form")
    hint, write = next(ways, (form, ""))
    return "E811", f"{_name(error)} is {found}; it must be {wanted}", hint, write, form


def _wrapped(error: _Error) -> Iterator[tuple[_Way, Json]]:
    """Yield the mapping that a text or a list probably means: of a foreach, or a step of verification."""
    name = _name(error)
    match error.instance:
        case str(file) if name == "`foreach`" and _PLAIN.fullmatch(file):
            yield (f"write {{from: {file}}}", f"{{from: {file}}}"), {"from": file}
        case [str(), *_] as words if name == "`foreach`" and all(
            isinstance(one, str) and _PLAIN.fullmatch(one) for one in words
        ):
            listed = f"{{in: [{', '.join(words)}]}}"
            yield (f"write {listed}", listed), {"in": words}
        case str(text) if " " in text and name.startswith("item ") and "shell" in error.schema.get("properties", {}):
            yield (f"write `shell: {text}`", f"shell: {text}"), {"shell": text}


def _conversions(error: _Error) -> Iterator[tuple[_Way, Json]]:
    """Yield how to write what a value of another type probably means, with the value that it is then."""
    yield from _wrapped(error)
    name = _name(error)
    match error.instance:
        case str(text) if text.strip():
            if word := BOOLEANS.get(text.lower()):
                yield (f"write `{word}`, without quotes", word), word == "true"
            if digits := _number(text):
                key = f"{name.strip('`')}: " if name.startswith("`") else ""
                yield (f"write `{key}{digits}`", digits), int(digits)
            yield _as_list(text, name.strip("`"))
        case bool() | int() | float() as number:
            yield ("put it in quotes, or write it", QUOTED), str(number)
            yield (f"write [{number}]", f"[{number}]"), [number]
        case [str(one)] if _PLAIN.fullmatch(one):
            yield (f"write `{one}`, without brackets", one), one
        case {**pairs}:
            if (pair := _unquoted(error)) is not None:
                yield (f"put the text in quotes: {json.dumps(pair, ensure_ascii=False)}", QUOTED), pair
            if pairs and all(isinstance(one, str) and _PLAIN.fullmatch(one) for one in pairs.values()):
                words = [str(one) for one in pairs.values()]
                listed = f"[{', '.join(words)}]"
                yield (f"write {_short(listed)}", listed), words


def _unquoted(error: _Error) -> str | None:
    """Return the text `a: b` of an entry of a list that YAML reads as a mapping, but is not one of the language."""
    is_pair = isinstance(error.instance, Mapping) and len(error.instance) == 1 and _name(error).startswith("item ")
    key, value = next(iter(error.instance.items())) if is_pair else ("", None)
    is_text = isinstance(value, str | int | float) and not meant_keys(key, error.schema.get("properties", {}))
    return f"{key}: {value}" if is_text else None


def _as_list(text: str, name: str) -> tuple[_Way, Json]:
    # As in make, where spaces separate the files of a rule.
    words = [word.removesuffix(",") for word in text.split()]
    is_list = len(words) > 1 and all(map(_PLAIN.fullmatch, words))
    if is_list and (name in _OF_WORDS or text.count(",") == len(words) - 1 or all(map(_LIKE_A_PATH.search, words))):
        listed = f"[{', '.join(words)}]"
        return (f"write {_short(listed)}", listed), words
    listed = f"[{text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)}]"
    return (f"write {_short(listed)}", listed), [text]


def _number(text: str) -> str:
    """Return the digits of a number that is written as a text: `twice`, `two`, `2 times`; else an empty text."""
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        return ""
    word = found[1].lower()
    return str(int(word)) if word.isdecimal() else str(_NUMBERS.get(word, ""))


def _not_allowed(error: _Error, allowed: Sequence[Json]) -> _Words:
    value = error.instance
    texts = [option for option in allowed if isinstance(option, str)]
    near = nearest_names(value, sorted(texts)) if isinstance(value, str) else []
    if isinstance(value, bool):
        near = [one for one in texts if BOOLEANS.get(one) == str(value).lower()]
    # A word for a group of them: `fail` for `verify_failed` and `acceptance_failed`.
    if not near and isinstance(value, str) and len(value) >= _SHORTEST_PART:
        near = [one for one in texts if value.lower() in one.lower()]
    listed = f"{'is' if len(allowed) == 1 else 'are'} {quoted_names(allowed)}"
    return (
        "E812",
        f"{_name(error)} is {describe_value(value)}; allowed {listed}",
        question(near) if near else None if len(allowed) == 1 else "write one of them",
        near[0] if len(near) == 1 else "",
    )


def _no_alternative(error: _Error, whole: Json) -> _Words:
    value, branches = error.instance, [branch for branch in error.validator_value if isinstance(branch, Mapping)]
    keys = [branch["required"][0] for branch in branches if _is_one_key(branch)]
    if isinstance(value, Mapping) and len(keys) == len(branches):
        given = " and ".join(f"`{key}`" for key in keys if key in value)
        listed = quoted_names(keys)
        message = f"exactly one of {listed} is needed{_in(error)}; {f'{given} are' if given else 'none is'} given"
        return "E814", message, "keep one of them" if given else f"add one of {listed}", ""
    types = [branch.get("type", f"`{branch['const']}`" if "const" in branch else ()) for branch in branches]
    kinds = dict.fromkeys(kind for one in types for kind in ([one] if isinstance(one, str) else one))
    if kinds and error.context and not _fitting(error):
        return _wrong_type(error, list(kinds), whole)
    message = f"{_name(error)} is {describe_value(value)}, which fits none of the allowed forms"
    return "E812", message, None, ""


def _is_misspelled(error: _Error) -> bool:
    """Return whether one of several required keys is missing because it is misspelled, which is reported by itself."""
    if error.validator not in ("oneOf", "anyOf") or not isinstance(error.instance, Mapping):
        return False
    keys = [branch["required"][0] for branch in error.validator_value if _is_one_key(branch)]
    known = error.schema.get("properties", {})
    if any(key in error.instance for key in keys):
        return False
    unknown = (name for name in error.instance if name not in known)
    return not {one for name in unknown for one in meant_keys(name, known)}.isdisjoint(keys)


def _is_one_key(branch: Mapping[str, Any]) -> bool:
    return branch.keys() == {"required"} and len(branch["required"]) == 1


def _bound(rule: str, limit: Json, value: Json) -> str:
    if rule in _BOUNDS:
        return _BOUNDS[rule].format(value=describe_value(value), limit=limit)
    unit = _UNITS.get(rule[3:])
    if unit is None:
        return f"is {describe_value(value)}, which breaks the rule `{rule}`"
    size = len(value) if isinstance(value, str | Sequence | Mapping) else 0
    edge = "minimum" if rule.startswith("min") else "maximum"
    return "is empty" if size == 0 else f"has {size} {unit}; the {edge} is {limit}"


def _name(error: _Error) -> str:
    parts = list(error.absolute_path)
    if not parts:
        return "the file"
    if isinstance(parts[-1], int):
        owner = next((str(part) for part in reversed(parts) if isinstance(part, str)), "the list")
        return f"item {parts[-1] + 1} of `{owner}`"
    return f"`{parts[-1]}`"


def _in(error: _Error) -> str:
    parts = list(error.absolute_path)
    if not parts:
        return ""
    if parts[0] == "stages" and len(parts) > 1:
        inner = ".".join(str(part) for part in parts[2:] if isinstance(part, str))
        return f" in `{inner}` of stage `{parts[1]}`" if inner else f" in stage `{parts[1]}`"
    return f" in {_name(error)}"


def _meaning(error: _Error) -> str | None:
    text = error.schema.get("description") if isinstance(error.schema, Mapping) else None
    return str(text) if text else None


def _description(error: _Error, key: str) -> str | None:
    below = error.schema.get("properties", {}).get(key, {})
    if not isinstance(below, Mapping):
        return None
    # Where an expression is allowed, the rules are in `else`: see `relaxed_schema`.
    inner = below.get("else", below)
    text, line = inner.get("description"), inner.get("x-example")
    return f"add `{line}`. {text}" if line else f"add `{key}`: {text}" if text else None


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - a line
