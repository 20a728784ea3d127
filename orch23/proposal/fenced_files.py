"""Read the blocks of a response: fenced ones, which are files if each has a path, and those of SEARCH/REPLACE.

A block begins and ends with a line of at least three backticks or tildes, without a space before them. A fence line
with a language inside a block opens a block in it, as in Markdown that contains examples.

SEARCH/REPLACE blocks have the form of aider: a path, then `<<<<<<< SEARCH`, the lines to find, `=======`, the lines to
write and `>>>>>>> REPLACE`, in a fence or not. Longer marks, all of one length, delimit lines that look like marks.
"""

import re
from collections.abc import Container, Iterator

from msgspec import Struct
from msgspec.structs import replace

_HEADING = re.compile(r"^#{1,6}[ \t]+")
_BULLET = re.compile(r"^(?:[0-9]{1,3}[.)]|[-*+])[ \t]+")
_LABEL = re.compile(r"^(?:file|filename|path)[ \t]*:[ \t]*", re.IGNORECASE)
_NOTES = frozenset({"new", "new file", "updated", "modified", "changed", "complete"})
_DELETE = re.compile(r"^delete:[ \t]*(?P<path>\S.*)$", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"^(?:title|file|filename|path)=(?P<quote>[\"']?)(?P<path>[^\"']+)(?P=quote)$")
_EXTENSION = re.compile(r"[^.]\.[A-Za-z][A-Za-z0-9]{0,9}$|^\.[A-Za-z]")
# Names of files without an extension. In an opening line, such a word is a language.
_PLAIN_NAMES = frozenset({"Makefile", "Dockerfile", "Justfile", "Procfile", "Gemfile", "Rakefile", "LICENSE", "NOTICE"})
_COMMENTS = ("#", "//", "--", ";", "%", "/*", "<!--")
_SEARCH = re.compile(r"^(?P<marks><{5,}+)[ \t]*+SEARCH[ \t]*+:?[ \t]*+(?P<path>\S*+)[ \t]*+$", re.IGNORECASE)
# In place of a block, while the Markdown around it is read. A response with a NUL is refused before.
_PLACE = re.compile("^\0([0-9]+)$")


class FencedBlock(Struct, frozen=True):
    """A fenced block: its line in the response, what follows the opening fence, its text, and the paths beside it.

    `before` is the path in the last line of text before the block, `inside` that in its opening line, or in a comment
    that is its first line if no other line has one; empty if there is none. `is_closed` is false for a block without an
    end.
    """

    line: int
    info: str
    text: str
    before: str
    inside: str
    is_closed: bool

    @property
    def path(self) -> str:
        """Return the path of the file; an empty text if there is none."""
        return self.inside or self.before

    @property
    def language(self) -> str:
        """Return the first word after the opening fence, in lower case."""
        return self.info.split(maxsplit=1)[0].lower() if self.info else ""


class FencedResponse(Struct, frozen=True):
    """A response in Markdown: its blocks, the numbered lines outside of them, and the paths that it deletes."""

    blocks: tuple[FencedBlock, ...]
    outside: tuple[tuple[int, str], ...]
    deletes: tuple[str, ...]


def read_fenced(text: str) -> FencedResponse:
    """Split a response in Markdown into its blocks and the text around them."""
    lines = text.replace("\r\n", "\n").split("\n")
    blocks: list[FencedBlock] = []
    outside: list[tuple[int, str]] = []
    at, before = 0, ""
    while at < len(lines):
        line = lines[at]
        marks, info = _fence(line)
        if not marks:
            outside.append((at + 1, line))
            before = labelled_path(line) if line.strip() else before
            at += 1
            continue
        end = _end_of_block(lines, at, marks)
        inner = lines[at + 1 : end]
        content = "".join(f"{one}\n" for one in inner)
        is_closed = end < len(lines)
        inside = _path_of_info(info) or ("" if before else _path_of_comment(inner[:1]))
        blocks.append(FencedBlock(at + 1, info, content, before, inside, is_closed))
        at, before = end + 1, ""
    return FencedResponse(tuple(blocks), tuple(outside), tuple(_deletes([line for _, line in outside])))


def block_fault(block: FencedBlock) -> str | None:
    """Return why a block is not one file, or None."""
    if not block.is_closed:
        return "the fenced block is not closed"
    if not block.path:
        return "the fenced block has no path"
    if block.before and block.inside and block.before != block.inside:
        return "the fenced block has two paths"
    return None


def sole_fence(text: str) -> FencedBlock | None:
    """Return the block of a text that is one fenced block and nothing else; None for any other text."""
    if not text.lstrip().startswith(("```", "~~~")):
        return None
    lines = text.strip().replace("\r\n", "\n").split("\n")
    marks, info = _fence(lines[0])
    last = len(lines) - 1
    if not marks or lines[last].rstrip() != marks or _end_of_block(lines, 0, marks) != last:
        return None
    return FencedBlock(1, info, "".join(f"{line}\n" for line in lines[1:last]), "", "", is_closed=True)


def _fence(line: str) -> tuple[str, str]:
    """Return the marks of a line that is a fence, and the text after them; two empty texts for another line."""
    rest = line.lstrip(line[:1])
    marks, info = line[: len(line) - len(rest)], rest.strip(" \t")
    return (marks, info) if marks.startswith(("```", "~~~")) and "`" not in info else ("", "")


def _end_of_block(lines: list[str], start: int, marks: str) -> int:
    """Return the index of the line that closes a block; the number of lines if none does."""
    depth = 1
    for number in range(start + 1, len(lines)):
        found, info = _fence(lines[number])
        if not found.startswith(marks):
            continue
        depth += 1 if info else -1
        if depth == 0:
            return number
    return len(lines)


def _deletes(outside: list[str]) -> Iterator[str]:
    for line in outside:
        # In a list or bold, around the word or around all of it, it may also be prose.
        plain = _without_marks(line).replace(":**", ":", 1).replace("**:", ":", 1)
        found = _DELETE.match(plain)
        path = "" if found is None else found["path"].strip("* \t").strip("`")
        if path and (plain == line.rstrip() or is_path(path)):
            yield path


def _without_marks(line: str) -> str:
    return _BULLET.sub("", _HEADING.sub("", line.strip())).strip("* \t")


def labelled_path(line: str, known: Container[str] = ()) -> str:
    """Return the path that a line consists of, without the marks of Markdown around it, or an empty text.

    A `known` path may have white space.
    """
    plain = _without_marks(line).removesuffix(":").strip("* \t")
    before, _, note = plain.removesuffix(")").rpartition("(")
    plain = before.strip("* \t") if plain.endswith(")") and note.lower() in _NOTES else plain
    named = _LABEL.sub("", plain).strip("* \t")
    path = named.strip("`")
    is_marked = named != plain or (named.startswith("`") and named.endswith("`")) or path in _PLAIN_NAMES
    return path if path in known or is_path(path, is_marked=is_marked and "`" not in path) else ""


def _path_of_comment(first: list[str]) -> str:
    line = first[0].strip() if first else ""
    mark = next(filter(line.startswith, _COMMENTS), "")
    text = line.removeprefix(mark).lstrip(";" if mark == ";" else " \t").removesuffix("*/").removesuffix("-->")
    path = _LABEL.sub("", text.strip(" \t")).strip("`") if mark else ""
    return path if is_path(path) else ""


def _path_of_info(info: str) -> str:
    """Return the path of an opening line.

    For example `python a/b.py`, `a/b.py`, `python:a/b.py`, `python title="a/b.py"`, `python {path="a/b.py"}`.
    """
    language, _, rest = info.replace("{", " ").replace("}", " ").strip().partition(" ")
    rest = _LABEL.sub("", rest.strip())
    for word in (rest, *rest.split(), language):
        found = _ATTRIBUTE.match(word)
        if found is not None:
            return found["path"]
    if rest:
        return rest if is_path(rest) else ""
    name, colon, path = language.partition(":")
    if colon and name.isalnum() and is_path(path):
        return path
    return language if is_path(language) else ""


def is_path(text: str, *, is_marked: bool = False) -> bool:
    """Return whether a text is a path and not a word of prose; a text between backticks may be any name."""
    if not text or "://" in text:
        return False
    if is_marked:
        return "\n" not in text
    return not re.search(r"[\s`*{}=]", text) and ("/" in text or _EXTENSION.search(text) is not None)


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


def read_edits(text: str, known: Container[str] = ()) -> EditResponse:
    """Split a response into its SEARCH/REPLACE blocks and the Markdown around them. It has no NUL.

    `known` are paths of existing files: a line that is one of them is not prose.
    """
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
                last = labelled_path(line, known)
                # Text may follow: the lines to find must be in this file.
                path = last if last in known or is_path(last) else path
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
