"""Put data into prompts as blocks whose delimiters the data cannot contain.

A block is an opening line, the text exactly as it is, and a closing line. Both lines hold a fence: hexadecimal digits
that occur nowhere in the texts between them, and that follow from these texts, so that every machine makes the same.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Protocol, TypeGuard

import jinja2
from msgspec import Struct

_DIGITS = 12


class BlockInput(Protocol):
    """An input as a prompt sees it."""

    @property
    def path(self) -> str:
        """Give its path."""

    @property
    def slice(self) -> str:
        """Give the part of the file that it is, empty for the whole."""

    @property
    def text(self) -> str:
        """Give its text."""


class DataBlock(Struct, frozen=True):
    """One piece of data: what it is, where it is from (empty for what is no file), its text."""

    kind: str
    text: str
    path: str = ""
    slice: str = ""


def render_blocks(blocks: Iterable[DataBlock]) -> str:
    """Return blocks as they stand in a prompt, with an empty line between them; no line end after the last."""
    found = tuple(blocks)
    heads = [_head(block) for block in found]
    fence = _fence(heads, [block.text for block in found])
    return "\n\n".join(
        f"--- begin {fence}: {head} ---\n{block.text}\n--- end {fence} ---"
        for head, block in zip(heads, found, strict=True)
    )


# ---- as filters of prompt files -----------------------------------------------------------------


def block(value: object, kind: str | None = None) -> str:
    """Return an input, or a text of the given kind, as a block; of nothing, nothing."""
    if value is None or value == "":
        return ""
    if isinstance(value, jinja2.Undefined):
        str(value)  # raises
    if isinstance(value, str):
        return render_blocks([DataBlock(_kind(kind), value)])
    if _is_input(value):
        return render_blocks([_of_input(value, kind)])
    message = "`block` needs an input, or a text and what it is: `previous | block('previous answer')`"
    raise TypeError(message)


def blocks(value: object, kind: str | None = None) -> str:
    """Return a list of inputs, such as `inputs` or `own`, as blocks behind one fence; of nothing, nothing."""
    if value is None:
        return ""
    if isinstance(value, jinja2.Undefined):
        str(value)  # raises
    found = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [None]
    inputs = [one for one in found if _is_input(one)]
    if len(inputs) != len(found):
        message = "`blocks` needs a list of inputs, such as `inputs` or `own`; for one of them there is `block`"
        raise TypeError(message)
    return render_blocks([_of_input(one, kind) for one in inputs])


def _is_input(value: object) -> TypeGuard[BlockInput]:
    return all(isinstance(getattr(value, name, None), str) for name in ("path", "slice", "text"))


def _of_input(one: BlockInput, kind: str | None) -> DataBlock:
    usual = "listing" if one.slice == "list" else "file"
    return DataBlock(usual if kind is None else _kind(kind), one.text, one.path, one.slice)


def _kind(kind: object) -> str:
    if isinstance(kind, str) and kind and not isinstance(kind, jinja2.Undefined):
        return kind
    message = "`block` of a text needs to know what it is: `brief.excerpt | block('what failed')`"
    raise TypeError(message)


# ---- lines and fence ----------------------------------------------------------------------------


def _head(block: DataBlock) -> str:
    parts = [_quoted(block.kind)]
    parts += [f"path={_quoted(block.path)}"] if block.path else []
    parts += [f"slice={_quoted(block.slice)}"] if block.slice else []
    return " ".join((*parts, f"sha256={_sha256(block.text)}"))


def _quoted(text: str) -> str:
    """Return a text in JSON's quotes, on one line whatever it holds, and readable where it can be."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in quoted)


def _fence(heads: list[str], texts: list[str]) -> str:
    """Return digits that occur in none of the texts nor heads, the same for the same ones."""
    digits = ""
    while True:
        digits += _sha256("\n".join((digits, *heads)))
        for length in range(_DIGITS, len(digits) + 1):
            fence = digits[:length]
            if not any(fence in text for text in (*texts, *heads)):
                return fence


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
