"""Read a response with SEARCH/REPLACE blocks as the files that it makes of those that the model was shown.

Blocks match whole lines, exactly and once, in what the model was shown. All of them apply to the original text.
"""

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.paths import unsafe_reason
from orch23.proposal import proposal_codes as codes
from orch23.proposal.fenced_files import EditBlock, EditResponse, block_fault, read_edits
from orch23.proposal.omissions import common_prefixes
from orch23.proposal.proposal_files import MAX_ENTRIES, ProposalScope, normalize_envelope, too_many_error, written_path
from orch23.proposal.response_parser import FilesEnvelope, ProposedFile, stated_in, unwrapped
from orch23.text.excerpt import escape_text

# Bounds of what is compared and shown for a block that does not match.
_SHOWN_LINES = 4
_SHOWN_WIDTH = 90
_SHOWN_PLACES = 6
_COMPARED_LINES = 5_000
_COMPARED_WIDTH = 300
_LEAST_LIKENESS = 0.5
# After this many errors in one file, its other blocks are not compared with it.
_MOST_ERRORS = 20
# Lines of a block that are compared with those that it replaces, to keep the line ends of each.
_ALIGNED_LINES = 500
_FORM = (
    "respond with blocks: the path, `<<<<<<< SEARCH`, lines of the file, `=======`, the new lines, `>>>>>>> REPLACE`"
)


class _Place(Struct, frozen=True):
    """The lines `start` to `end` of a file, from 0 and without the last, and the block that replaces them."""

    start: int
    end: int
    block: EditBlock


class _File(Struct, frozen=True):
    """A file to edit: its lines without and with their ends, and the ranges of lines that were shown."""

    path: str
    lines: tuple[str, ...]
    ends: tuple[str, ...]
    shown: tuple[tuple[int, int], ...]


def apply_edits(
    path: str, text: str, blocks: Sequence[EditBlock], shown: tuple[tuple[int, int], ...] | None = None
) -> tuple[str, tuple[Diagnostic, ...]]:
    """Return a file with its blocks applied, and the errors; the file is unchanged if there are any.

    `shown` are the parts of the file that the model was shown: the number of the first line, from 0, and the one after
    the last line. None if it was shown all of it.
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    file = _split(path, text.removeprefix(mark), shown)
    places: list[_Place] = []
    errors: list[Diagnostic] = []
    for block in blocks:
        found, problem = _locate(block, file)
        places += [found] if found else []
        errors += [problem] if problem else []
        if len(errors) == _MOST_ERRORS:
            break
    places.sort(key=lambda place: (place.start, place.end))
    errors += _overlaps(places, path)
    return (text, tuple(errors)) if errors else (mark + _replaced(file, places), ())


def _split(path: str, text: str, shown: tuple[tuple[int, int], ...] | None) -> _File:
    parts = text.split("\n")
    lines = [part.removesuffix("\r") for part in parts[:-1]]
    ends = ["\r\n" if part.endswith("\r") else "\n" for part in parts[:-1]]
    if parts[-1]:
        lines, ends = [*lines, parts[-1]], [*ends, ""]
    return _File(path, tuple(lines), tuple(ends), ((0, len(lines)),) if shown is None else shown)


def _locate(block: EditBlock, file: _File) -> tuple[_Place | None, Diagnostic | None]:
    if not block.search:
        if file.lines:
            hint = "give the lines to replace, or lines beside which the new ones belong"
            return None, _error(codes.NO_MATCH, "SEARCH is empty, but the file exists", block, file.path, hint)
        return _Place(0, 0, block), None
    found = _matches(file.lines, block.search)
    if not found and any(map(str.strip, block.search)):
        found = _matches([line.rstrip(" \t") for line in file.lines], [line.rstrip(" \t") for line in block.search])
        block = _with_blanks_of(block, file.lines[found[0] : found[0] + len(block.search)]) if found else block
    seen = [at for at in found if any(a <= at and at + len(block.search) <= b for a, b in file.shown)]
    if len(seen) == 1:
        return _Place(seen[0], seen[0] + len(block.search), block), None
    if seen:
        listed = _listed([at + 1 for at in seen])
        message = f"SEARCH matches {len(seen)} times, at lines {listed}"
        hint = "add lines before and after it, so that it matches once"
        return None, _error(codes.SEVERAL_MATCHES, message, block, file.path, hint)
    if found:
        message = f"SEARCH matches at line {found[0] + 1}, which was not shown"
        return None, _error(codes.NO_MATCH, message, block, file.path, "edit only lines that were shown")
    return None, _no_match(block, file)


def _with_blanks_of(block: EditBlock, lines: Sequence[str]) -> EditBlock:
    """Return a block with the lines of the file, which differ only in blanks at their ends, where it keeps them too."""
    written = list(block.written)
    for kind, a, b, start, end in _line_changes(block.search, block.written):
        if kind == "equal":
            written[start:end] = lines[a:b]
    return replace(block, search=tuple(lines), written=tuple(written))


def _matches(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    size = len(wanted)
    starts = [at for at, line in enumerate(lines) if line == wanted[0]]
    if len(starts) * size <= len(lines):
        return [at for at in starts if tuple(lines[at : at + size]) == tuple(wanted)]
    # Many lines equal the first one: to compare at each of them would take quadratic time.
    return [at - size - 1 for at, equal in enumerate(common_prefixes((*wanted, None, *lines))) if equal >= size]


def _overlaps(places: Sequence[_Place], path: str) -> Iterator[Diagnostic]:
    for one, other in pairwise(places):
        if other.start < one.end or (one.start, one.end) == (other.start, other.end):
            message = f"SEARCH overlaps that of the block in line {one.block.line}, at line {other.start + 1}"
            hint = "join the two blocks: all blocks apply to the file as it was shown"
            yield _error(codes.OVERLAPPING_EDITS, message, other.block, path, hint)


def _replaced(file: _File, places: Sequence[_Place]) -> str:
    """Return the text with the places replaced: nothing else changes, not even the end of a line.

    Lines that a block keeps end as they did, and new lines as their neighbours do. If the last line of the file had no
    newline, the line in its place has none.
    """
    out: list[str] = []
    at = 0
    for place in places:
        out += map("".join, zip(file.lines[at : place.start], file.ends[at : place.start], strict=True))
        ends = _new_ends(file, place)
        if ends and place.end == len(file.ends) and file.ends[-1:] == ("",):
            ends[-1] = ""
        out += map("".join, zip(place.block.written, ends, strict=True))
        at = place.end
    out += map("".join, zip(file.lines[at:], file.ends[at:], strict=True))
    return "".join(out)


def _new_ends(file: _File, place: _Place) -> list[str]:
    old = file.ends[place.start : place.end]
    written = place.block.written
    if old.count("\r\n") in (0, len(old) - old.count("")):  # of one kind, or the last line of the file
        usual = "\r\n" if file.ends.count("\r\n") > file.ends.count("\n") else "\n"
        known = next((end for end in old if end), usual)
        return [known] * len(written)
    found = [""] * len(written)
    for kind, a, b, start, end in _line_changes(place.block.search, written):
        if kind != "delete":
            # A changed line is in the place of the one that it replaces.
            found[start:end] = [old[min(a + n, b - 1)] if a < b else "" for n in range(end - start)]
    following = next(end for end in (*found, *old) if end)
    return [following := one or following for one in found]


def _line_changes(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield what becomes of some lines, as `difflib` does; between two long texts only their equal begin and end."""
    short = min(len(old), len(new))
    head = next((n for n in range(short) if old[n] != new[n]), short)
    tail = next((n for n in range(short - head) if old[-1 - n] != new[-1 - n]), short - head)
    a, b = len(old) - tail, len(new) - tail
    yield "equal", 0, head, 0, head
    if a - head + b - head <= _ALIGNED_LINES:
        between = difflib.SequenceMatcher(None, old[head:a], new[head:b])
        for kind, *numbers in between.get_opcodes():
            i1, i2, j1, j2 = (head + number for number in numbers)
            yield kind, i1, i2, j1, j2
    else:
        yield "replace", head, a, head, b
    yield "equal", a, len(old), b, len(new)


def _no_match(block: EditBlock, file: _File) -> Diagnostic:
    bare = ["".join(line.split()) for line in block.search]
    stripped = ["".join(line.split()) for line in file.lines]
    spaced = [at for at in _matches(stripped, bare) if any(a <= at < b for a, b in file.shown)]
    if spaced and any(bare):
        differs = next(n for n, line in enumerate(block.search) if line != file.lines[spaced[0] + n])
        message = (
            f"SEARCH matches at line {spaced[0] + 1} only if white space is ignored: "
            f"{_line(file.lines, spaced[0] + differs)}"
        )
        return _error(codes.NO_MATCH, message, block, file.path, "copy the lines exactly, with their white space")
    hint = "copy the lines exactly from the file as it is shown"
    if not file.shown:
        return _error(codes.NO_MATCH, "no lines of the file were shown", block, file.path, "do not edit it")
    near = _nearest(bare, stripped, file.shown)
    if near is None:
        return _error(codes.NO_MATCH, "SEARCH matches nowhere, and no line is similar", block, file.path, hint)
    last = min(near + len(bare), len(file.lines), near + _SHOWN_LINES)
    listed = ", ".join(_line(file.lines, at) for at in range(near, last))
    return _error(codes.NO_MATCH, f"SEARCH matches nowhere; nearest lines: {listed}", block, file.path, hint)


def _nearest(wanted: Sequence[str], lines: Sequence[str], shown: Sequence[tuple[int, int]]) -> int | None:
    """Return the line at which most lines match, else the most similar line; None if none is similar."""
    seen = [at for a, b in shown for at in range(a, b)][:_COMPARED_LINES]
    places: dict[str, list[int]] = {}
    for at in seen:
        places.setdefault(lines[at], []).append(at)
    votes = Counter[int]()
    for number, line in enumerate(wanted):
        for at in places.get(line, [])[: _COMPARED_LINES // 100] if line else []:
            votes[max(at - number, 0)] += len(line)
    if votes:
        return min(votes, key=lambda at: (-votes[at], at))
    number, longest = max(enumerate(wanted), key=lambda pair: len(pair[1]))
    longest = longest[:_COMPARED_WIDTH]
    # The pairs of characters that two lines share: `difflib` takes quadratic time.
    pairs = Counter(pairwise(f" {longest}"))
    likeness = {
        line: 2 * (pairs & Counter(pairwise(f" {line}"))).total() / (len(longest) + len(line))
        for line in places
        if 0 < len(line) <= _COMPARED_WIDTH
    }
    close = max(likeness, key=lambda line: likeness[line], default="")
    return max(places[close][0] - number, 0) if likeness.get(close, 0) >= _LEAST_LIKENESS else None


def _line(lines: Sequence[str], at: int) -> str:
    return f"{at + 1} `{escape_text(lines[at], _SHOWN_WIDTH)}`"


def _listed(numbers: Sequence[int]) -> str:
    if len(numbers) > _SHOWN_PLACES:
        return f"{', '.join(map(str, numbers[:_SHOWN_PLACES]))} and {len(numbers) - _SHOWN_PLACES} more"
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _error(code: str, message: str, block: EditBlock, path: str, hint: str) -> Diagnostic:
    return Diagnostic(
        code, f"edit in line {block.line} of the response: {message}", subject=escape_text(path), hint=hint
    )


class EditedFiles(Struct, frozen=True):
    """The files after the edits, and for the limits of size only the text that the response writes of each.

    `edited` are the paths of the files that blocks changed, as the response names them.
    """

    envelope: FilesEnvelope
    written: tuple[ProposedFile, ...] = ()
    edited: frozenset[str] = frozenset()


def read_edited_files(text: str, scope: ProposalScope) -> EditedFiles:
    """Return the files that a response makes. Every error of its form and of its blocks is in the envelope."""
    plain = unwrapped(text)
    if (reason := stated_in(plain)) is not None:
        return EditedFiles(FilesEnvelope(stated_error=reason))
    if "\0" in plain:
        hint = "write plain text in UTF-8"
        fault = Diagnostic(codes.INVALID_TEXT, "the response contains a NUL character", hint=hint)
        return EditedFiles(FilesEnvelope(errors=(fault,)))
    paths = {*scope.base, *scope.not_shown}
    response = read_edits(plain, paths.union(map(scope.response_path, paths)))
    if not any((response.edits, response.files, response.deletes)):
        fault = Diagnostic(codes.WRONG_SHAPE, "the response has no SEARCH/REPLACE block", hint=_FORM)
        return EditedFiles(FilesEnvelope(errors=(fault,)))
    if len(response.edits) > MAX_ENTRIES:
        return EditedFiles(FilesEnvelope(errors=(too_many_error(len(response.edits), "SEARCH/REPLACE blocks"),)))
    return _edited(response, scope)


def _edited(response: EditResponse, scope: ProposalScope) -> EditedFiles:
    whole = normalize_envelope(
        FilesEnvelope(
            files=tuple(ProposedFile(block.path, block.text) for block in response.files if block.path),
            deletes=response.deletes,
            from_blocks=True,
        ),
        scope,
    )
    errors = [*_form_errors(response), *_unseen(whole.files, scope)]
    grouped: dict[str, list[EditBlock]] = {}
    for block in response.edits:
        if not block.fault:
            grouped.setdefault(written_path(block.path, scope), []).append(block)
    files: list[ProposedFile] = []
    for path, blocks in grouped.items():
        content, problems = _applied(path, blocks, scope)
        errors += problems
        files.append(ProposedFile(path, content))
    written = tuple(
        ProposedFile(path, "".join(f"{line}\n" for block in blocks for line in block.written))
        for path, blocks in grouped.items()
    )
    envelope = FilesEnvelope(files=(*whole.files, *files), deletes=whole.deletes, errors=tuple(errors))
    return EditedFiles(envelope, (*whole.files, *written), frozenset(grouped))


def _applied(path: str, blocks: list[EditBlock], scope: ProposalScope) -> tuple[str, tuple[Diagnostic, ...]]:
    full = scope.project_path(path)
    base = scope.base.get(full)
    if unsafe_reason(path) is not None or full in scope.not_shown:
        return base or "", ()  # reported by the checks of paths
    if base is None:
        # Blank lines to find in a file that does not exist are none.
        blocks = [block if any(map(str.strip, block.search)) else replace(block, search=()) for block in blocks]
    if base is None and any(block.search for block in blocks):
        hint = "name a file that was shown, or leave SEARCH empty to make a new file"
        message = f"edit in line {blocks[0].line} of the response: the file does not exist"
        return "", (Diagnostic(codes.NO_MATCH, message, subject=full, hint=hint),)
    return apply_edits(full, base or "", blocks, scope.slices.get(full))


def _form_errors(response: EditResponse) -> Iterator[Diagnostic]:
    faults = [(block.line, block.fault) for block in response.edits if block.fault]
    faults += [(block.line, fault) for block in response.files if (fault := block_fault(block))]
    for line, fault in sorted(faults):
        yield Diagnostic(codes.WRONG_SHAPE, f"line {line}: {fault}", hint=_FORM)


def _unseen(files: tuple[ProposedFile, ...], scope: ProposalScope) -> Iterator[Diagnostic]:
    for file in files:
        full = scope.project_path(file.path)
        if full in scope.slices and scope.base.get(full) is not None:
            hint = "respond with SEARCH/REPLACE blocks for it"
            yield Diagnostic(codes.NOT_SHOWN, "exists, and only parts of it were shown", subject=full, hint=hint)
