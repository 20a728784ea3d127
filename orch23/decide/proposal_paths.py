"""Hold the paths of a proposal to what its stage may write and delete (safety.md, Paths)."""

import unicodedata
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from msgspec import Struct

from orch23.decide import proposal_codes as codes
from orch23.decide.excerpt import shown
from orch23.decide.protected import admits, is_protected
from orch23.model.diagnostic import Diagnostic
from orch23.model.paths import match_any, unsafe_reason
from orch23.model.pipeline import Fence
from orch23.model.protected import sealed_reason


class Scope(Struct, frozen=True, kw_only=True):
    """What the paths and contents of an answer are held to; `base` and `hidden` are relative to the root."""

    cwd: str
    fence: Fence
    base: Mapping[str, str | None]
    hidden: AbstractSet[str]
    protected: tuple[str, ...]

    def full(self, path: str) -> str:
        """Return a path of an answer from the root of the project."""
        return path if self.cwd in ("", ".") else f"{self.cwd.rstrip('/')}/{path}"

    def short(self, path: str) -> str:
        """Return a path or pattern from the root as an answer would name it, or as it is where none could."""
        return path if self.cwd in ("", ".") else path.removeprefix(f"{self.cwd.rstrip('/')}/")

    def existing(self) -> frozenset[str]:
        """Return the files that are there, shown or not."""
        return frozenset(path for path, text in self.base.items() if text is not None) | self.hidden


def path_faults(written: tuple[str, ...], deletes: tuple[str, ...], scope: Scope) -> list[Diagnostic]:
    """Return everything that is wrong with the paths that an answer would write and delete."""
    found = [_unsafe(path) for path in (*written, *deletes) if unsafe_reason(path) is not None]
    found += _duplicates((*written, *deletes))
    safe = [path for path in written if unsafe_reason(path) is None]
    found += _twins(safe, deletes, scope)
    found += _nested(safe, deletes, scope)
    for path in safe:
        found += _write_faults(path, scope)
    for path in deletes:
        if unsafe_reason(path) is None:
            found += _delete_faults(path, scope)
    return found


def _unsafe(path: str) -> Diagnostic:
    hint = "name the file by a plain relative path with `/`, such as `src/app.py`"
    return Diagnostic(codes.UNSAFE_PATH, f"the path {unsafe_reason(path)}", subject=shown(path), hint=hint)


def _duplicates(paths: Iterable[str]) -> list[Diagnostic]:
    """Find paths that some disk takes for one: equal after NFC and case-folding."""
    seen: dict[str, str] = {}
    found: list[Diagnostic] = []
    for path in paths:
        first = seen.get(_fold(path))
        if first is not None:
            like = "is there twice" if first == path else f"is the same file as {shown(first)} on many disks"
            found.append(Diagnostic(codes.DUPLICATE_PATH, like, subject=shown(path), hint="name each file once"))
        seen[_fold(path)] = path
    return found


def _twins(paths: list[str], deletes: tuple[str, ...], scope: Scope) -> list[Diagnostic]:
    """Find new files that some disk takes for an existing one of another spelling."""
    gone = {scope.full(path) for path in deletes}
    there = scope.existing() - gone
    folded = {_fold(path): path for path in sorted(there)}
    found: list[Diagnostic] = []
    for path in paths:
        full = scope.full(path)
        twin = folded.get(_fold(full))
        if twin is not None and full not in there:
            message = f"is the same file as the existing {shown(twin)} on many disks"
            hint = f"write `{shown(scope.short(twin))}`"
            found.append(Diagnostic(codes.DUPLICATE_PATH, message, subject=shown(full), hint=hint))
    return found


def _nested(paths: list[str], deletes: tuple[str, ...], scope: Scope) -> list[Diagnostic]:
    """Find paths that would have to be a file and a directory, among the proposed and against the existing files."""
    gone = {scope.full(path) for path in deletes}
    full = {scope.full(path) for path in paths}
    files = {_fold(path): path for path in (*sorted(scope.existing() - gone), *sorted(full))}
    found: list[Diagnostic] = []
    for path in sorted({*files.values()}):
        for above in _parents(path):
            file = files.get(_fold(above))
            if file is not None and (path in full or file in full):
                message = f"is a file, and a directory for {shown(path)}"
                hint = "choose another name for one of the two"
                found.append(Diagnostic(codes.FILE_AND_DIRECTORY, message, subject=shown(file), hint=hint))
    return found


def _write_faults(path: str, scope: Scope) -> list[Diagnostic]:
    full = scope.full(path)
    if match_any(scope.fence.protect, full):
        return [_protected_here(full)]
    if admits(scope.fence.write, full, scope.protected):
        return []
    if is_protected(full, scope.protected) and match_any(scope.fence.write, full):
        hint = "leave it out"
        if sealed_reason(full) is None:
            hint += ": only a literal entry of `allowed_paths.write` or `outputs` admits it"
        return [Diagnostic(codes.PROTECTED, "is a protected file", subject=shown(full), hint=hint)]
    return [Diagnostic(codes.OUTSIDE_FENCE, "is outside the fence", subject=shown(full), hint=_way_in(path, scope))]


def _way_in(path: str, scope: Scope) -> str:
    """Say which paths would do, as an answer has to name them."""
    if scope.cwd in ("", "."):
        return f"allowed are: {', '.join(scope.fence.write) or 'none'}"
    if admits(scope.fence.write, path, scope.protected):
        return f"paths are relative to `{scope.cwd}`: did you mean `{shown(scope.short(path))}`?"
    inside = [short for one in scope.fence.write if (short := scope.short(one)) != one]
    return f"allowed are, relative to `{scope.cwd}`: {', '.join(inside) or 'none'}"


def _delete_faults(path: str, scope: Scope) -> list[Diagnostic]:
    full = scope.full(path)
    if match_any(scope.fence.protect, full):
        return [_protected_here(full)]
    hint = "leave it out of `deletes`"
    if not admits(scope.fence.delete, full, scope.protected):
        return [Diagnostic(codes.DELETE, "may not be deleted", subject=shown(full), hint=hint)]
    if full in scope.hidden:
        return [Diagnostic(codes.NOT_SHOWN, "exists, but was not shown", subject=shown(full), hint=hint)]
    if scope.base.get(full) is None:
        return [Diagnostic(codes.DELETE, "cannot be deleted: it does not exist", subject=shown(full), hint=hint)]
    return []


def _protected_here(full: str) -> Diagnostic:
    hint = "leave it as it is"
    return Diagnostic(codes.OUTSIDE_FENCE, "is protected by `allowed_paths.protect`", subject=shown(full), hint=hint)


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _parents(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(1, len(names))]
