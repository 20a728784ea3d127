"""What a template would change in a project, file by file: pure judgements, of which a dry-run writes none."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

BESIDE = ".new"


class File(Struct, frozen=True):
    """The bytes of a file, and whether it may be run."""

    data: bytes
    executable: bool = False


class Blocked(Struct, frozen=True):
    """What is at a path and is no regular file."""

    what: str


There: TypeAlias = File | Blocked | None
"""What the project has at a path."""

MergeTexts: TypeAlias = Callable[[bytes, bytes, bytes], tuple[bytes | None, tuple[int, ...]]]
"""Mine, base, theirs -> the merged text (None if it is not to merge) and the lines at which conflicts begin."""


class Merging(Struct, frozen=True):
    """How texts come together, and the free path beside a path, for a file that is no text."""

    texts: MergeTexts
    beside: Callable[[str], str]


class Kind(StrEnum):
    """What becomes of a file."""

    CREATE = "create"
    SAME = "same"
    UPDATE = "update"
    MERGE = "merge"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    KEEP = "keep"
    CONFLICT = "conflict"


class Existing(StrEnum):
    """What is to be done with files of other content that `init` finds."""

    STOP = "stop"
    KEEP = "keep"
    OVERWRITE = "overwrite"


class Change(Struct, frozen=True, kw_only=True):
    """What becomes of one path. `after` is what is written there, None for nothing or, with DELETE, a removal."""

    path: str
    kind: Kind
    before: There = None
    after: File | None = None
    lines: tuple[int, ...] = ()
    note: str = ""

    @property
    def changes(self) -> bool:
        """Say whether the project is another afterwards."""
        return self.after is not None or self.kind is Kind.DELETE


def of_init(rendered: Mapping[str, File], there: Mapping[str, There], existing: Existing) -> tuple[Change, ...]:
    """Return what a template changes in a project that does not have it yet."""
    return tuple(_laid(path, file, there.get(path), existing) for path, file in sorted(rendered.items()))


def of_update(
    base: Mapping[str, File], theirs: Mapping[str, File], there: Mapping[str, There], merging: Merging
) -> tuple[Change, ...]:
    """Return what a newer version changes in a project that has an older one, and edits of its own."""
    paths = sorted(base.keys() | theirs.keys())
    changes = (_updated(path, base.get(path), theirs.get(path), there.get(path), merging) for path in paths)
    return tuple(one for part in changes for one in part)


def _laid(path: str, file: File, mine: There, existing: Existing) -> Change:
    if mine is None:
        return Change(path=path, kind=Kind.CREATE, after=file)
    if isinstance(mine, Blocked):
        return Change(path=path, kind=Kind.CONFLICT, before=mine, note=mine.what)
    if mine.data == file.data:
        return Change(path=path, kind=Kind.SAME, before=mine)
    match existing:
        case Existing.KEEP:
            return Change(path=path, kind=Kind.KEEP, before=mine)
        case Existing.OVERWRITE:
            return Change(path=path, kind=Kind.OVERWRITE, before=mine, after=file)
        case Existing.STOP:
            return Change(path=path, kind=Kind.CONFLICT, before=mine)


def _updated(path: str, base: File | None, theirs: File | None, mine: There, merging: Merging) -> tuple[Change, ...]:
    if theirs in (base, mine):
        return (Change(path=path, kind=Kind.SAME, before=mine),)
    if isinstance(mine, Blocked):
        return (Change(path=path, kind=Kind.CONFLICT, before=mine, note=mine.what),)
    if mine is None:
        if base is None:
            return (Change(path=path, kind=Kind.CREATE, after=theirs),)
        return (Change(path=path, kind=Kind.KEEP, note="you removed it"),)
    if theirs is None:
        if base is not None and mine.data == base.data:
            return (Change(path=path, kind=Kind.DELETE, before=mine),)
        return (Change(path=path, kind=Kind.KEEP, before=mine, note="the template has it no longer; you edited it"),)
    if base is not None and mine.data == base.data:
        return (Change(path=path, kind=Kind.UPDATE, before=mine, after=theirs),)
    return _merged(path, base, theirs, mine, merging)


def _merged(path: str, base: File | None, theirs: File, mine: File, merging: Merging) -> tuple[Change, ...]:
    if mine.data == theirs.data:
        return (Change(path=path, kind=Kind.SAME, before=mine),)
    data, lines = merging.texts(mine.data, base.data if base is not None else b"", theirs.data)
    if data is None:
        beside = Change(path=merging.beside(path), kind=Kind.CREATE, after=theirs)
        return (Change(path=path, kind=Kind.CONFLICT, before=mine, note=f"no text; see {beside.path}"), beside)
    kept = data == mine.data
    kind = Kind.CONFLICT if lines else Kind.KEEP if kept else Kind.MERGE
    after = None if kept else File(data, mine.executable or theirs.executable)
    return (Change(path=path, kind=kind, before=mine, after=after, lines=lines),)
