"""Normalize the paths and contents of a response in ways that have only one meaning.

Nothing here is part of a key. The recorded response stays as the model wrote it.
"""

import re

from msgspec.structs import replace

from orch23.model.paths import without_dot
from orch23.proposal.fenced_files import sole_fence
from orch23.proposal.omissions import MARKDOWN
from orch23.proposal.proposal_files import MAX_ENTRIES, ProposalScope, too_many_error
from orch23.proposal.response_parser import FilesEnvelope, ProposedFile
from orch23.text.write_protection import allows_write

# A file of these kinds may consist of one fenced block: Markdown, and templates of it.
_MAY_BE_FENCED = re.compile(r"\.(?:md|markdown|mdx|qmd|rmd|rst|txt|j2|jinja2?|tmpl)(?:\.|$)", re.IGNORECASE)


def normalize_envelope(envelope: FilesEnvelope, scope: ProposalScope) -> FilesEnvelope:
    """Return a response with its paths relative to `cwd`, and contents with the line ends of the files they replace."""
    if (number := len(envelope.files) + len(envelope.deletes)) > MAX_ENTRIES:
        return FilesEnvelope(errors=(too_many_error(number, "files and deletes"),))
    write, delete = scope.write_scope.write, scope.write_scope.delete
    return replace(
        envelope,
        files=tuple(
            _normalized(file, relative_path(file.path, write, scope), scope, in_json=not envelope.from_blocks)
            for file in envelope.files
        ),
        deletes=tuple(relative_path(path, delete, scope) for path in envelope.deletes),
    )


def relative_path(path: str, allowed: tuple[str, ...], scope: ProposalScope) -> str:
    """Return a path without `./` before it, and relative to `cwd` if only its form from the root makes sense."""
    path = without_dot(path)
    inside = scope.response_path(path)
    if inside == path or not allows_write(allowed, path, scope.protected):
        return path
    existing, full = scope.existing_files(), scope.project_path(path)
    if not allows_write(allowed, full, scope.protected):
        return path if full in existing else inside
    # Both may be written. Only if the one exists, and nothing in a directory of the other, is the meaning clear.
    below = f"{full.removesuffix(inside)}"
    return inside if path in existing and not any(one.startswith(below) for one in existing) else path


def _normalized(file: ProposedFile, path: str, scope: ProposalScope, *, in_json: bool) -> ProposedFile:
    base = scope.base.get(scope.project_path(path))
    content = file.content
    if in_json:
        content = without_fence(path, content, base)
    return ProposedFile(path, with_ends_of(base, content), file.base)


def without_fence(path: str, content: str, base: str | None) -> str:
    """Return a file without the one code fence around all of it, unless a file of its kind may have one."""
    fenced = sole_fence(content)
    if fenced is None or sole_fence(base or "") is not None:
        return content
    is_around = path.lower().endswith(MARKDOWN) and fenced.language in ("markdown", "md")
    return fenced.text if is_around or not _MAY_BE_FENCED.search(path) else content


def with_ends_of(base: str | None, content: str) -> str:
    """Return a text with the line ends of the file that it replaces, and with its newline at the end."""
    if not base or not content:
        return content
    windows, newlines = base.count("\r\n"), base.count("\n")
    if newlines and not windows:
        content = content.replace("\r\n", "\n")
    elif windows and windows == newlines:
        content = content.replace("\r\n", "\n").replace("\n", "\r\n")
    ending = "\r\n" if base.endswith("\r\n") else "\n"
    return content + ending if base.endswith("\n") and not content.endswith("\n") else content
