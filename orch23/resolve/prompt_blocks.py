"""Put data into prompts as blocks whose delimiters the data cannot contain.

A block is an opening line, the text exactly as it is, and a closing line. Both lines have a delimiter: hexadecimal
digits that occur nowhere in the text between them. So the data cannot end its own block and continue as instructions.
The digits are computed from the data, so that every machine renders the same prompt.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Protocol, TypeGuard

import jinja2
from msgspec import Struct

from orch23.resolve.template_limits import refuse_undefined

_DIGITS = 12


class BlockInput(Protocol):
    """An input of a prompt."""

    @property
    def path(self) -> str:
        """Return its path."""

    @property
    def slice(self) -> str:
        """Return which part of the file it is; empty for the whole file."""

    @property
    def text(self) -> str:
        """Return its text."""


class DataBlock(Struct, frozen=True):
    """One piece of data: what it is, its text, and its path and slice (empty if it is not from a file)."""

    kind: str
    text: str
    path: str = ""
    slice: str = ""


def render_blocks(blocks: Iterable[DataBlock]) -> str:
    """Return the text of blocks, with an empty line between them and no line end after the last."""
    found = tuple(blocks)
    heads = [_head(block) for block in found]
    delimiter = _delimiter(heads, [block.text for block in found])
    return "\n\n".join(
        f"--- begin {delimiter}: {head} ---\n{block.text}\n--- end {delimiter} ---"
        for head, block in zip(heads, found, strict=True)
    )


# ---- as filters of prompt files -----------------------------------------------------------------


def block(value: object, kind: str | None = None) -> str:
    """Return an input, or a text of the given kind, as a block; an empty text for no value."""
    if value is None or value == "":
        return ""
    refuse_undefined(value)
    if isinstance(value, str):
        return render_blocks([DataBlock(_kind(kind), value)])
    if _is_input(value):
        return render_blocks([_of_input(value, kind)])
    message = "`block` needs an input, or a text and what it is: `previous | block('previous answer')`"
    raise TypeError(message)


def blocks(value: object, kind: str | None = None) -> str:
    """Return a list of inputs, such as `inputs` or `own`, as blocks with one delimiter; an empty text for no value."""
    if value is None:
        return ""
    refuse_undefined(value)
    found = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [None]
    inputs = [one for one in found if _is_input(one)]
    if len(inputs) != len(found):
        message = "`blocks` needs a list of inputs, such as `inputs` or `own`; use `block` for one of them"
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
    message = "`block` of a text needs a name for it: `brief.excerpt | block('what failed')`"
    raise TypeError(message)


# ---- lines and delimiter ------------------------------------------------------------------------


def _head(block: DataBlock) -> str:
    parts = [_quoted(block.kind)]
    parts += [f"path={_quoted(block.path)}"] if block.path else []
    parts += [f"slice={_quoted(block.slice)}"] if block.slice else []
    return " ".join((*parts, f"sha256={_sha256(block.text)}"))


def _quoted(text: str) -> str:
    """Return a text as a JSON string on one line, with characters that are not printable escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in quoted)


def _delimiter(heads: list[str], texts: list[str]) -> str:
    """Return digits that occur in none of the texts and heads. The same arguments give the same digits."""
    # Random digits would change the prompt at each build, and with it the key. Text that contains the digits, such as
    # a prompt quoted in a spec, gets other ones: the hash is extended until they occur nowhere.
    digits = ""
    while True:
        digits += _sha256("\n".join((digits, *heads)))
        for length in range(_DIGITS, len(digits) + 1):
            delimiter = digits[:length]
            if not any(delimiter in text for text in (*texts, *heads)):
                return delimiter


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
