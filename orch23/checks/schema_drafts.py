"""The drafts of JSON schema: which one a schema is written for, and words that do not belong to it.

`$schema` decides. Without it, draft 7 applies (ADR 67). A word of another draft would be ignored without a message.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from jsonschema import validators
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped] # it has no stubs
from msgspec import Struct
from referencing import Registry
from referencing import jsonschema as dialects
from referencing.exceptions import Unresolvable

from orch23.model.diagnostic import quoted_names
from orch23.model.digest import Json
from orch23.model.parsing import as_mapping
from orch23.model.text import json_pointer

_Library: TypeAlias = Any  # a class or a specification of the library


class Draft(Struct, frozen=True):
    """One draft: the library's validator for it, and how references are resolved."""

    validator: _Library
    specification: _Library

    @property
    def uri(self) -> str:
        """Its URI in `$schema`."""
        return str(self.validator.META_SCHEMA["$schema"])

    @property
    def name(self) -> str:
        """Its name, such as `draft 7` or `draft 2019-09`."""
        return f"draft {self.uri.split('/')[-2].removeprefix('draft-0')}"


DRAFTS: Final = (
    Draft(validators.Draft3Validator, dialects.DRAFT3),
    Draft(validators.Draft4Validator, dialects.DRAFT4),
    Draft(validators.Draft6Validator, dialects.DRAFT6),
    Draft(validators.Draft7Validator, dialects.DRAFT7),
    Draft(validators.Draft201909Validator, dialects.DRAFT201909),
    Draft(validators.Draft202012Validator, dialects.DRAFT202012),
)
DEFAULT_DRAFT: Final = DRAFTS[3]
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_SCHEME = re.compile(r"https?:")
# Words that the library applies as a part of another one, and names that references lead to.
_PARTS: Mapping[str, frozenset[str]] = {
    "draft 7": frozenset({"then", "else"}),
    "draft 2019-09": frozenset({"then", "else", "minContains", "maxContains", "$anchor", "$recursiveAnchor"}),
    "draft 2020-12": frozenset({"then", "else", "minContains", "maxContains", "$anchor", "$dynamicAnchor"}),
}
# Below these are names, and then schemas.
_OF_NAMES = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
_OF_DATA = frozenset({"const", "enum", "default", "examples", "dependentRequired", "$vocabulary"})


def draft_of(schema: Json) -> Draft | None:
    """Return the draft that `$schema` names, draft 7 without one; None for an unknown URI."""
    named = as_mapping(schema).get("$schema")
    if not isinstance(named, str):
        return DEFAULT_DRAFT
    # Both schemes are in use for each draft. The library knows one of them, and would apply its newest draft instead.
    wanted = _SCHEME.sub("", named.strip(), count=1).rstrip("#")
    return next((one for one in DRAFTS if _SCHEME.sub("", one.uri, count=1).rstrip("#") == wanted), None)


def draft_fault(schema: Json) -> tuple[str, str] | None:
    """Return why the words of a schema are not those of its draft, and the JSON pointer of the place; else None."""
    draft = draft_of(schema)
    if draft is None:
        known = ", ".join(one.uri for one in DRAFTS[1:])
        named = str(as_mapping(schema).get("$schema"))
        return f"`$schema` is `{named[:80]}`, which is not the URI of a draft; write one of {known}", "/$schema"
    found = list(_foreign_words(schema, draft))
    if not found:
        return None
    words = list(dict.fromkeys(word for word, _ in found))
    where = found[0][1]
    if words == ["$schema"]:
        return f"a `$schema` below the first level would select another draft; {draft.name} applies: remove it", where
    fitting = next((one for one in reversed(DRAFTS) if not any(_foreign_words(schema, one))), None)
    verb, them = ("is a word", "it") if len(words) == 1 else ("are words", "them")
    change = f'; write `"$schema": "{fitting.uri}"`' if fitting else f"; replace {them}"
    reason = "" if "$schema" in as_mapping(schema) else ", which applies without `$schema`"
    return f"{quoted_names(words)} {verb} of other drafts, and not of {draft.name}{reason}{change}", where


def ignored_words(schema: Json) -> tuple[str, ...]:
    """Return the words of a schema that no draft knows, sorted: they are annotations."""
    return tuple(sorted({word for one, _, _ in schemas_in(schema) for word in one if word not in _known_words()}))


def _foreign_words(schema: Json, draft: Draft) -> Iterator[tuple[str, str]]:
    """Yield each word that another draft applies and this one ignores, with the JSON pointer of its schema."""
    # Up to draft 7, the schema of schemas has just the words of its draft, such as `required` in a schema of draft 3.
    own = _applied(draft) | frozenset(draft.validator.META_SCHEMA["properties"] if draft in DRAFTS[:4] else ())
    foreign = frozenset[str]().union(*map(_applied, DRAFTS)) - own
    # Words of before draft 6 were never applied: they are annotations.
    foreign -= {"extends", "disallow", "divisibleBy"}
    for one, at, _ in schemas_in(schema):
        yield from ((word, at) for word in one if word in foreign)
        if at and isinstance(one.get("$schema"), str) and draft_of(one) is not draft:
            yield "$schema", at


def schemas_in(root: Json) -> Iterator[tuple[Mapping[str, Json], str, _Library]]:
    """Yield each schema in a schema once, in order, with its pointer, or the one of a reference, and its resolver."""
    if not isinstance(root, Mapping):
        return
    draft = draft_of(root) or DEFAULT_DRAFT
    waiting: list[tuple[Json, tuple[str | int, ...], _Library]] = [(root, (), _resolver(root, draft))]
    seen: set[int] = set()
    words = _known_words() - _OF_DATA
    while waiting:
        one, at, resolver = waiting.pop()
        if not isinstance(one, Mapping) or id(one) in seen:
            continue
        seen.add(id(one))
        with contextlib.suppress(ValueError, AttributeError):  # an `$id` that is not a URI, or not a text
            resolver = resolver.in_subresource(draft.specification.create_resource(one))
        yield one, json_pointer(at), resolver
        found: list[tuple[Json, tuple[str | int, ...], _Library]] = []
        for word, value in one.items():
            if word in REFERENCES and isinstance(value, str):
                with contextlib.suppress(Unresolvable, AttributeError, TypeError, ValueError):  # or an invalid schema
                    target = resolver.lookup(value)
                    found.append((target.contents, (*at, word), target.resolver))
            elif word in _OF_NAMES:
                found += [(named, (*at, word, name), resolver) for name, named in as_mapping(value).items()]
            elif word in words:
                listed = enumerate(value) if isinstance(value, list | tuple) else ()
                found += [(value, (*at, word), resolver), *((item, (*at, word, n), resolver) for n, item in listed)]
        waiting += reversed(found)


def _resolver(root: Json, draft: Draft) -> _Library:
    registry: _Library = Registry().with_resource("", draft.specification.create_resource(root))
    # An invalid schema is reported elsewhere. In draft 3, the library takes a schema in `extends` for a list.
    with contextlib.suppress(AttributeError, TypeError):
        registry = registry.crawl()
    return registry.resolver()


@cache
def _applied(draft: Draft) -> frozenset[str]:
    return frozenset(draft.validator.VALIDATORS) | _PARTS.get(draft.name, frozenset())


@cache
def _known_words() -> frozenset[str]:
    schemas = (REGISTRY.contents(uri) for uri in REGISTRY)
    found = (one.get("properties", {}) for one in schemas if isinstance(one, Mapping))
    return frozenset[str]().union(*found).union(*map(_applied, DRAFTS))
