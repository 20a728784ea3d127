"""The page of every key of a pipeline file, as the JSON schema describes it."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from orch23.resolve.schema import Schema, resolved, schema

_HEAD: Final = """# Pipeline reference

Every key of a pipeline file, version 1. This page is generated from `orch23/resolve/document.py`, which declares
the language (`orch23 schema` prints the same as a JSON schema); do not edit it by hand.

Wherever a string, number, boolean or list may stand, a `${{ }}` expression may stand instead, except where a key says
"No expression".
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
    definitions = whole["definitions"]
    yield "A model's price in `prices`", definitions["price"]
    yield "An input", definitions["input"]
    yield "A step of `verify`", definitions["verify_step"]
    yield "`commands` of a step", resolved(definitions["verify_step"]["properties"]["commands"], whole)
    yield "A condition in a list", definitions["condition"]


def _mappings(node: Schema, whole: Schema) -> Iterator[Schema]:
    node = resolved(node, whole)
    if node.get("type") == "object":
        yield node
    for branch in node.get("oneOf", ()):
        if isinstance(branch, Mapping) and ("type" in branch or "$ref" in branch):
            yield from _mappings(dict(branch), whole)


def _row(name: str, node: Schema, owner: Schema, whole: Schema) -> str:
    below = resolved(node, whole)
    needed = " (required)" if name in owner.get("required", ()) else ""
    default = f" Default: `{json.dumps(below['default'])}`." if "default" in below else ""
    literal = " No expression." if "x-literal" in below else ""
    meaning = f"{below['description']}{default}{literal}".replace("|", "\\|")
    return f"| `{name}`{needed} | {_kind(below, whole)} | {meaning} |\n"


def _kind(node: Schema, whole: Schema) -> str:
    """Return in a few words what may stand at a node."""
    node = resolved(node, whole)
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


_WORDS: Final = {"object": "mapping", "integer": "whole number", "boolean": "`true` or `false`", "array": "list"}
