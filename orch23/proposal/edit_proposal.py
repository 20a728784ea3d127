"""Read a response with SEARCH/REPLACE blocks as the files that it makes of those that the model was shown."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.paths import unsafe_reason
from orch23.proposal import proposal_codes as codes
from orch23.proposal.edit_application import apply_edits
from orch23.proposal.fenced_files import EditBlock, EditResponse, block_fault, read_edits
from orch23.proposal.proposal_files import MAX_ENTRIES, ProposalScope, normalize_envelope, relative_path, too_many_error
from orch23.proposal.response_parser import FilesEnvelope, ProposedFile, stated_in, unwrapped

_FORM = (
    "respond with blocks: the path, `<<<<<<< SEARCH`, lines of the file, `=======`, the new lines, `>>>>>>> REPLACE`"
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
    response = read_edits(plain)
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
            grouped.setdefault(relative_path(block.path, scope.write_scope.write, scope), []).append(block)
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
