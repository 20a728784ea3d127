"""The digest of a change of the workspace, and how it is shown."""

from collections.abc import Mapping, Sequence
from difflib import unified_diff

from msgspec import Struct

from orch23.decide.dry_run import Preview
from orch23.decide.project_state import ProjectState
from orch23.features.approval.decisions import is_rejected, waiting_changes
from orch23.model.digest import FileEntry, Json, digest_json
from orch23.model.errors import MissingBytesError
from orch23.model.pipeline import Stage
from orch23.model.plan import Restore
from orch23.model.record import LockFile, Record, same_result
from orch23.report.diagnostics import visible
from orch23.report.values import format_size
from orch23.snapshot.signatures import sha256_hex

MOST_LINES = 2_000
_MOST_BYTES = 1_000_000
_MOST_COMPARED = 10_000  # lines: `difflib` takes seconds for more


class FileChange(Struct, frozen=True, kw_only=True):
    """A file that a change writes, deletes or makes executable. `lines` is its diff; None if it cannot be shown."""

    path: str
    old: FileEntry | None
    new: FileEntry | None
    lines: tuple[str, ...] | None = None

    def counts(self) -> tuple[int, int]:
        """Return the numbers of added and removed lines."""
        body = (self.lines or ())[2:]
        return sum(line.startswith("+") for line in body), sum(line.startswith("-") for line in body)

    def summary(self) -> str:
        """Return in one line what happens to the file."""
        sizes = [format_size(one.digest.size_bytes) for one in (self.old, self.new) if one is not None]
        what = "new" if self.old is None else "deleted" if self.new is None else "changed"
        added, removed = self.counts()
        how = f"+{added} -{removed}" if self.lines is not None else f"not shown, {' -> '.join(sizes)}"
        modes = {one.executable for one in (self.old, self.new) if one is not None}
        mode = ", executable" if self.old is None and True in modes else ", its mode changes" if len(modes) > 1 else ""
        return f"{visible(self.path)}  {what} {how}{mode}"

    def facts(self) -> dict[str, Json]:
        """Return the change as plain values: digests, and numbers of lines, None if it is not a text."""
        added, removed = self.counts() if self.lines is not None else (None, None)
        old, new = (None if one is None else str(one) for one in (self.old, self.new))
        return {"path": self.path, "old": old, "new": new, "added": added, "removed": removed}


def gate_of(state: ProjectState, members: Sequence[str]) -> Stage:
    """Return the stage by which a user approves the change of some stages: the first of their group with `approve`."""
    names = state.plan.promoted_with(members[0])
    gates = [one for name in names if isinstance(one := state.plan.nodes[name], Stage) and one.approve]
    return next((one for one in gates if one.name in members), gates[0])


def digest_of(state: ProjectState, records: Mapping[str, Record]) -> str:
    """Return the digest of a change: of each file, what its stage started from and what it becomes.

    What an earlier result left in the workspace does not count, so a restored result stays approved.
    """
    starts = {path: entry for record in records.values() for path, entry in record.starts}
    wanted = {path: entry for name, one in records.items() for path, entry in state.target(name, one).items()}
    files = {path: [str(starts.get(path) or ""), str(entry or "")] for path, entry in wanted.items()}
    return sha256_hex(digest_json({"change": files}).encode())


def is_promoted(lock: LockFile, records: Mapping[str, Record]) -> bool:
    """Return whether the lock file has these results: then a build promoted them before, once they were approved."""
    locked = [(lock.records.get(name), record) for name, record in records.items()]
    return all(one is not None and one.key == record.key and same_result(one, record) for one, record in locked)


def waiting_commands(seen: Preview) -> dict[str, str]:
    """Return the stages whose changes wait for approval, each with the command that approves them.

    Not those that run: they make other changes.
    """
    pipeline, found = seen.plan.pipeline, dict[str, str]()
    for one in waiting_changes(seen.state.store, pipeline.file):
        if is_rejected(seen.state.store, one):
            continue
        decisions = {name: seen.decisions.get(name) for name in one.members}
        command = pipeline.command_line("approve", one.named)
        found |= {name: command for name, decision in decisions.items() if isinstance(decision, Restore)}
    return found


def file_changes(
    state: ProjectState, old: Mapping[str, FileEntry | None], new: Mapping[str, FileEntry | None]
) -> list[FileChange]:
    """Return the files of a change in the order of their paths, each with its diff."""
    return [_file_change(state, path, old.get(path), entry) for path, entry in sorted(new.items())]


def _file_change(state: ProjectState, path: str, old: FileEntry | None, new: FileEntry | None) -> FileChange:
    then, now = _lines(state, path, old), _lines(state, path, new)
    if then is None or now is None:
        return FileChange(path=path, old=old, new=new)
    names = (f"a/{path}" if old is not None else "/dev/null", f"b/{path}" if new is not None else "/dev/null")
    return FileChange(path=path, old=old, new=new, lines=tuple(unified_diff(then, now, *names, lineterm="")))


def _lines(state: ProjectState, path: str, entry: FileEntry | None) -> list[str] | None:
    """Return the lines of a text; None if it is binary, too large to compare, or lost."""
    if entry is None:
        return []
    if entry.digest.size_bytes > _MOST_BYTES:
        return None
    try:
        text = state.read(path, entry).decode()
    except (MissingBytesError, UnicodeDecodeError):
        return None
    # Not `splitlines`: a diff has to show each carriage return.
    lines = text.split("\n")
    lines = lines[:-1] if not lines[-1] else [*lines[:-1], f"{lines[-1]}\n\\ No newline at end of file"]
    return None if "\0" in text or len(lines) > _MOST_COMPARED else lines


def diff_text(files: Sequence[FileChange], most: int = MOST_LINES) -> str:
    """Return the diff of a change without hidden characters: at most so many lines, and then the number of others."""
    lines: list[str] = []
    for one in files:
        # The last line of a file may be two: see `_lines`.
        shown = "\n".join(one.lines).split("\n") if one.lines else [one.summary()]
        lines += map(visible, shown)
    left = len(lines) - most
    return "".join(f"{line}\n" for line in (*lines[:most], *((f"... {left:,} more lines",) if left > 0 else ())))
