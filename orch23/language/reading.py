"""Convert plain values to documents of the language, or report everything that is wrong.

msgspec converts a valid value fast, but reports only the first error. For an invalid value, jsonschema finds all errors
(ADR 29).
"""

import re
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct

from orch23.language.pipeline_document import kinds_in, pipeline_form
from orch23.model.digest import Json
from orch23.model.fields import Problem
from orch23.model.language import Document
from orch23.model.paths import with_above

if TYPE_CHECKING:
    from orch23.language.schema_errors import SchemaError


# Errors about several keys together: not reported if one of these keys is broken or unknown.
_OF_SEVERAL: Final = frozenset({"E835", "E856"})

CODES_OF_KEYS: Final = frozenset({"E810", "E814", "E855"})
"""Errors about missing or extra keys or entries. They do not depend on the values."""

_OF_STEP: Final = re.compile(r"(?:did you mean )?`([^`]+)`(?:\? It)? is a key of `([^`]+)`: write it there")
_MISSING: Final = re.compile(r"`([^`]+)` is missing")
_STAGE: Final = re.compile("stages/[^/]*")

E_NOT_EXACTLY_ONE: Final = "E814"
"""The error of a mapping that needs exactly one of some keys, and has none or several."""

# The stricter of the two decides: `1.0` is an integer only for jsonschema, for example (ADR 29).
_DISAGREE: Final = ("BUG: the schema accepts what the classes refuse", "report it as an error of orch23")

_Document = TypeVar("_Document", bound=Document)


def has_valid_form(tree: Json, plugins: tuple[str, ...] = ()) -> bool:
    """Return whether a parsed tree has the form of a pipeline. Expressions count as values of the right type."""
    form = pipeline_form(kinds_in(tree, plugins))
    if _converted(tree, form) is not None:
        return True
    from orch23.language.stand_ins import without_expressions  # noqa: PLC0415 - few pipelines need it

    return _converted(without_expressions(tree, form), form) is not None


def form_errors(tree: Json, plugins: tuple[str, ...] = ()) -> "tuple[SchemaError, ...]":
    """Return the form errors of a parsed pipeline whose expressions are not evaluated yet."""
    if has_valid_form(tree, plugins):
        return ()
    from orch23.language.schema import relaxed_schema  # noqa: PLC0415 - likewise
    from orch23.language.schema_errors import SchemaError, language_errors  # noqa: PLC0415 - jsonschema, where it is needed

    return language_errors(tree, relaxed_schema(plugins)) or (SchemaError("", None, "E811", *_DISAGREE),)


def path_of_error(error: "SchemaError") -> str:
    """Return the path of the node or key with the error."""
    return "/".join(part for part in (error.path, error.key) if part)


def is_missing_kind(code: str, path: str, mappings: Container[str]) -> bool:
    """Return whether an error is a missing step of one of these stages, or an unknown key of one of these mappings."""
    return path in mappings if code == E_NOT_EXACTLY_ONE else code == "E802" and path.rpartition("/")[0] in mappings


def meant_keys(found: "Iterable[SchemaError]") -> frozenset[tuple[str, str]]:
    """Return the path of a mapping and the suggested key, for each unknown key that is probably a misspelt one."""
    meant: set[tuple[str, str]] = set()
    for one in found:
        if one.code == "E802" and one.write:
            meant.update((one.path, key) for key in (one.write, *one.others))
        elif (key := _OF_STEP.fullmatch(one.hint or "")) is not None:
            meant.add((f"{one.path}/{key[2]}", key[1]))
    return frozenset(meant)


def is_misspelt(code: str, path: str, message: str, meant: Container[tuple[str, str]]) -> bool:
    """Return whether a key is missing in the mapping at a path only because it is misspelt, there or in `defaults`."""
    key = _MISSING.match(message) if code == "E810" else None
    in_defaults = re.sub(r"^stages/[^/]+/", "defaults/", path)
    return key is not None and any((place, key[1]) in meant for place in (path, in_defaults))


def read_document(
    tree: Json, kind: type[_Document], at: str, unknown: Container[str] = ()
) -> tuple[_Document | None, list[Problem]]:
    """Return a mapping at path `at` as a document, with all form errors.

    Its expressions are evaluated; a key whose value is null counts as absent. Nodes whose value depends on an item
    (`unknown`, their paths) and broken nodes are replaced by values of the right type, so that the rest is checked
    too. The document is None if that is not possible.
    """
    found = _converted(tree, kind)
    if found is not None:
        return found, []
    from orch23.language.stand_ins import without_broken, without_unknown  # noqa: PLC0415 - few pipelines need it

    # First without unknown values, then without broken ones, so that one run reports all errors.
    known = without_unknown(tree, kind, at, unknown)
    found = _converted(known, kind)
    if found is not None:
        return found, []
    problems = _problems(known, kind, at)
    return _converted(without_broken(known, kind, at, {one.path for one in problems}), kind), problems


class NodeSet(Struct, frozen=True):
    """Some nodes of a document, by their paths, and all nodes above them."""

    paths: frozenset[str]
    above: frozenset[str]

    @classmethod
    def at(cls, paths: Iterable[str]) -> "NodeSet":
        """Return the nodes at some paths."""
        found = frozenset(paths)
        return cls(found, frozenset(above for path in found for above in with_above(path)))

    def touches(self, path: str) -> bool:
        """Return whether a node is one of these, or below or above one of them."""
        return path in self.above or any(above in self.paths for above in with_above(path))

    def unaffected(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """Return the problems that cannot follow from these nodes being broken or unknown."""
        return tuple(one for one in problems if not (self.paths and self._may_cause(one)))

    def _may_cause(self, problem: Problem) -> bool:
        if problem.code in _OF_SEVERAL and not _STAGE.fullmatch(owner := _mapping_of(problem.path)):
            return self.touches(owner)
        if problem.code in CODES_OF_KEYS:
            return any(above in self.paths for above in with_above(problem.path))
        return self.touches(problem.path)


NO_NODES_BROKEN: Final = NodeSet.at(())


def _mapping_of(path: str) -> str:
    above, _, name = path.rpartition("/")
    while name.isdigit():
        above, _, name = above.rpartition("/")
    return above


def independent_problems(wrong: Sequence[Problem], found: Sequence[Problem]) -> list[Problem]:
    """Return the problems that are not consequences of form errors."""
    if not wrong:
        return list(found)
    every = NodeSet.at(one.path for one in wrong)
    # A mapping with none or several of the keys of which it needs one is not broken itself: its other keys are checked.
    broken = NodeSet.at(one.path for one in wrong if one.code != E_NOT_EXACTLY_ONE)
    return [one for one in broken.unaffected(found) if one.code not in _OF_SEVERAL or one in every.unaffected((one,))]


def _converted(tree: Json, kind: type[_Document]) -> _Document | None:
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError:
        return None


def _problems(tree: Json, kind: type[Document], at: str) -> list[Problem]:
    """Return what is wrong with a mapping, by its schema. The tree is nested at `at`, which the messages name."""
    from orch23.language.schema import schema_of  # noqa: PLC0415 - likewise
    from orch23.language.schema_errors import language_errors  # noqa: PLC0415 - jsonschema, where something is wrong

    schema: dict[str, Any] = schema_of(kind)
    for name in reversed(at.split("/")) if at else ():
        schema, tree = {"properties": {name: schema}}, {name: tree}
    found = language_errors(tree, schema)
    return [
        Problem(path_of_error(one), one.code, one.message, one.hint, near="" if one.key else one.write) for one in found
    ] or [Problem(at, "E811", *_DISAGREE)]
