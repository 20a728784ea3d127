"""Generate the JSON schema of the pipeline language.

msgspec generates a schema of draft 2020-12. Editors read draft 7, in which definitions have another place and a `$ref`
has no keys beside it. What msgspec cannot express, that exactly one of some keys is needed, is added here.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from orch23.language.pipeline_document import full_form
from orch23.model.language import Document, keys_of

JsonSchema: TypeAlias = dict[str, Any]

_EXPRESSION: Final = {"type": "string", "pattern": r"\$\{\{"}
_SCALARS: Final = frozenset({"boolean", "integer", "number", "string"})
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NOT_BLANK: Final = r"\S"
_BELOW: Final = ("items", "additionalProperties")


@functools.cache
def pipeline_schema(plugins: tuple[str, ...] = ()) -> JsonSchema:
    """Return the schema (draft 7) of pipelines whose expressions are evaluated. It is cached: do not change it."""
    found = _definitions(full_form(plugins))
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "orch23 pipeline",
        **found["pipeline"],
        "definitions": {name: node for name, node in found.items() if name != "pipeline"},
    }


@functools.cache
def published_schema(plugins: tuple[str, ...] = ()) -> JsonSchema:
    """Return the schema of pipeline files for editors: where a scalar or list is allowed, an expression is too."""
    # An editor reads the file as it is written, before expressions are evaluated.
    whole = pipeline_schema(plugins)
    out = _relaxed(whole, whole, _or_expression)
    out["definitions"] = {name: _relaxed(node, whole, _or_expression) for name, node in whole["definitions"].items()}
    return out


@functools.cache
def relaxed_schema(plugins: tuple[str, ...] = ()) -> JsonSchema:
    """Return the same rules without references, in the form that error messages are made from.

    `if` and `else` apply the rules only to values that are not expressions.
    """
    whole = pipeline_schema(plugins)
    return _relaxed(_inlined(whole, whole), whole, lambda node: {"if": _EXPRESSION, "then": True, "else": node})


def document_classes() -> Mapping[str, type[Document]]:
    """Return the class of every mapping of the language, by its name in the schema."""
    return {_snake(kind.__name__): kind for kind in _classes(full_form())}


@functools.cache
def schema_of(kind: type[Document]) -> JsonSchema:
    """Return the schema of one class, without references, for values whose expressions are evaluated."""
    found = _definitions(kind)
    return _inlined(found[_snake(kind.__name__)], {"definitions": found})


@functools.cache
def _definitions(root: type[Document]) -> Mapping[str, JsonSchema]:
    """Return the schema of a class and of every class below it, by their names in the schema."""
    _, components = msgspec.json.schema_components([root], ref_template="#/definitions/{name}")
    classes = {one.__name__: one for one in _classes(root)}
    found = {_snake(name): _of_class(classes[name], node) for name, node in components.items()}
    return dict(sorted(found.items()))


def _classes(hint: Any) -> Iterator[type[Document]]:
    if isinstance(hint, type) and issubclass(hint, Document):
        yield hint
        for below in get_type_hints(hint, include_extras=True).values():
            yield from _classes(below)
    for part in get_args(hint):
        yield from _classes(part)


def _snake(name: str) -> str:
    return _WORD.sub("_", name.removesuffix("Document")).lower()


def _of_class(kind: type[Document], node: JsonSchema) -> JsonSchema:
    choices = _choices(kind)
    keys = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    fields = {written: name for name, written in keys.items()}
    out: JsonSchema = {"type": "object", "description": node["description"], "properties": {}}
    for name in keys_of(kind):
        below = _draft7(node["properties"][name], choices)
        if (key := kind.declared.get(fields[name])) is not None:
            # In draft 7, keys beside `$ref` are ignored.
            below = {**({"allOf": [below]} if "$ref" in below else below), "description": key.description}
            if key.example:
                below["x-example"] = f"{name}: {key.example}"
        out["properties"][name] = below
    if node["required"]:
        out["required"] = node["required"]
    out["additionalProperties"] = False
    if kind.exactly_one:
        out["oneOf"] = [{"required": [keys[name]]} for name in kind.exactly_one]
    if kind.later:
        out["x-later"] = list(kind.later)
    return out


def _choices(kind: type[Document]) -> Mapping[frozenset[Any], tuple[Any, ...]]:
    """Return the values of each choice in declared order: msgspec sorts them."""
    found: dict[frozenset[Any], tuple[Any, ...]] = {}

    def look(hint: Any) -> None:
        if get_origin(hint) is Literal:
            found[frozenset(get_args(hint))] = get_args(hint)
        for below in get_args(hint):
            look(below)

    for hint in get_type_hints(kind, include_extras=True).values():
        look(hint)
    return found


def _draft7(node: JsonSchema, choices: Mapping[frozenset[Any], tuple[Any, ...]]) -> JsonSchema:
    out: JsonSchema = {}
    for key, value in node.items():
        match key:
            # In draft 7, keys beside `$ref` are ignored.
            case "$ref":
                reference = f"#/definitions/{_snake(value.rpartition('/')[2])}"
                out |= {"allOf": [{"$ref": reference}]} if len(node) > 1 else {"$ref": reference}
            case "enum":
                words = list(choices[frozenset(value)])
                out |= {"const": words[0]} if len(words) == 1 else {"enum": words}
            case "anyOf":
                out |= _union([_draft7(branch, choices) for branch in value])
            case "items" | "additionalProperties" | "propertyNames" if isinstance(value, dict):
                out[key] = _draft7(value, choices)
            case "default" if value in ([], (), ""):
                pass  # a key that is not given is empty
            case _:
                out[key] = value
    return out


def _union(branches: list[JsonSchema]) -> JsonSchema:
    """Return scalars as one node with several types, others as alternatives: scalars, mappings, lists."""
    if any(branch.get("type") not in _SCALARS for branch in branches):
        order = {"array": 2, None: 1}
        return {"oneOf": sorted(branches, key=lambda branch: order.get(branch.get("type"), 0))}
    out: JsonSchema = {}
    for branch in branches:  # each rule is of one type; those of whole numbers and numbers are the same
        out |= branch
    kinds = [branch["type"] for branch in branches]
    if "number" in kinds:
        kinds = [kind for kind in kinds if kind != "integer"]
    return {"type": kinds[0] if len(kinds) == 1 else kinds} | {key: out[key] for key in out if key != "type"}


_Wrap: TypeAlias = Callable[[JsonSchema], JsonSchema]


def _or_expression(node: JsonSchema) -> JsonSchema:
    """Return a node that also allows an expression. Editors show the description next to the alternatives."""
    outside: JsonSchema = {key: node[key] for key in ("description", "default") if key in node}
    return {**outside, "anyOf": [{key: value for key, value in node.items() if key not in outside}, _EXPRESSION]}


def _relaxed(node: JsonSchema, whole: JsonSchema, wrap: _Wrap) -> JsonSchema:
    """Return a subschema that also allows an expression, unless only a mapping is allowed, or it must be literal."""
    if "x-literal" in node:
        return {key: value for key, value in node.items() if key != "x-literal"}
    out = _map_below(node, lambda below: _relaxed(below, whole, wrap), lambda branch: _branch(branch, whole, wrap))
    is_mapping = dereference(node, whole).get("type") == "object"
    return out if is_mapping or _takes_text(node) else wrap(out)


def _branch(branch: JsonSchema, whole: JsonSchema, wrap: _Wrap) -> JsonSchema:
    if branch.get("type") == "array":
        return {**branch, "items": _relaxed(branch["items"], whole, wrap)}
    return _relaxed(branch, whole, wrap) if branch.get("type") == "object" else branch


def _map_below(node: JsonSchema, change: _Wrap, change_branch: _Wrap) -> JsonSchema:
    out = {key: value for key, value in node.items() if key != "definitions"}
    if "properties" in out:
        out["properties"] = {name: change(below) for name, below in out["properties"].items()}
    for key in _BELOW:
        if isinstance(out.get(key), dict):
            out[key] = change(out[key])
    if "oneOf" in out:
        out["oneOf"] = [change_branch(branch) for branch in out["oneOf"]]
    return out


def _takes_text(node: JsonSchema) -> bool:
    """Return whether a node allows any text, and so an expression."""
    if "oneOf" in node:
        return any(_takes_text(branch) for branch in node["oneOf"])
    kinds = node.get("type", ())
    takes = "string" in ([kinds] if isinstance(kinds, str) else kinds) or not node.keys() - {"description"}
    return takes and node.get("pattern", _NOT_BLANK) == _NOT_BLANK and "format" not in node


def reference_of(node: JsonSchema) -> str | None:
    """Return the name of the definition that a node refers to; None if it does not."""
    reference = node.get("$ref") or next((part["$ref"] for part in node.get("allOf", ()) if "$ref" in part), None)
    return None if reference is None else str(reference.rpartition("/")[2])


def dereference(node: JsonSchema, whole: JsonSchema) -> JsonSchema:
    """Return the target of a node's reference, with the node's own description; without a reference the node."""
    name = reference_of(node)
    if name is None:
        return node
    target: JsonSchema = whole["definitions"][name]
    return {"description": "", **target, **{key: node[key] for key in ("description", "x-example") if key in node}}


def _inlined(node: JsonSchema, whole: JsonSchema) -> JsonSchema:
    def inline(below: JsonSchema) -> JsonSchema:
        return _inlined(below, whole)

    return _map_below(dereference(node, whole), inline, inline)
