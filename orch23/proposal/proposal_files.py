"""Normalize the paths and contents of proposed files, and check them: write scope, size, base, syntax.

Only what has one meaning is normalized. It is not part of a key: the recorded response stays as the model wrote it.
"""

import ast
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import digest_bytes
from orch23.model.file_policy import allows_write, is_protected, sealed_reason
from orch23.model.paths import is_glob, match_any, unsafe_reason, without_dot
from orch23.model.pipeline import WriteScope
from orch23.proposal import proposal_codes as codes
from orch23.proposal.fenced_files import sole_fence
from orch23.proposal.omissions import MARKDOWN, find_placeholders, is_diff, omitted_code
from orch23.proposal.response_parser import FilesEnvelope, ProposedFile
from orch23.text.excerpt import escape_text
from orch23.text.source_syntax import SyntaxFault, is_python, lost_names, python_tree, syntax_fault, top_level_names

# A file of these kinds may consist of one fenced block: Markdown, and templates of it.
_MAY_BE_FENCED = re.compile(r"\.(?:md|markdown|mdx|qmd|rmd|rst|txt|j2|jinja2?|tmpl)(?:\.|$)", re.IGNORECASE)


class ProposalScope(Struct, frozen=True, kw_only=True):
    """The rules for the paths and contents of a response. Its paths are relative to `cwd`, all others to the root.

    `base` maps a path to the text of the file that the model was shown, None if it does not exist. `not_shown` are
    existing files that the model was not shown. `protected` are patterns of files that are protected besides those
    with protected names: the pipeline and its prompts. `slices` are the lines that the model was shown of each file
    that it was not shown as a whole: from 0, and the number after the last one. `kept` are files of the last result
    that are on disk. `edits` are the patterns of files that the stage may change and need not make.
    """

    cwd: str
    write_scope: WriteScope
    base: Mapping[str, str | None]
    not_shown: AbstractSet[str] = frozenset()
    protected: tuple[str, ...] = ()
    slices: Mapping[str, tuple[tuple[int, int], ...]] = {}
    kept: AbstractSet[str] = frozenset()
    edits: tuple[str, ...] = ()

    def project_path(self, path: str) -> str:
        """Return a path of a response, relative to the root of the project."""
        return path if self.cwd in ("", ".") else f"{self.cwd.rstrip('/')}/{path}"

    def response_path(self, path: str) -> str:
        """Return a path or pattern of the project as a response must name it; unchanged if it is outside of `cwd`."""
        return path if self.cwd in ("", ".") else path.removeprefix(f"{self.cwd.rstrip('/')}/")

    def existing_files(self) -> frozenset[str]:
        """Return the existing files, shown or not."""
        return frozenset(path for path, text in self.base.items() if text is not None) | self.not_shown


def path_errors(written: tuple[str, ...], deletes: tuple[str, ...], scope: ProposalScope) -> list[Diagnostic]:
    """Return every error of the paths that a response would write and delete."""
    reasons = {path: unsafe_reason(path) for path in (*written, *deletes)}
    hint = "name the file by a plain relative path with `/`, such as `src/app.py`"
    found = [
        _error(codes.UNSAFE_PATH, f"the path {reasons[path]}", path, hint)
        for path in (*written, *deletes)
        if reasons[path] is not None
    ]
    found += _duplicates((*written, *deletes))
    safe = [path for path in written if reasons[path] is None]
    found += _twins(safe, deletes, scope)
    found += _nested(safe, deletes, scope)
    found += itertools.chain.from_iterable(_write_errors(path, scope) for path in safe)
    found += itertools.chain.from_iterable(_delete_errors(path, scope) for path in deletes if reasons[path] is None)
    return found


def _error(code: str, message: str, path: str, hint: str) -> Diagnostic:
    return Diagnostic(code, message, subject=escape_text(path), hint=hint)


def _duplicates(paths: Iterable[str]) -> Iterator[Diagnostic]:
    """Find paths that are one file where case does not matter (macOS, Windows): equal after NFC and case-folding."""
    seen: dict[str, str] = {}
    for path in paths:
        if (first := seen.get(_fold(path))) is not None:
            like = "is proposed twice" if first == path else f"is the same file as {escape_text(first)} on many disks"
            yield _error(codes.DUPLICATE_PATH, like, path, "name each file once")
        seen[_fold(path)] = path


def _twins(paths: list[str], deletes: tuple[str, ...], scope: ProposalScope) -> Iterator[Diagnostic]:
    """Find new files that differ from an existing one only by case or Unicode form."""
    there = scope.existing_files() - {scope.project_path(path) for path in deletes}
    folded = {_fold(path): path for path in sorted(there)}
    for full in map(scope.project_path, paths):
        twin = folded.get(_fold(full))
        if twin is not None and full not in there:
            message = f"is the same file as the existing {escape_text(twin)} on many disks"
            yield _error(codes.DUPLICATE_PATH, message, full, f"write `{escape_text(scope.response_path(twin))}`")


def _nested(paths: list[str], deletes: tuple[str, ...], scope: ProposalScope) -> Iterator[Diagnostic]:
    """Find proposed and existing paths that would have to be a file and a directory."""
    there = scope.existing_files() - {scope.project_path(path) for path in deletes}
    full = {scope.project_path(path) for path in paths}
    files = {_fold(path): path for path in (*sorted(there), *sorted(full))}
    for path in sorted({*files.values()}):
        names = path.split("/")
        for depth in range(1, len(names)):
            file = files.get(_fold("/".join(names[:depth])))
            if file is not None and (path in full or file in full):
                message = f"is a file, and a directory for {escape_text(path)}"
                yield _error(codes.FILE_AND_DIRECTORY, message, file, "choose another name for one of the two")


def _write_errors(path: str, scope: ProposalScope) -> list[Diagnostic]:
    full = scope.project_path(path)
    if match_any(scope.write_scope.protect, full):
        return [_protected_here(full)]
    if allows_write(scope.write_scope.write, full, scope.protected):
        return []
    if is_protected(full, scope.protected) and match_any(scope.write_scope.write, full):
        sealed = sealed_reason(full) is not None
        way_in = "" if sealed else ": only a literal entry of `allowed_paths.write` or `outputs` allows it"
        return [_error(codes.PROTECTED, "is a protected file", full, f"leave it out{way_in}")]
    return [_error(codes.OUTSIDE_WRITE_SCOPE, "is outside the write scope", full, _way_in(path, scope))]


def _way_in(path: str, scope: ProposalScope) -> str:
    if scope.cwd in ("", "."):
        return f"allowed are: {', '.join(scope.write_scope.write) or 'none'}"
    if allows_write(scope.write_scope.write, path, scope.protected):
        return f"paths are relative to `{scope.cwd}`: did you mean `{escape_text(scope.response_path(path))}`?"
    inside = [short for one in scope.write_scope.write if (short := scope.response_path(one)) != one]
    return f"allowed are, relative to `{scope.cwd}`: {', '.join(inside) or 'none'}"


def _delete_errors(path: str, scope: ProposalScope) -> list[Diagnostic]:
    full = scope.project_path(path)
    if match_any(scope.write_scope.protect, full):
        return [_protected_here(full)]
    hint = "leave it out of `deletes`"
    if not allows_write(scope.write_scope.delete, full, scope.protected):
        return [_error(codes.FORBIDDEN_DELETE, "may not be deleted", full, hint)]
    if full in scope.not_shown:
        return [_error(codes.NOT_SHOWN, "exists, but was not shown", full, hint)]
    if scope.base.get(full) is None:
        return [_error(codes.FORBIDDEN_DELETE, "cannot be deleted: it does not exist", full, hint)]
    return []


def _protected_here(full: str) -> Diagnostic:
    return _error(codes.OUTSIDE_WRITE_SCOPE, "is protected by `allowed_paths.protect`", full, "leave it as it is")


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


MAX_FILE_BYTES = 200_000
MAX_TOTAL_BYTES = 500_000
# Maximum of files and deletes together, or of blocks that edit files.
MAX_ENTRIES = 1_000
# Placeholders of one file: more would only repeat the first.
_SHOWN_PLACEHOLDERS = 5
_WHOLE = "write the whole file, every line"
_WHOLE_EDIT = "write every new line; lines that stay as they are belong in no block, or in both of its parts"


def too_many_error(number: int, what: str) -> Diagnostic:
    """Return the error of a response with more files, or blocks, than are checked."""
    message = f"the response has {number:,} {what}; the limit is {MAX_ENTRIES:,}"
    return Diagnostic(codes.TOO_LARGE, message, hint="divide the work into several stages")


def size_errors(entries: Iterable[ProposedFile]) -> Iterator[Diagnostic]:
    """Yield an error for each file that is too large, and one if all files together are."""
    hint = "make it smaller, or divide it into several files or stages"
    total = 0
    for entry in entries:
        size = len(entry.content.encode("utf-8", "surrogatepass"))
        total += size
        if size > MAX_FILE_BYTES:
            message = f"has {size:,} bytes; the limit for a file is {MAX_FILE_BYTES:,}"
            yield _error(codes.TOO_LARGE, message, entry.path, hint)
    if total > MAX_TOTAL_BYTES:
        message = f"the files have {total:,} bytes; the limit for all is {MAX_TOTAL_BYTES:,}"
        yield Diagnostic(codes.TOO_LARGE, message, hint=hint)


def base_errors(entry: ProposedFile, scope: ProposalScope) -> list[Diagnostic]:
    """Return an error for a file that was not shown, or that the response proposes for other bytes than those shown."""
    full = scope.project_path(entry.path)
    if full in scope.not_shown:
        hint = "do not replace a file that was not shown"
        if match_any(scope.edits, full):
            hint += "; only what was shown, by the prompt or on request, can be changed"
        return [_error(codes.NOT_SHOWN, "exists, but was not shown", full, hint)]
    # The file was shown, so a response without its digest, or with null, was made for what was shown.
    if not entry.base:
        return []
    there = text_digest(scope.base.get(full))
    hint = f"leave `base_sha256` out, or write {there or 'null'}"
    if entry.base.lower() != there:
        message = "was proposed for other bytes than those shown" if there else "was proposed as a change, but is new"
        return [_error(codes.STALE_BASE, message, full, hint)]
    return []


def content_errors(
    entries: tuple[ProposedFile, ...], scope: ProposalScope, edited: AbstractSet[str] = frozenset()
) -> list[Diagnostic]:
    """Return the errors of contents: invalid text, a diff, omitted code, invalid syntax, lost definitions.

    `edited` are the paths of files that are the result of edits: what these leave out, they name in full. Another file
    that is too large has only that error: to parse 2 MB takes many seconds, in which nothing can interrupt it.
    """
    entries = tuple(one for one in entries if one.path in edited or len(one.content) <= MAX_FILE_BYTES)
    trees = {e.path: python_tree(e.content) for e in entries if is_python(e.path)}
    return [d for entry in entries for d in _of_one(entry, scope, trees, is_edited=entry.path in edited)]


def text_digest(text: str | None) -> str | None:
    """Return the digest of a file as it was shown; its bytes that are not UTF-8 are lone surrogates in `text`."""
    return None if text is None else digest_bytes(text.encode("utf-8", "surrogateescape")).sha256


def _of_one(
    entry: ProposedFile, scope: ProposalScope, trees: Mapping[str, ast.Module | SyntaxFault], *, is_edited: bool
) -> list[Diagnostic]:
    full = scope.project_path(entry.path)
    base = scope.base.get(full)
    if "\0" in entry.content or _has_surrogates(entry.content):
        hint = "write plain text in UTF-8"
        return [_error(codes.INVALID_TEXT, "contains a character that no text file has", full, hint)]
    if base is not None and _has_surrogates(base):
        hint = "leave it as it is: rewritten, it would lose bytes that cannot be shown"
        return [_error(codes.INVALID_TEXT, "exists and is not UTF-8 text", full, hint)]
    if is_diff(full, entry.content, base):
        return [_error(codes.DIFF, "is a diff, not the file", full, _WHOLE)]
    found = list(_elisions(entry, full, base, _WHOLE_EDIT if is_edited else _WHOLE))
    fault = syntax_fault(full, entry.content)
    if fault is not None:
        # A file that did not parse before is a template, or has the syntax of another version of Python.
        if base is None or syntax_fault(full, base) is None:
            line, message = fault
            hint = "write a file that parses, complete to its last line"
            found.append(_error(codes.UNPARSABLE, f"line {line}: {message}", full, hint))
    elif base is not None and is_python(full) and not is_edited:
        found += _losses(entry, full, base, trees)
    return found


def _elisions(entry: ProposedFile, full: str, base: str | None, hint: str) -> Iterator[Diagnostic]:
    for line, text in find_placeholders(full, entry.content, base)[:_SHOWN_PLACEHOLDERS]:
        message = f"line {line} replaces text that is left out: {escape_text(' '.join(text.split()), 200)}"
        yield _error(codes.INCOMPLETE_FILE, message, full, hint)
    for line, what in omitted_code(full, entry.content, base)[:_SHOWN_PLACEHOLDERS]:
        message = f"line {line}: `...` replaces code that was there before: {what}"
        yield _error(codes.INCOMPLETE_FILE, message, full, hint)


def _losses(
    entry: ProposedFile, full: str, base: str, trees: Mapping[str, ast.Module | SyntaxFault]
) -> Iterator[Diagnostic]:
    tree = trees.get(entry.path)
    lost = lost_names(entry.content, base, tree) if isinstance(tree, ast.Module) else ()
    others = [one for path, one in trees.items() if path != entry.path] if lost else []
    elsewhere = frozenset[str]().union(*map(top_level_names, others))
    if missing := [name for name in lost if name not in elsewhere]:
        message = f"is much shorter than before and no longer defines {', '.join(missing[:8])}"
        yield _error(codes.LOST_DEFINITIONS, message, full, _WHOLE)


def _has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)


def normalize_envelope(envelope: FilesEnvelope, scope: ProposalScope) -> FilesEnvelope:
    """Return a response with its paths relative to `cwd`, and contents with the line ends of the files they replace."""
    if (number := len(envelope.files) + len(envelope.deletes)) > MAX_ENTRIES:
        return FilesEnvelope(errors=(too_many_error(number, "files and deletes"),))
    return replace(
        envelope,
        files=tuple(
            _normalized(file, written_path(file.path, scope), scope, in_json=not envelope.from_blocks)
            for file in envelope.files
        ),
        deletes=tuple(relative_path(path, scope.write_scope.delete, scope) for path in envelope.deletes),
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


def written_path(path: str, scope: ProposalScope) -> str:
    """Return `relative_path` of a file, with the folder that it lacks if only one literal path can be meant."""
    write = scope.write_scope.write
    path = relative_path(path, write, scope)
    full = scope.project_path(path)
    if full in write or any(map(is_glob, write)) or unsafe_reason(path) or full in (existing := scope.existing_files()):
        return path
    meant = {one for one in (*write, *existing) if one.endswith(f"/{path}")}
    return scope.response_path(meant.pop()) if len(meant) == 1 and meant <= {*write} else path


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
