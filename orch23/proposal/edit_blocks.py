"""Read SEARCH/REPLACE blocks from a response, each with the path of its file.

The form is that of aider: a path, then `<<<<<<< SEARCH`, the lines to find, `=======`, the lines to write and
`>>>>>>> REPLACE`, in a fence or not. Longer marks, all of one length, delimit lines that look like marks.
"""

import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from orch23.proposal.fenced_files import FencedBlock, is_path, labelled_path, read_fenced

_SEARCH = re.compile(r"^(?P<marks><{5,}+)[ \t]*+SEARCH[ \t]*+:?[ \t]*+(?P<path>\S*+)[ \t]*+$", re.IGNORECASE)
# In place of a block, while the Markdown around it is read. A response with a NUL is refused before.
_PLACE = re.compile("^\0([0-9]+)$")


class EditBlock(Struct, frozen=True):
    """One block: its line in the response, the path, the lines to find and the lines to write.

    `fault` is what is wrong with its form; empty if nothing is.
    """

    line: int
    path: str
    search: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    fault: str = ""


class EditResponse(Struct, frozen=True):
    """The blocks of a response, in order; the files that it gives whole, and the paths that it deletes."""

    edits: tuple[EditBlock, ...]
    files: tuple[FencedBlock, ...]
    deletes: tuple[str, ...]


def has_search_block(text: str) -> bool:
    """Return whether a block begins anywhere in a response."""
    return any(map(_opening, text.splitlines()))


def read_edits(text: str) -> EditResponse:
    """Split a response into its SEARCH/REPLACE blocks and the Markdown around them. It has no NUL."""
    found, around = _cut_out(text.replace("\r\n", "\n").split("\n"))
    fenced = read_fenced("\n".join(around))
    edits: list[EditBlock] = []
    files: list[FencedBlock] = []
    path, last = "", ""  # of the block before, or in a line of its own after it; in the last line of text
    items: list[tuple[int, str | FencedBlock]] = [*fenced.outside, *((block.line, block) for block in fenced.blocks)]
    for _, item in sorted(items, key=lambda pair: pair[0]):
        if isinstance(item, FencedBlock):
            inner = item.text.split("\n")
            if not any(map(_PLACE.match, inner)):
                files.append(item)
                path = last = ""
                continue
            last = item.path
        else:
            inner = [item]
        for line in inner:
            place = _PLACE.match(line)
            if place is not None:
                block = found[int(place[1])]
                path = block.path or last or path
                fault = block.fault or ("" if path else "no path is in the line before the block")
                edits.append(replace(block, path=path, fault=fault))
                last = ""
            elif line.strip():
                last = labelled_path(line)
                # Text may follow: the lines to find must be in this file.
                path = last if is_path(last) else path
                if isinstance(item, FencedBlock) and not last:
                    edits.append(EditBlock(item.line, path, fault="the fence has text beside its SEARCH blocks"))
    return EditResponse(tuple(edits), tuple(files), fenced.deletes)


def _cut_out(lines: list[str]) -> tuple[list[EditBlock], list[str]]:
    """Return the blocks, and the lines with the number of the block in place of each, and as many lines as before."""
    blocks: list[EditBlock] = []
    around: list[str] = []
    while len(around) < len(lines):
        at = len(around)
        opened = _opening(lines[at])
        if opened is None:
            around.append(lines[at])
            continue
        block, end = _read_block(lines, at, opened)
        around += [f"\0{len(blocks)}", *[""] * (end - at - 1)]
        blocks.append(block)
    return blocks, around


def _opening(line: str) -> re.Match[str] | None:
    opened = _SEARCH.match(line)
    return opened if opened and (not opened["path"] or is_path(opened["path"])) else None


def _read_block(lines: list[str], start: int, opened: re.Match[str]) -> tuple[EditBlock, int]:
    """Return the block that begins at a line, and the index of the line after it."""
    length = len(opened["marks"])
    divider, closing = "=" * length, re.compile(rf"^>{{{length}}}[ \t]*+REPLACE[ \t]*+:?[ \t]*+$", re.IGNORECASE)
    end = next((n for n in range(start + 1, len(lines)) if closing.match(lines[n])), len(lines))
    inner = [line.rstrip() for line in lines[start + 1 : end]]
    dividers = [number for number, line in enumerate(inner) if line == divider]
    fault = "; ".join(_faults(inner, dividers, length, is_closed=end < len(lines)))
    block = EditBlock(start + 1, opened["path"], fault=fault)
    if not block.fault:
        (middle,) = dividers
        search, written = lines[start + 1 : start + 1 + middle], lines[start + 2 + middle : end]
        block = replace(block, search=tuple(search), written=tuple(written))
    return block, end + 1 if end < len(lines) else end


def _faults(inner: list[str], dividers: list[int], length: int, *, is_closed: bool) -> Iterator[str]:
    if not is_closed:
        yield f"the block has no line `{'>' * length} REPLACE`"
    if not dividers:
        yield f"the block has no line `{'=' * length}`"
    elif len(dividers) > 1 or any((one := _opening(line)) and len(one["marks"]) == length for line in inner):
        yield "the block has lines that look like its marks: use marks that are one character longer"
