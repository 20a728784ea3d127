"""Put data into prompts as blocks whose delimiters the data cannot contain.

A block is an opening line, the text exactly as it is, and a closing line. Both lines have a delimiter: hexadecimal
digits that occur nowhere in the text between them. So the data cannot end its own block and continue as instructions.
The digits are computed from the data, so that every machine renders the same prompt.

A prompt that is sent has one delimiter for each block (`BlockDelimiters`), so that a change of one block leaves the
text before it as it was. Keys, fingerprints and `render` steps have one for each use of a filter, as in all versions
(ADR 37). There every head has the digest of its text. In a prompt that is sent only files have one (ADR 40).
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeGuard

import jinja2
from msgspec import Struct
from msgspec.structs import replace

from orch23.model.media import Media, media_of
from orch23.resolve.template_limits import refuse_undefined
from orch23.snapshot.signatures import sha256_hex

if TYPE_CHECKING:
    from orch23.resolve.prompt_inputs import PromptInput

_DIGITS = 12
_HEXADECIMAL = bytes(ord("x" if chr(byte) in "0123456789abcdef" else " ") for byte in range(256))
_RUN = b"x" * _DIGITS


class DataBlock(Struct, frozen=True):
    """One piece of data: what it is, its text, and its path and slice (empty if it is not from a file).

    `media`: it is a picture or a PDF, and the text is its placeholder.
    """

    kind: str
    text: str
    path: str = ""
    slice: str = ""
    media: Media | None = None


def render_blocks(blocks: Iterable[DataBlock]) -> str:
    """Return the text of blocks, with an empty line between them and no line end after the last."""
    given = list(blocks)
    heads = [f"{_label(one)} sha256={one.media.sha256 if one.media else _sha256(one.text)}" for one in given]
    own = _OWN.get()
    if own is None:
        delimiters = [_delimiter(heads, [one.text for one in given])] * len(given)
    else:
        delimiters = [own.assign(head, one.text) for head, one in zip(heads, given, strict=True)]
        # A response may name the digest of a file. The digest of another text is of no use to a model.
        heads = [head if one.path else _label(one) for head, one in zip(heads, given, strict=True)]
    written: list[str] = []
    for delimiter, head, one in zip(delimiters, heads, given, strict=True):
        begin = f"--- begin {delimiter}: {head} ---\n"
        if own is not None and one.media is not None:
            own.media.append(replace(one.media, marker=begin))
        written.append(f"{begin}{one.text}\n--- end {delimiter} ---")
    return "\n\n".join(written)


class BlockDelimiters:
    """The delimiters of the blocks of one rendering, each computed from its own block.

    No delimiter occurs in a text or a head of any block, and no two are equal. If the digits of a block are those of
    one before it, or occur in one before it, it gets other digits. `has_collision`: a block contains the delimiter of
    one before it, which is already rendered. Then render again, with the digits that are `seen` now: the long runs of
    hexadecimal digits in heads and texts, a line for each block. `media` are the pictures and PDFs of its blocks.
    """

    def __init__(self, seen: str = "") -> None:
        """Start a rendering. No delimiter may occur in what is seen."""
        self.seen = seen
        self.has_collision = False
        self.media: list[Media] = []
        self._assigned: set[str] = set()

    @property
    def is_used(self) -> bool:
        """Whether there is a block."""
        return bool(self._assigned)

    def assign(self, head: str, text: str) -> str:
        """Return the delimiter of the next block."""
        here = f"{_runs(head)} {_runs(text)}"
        self.has_collision = self.has_collision or any(one in here for one in self._assigned)
        self.seen += f"{here}\n"
        salt = ""
        while True:
            # The head has the sha256 of the text, so the digits depend on both.
            found = _sha256(f"{salt}\n{head}")[:_DIGITS]
            if found not in self._assigned and found not in self.seen:
                self._assigned.add(found)
                return found
            # A text can have all digits that are counted up, but none that depend on what it has.
            quoting = (line for line in self.seen.split("\n") if found in line)
            salt += _sha256(next(quoting, found))


def _runs(text: str) -> str:
    """Return the runs of hexadecimal digits of a text that are long enough for a delimiter."""
    # Most texts have none. A search in the texts for each delimiter would be one for each pair of blocks.
    data = text.encode("utf-8", "surrogatepass")
    shape = data.translate(_HEXADECIMAL) + b" "
    found: list[bytes] = []
    at = shape.find(_RUN)
    while at >= 0:
        end = shape.index(b" ", at)
        found.append(data[at:end])
        at = shape.find(_RUN, end)
    return b" ".join(found).decode()


_OWN: ContextVar[BlockDelimiters | None] = ContextVar("orch23_block_delimiters", default=None)


@contextmanager
def assigning(delimiters: BlockDelimiters | None) -> Iterator[None]:
    """Take the delimiters of all blocks in this context from here; None: one for each use of a filter."""
    token = _OWN.set(delimiters)
    try:
        yield
    finally:
        _OWN.reset(token)


def with_own_delimiters(render: Callable[[], str], before: str = "") -> tuple[str, BlockDelimiters]:
    """Return a rendering whose blocks have delimiters of their own, which do not occur in the text before it."""
    delimiters = BlockDelimiters(before)
    with assigning(delimiters):
        text = render()
    if delimiters.has_collision:
        # Once is enough: no delimiter of the second rendering occurs in data of the first, which is the same data. Only
        # a block within a block still has the delimiter of that one.
        delimiters = BlockDelimiters(delimiters.seen)
        with assigning(delimiters):
            text = render()
    return text, delimiters


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
    """Return a list of inputs, such as `inputs` or `own`, as blocks; an empty text for no value."""
    if value is None:
        return ""
    refuse_undefined(value)
    found = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [None]
    inputs = [one for one in found if _is_input(one)]
    if len(inputs) != len(found):
        message = "`blocks` needs a list of inputs, such as `inputs` or `own`; use `block` for one of them"
        raise TypeError(message)
    return render_blocks([_of_input(one, kind) for one in inputs])


def _is_input(value: object) -> "TypeGuard[PromptInput]":
    has_place = all(isinstance(getattr(value, name, None), str) for name in ("path", "slice"))
    return has_place and (media_of(value) is not None or isinstance(getattr(value, "text", None), str))


def _of_input(one: "PromptInput", kind: str | None) -> DataBlock:
    if (media := media_of(one)) is not None:
        return DataBlock(media.kind if kind is None else _kind(kind), media.text, one.path, media=media)
    usual = "listing" if one.slice == "list" else "file"
    return DataBlock(usual if kind is None else _kind(kind), one.text, one.path, one.slice)


def _kind(kind: object) -> str:
    if isinstance(kind, str) and kind and not isinstance(kind, jinja2.Undefined):
        return kind
    message = "`block` of a text needs a name for it: `brief.excerpt | block('what failed')`"
    raise TypeError(message)


def _label(block: DataBlock) -> str:
    parts = [_quoted(block.kind)]
    parts += [f"path={_quoted(block.path)}"] if block.path else []
    parts += [f"slice={_quoted(block.slice)}"] if block.slice else []
    return " ".join(parts)


def _quoted(text: str) -> str:
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
    return sha256_hex(text.encode("utf-8", "surrogatepass"))
