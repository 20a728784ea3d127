"""Put values of the right type in the place of those that are not known yet: of expressions, of what an item gives.

So a document can be converted, and the rest of it checked, before every value is known.
"""

import functools
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from msgspec import Struct, inspect

from orch23.model.digest import Json
from orch23.model.language import Document
from orch23.resolve.wild import MARK

_Kind: TypeAlias = Any  # a type of msgspec.inspect; their base class has no fields
_IsOpen: TypeAlias = Callable[[str, Json], bool]

_DECISION: Final = "if"  # null is not as good as absent where it decides whether a stage is built


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

    Undeclared keys are left out.
    """
    filling = _Filling(lambda path, _value: path in broken, drops_null=True, repairs=True)
    return filling.fill(tree, _type_of(kind), at)


@functools.cache
def _type_of(kind: type[Document]) -> _Kind:
    return inspect.type_info(kind)


class _Shape(Struct, frozen=True):
    """What a type says of what is below it: the keys of a mapping, its other values, the items of a list."""

    declared: tuple[inspect.Field, ...] = ()
    fields: Mapping[str, _Kind] = {}
    values: _Kind = None
    items: _Kind = None


class _Filling:
    """One walk over a tree, beside the types of its nodes."""

    def __init__(self, is_open: _IsOpen, *, drops_null: bool, repairs: bool = False) -> None:
        self._is_open = is_open
        self._drops_null = drops_null
        self._repairs = repairs
        self._shapes: dict[int, _Shape] = {}  # by identity: hashing a type hashes everything below it

    def fill(self, node: Json, kind: _Kind, at: str) -> Json:
        """Return a node with its open texts replaced."""
        if self._is_open(at, node) and (found := _stand_in(node, kind)) is not node:
            return found
        if isinstance(node, Mapping):
            above = f"{at}/" if at else ""
            return {key: self.fill(value, below, above + key) for key, value, below in self._members(node, kind)}
        if isinstance(node, Sequence) and not isinstance(node, str):
            items = self._shape(kind).items
            return [self.fill(item, items, f"{at}/{number}") for number, item in enumerate(node)]
        return node

    def _members(self, node: Mapping[str, Json], kind: _Kind) -> Iterator[tuple[str, Json, _Kind]]:
        shape = self._shape(kind)
        for key, value in node.items():
            if key in shape.fields:
                if value is not None or not self._drops_null or key == _DECISION:
                    yield key, value, shape.fields[key]
            elif not shape.fields or not self._repairs:
                yield key, value, shape.values
        if self._repairs:
            missing = [one for one in shape.declared if one.required and node.get(one.encode_name) is None]
            yield from ((one.encode_name, _stand_in(None, one.type), None) for one in missing)

    def _shape(self, kind: _Kind) -> _Shape:
        shape = self._shapes.get(id(kind))
        if shape is None:
            shape = self._shapes[id(kind)] = _shape_of(kind)
        return shape


def _shape_of(kind: _Kind) -> _Shape:
    declared: tuple[inspect.Field, ...] = ()
    values = items = None
    for one in _kinds(kind):
        match one:
            case inspect.StructType():
                declared = one.fields
            case inspect.DictType():
                values = one.value_type
            case inspect.VarTupleType():
                items = one.item_type
            case _:
                pass
    return _Shape(declared, {one.encode_name: one.type for one in declared}, values, items)


def _kinds(kind: _Kind) -> Sequence[_Kind]:
    """Return the alternatives of a type, without what is said about them."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    return [one for part in kind.types for one in _kinds(part)] if isinstance(kind, inspect.UnionType) else [kind]


def _is_literal(kind: _Kind) -> bool:
    while isinstance(kind, inspect.Metadata):
        if "x-literal" in (kind.extra_json_schema or ()):
            return True
        kind = kind.type
    return False


def _stand_in(value: Json, kind: _Kind) -> Json:
    """Return a text where it may be, else a value of another type that may; where only a mapping may, the value."""
    kinds = _kinds(kind)
    if _is_literal(kind) or any(_takes(one, value) for one in kinds):
        return value
    for one in kinds:
        match one:
            case inspect.IntType() | inspect.FloatType():
                return int(one.ge) if one.ge is not None else int(one.gt or 0) + 1
            case inspect.BoolType():
                return True
            case inspect.LiteralType():
                return one.values[0]
            case inspect.VarTupleType():
                return [_stand_in(MARK, one.item_type)] * (one.min_length or 0)
            case inspect.StrType() if _takes(one, MARK):
                return MARK
            case _:
                pass
    return _example(kind, value)


def _example(kind: _Kind, value: Json) -> Json:
    """Return the example that a type gives of itself, else the value."""
    while isinstance(kind, inspect.Metadata):
        for example in (kind.extra_json_schema or {}).get("examples", ()):
            return cast("Json", example)
        kind = kind.type
    return value


def _takes(kind: _Kind, value: Json) -> bool:
    if isinstance(kind, inspect.StrType) and isinstance(value, str):
        return len(value) >= (kind.min_length or 0) and re.search(kind.pattern or "", value) is not None
    return isinstance(kind, inspect.AnyType)
