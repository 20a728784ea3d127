"""What a stage changed in its outputs, from the record of its result."""

from collections.abc import Callable
from difflib import unified_diff
from itertools import islice

from msgspec import Struct

from orch23.model.digest import FileEntry
from orch23.model.errors import MissingBytesError
from orch23.model.ports import ContentStore, ResultIndex
from orch23.model.record import Record

_MAX_BYTES = 400_000
_MAX_LINES = 400
_MAX_FILES = 40


class FileChange(Struct, frozen=True, kw_only=True):
    """An output of a stage: the lines of its diff, or why there is none."""

    path: str
    diff: str = ""
    note: str = ""


class ChangeReader(Struct, frozen=True):
    """Compares the outputs of a result with the files that the stage started from, or with its result before."""

    records: ResultIndex
    contents: ContentStore

    def changes(self, stage: str, key: str) -> tuple[FileChange, ...]:
        """Return the changes to the outputs of the newest record with a key; none if there is no such record."""
        record = next(iter(self.records.by_key(key)), None)
        if record is None:
            return ()
        paths = [*record.outputs]
        found = (self._change(stage, record, path) for path in paths[:_MAX_FILES])
        changes = tuple(one for one in found if one is not None)
        more = len(paths) - _MAX_FILES
        return (*changes, FileChange(path=f"{more} more files", note="not shown")) if more > 0 else changes

    def _change(self, stage: str, record: Record, path: str) -> FileChange | None:
        now = record.outputs[path]
        base = record.bases.get(path)
        before = base.start if base is not None else record.originals.get(path)
        before = before or self._earlier(stage, record, path)
        if before == now:
            return None
        if max(now.digest.size_bytes, before.digest.size_bytes if before else 0) > _MAX_BYTES:
            return FileChange(path=path, note=f"{now.digest.size_bytes:,} bytes: too long to compare")
        then, text = self._text(before), self._text(now)
        if then is None or text is None:
            return FileChange(path=path, note="its bytes are no longer in the store")
        if "\0" in then or "\0" in text:
            return FileChange(path=path, note=f"binary file of {now.digest.size_bytes:,} bytes")
        return FileChange(path=path, diff=text_difference(then, text, "before", "after"))

    def _earlier(self, stage: str, record: Record, path: str) -> FileEntry | None:
        """Return the output at a path of the newest record of the stage that is older than this one."""
        older = False
        for one in self.records.labelled(stage):
            if older and one.outputs.get(path) is not None:
                return one.outputs[path]
            older = older or one == record
        return None

    def _text(self, entry: FileEntry | None) -> str | None:
        if entry is None:
            return ""
        try:
            return self.contents.get(entry.digest).decode("utf-8", errors="replace")
        except MissingBytesError:
            return None


Changes = Callable[[str, str], tuple[FileChange, ...]]
"""Returns what a stage with a key changed."""


def text_difference(then: str, now: str, old: str, new: str) -> str:
    """Return a unified diff of two texts with these names, at most 400 lines of it."""
    lines = unified_diff(then.splitlines(), now.splitlines(), old, new, lineterm="")
    shown = list(islice(lines, _MAX_LINES))
    more = sum(1 for _ in lines)
    return "\n".join([*shown, *([f"... {more:,} more lines"] if more else [])])
