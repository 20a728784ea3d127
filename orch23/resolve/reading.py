"""Read documents: convert plain values to the classes of the language, or report everything that is wrong with them.

msgspec says quickly that a value is sound. Where it is not, jsonschema says what is wrong and where, all of it.
"""

from collections.abc import Container
from typing import Any, TypeVar

import msgspec

from orch23.model.digest import Json
from orch23.resolve.document import Document, PipelineDocument
from orch23.resolve.fields import Problem

_Document = TypeVar("_Document", bound=Document)


def conforms(tree: Json) -> bool:
    """Return whether a parsed pipeline has the form of one. Expressions are taken for values of the right type."""
    if _converted(tree, PipelineDocument) is not None:
        return True
    from orch23.resolve.stand_ins import without_expressions  # noqa: PLC0415 - few pipelines need it

    return _converted(without_expressions(tree, PipelineDocument), PipelineDocument) is not None


def read_document(
    tree: Json, kind: type[_Document], at: str, unknown: Container[str] = ()
) -> tuple[_Document | None, tuple[Problem, ...]]:
    """Return a mapping at path `at` as a document, or None with everything that is wrong with it.

    Its expressions are evaluated; a key that became null is as good as absent. Nodes whose value depends on an item
    (`unknown`, their paths) are taken for values of the right type.
    """
    found = _converted(tree, kind)
    if found is not None:
        return found, ()
    from orch23.resolve.stand_ins import without_unknown  # noqa: PLC0415 - few pipelines need it

    known = without_unknown(tree, kind, at, unknown)
    try:
        return msgspec.convert(known, kind), ()
    except msgspec.ValidationError as error:
        return None, _problems(known, kind, at) or (Problem(at, "E811", str(error)),)


def _converted(tree: Json, kind: type[_Document]) -> _Document | None:
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError:
        return None


def _problems(tree: Json, kind: type[Document], at: str) -> tuple[Problem, ...]:
    """Return what is wrong with a mapping, by its schema. The messages need to know where it is in the file."""
    from orch23.resolve.complaints import own_complaints  # noqa: PLC0415 - jsonschema, where something is wrong
    from orch23.resolve.schema import schema_of  # noqa: PLC0415 - likewise

    schema: dict[str, Any] = schema_of(kind)
    for name in reversed(at.split("/")) if at else ():
        schema, tree = {"properties": {name: schema}}, {name: tree}
    return tuple(
        Problem(one.path if one.key is None else f"{one.path}/{one.key}".lstrip("/"), one.code, one.message, one.hint)
        for one in own_complaints(tree, schema)
    )
