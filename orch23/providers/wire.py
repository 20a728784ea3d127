"""Reduce a JSON schema to the wire schema: the subset that structured output supports.

The wire schema is in the fingerprint, so it does not depend on the client library of any vendor. It is flat: references
are expanded. Rules that the subset lacks are added to the description, where a model can read them. A schema that the
subset would contradict (free keys of an object, a value of any type, recursion) is not sent at all.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from orch23.model.digest import Json
from orch23.model.parsing import as_mapping, json_at
from orch23.model.text import pointer_parts

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


MAX_SCHEMA_NODES = 2_000
MAX_SCHEMA_DEPTH = 32
MAX_OPTIONAL_PROPERTIES = 24
MAX_UNIONS = 16

_PLAIN_TYPES = ("string", "integer", "number", "boolean", "null")
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
_DROPPED_KEYS = frozenset({"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "readOnly", "writeOnly"})

_TEXT: Mapping[str, Json] = {"type": "string"}
_TEXT_OR_NULL: Sequence[Json] = [{"type": "string"}, {"type": "null"}]

# The envelope of `returns: files` in fingerprints. It names no path and requires all fields, so every stage has the
# same one. `base_sha256` is not sent any more, but recordings of earlier versions have fingerprints with it (ADR 40).
FILES_SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "summary": {"type": "string", "description": "What was done, in a sentence or two."},
        "writes": {
            "type": "array",
            "description": "Every file to create or replace, each once, each in full. Empty if there is an error.",
            "items": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "The path of the file, relative, with `/`."},
                    "base_sha256": {
                        "anyOf": _TEXT_OR_NULL,
                        "description": "The sha256 that the prompt shows for the present file; null for a new file; "
                        'an empty text ("") where the prompt shows none.',
                    },
                    "content": {"type": "string", "description": "The whole text of the file, nothing left out."},
                },
                "required": ["path", "base_sha256", "content"],
                "additionalProperties": False,
            },
        },
        "deletes": {
            "type": "array",
            "description": "Paths of files to delete; mostly none.",
            "items": _TEXT,
        },
        "error": {
            "anyOf": _TEXT_OR_NULL,
            "description": "null, or why the task cannot be done; then nothing is written.",
        },
    },
    "required": ["summary", "writes", "deletes", "error"],
    "additionalProperties": False,
}


def sent_schema(schema: Json) -> Json:
    """Return what is sent for a wire schema: the envelope of files without digests for a model to copy."""
    if schema != FILES_SCHEMA:
        return schema
    properties = as_mapping(FILES_SCHEMA["properties"])
    writes = as_mapping(properties["writes"])
    entry = as_mapping(writes["items"])
    fields = {name: value for name, value in as_mapping(entry["properties"]).items() if name != "base_sha256"}
    items = {**entry, "properties": fields, "required": list(fields)}
    return {**FILES_SCHEMA, "properties": {**properties, "writes": {**writes, "items": items}}}


def wire_schema(step: "LLMStep", schema: Json) -> Json:
    """Return the schema of a step in fingerprints: the envelope for files, its own reduced for JSON, none for text."""
    if step.returns == "files":
        return FILES_SCHEMA
    return reduce_schema(schema) if step.returns == "json" else None


def reduce_schema(schema: Json) -> Json:
    """Return a schema in the reduced form; None if that would refuse values that the schema allows."""
    if not isinstance(schema, Mapping):
        return None
    # A change of the reduction changes requests, so that no recorded response is found: a test pins the forms (ADR 10).
    reduction = _Reduction(schema)
    try:
        found = reduction.reduce(schema)
    except _InexpressibleError:
        return None
    nodes = list(_nodes(found))
    optional = sum(len(as_mapping(n.get("properties"))) - len(_list(n.get("required"))) for n in nodes)
    unions = sum("anyOf" in node for node in nodes)
    # Above these limits of structured output, no schema is sent.
    return found if optional <= MAX_OPTIONAL_PROPERTIES and unions <= MAX_UNIONS else None


class _InexpressibleError(Exception):
    pass


class _Reduction:
    """One walk through a schema, with limits: expanded references can grow exponentially."""

    def __init__(self, root: Mapping[str, Json]) -> None:
        self._root = root
        self._nodes = 0
        self._depth = 0

    def reduce(self, schema: Json) -> dict[str, Json]:
        """Return one node, reduced. A reference to an enclosing node exceeds the depth limit."""
        self._nodes += 1
        self._depth += 1
        if not isinstance(schema, Mapping) or self._nodes > MAX_SCHEMA_NODES or self._depth > MAX_SCHEMA_DEPTH:
            raise _InexpressibleError
        found = self._node(schema)
        self._depth -= 1
        return found

    def _node(self, schema: Mapping[str, Json]) -> dict[str, Json]:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            return self.reduce({**self._resolved(reference), **rest})
        # A reference that depends on the way to it, and a list whose first items have schemas of their own.
        if not {"$dynamicRef", "$recursiveRef", "prefixItems"}.isdisjoint(schema):
            raise _InexpressibleError
        node = dict(schema)
        for key in _DROPPED_KEYS:
            node.pop(key, None)
        branches = _list(node.get("allOf"))
        if len(branches) == 1 and isinstance(branches[0], Mapping):
            del node["allOf"]
            return self.reduce({**branches[0], **node})
        return _described(*self._form(node))

    def _form(self, node: dict[str, Json]) -> tuple[dict[str, Json], dict[str, Json]]:
        """Return the reduced form of a node, and the keys that it cannot express."""
        fixed = _fixed(node)
        if fixed:
            node.pop("type", None)
            return fixed, node
        kind = node.pop("type", None)
        if isinstance(kind, list | tuple):
            return self._kinds(kind, node)
        if kind is None:
            kind = "object" if "properties" in node else "array" if "items" in node else None
        if kind is None:
            return self._union(node)
        if kind == "object":
            return self._object(node)
        if kind == "array":
            return self._array(node)
        if kind not in _PLAIN_TYPES:
            raise _InexpressibleError
        form: dict[str, Json] = {"type": kind}
        if kind == "string" and node.get("format") in _FORMATS:
            form["format"] = node.pop("format")
        return form, node

    def _kinds(self, kinds: Sequence[Json], node: dict[str, Json]) -> tuple[dict[str, Json], dict[str, Json]]:
        """Return a list of types as a union. Rules of texts go to the branch of texts."""
        said: dict[str, Json] = {key: node.pop(key) for key in ("title", "description") if key in node}
        branches: list[Json] = [self.reduce({"type": kind, **({} if kind == "null" else node)}) for kind in kinds]
        if not branches:
            raise _InexpressibleError
        return (dict(as_mapping(branches[0])) if len(branches) == 1 else {"anyOf": branches}), said

    def _union(self, node: dict[str, Json]) -> tuple[dict[str, Json], dict[str, Json]]:
        for key in ("anyOf", "oneOf"):
            branches = _list(node.get(key))
            if branches:
                del node[key]
                return {"anyOf": [self.reduce(branch) for branch in branches]}, node
        raise _InexpressibleError

    def _object(self, node: dict[str, Json]) -> tuple[dict[str, Json], dict[str, Json]]:
        properties = as_mapping(node.pop("properties", None))
        required = [name for name in _list(node.pop("required", None)) if isinstance(name, str)]
        free = isinstance(node.pop("additionalProperties", None), Mapping) or "patternProperties" in node
        # A form that forbids correct responses is worse than none (ADR 10).
        if not properties or free or not properties.keys() >= set(required):
            raise _InexpressibleError
        form: dict[str, Json] = {
            "type": "object",
            "properties": {name: self.reduce(value) for name, value in properties.items()},
            "required": required,
            "additionalProperties": False,
        }
        return form, node

    def _array(self, node: dict[str, Json]) -> tuple[dict[str, Json], dict[str, Json]]:
        form: dict[str, Json] = {"type": "array", "items": self.reduce(node.pop("items", None))}
        if node.get("minItems") in (0, 1):  # not a set: the value may be unhashable
            form["minItems"] = node.pop("minItems")
        return form, node

    def _resolved(self, reference: str) -> Mapping[str, Json]:
        if reference != "#" and not reference.startswith("#/"):
            raise _InexpressibleError
        found = json_at(self._root, *pointer_parts(reference))
        if not isinstance(found, Mapping):
            raise _InexpressibleError
        return found


def _fixed(node: dict[str, Json]) -> dict[str, Json]:
    """Remove `enum` and `const` from a node, if their values are scalars, and return them."""
    values = _list(node.get("enum"))
    fixed: dict[str, Json] = {}
    if values and all(_is_plain(value) for value in values):
        fixed["enum"] = node.pop("enum")
    if "const" in node and _is_plain(node["const"]):
        fixed["const"] = node.pop("const")
    return fixed


def _described(form: dict[str, Json], rest: dict[str, Json]) -> dict[str, Json]:
    """Return a form with its title and description; keys that it cannot express are appended to the description."""
    description, title = rest.pop("description", None), rest.pop("title", None)
    if isinstance(title, str):
        form["title"] = title
    said = [description] if isinstance(description, str) else []
    if isinstance(inner := form.get("description"), str):
        said.append(inner)
    # The model may read the rules there. The response is validated by the full schema anyway (ADR 10).
    if rest:
        said.append(json.dumps(rest, sort_keys=True, ensure_ascii=False))
    if said:
        form["description"] = "\n\n".join(said)
    return form


def _nodes(schema: Json) -> Iterator[Mapping[str, Json]]:
    node = as_mapping(schema)
    yield node
    for below in (*as_mapping(node.get("properties")).values(), *_list(node.get("anyOf"))):
        yield from _nodes(below)
    if "items" in node:
        yield from _nodes(node["items"])


def _list(value: Json) -> Sequence[Json]:
    return value if isinstance(value, list | tuple) else ()


def _is_plain(value: Json) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
