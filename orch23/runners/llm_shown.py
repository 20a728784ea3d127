"""The files that the prompt of an llm step shows at each attempt."""

from functools import partial

from orch23.attempt.attempt import AttemptLoop
from orch23.attempt.process_runner import Files
from orch23.attempt.sent_data import TrackedText
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.media import may_be_media
from orch23.model.pipeline import SliceInput, WriteScope
from orch23.proposal.proposal_codes import TOO_LARGE
from orch23.proposal.proposal_files import MAX_FILE_BYTES
from orch23.resolve.prompt_inputs import AttemptContext, PromptInput
from orch23.resolve.slices import SliceError, markdown_section
from orch23.steps.llm.spec import LLMStep

_REPLACEMENT, _PDF = "\ufffd", "%PDF-"
# git looks for a NUL in as many bytes.
_BEGINNING = 8000


def given_inputs(attempts: AttemptLoop, step: LLMStep, start: Files) -> tuple[PromptInput, ...]:
    """Return the inputs of a prompt, with the stage's own files as this attempt finds them."""
    sliced = _sliced(attempts, step)
    declared = tuple(
        _current(attempts, one, start) if one.path in sliced and one.slice else one
        for one in attempts.resolved.given
        if not one.base
    )
    # A file that is a whole input is shown once; one of which only a slice is an input is shown as a whole too, unless
    # the model responds with edits.
    inputs = {one.path for one in declared if not one.slice or one.path in sliced}
    own = tuple(
        PromptInput(path, "", entry.digest.sha256, partial(text_of, attempts, path, entry, "replace"), base=True)
        for path, entry in sorted(start.items())
        if path not in inputs
    )
    return (*declared, *own)


def shown_slices(attempts: AttemptLoop, step: LLMStep, start: Files) -> dict[str, tuple[str, ...]]:
    """Return the sections that a model was shown of each file of which it was not shown all, by path."""
    parts = _sliced(attempts, step)
    shown = given_inputs(attempts, step, start) if parts else ()
    whole = {one.path for one in shown if not one.slice}
    # The value at a pointer is shown as JSON and not as the lines of the file, so no line of it was shown.
    return {
        path: tuple(one.text for one in shown if one.path == path and not one.slice.startswith("/"))
        for path in parts - whole
    }


def binary_inputs(context: AttemptContext) -> tuple[Diagnostic, ...]:
    """Return an error for each binary file that the prompt has read: a model would get replacement characters."""
    found = []
    for one in context.given:
        text = one.read.text if isinstance(one.read, TrackedText) else None
        # Only a file that is not UTF-8 has replacement characters; a text may quote them. No text has a NUL.
        if text is not None and ("\0" in text[:_BEGINNING] or (_REPLACEMENT in text and text.startswith(_PDF))):
            message = "is binary and cannot be shown in a prompt; no model was called"
            hint = f'remove it from `inputs`, or exclude it from a pattern: "!{one.path}"'
            if may_be_media(text):
                hint += "; or show it with `| block` to a model that is known to accept pictures and PDFs"
            found.append(Diagnostic("E837", message, hint=hint, subject=one.path))
    return tuple(found)


def oversized_outputs(
    step: LLMStep, scope: WriteScope, start: Files, context: AttemptContext
) -> tuple[Diagnostic, ...]:
    """Return an error for each file, if a response could only write files that are too large for a response.

    A file that the prompt does not show does not count: a model may write a new one in its place.
    """
    can_delete = bool(scope.delete) and step.returns in ("files", "blocks")
    if step.returns in ("edits", "json") or can_delete or not scope.write:
        return ()
    shown = {one.path for one in context.given if isinstance(one.read, TrackedText) and one.read.text is not None}
    sizes = {path: start[path].digest.size_bytes if path in start and path in shown else 0 for path in scope.write}
    if any(size <= MAX_FILE_BYTES for size in sizes.values()):
        return ()
    hint = "write `returns: edits`: the response then has only what changes"
    most = f"a response with `returns: {step.returns}` can write {MAX_FILE_BYTES:,} of a file; no model was called"
    return tuple(
        Diagnostic(TOO_LARGE, f"has {size:,} bytes, and {most}", hint=hint, subject=path)
        for path, size in sizes.items()
    )


def text_of(attempts: AttemptLoop, path: str, entry: FileEntry, errors: str = "surrogateescape") -> str:
    """Return the text of a file."""
    # A response is compared with the exact bytes of a file: bytes that are not UTF-8 become surrogates.
    return attempts.tree.read(path, entry).decode("utf-8", errors=errors)


def _sliced(attempts: AttemptLoop, step: LLMStep) -> frozenset[str]:
    """Return the files of which slices are inputs, if the model responds with edits of them."""
    if step.returns != "edits":
        return frozenset()
    return frozenset(one.path for one in attempts.resolved.stage.inputs if isinstance(one, SliceInput))


def _current(attempts: AttemptLoop, one: PromptInput, start: Files) -> PromptInput:
    """Return a slice as this attempt finds it: of a file that an earlier attempt edited, the section is taken again."""
    entry = start.get(one.path)
    if entry is None or entry == attempts.resolved.base.get(one.path):
        return one
    text = text_of(attempts, one.path, entry, "replace")
    try:
        section = markdown_section(text, one.slice)
    except SliceError:  # a pointer, or the edit renamed or removed the section
        return PromptInput(one.path, "", entry.digest.sha256, lambda: text, base=True)
    return PromptInput(one.path, one.slice, digest_bytes(section.encode()).sha256, lambda: section)
