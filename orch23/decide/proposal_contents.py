"""Hold the contents of a proposal to what a whole file is: its size, its text, its base, its language."""

import ast
from collections.abc import Iterable, Mapping

from orch23.decide import proposal_codes as codes
from orch23.decide.excerpt import shown
from orch23.decide.proposal_elision import is_diff, left_out, placeholders
from orch23.decide.proposal_envelope import Entry
from orch23.decide.proposal_paths import Scope
from orch23.decide.proposal_syntax import Fault, is_python, lost_names, python_tree, syntax_fault, top_level_names
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import digest_bytes

MAX_FILE_BYTES = 200_000
MAX_TOTAL_BYTES = 500_000
_SHOWN_PLACEHOLDERS = 5  # of one file; more would only repeat the first
_WHOLE = "write the whole file, every line of it"


def size_faults(entries: Iterable[Entry]) -> list[Diagnostic]:
    """Complain of files that are too large, and of too much in all."""
    found: list[Diagnostic] = []
    hint = "make it smaller, or spread it over several files or stages"
    total = 0
    for entry in entries:
        size = len(entry.content.encode("utf-8", "surrogatepass"))
        total += size
        if size > MAX_FILE_BYTES:
            message = f"has {size:,} bytes, over the {MAX_FILE_BYTES:,} a file may have"
            found.append(Diagnostic(codes.TOO_LARGE, message, subject=shown(entry.path), hint=hint))
    if total > MAX_TOTAL_BYTES:
        message = f"{total:,} bytes in all, over the {MAX_TOTAL_BYTES:,} allowed"
        found.append(Diagnostic(codes.TOO_LARGE, message, hint=hint))
    return found


def base_faults(entry: Entry, scope: Scope) -> list[Diagnostic]:
    """Complain of a file that was not shown, or of which the answer names other bytes than those that were."""
    full = scope.full(entry.path)
    if full in scope.hidden:
        return [
            Diagnostic(
                codes.NOT_SHOWN, "exists, but was not shown", subject=shown(full), hint="do not replace it unseen"
            )
        ]
    if entry.base == "":
        return []
    there = text_digest(scope.base.get(full))
    hint = f"its base_sha256 is {there or 'null'}"
    if entry.base is None and there is not None:
        return [
            Diagnostic(codes.STALE_BASE, "was proposed as a new file, but it exists", subject=shown(full), hint=hint)
        ]
    if entry.base is not None and entry.base.lower() != there:
        message = "was proposed for other bytes than those shown" if there else "was proposed as a change, but is new"
        return [Diagnostic(codes.STALE_BASE, message, subject=shown(full), hint=hint)]
    return []


def content_faults(entries: tuple[Entry, ...], scope: Scope) -> list[Diagnostic]:
    """Complain of text that no file holds, of what is left out, of what no longer parses, of what got lost."""
    trees = {e.path: python_tree(e.content) for e in entries if is_python(e.path)}
    return [d for entry in entries for d in _of_one(entry, scope, trees)]


def text_digest(text: str | None) -> str | None:
    """Return the digest of a file as it was shown; bytes that are no UTF-8 stand in it as lone surrogates."""
    return None if text is None else digest_bytes(text.encode("utf-8", "surrogateescape")).sha256


def _of_one(entry: Entry, scope: Scope, trees: Mapping[str, ast.Module | Fault]) -> list[Diagnostic]:
    full = scope.full(entry.path)
    base = scope.base.get(full)
    if "\0" in entry.content or _has_surrogates(entry.content):
        hint = "write plain text in UTF-8"
        return [Diagnostic(codes.BAD_TEXT, "holds a character that no text file has", subject=shown(full), hint=hint)]
    if base is not None and _has_surrogates(base):
        hint = "leave it as it is: rewritten, it would lose bytes that cannot be shown"
        return [Diagnostic(codes.BAD_TEXT, "is there, and is no text in UTF-8", subject=shown(full), hint=hint)]
    if is_diff(full, entry.content, base):
        return [Diagnostic(codes.DIFF, "is a diff, not the file", subject=shown(full), hint=_WHOLE)]
    found = _elisions(entry, full, base)
    fault = syntax_fault(full, entry.content)
    if fault is not None:
        # What did not parse before is a template, or another version's syntax: it is not held to this.
        if base is None or syntax_fault(full, base) is None:
            line, message = fault
            hint = "answer with a file that parses, whole to its last line"
            found.append(Diagnostic(codes.UNPARSABLE, f"line {line}: {message}", subject=shown(full), hint=hint))
    elif base is not None and is_python(full):
        found += _losses(entry, full, base, trees)
    return found


def _elisions(entry: Entry, full: str, base: str | None) -> list[Diagnostic]:
    lines = placeholders(full, entry.content, base)[:_SHOWN_PLACEHOLDERS]
    gaps = left_out(full, entry.content, base)[:_SHOWN_PLACEHOLDERS]
    texts = [
        f"line {line} stands for text that is left out: {shown(' '.join(text.split()), 200)}" for line, text in lines
    ]
    texts += [f"line {line}: `...` stands where there was code before: {what}" for line, what in gaps]
    return [Diagnostic(codes.ELIDED, text, subject=shown(full), hint=_WHOLE) for text in texts]


def _losses(entry: Entry, full: str, base: str, trees: Mapping[str, ast.Module | Fault]) -> list[Diagnostic]:
    tree = trees.get(entry.path)
    if not isinstance(tree, ast.Module):
        return []
    lost = lost_names(entry.content, base, tree)
    if lost:
        elsewhere = frozenset[str]().union(*(top_level_names(t) for path, t in trees.items() if path != entry.path))
        lost = tuple(name for name in lost if name not in elsewhere)
    if not lost:
        return []
    message = f"is much shorter than before and no longer defines {', '.join(lost[:8])}"
    return [Diagnostic(codes.NAMES_LOST, message, subject=shown(full), hint=_WHOLE)]


def _has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)
