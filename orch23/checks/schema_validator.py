"""The validator of JSON schemas, draft 7, that neither a pattern nor a long list can keep busy without end."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from jsonschema import Draft7Validator, validators
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry

from orch23.checks.patterns import PatternError, searcher, unmatched_keys
from orch23.model.digest import Json

# jsonschema's values are whatever a JSON document holds; nothing narrower is true of them.
_Value: TypeAlias = Any
_DATA = frozenset({"const", "enum", "default", "examples"})  # what stands below these is no schema
_SHOWN = 200
_NOTHING = object()
# An empty registry: without it a reference to elsewhere would be fetched over the network.
_NO_OTHER_FILES: Registry[Any] = Registry()


def validator_of(schema: Mapping[str, Json] | bool) -> Draft7Validator:  # noqa: FBT001 - a schema may be true or false
    """Return the validator of a schema, which may point inside itself only.

    Its walk raises `PatternError` for a pattern that cannot be searched for in a bounded time.
    """
    made: Draft7Validator = _BOUNDED(schema, registry=_NO_OTHER_FILES)
    return made


def unusable(schema: Json) -> tuple[str, str] | None:
    """Return what makes a value no schema of draft 7 that can be used, and where in it; None if it can."""
    try:
        Draft7Validator.check_schema(cast("Mapping[str, Any]", schema))
    except SchemaError as error:
        return f"this is no JSON schema of draft 7: {_first_line(error.message)}", _pointer(error.absolute_path)
    except RecursionError:
        return "the schema is nested too deeply", ""
    return next(_faults(schema, schema, ""), None)


def _faults(root: Json, value: Json, at: str) -> Iterator[tuple[str, str]]:
    """Give each reference that does not lead to a place inside, and each pattern that has no bound."""
    if isinstance(value, Mapping):
        target, pattern, patterns = value.get("$ref"), value.get("pattern"), value.get("patternProperties")
        if isinstance(target, str) and not _leads_inside(root, target):
            yield f"`$ref` leads to `{_first_line(target)}`, which is not in it", f"{at}/$ref"
        elif isinstance(target, str) and _comes_back(root, target):
            yield f"`$ref` leads to `{_first_line(target)}`, and from there back to itself", f"{at}/$ref"
        texts = [pattern] if isinstance(pattern, str) else []
        texts += list(patterns) if isinstance(patterns, Mapping) else []
        for text in texts:
            try:
                searcher(text)
            except PatternError as error:
                yield f"the pattern {error}", at
        for key, member in value.items():
            if key not in _DATA:
                yield from _faults(root, member, f"{at}/{key}")
    elif isinstance(value, list | tuple):
        for number, member in enumerate(value):
            yield from _faults(root, member, f"{at}/{number}")


def _leads_inside(root: Json, target: str) -> bool:
    """Say whether a reference is a pointer to something in the schema; names (`$id`) are not looked for here."""
    name, _, pointer = target.partition("#")
    if name or (pointer and not pointer.startswith("/")):
        return (name or f"#{pointer}") in _names(root)
    return _at(root, pointer) is not _NOTHING


def _comes_back(root: Json, target: str) -> bool:
    """Say whether pointers lead from one to the next without end; beside `$ref` nothing else counts in draft 7."""
    seen: set[str] = set()
    while target.startswith("#") and target not in seen:
        seen.add(target)
        here = _at(root, target[1:])
        onward = here.get("$ref") if isinstance(here, Mapping) else None
        if not isinstance(onward, str):
            return False
        target = onward
    return target in seen


def _at(root: Json, pointer: str) -> _Value:
    """Return what a pointer names, or _NOTHING."""
    here: _Value = root
    for part in unquote(pointer).split("/")[1:]:
        step = part.replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping) and step in here:
            here = here[step]
        elif isinstance(here, list | tuple) and step.isdecimal() and int(step) < len(here):
            here = here[int(step)]
        else:
            return _NOTHING
    return here


def _names(value: Json) -> frozenset[str]:
    """Return every `$id` in a schema."""
    if isinstance(value, Mapping):
        own = value.get("$id")
        below = frozenset[str]().union(*map(_names, value.values()))
        return below | {own} if isinstance(own, str) else below
    return frozenset[str]().union(*map(_names, value)) if isinstance(value, list | tuple) else frozenset()


def _pointer(path: Iterable[object]) -> str:
    return "".join(f"/{part}" for part in path)


def _first_line(text: str) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


def _pattern(validator: _Value, pattern: str, value: _Value, _schema: _Value) -> Iterator[ValidationError]:
    if validator.is_type(value, "string") and not searcher(pattern)(value):
        yield ValidationError("does not match")


def _of_patterns(validator: _Value, patterns: _Value, value: _Value, _schema: _Value) -> Iterator[ValidationError]:
    if not validator.is_type(value, "object"):
        return
    for pattern, below in patterns.items():
        search = searcher(pattern)
        for key, member in value.items():
            if search(key):
                yield from validator.descend(member, below, path=key, schema_path=pattern)


def _additional(validator: _Value, below: _Value, value: _Value, schema: _Value) -> Iterator[ValidationError]:
    if not validator.is_type(value, "object"):
        return
    extra = unmatched_keys(value, schema)
    if validator.is_type(below, "object"):
        for key in extra:
            yield from validator.descend(value[key], below, path=key)
    elif not below and extra:
        yield ValidationError("has keys that are not known")


def _unique(validator: _Value, wanted: _Value, value: _Value, _schema: _Value) -> Iterator[ValidationError]:
    if wanted and validator.is_type(value, "array") and len({_text(one) for one in value}) < len(value):
        yield ValidationError("holds the same item twice")


def _text(value: _Value) -> str:
    """Return the one text of a value: 1 and 1.0 are the same number, and true is none."""
    return json.dumps(_numbered(value), sort_keys=True)


def _numbered(value: _Value) -> _Value:
    match value:
        case float() if value.is_integer():
            return int(value)
        case Mapping():
            return {key: _numbered(one) for key, one in value.items()}
        case list() | tuple():
            return [_numbered(one) for one in value]
        case _:
            return value


_BOUNDED = validators.extend(  # type: ignore[no-untyped-call] # the stubs of jsonschema lack it
    Draft7Validator,
    {
        "pattern": _pattern,
        "patternProperties": _of_patterns,
        "additionalProperties": _additional,
        "uniqueItems": _unique,
    },
)
