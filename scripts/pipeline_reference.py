"""Generate the reference page of the pipeline language."""

import json
from collections.abc import Iterator
from typing import Final

from orch23.language.schema import JsonSchema, document_classes, pipeline_schema, reference_of
from orch23.model.diagnostic import quoted_names
from orch23.model.language import Document, Key

_HEAD: Final = """# Pipeline reference

Every key of a pipeline file, version 1. This page is generated from `orch23/language/document.py`, which declares
the language (`orch23 schema` prints the same as a JSON schema); do not edit it by hand.

Wherever a string, number, boolean or list is allowed, a `${{ }}` expression is allowed too, except where a key says
"No expression".
"""
_WORDS: Final = {"object": "mapping", "integer": "whole number", "boolean": "`true` or `false`", "array": "list"}


def reference_page() -> str:
    """Return the reference of the pipeline language as Markdown."""
    parts = [_HEAD]
    for title, name, meaning in reference_sections():
        node = definition(name)
        parts.append(f"\n## {title}\n\n{meaning or node['description']}\n")
        parts.append("\n| key | value | meaning | example |\n|---|---|---|---|\n")
        keys = keys_by_name(document_classes()[name])
        parts += [_row(key, below, node, keys[key].example) for key, below in node["properties"].items()]
        if "x-later" in node:
            parts.append(f"\nNot in this version yet, and refused: {quoted_names(node['x-later'])}.\n")
    return "".join(parts)


def reference_sections() -> Iterator[tuple[str, str, str]]:
    """Yield every mapping of the language that has keys of its own, once: its title, name in the schema, and meaning.

    An empty meaning is that of the mapping itself, not of the key that has it.
    """
    yield "The file", "pipeline", ""
    yield "A stage", "stage", ""
    yield "`defaults`", "defaults", ""
    top = definition("pipeline")["properties"]
    seen = {"`defaults`", "`stages`"}
    for owner, prefix, suffix in (("pipeline", "", ""), ("stage", "", " of a stage"), ("llm", "llm.", "")):
        for key, node in definition(owner)["properties"].items():
            title = f"`{prefix}{key}`" + (suffix if key in top else "")
            below = next(_mappings(node), None)
            if below is not None and title not in seen:
                seen.add(title)
                yield title, below, node["description"] if reference_of(node) else ""
    yield "A model's price in `prices`", "price", ""
    yield "A pool in `pools`", "pool", ""
    yield "The limits of a provider or model in `rates`", "rates", ""
    yield "An input", "input", ""
    yield "A tool with a version", "tool", ""
    yield "A step of `verify`", "verify_step", ""
    yield "`commands` of a step", "commands", definition("verify_step")["properties"]["commands"]["description"]
    yield "A condition in a list", "condition", ""


def keys_by_name(kind: type[Document]) -> dict[str, Key]:
    """Return the declared keys of a class, by what they are called in a pipeline."""
    return {one.name or field: one for field, one in kind.declared.items()}


def definition(name: str) -> JsonSchema:
    """Return the schema of the mapping of this name."""
    whole = pipeline_schema()
    found: JsonSchema = whole if name == "pipeline" else whole["definitions"][name]
    return found


def _mappings(node: JsonSchema) -> Iterator[str]:
    """Yield the names of the mappings that a node allows."""
    name = reference_of(node)
    if name is not None:
        yield name
    for branch in node.get("oneOf", ()):
        yield from _mappings(branch)


def _row(name: str, node: JsonSchema, owner: JsonSchema, example: str) -> str:
    needed = " (required)" if name in owner.get("required", ()) else ""
    default = f" Default: `{json.dumps(node['default'])}`." if "default" in node else ""
    literal = " No expression." if "x-literal" in node else ""
    meaning = f"{node['description']}{default}{literal}".replace("|", "\\|")
    return f"| `{name}`{needed} | {_kind(node)} | {meaning} | `{name}: {example}` |\n"


def _kind(node: JsonSchema) -> str:
    """Return in a few words which values a node allows."""
    if reference_of(node) is not None:
        return _WORDS["object"]
    if "const" in node or "enum" in node:
        return " or ".join(f"`{value}`" for value in node.get("enum", [node.get("const")]))
    if "oneOf" in node:
        return " or ".join(_kind(branch) for branch in node["oneOf"] if "const" not in branch)
    kinds = node.get("type", "any value")
    if kinds == "array":
        items = _kind(node["items"])
        return "list" if items == "any value" else f"list of {items}"
    return " or ".join(_WORDS.get(kind, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))
