"""Replace unknown or broken values by values of the right type, to check the rest of a document.

Expressions of items have no value before their foreach is expanded, and a broken value must not hide other errors
(ADR 29).
"""

import functools
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from msgspec import Struct, field, inspect
from msgspec.structs import replace

from orch23.model.digest import Json
from orch23.model.language import Document
from orch23.resolve.expression_syntax import UNKNOWN_MARK

_Kind: TypeAlias = Any  # a type of msgspec.inspect; their base class has no fields

_DECISION: Final = "if"  # `if: null` is an error: it must not mean the default, which is true


def without_expressions(tree: Json, kind: type[Document]) -> Json:
    """Return a tree with a value of the right type for each text that holds an expression."""
    filling = _Filling(lambda _path, value: isinstance(value, str) and "${{" in value, drops_null=False)
    return filling.fill(tree, _type_of(kind), "")


def without_unknown(tree: Json, kind: type[Document], at: str, unknown: Container[str]) -> Json:
    """Return a mapping at path `at` with a value of the right type for each unknown text, without keys of null."""
    filling = _Filling(lambda path, value: isinstance(value, str) and path in unknown, drops_null=True)
    return filling.fill(tree, _type_of(kind), at)


def without_broken(tree: Json, kind: type[Document], at: str, broken: Container[str]) -> Json:
    """Return a mapping at path `at` with a value of the right type for each broken node and missing key.

    Undeclared keys are left out. If keys exclude each other, the first that is given is kept.
    """
    filling = _Filling(lambda path, _value: path in broken, drops_null=True, repairs=True)
    return filling.fill(tree, _type_of(kind), at)


@functools.cache
def _type_of(kind: type[Document]) -> _Kind:
    return inspect.type_info(kind)


class _Shape(Struct, frozen=True):
    """What a type allows below it: the keys of a mapping, its other values, the items of a list.

    `required` are the keys that a mapping must have, `choices` those of which it must have exactly one.
    """

    is_mapping: bool = False
    fields: Mapping[str, _Kind] = {}
    required: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    values: _Kind = None
    items: _Kind = None


class _Filling(Struct):
    is_open: Callable[[str, Json], bool]
    drops_null: bool
    repairs: bool = False
    shapes: dict[int, _Shape] = field(default_factory=dict)  # by identity: hashing a type hashes everything below it

    def fill(self, node: Json, kind: _Kind, at: str) -> Json:
        if self.is_open(at, node):
            # A broken mapping is kept, without its broken keys: the errors of its other keys are reported too.
            if self.repairs and self._shape(kind).is_mapping:
                node = node if isinstance(node, Mapping) else {}
            elif (found := _stand_in(node, kind)) is not node:
                return found
        if isinstance(node, Mapping):
            above = f"{at}/" if at else ""
            members = (self._repaired if self.repairs else self._members)(node, self._shape(kind), above)
            return {key: self.fill(value, below, above + key) for key, value, below in members}
        if isinstance(node, Sequence) and not isinstance(node, str):
            items = self._shape(kind).items
            return [self.fill(item, items, f"{at}/{number}") for number, item in enumerate(node)]
        return node

    def _members(self, node: Mapping[str, Json], shape: _Shape, _above: str) -> Iterator[tuple[str, Json, _Kind]]:
        for key, value in node.items():
            if key not in shape.fields:
                yield key, value, shape.values
            elif value is not None or not self.drops_null or key == _DECISION:
                yield key, value, shape.fields[key]

    def _repaired(self, node: Mapping[str, Json], shape: _Shape, above: str) -> Iterator[tuple[str, Json, _Kind]]:
        """Yield the members that a document can have, and those that it must have."""
        if not shape.fields:  # the values are not broken, but a name may be
            yield from ((key, one, shape.values) for key, one in node.items() if not self.is_open(above + key, one))
            return
        kept = {key: value for key, value in node.items() if self._can_be_kept(key, value, shape, above)}
        given = [key for key in kept if key in shape.choices]
        yield from ((key, value, shape.fields[key]) for key, value in kept.items() if key not in given[1:])
        missing = [key for key in shape.required if key not in kept]
        if shape.choices and not any(key in kept for key in shape.choices):
            missing.append(min(shape.choices, key=lambda key: self._shape(shape.fields[key]).is_mapping))
        for key in missing:
            below = shape.fields[key]
            yield key, {} if self._shape(below).is_mapping else _stand_in(None, below), below

    def _can_be_kept(self, key: str, value: Json, shape: _Shape, above: str) -> bool:
        if key not in shape.fields or (value is None and key != _DECISION):
            return False
        if not self.is_open(above + key, value):
            return True
        kind = shape.fields[key]
        return self._shape(kind).is_mapping or _stand_in(value, kind) is not value

    def _shape(self, kind: _Kind) -> _Shape:
        shape = self.shapes.get(id(kind))
        if shape is None:
            shape = self.shapes[id(kind)] = _shape_of(kind)
        return shape


def _shape_of(kind: _Kind) -> _Shape:
    shape = _Shape()
    for one in _kinds(kind):
        match one:
            case inspect.StructType():
                names = {field.name: field.encode_name for field in one.fields}
                shape = replace(
                    shape,
                    is_mapping=True,
                    fields={field.encode_name: field.type for field in one.fields},
                    required=tuple(field.encode_name for field in one.fields if field.required),
                    choices=tuple(map(names.__getitem__, cast("type[Document]", one.cls).exactly_one)),
                )
            case inspect.DictType():
                shape = replace(shape, is_mapping=True, values=one.value_type)
            case inspect.VarTupleType():
                shape = replace(shape, items=one.item_type)
    return shape


def _kinds(kind: _Kind) -> Sequence[_Kind]:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    return [one for part in kind.types for one in _kinds(part)] if isinstance(kind, inspect.UnionType) else [kind]


def _annotations(kind: _Kind) -> Iterator[Mapping[str, Any]]:
    """Yield what each `Meta` of a type adds to its schema."""
    while isinstance(kind, inspect.Metadata):
        yield kind.extra_json_schema or {}
        kind = kind.type


def _stand_in(value: Json, kind: _Kind) -> Json:
    """Return a text where it is allowed, else an allowed value of another type; for a mapping, the value itself."""
    kinds = _kinds(kind)
    if any("x-literal" in one for one in _annotations(kind)) or any(_takes(one, value) for one in kinds):
        return value
    found = next((one for one in map(_placeholder, kinds) if one is not None), None)
    examples = (example for one in _annotations(kind) for example in one.get("examples", ()))
    return cast("Json", next(examples, value)) if found is None else found


def _placeholder(kind: _Kind) -> Json:
    match kind:
        case inspect.IntType() | inspect.FloatType():
            return int(kind.ge) if kind.ge is not None else int(kind.gt or 0) + 1
        case inspect.BoolType():
            return True
        case inspect.LiteralType():
            return cast("Json", kind.values[0])
        case inspect.VarTupleType():
            return [_stand_in(UNKNOWN_MARK, kind.item_type)] * (kind.min_length or 0)
        case inspect.StrType() if _takes(kind, UNKNOWN_MARK):
            return UNKNOWN_MARK
    return None


def _takes(kind: _Kind, value: Json) -> bool:
    if isinstance(kind, inspect.StrType) and isinstance(value, str):
        return len(value) >= (kind.min_length or 0) and re.search(kind.pattern or "", value) is not None
    return isinstance(kind, inspect.AnyType)
