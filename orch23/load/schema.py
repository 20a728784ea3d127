"""Give the one schema of pipelines: as shipped, with room for expressions, and as a reference page."""

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from orch23.load.fitting import Fits, compile_schema

Schema: TypeAlias = dict[str, Any]

_EXPRESSION = {"type": "string", "pattern": r"\$\{\{"}
# What must be known before anything is rendered.
_LITERAL = frozenset({"version", "name", "as"})
_SUBSCHEMAS = ("items", "additionalProperties")


@functools.cache
def _text() -> str:
    return Path(__file__).with_name("pipeline.schema.json").read_text("utf-8")


def schema() -> Schema:
    """Return the schema of pipeline files, JSON schema draft 7, a new copy each time."""
    found: Schema = json.loads(_text())
    return found


@functools.cache
def relaxed_schema() -> Schema:
    """Return the schema with room for expressions: wherever a scalar or list may stand, `${{ }}` may too.

    The types of what they give are checked after rendering, by `orch23.resolve.stages`. References are written out,
    which makes checking three times as fast.
    """
    whole = schema()
    return _relaxed(whole, whole)


@functools.cache
def fits() -> Fits:
    """Return what says quickly whether a value fits the relaxed schema."""
    return compile_schema(relaxed_schema())


def _relaxed(node: Schema, whole: Schema) -> Schema:
    """Return a subschema that also takes an expression, unless only a mapping may stand there."""
    node = _resolved(node, whole)
    out = {key: value for key, value in node.items() if key != "definitions"}
    if "properties" in node:
        out["properties"] = {
            name: below if name in _LITERAL else _relaxed(below, whole) for name, below in node["properties"].items()
        }
    for key in _SUBSCHEMAS:
        if isinstance(node.get(key), dict):
            out[key] = _relaxed(node[key], whole)
    if "oneOf" in node:
        out["oneOf"] = [_branch(branch, whole) for branch in node["oneOf"]]
    return out if node.get("type") == "object" or _takes_text(node) else {"if": _EXPRESSION, "then": True, "else": out}


def _branch(branch: Schema, whole: Schema) -> Schema:
    """Return an alternative relaxed from within: around all of them there is room already."""
    relaxed = _relaxed(branch, whole) if "required" not in branch or "type" in branch else branch
    inner: Schema = relaxed.get("else", relaxed)
    return inner


def _takes_text(node: Schema) -> bool:
    """Say whether any text is fine at a node, so that an expression is."""
    if "oneOf" in node:
        return any(_takes_text(branch) for branch in node["oneOf"])
    kinds = node.get("type", ())
    return (
        ("string" in ([kinds] if isinstance(kinds, str) else kinds)) and "pattern" not in node and "format" not in node
    )


# ---- the reference page -----------------------------------------------------------------------

_HEAD = """# Pipeline reference

Every key of a pipeline file, version 1. This page is generated from `orch23/load/pipeline.schema.json`, the schema that
pipelines are checked against (`orch23 schema` prints it); do not edit it by hand.

Wherever a string, number, boolean or list may stand, a `${{ }}` expression may stand instead.
"""


def reference_page() -> str:
    """Return the reference of the pipeline language as Markdown."""
    whole = schema()
    parts = [_HEAD]
    for title, node in _sections(whole):
        parts.append(f"\n## {title}\n\n{node['description']}\n")
        parts.append("\n| key | value | meaning |\n|---|---|---|\n")
        parts.extend(_row(name, below, node, whole) for name, below in node["properties"].items())
        if "x-later" in node:
            names = ", ".join(f"`{name}`" for name in node["x-later"])
            parts.append(f"\nNot in this version yet, and refused: {names}.\n")
    return "".join(parts)


def _sections(whole: Schema) -> Iterator[tuple[str, Schema]]:
    """Give every mapping of the language that has keys of its own, with its title, each once."""
    yield "The file", whole
    for name in ("stage", "defaults"):
        yield f"`{name}`" if name == "defaults" else "A stage", whole["definitions"][name]
    seen: dict[str, None] = {}
    stage = whole["definitions"]["stage"]
    for owner in (whole, stage, whole["definitions"]["llm"]):
        for key, node in owner["properties"].items():
            for below in _mappings(node, whole):
                title = f"`llm.{key}`" if owner is whole["definitions"]["llm"] else f"`{key}`"
                title += " of a stage" if owner is stage and key in whole["properties"] else ""
                if "properties" in below and title not in seen and key not in ("defaults", "stages"):
                    seen[title] = None
                    yield title, below
    yield "A model's price in `prices`", whole["definitions"]["price"]
    yield "An input", whole["definitions"]["input"]["oneOf"][1]
    yield "A step of `verify`", whole["definitions"]["step"]
    yield "`commands` of a step", whole["definitions"]["step"]["properties"]["commands"]
    yield "A condition in a list", whole["definitions"]["conditions"]["oneOf"][1]["items"]


def _mappings(node: Schema, whole: Schema) -> Iterator[Schema]:
    node = _resolved(node, whole)
    if node.get("type") == "object":
        yield node
    for branch in node.get("oneOf", ()):
        if isinstance(branch, Mapping) and ("type" in branch or "$ref" in branch):
            yield from _mappings(dict(branch), whole)


def _resolved(node: Schema, whole: Schema) -> Schema:
    reference = node.get("$ref") or next((part["$ref"] for part in node.get("allOf", ()) if "$ref" in part), None)
    if reference is None:
        return node
    target: Schema = whole["definitions"][reference.rpartition("/")[2]]
    return {**target, "description": node.get("description", target.get("description", ""))}


def _row(name: str, node: Schema, owner: Schema, whole: Schema) -> str:
    resolved = _resolved(node, whole)
    needed = " (required)" if name in owner.get("required", ()) else ""
    default = f" Default: `{json.dumps(resolved['default'])}`." if "default" in resolved else ""
    meaning = f"{resolved['description']}{default}".replace("|", "\\|")
    return f"| `{name}`{needed} | {_kind(resolved, whole)} | {meaning} |\n"


def _kind(node: Schema, whole: Schema) -> str:
    """Return in a few words what may stand at a node."""
    node = _resolved(node, whole)
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return " or ".join(f"`{value}`" for value in node["enum"])
    branches = [branch for branch in node.get("oneOf", ()) if "type" in branch or "$ref" in branch or "enum" in branch]
    if branches:
        return " or ".join(_kind(branch, whole) for branch in branches)
    kinds = node.get("type", "any value")
    words = [_WORDS.get(kind, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    if kinds == "array":
        return f"list of {_kind(node['items'], whole)}" if _kind(node["items"], whole) != "any value" else "list"
    return " or ".join(words)


_WORDS = {"object": "mapping", "integer": "whole number", "boolean": "`true` or `false`", "array": "list"}
