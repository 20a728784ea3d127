"""Say quickly that a value fits the schema of pipelines; where it does not, `complaints` says why.

A schema is compiled into nested functions, each member where a value has it. Only the keywords that the schema of
pipelines has are known, by the semantics of draft 7; any other is refused where it is met, so that none is passed over.
"""

import re
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, Final, TypeAlias

from orch23.model.digest import Json

Fits: TypeAlias = Callable[[Json], bool]
Schema: TypeAlias = Mapping[str, Any] | bool

_ANNOTATIONS: Final = frozenset(
    {"$schema", "title", "description", "default", "definitions", "format", "x-later", "x-code", "x-form"}
)  # `format` is one as long as nobody is asked to check it
_CHECKED_TOGETHER: Final = frozenset({"properties", "additionalProperties", "if", "then", "else"})


def compile_schema(schema: Schema) -> Fits:
    """Return what says of a value whether it fits a schema.

    Raises:
        ValueError: the schema has a keyword that is not known here.

    """
    if isinstance(schema, bool):
        return _anything if schema else _nothing
    tests = [_KEYWORDS[name](rule) for name, rule in schema.items() if _is_rule(name)]
    if "properties" in schema or "additionalProperties" in schema:
        tests.append(_members(schema.get("properties", {}), schema.get("additionalProperties", True)))
    if "if" in schema:
        tests.append(_conditional(schema["if"], schema.get("then", True), schema.get("else", True)))
    if len(tests) == 1:
        return tests[0]
    together = tuple(tests)
    return lambda value: all(test(value) for test in together)


def _is_rule(name: str) -> bool:
    if name in _ANNOTATIONS or name in _CHECKED_TOGETHER:
        return False
    if name not in _KEYWORDS:
        message = f"the keyword `{name}` is not known here"
        raise ValueError(message)
    return True


def _anything(_: Json) -> bool:
    return True


def _nothing(_: Json) -> bool:
    return False


# ---- types ------------------------------------------------------------------------------------


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Json) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


_TYPES: Mapping[str, Fits] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": _is_integer,
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def _type(rule: str | Sequence[str]) -> Fits:
    if isinstance(rule, str):
        return _TYPES[rule]
    kinds = tuple(_TYPES[kind] for kind in rule)
    return lambda value: any(kind(value) for kind in kinds)


# ---- any value --------------------------------------------------------------------------------


def _enum(rule: Sequence[Json]) -> Fits:
    return lambda value: any(_same(value, one) for one in rule)


def _same(one: Json, other: Json) -> bool:
    """Compare two scalars; true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _one_of(rule: Sequence[Schema]) -> Fits:
    branches = tuple(compile_schema(branch) for branch in rule)
    return lambda value: sum(branch(value) for branch in branches) == 1


def _conditional(condition: Schema, then: Schema, otherwise: Schema) -> Fits:
    holds, if_so, if_not = compile_schema(condition), compile_schema(then), compile_schema(otherwise)
    return lambda value: if_so(value) if holds(value) else if_not(value)


# ---- mappings and lists -----------------------------------------------------------------------


def _members(properties: Mapping[str, Schema], additional: Schema) -> Fits:
    known: dict[str | None, Fits] = {}

    def rule(name: str) -> Fits:
        """Return what holds for a member. It is compiled where there is one: few pipelines have all that may be."""
        key = name if name in properties else None
        if key not in known:
            known[key] = compile_schema(additional if key is None else properties[key])
        return known[key]

    def fits(value: Json) -> bool:
        return not isinstance(value, dict) or all((known.get(name) or rule(name))(v) for name, v in value.items())

    return fits


def _required(rule: Sequence[str]) -> Fits:
    return lambda value: not isinstance(value, dict) or all(name in value for name in rule)


def _property_names(rule: Schema) -> Fits:
    fits = compile_schema(rule)
    return lambda value: not isinstance(value, dict) or all(fits(name) for name in value)


def _items(rule: Schema) -> Fits:
    fits = compile_schema(rule)
    return lambda value: not isinstance(value, list) or all(fits(item) for item in value)


# ---- bounds -----------------------------------------------------------------------------------


def _at_least(kind: type[Sized], limit: int) -> Fits:
    return lambda value: not isinstance(value, kind) or len(value) >= limit


def _pattern(rule: str) -> Fits:
    search = re.compile(rule).search
    return lambda value: not isinstance(value, str) or search(value) is not None


def _bound(holds: Callable[[float], bool]) -> Fits:
    return lambda value: not isinstance(value, int | float) or isinstance(value, bool) or holds(value)


_KEYWORDS: Mapping[str, Callable[[Any], Fits]] = {
    "type": _type,
    "enum": _enum,
    "const": lambda rule: _enum([rule]),
    "oneOf": _one_of,
    "required": _required,
    "propertyNames": _property_names,
    "items": _items,
    "minLength": lambda rule: _at_least(str, rule),
    "minItems": lambda rule: _at_least(list, rule),
    "minProperties": lambda rule: _at_least(dict, rule),
    "pattern": _pattern,
    "minimum": lambda rule: _bound(lambda value: value >= rule),
    "maximum": lambda rule: _bound(lambda value: value <= rule),
    "exclusiveMinimum": lambda rule: _bound(lambda value: value > rule),
}
