"""Changes that wait for a user, their diffs, and what users decided about them (ADR 88)."""

import contextlib
from collections.abc import Sequence
from difflib import unified_diff

from msgspec import Struct

from orch23.decide.dry_run import Preview
from orch23.decide.project_state import ProjectState
from orch23.model.digest import FileEntry
from orch23.model.errors import MissingBytesError
from orch23.model.llm import Exchange
from orch23.model.parsing import to_struct
from orch23.model.plan import Restore
from orch23.model.text import visible
from orch23.report.values import format_size
from orch23.store.exchanges import user_fingerprint
from orch23.store.project_store import ProjectStore
from orch23.store.safe_files import list_folder, read_regular


class Change(Struct, frozen=True, kw_only=True):
    """A change of the workspace that a build held: the files before and after, and the digest of both.

    `members` are the stages whose results these are, each with the directory of its transcripts. Commands name the
    change by `stage`, which is one of them.
    """

    pipeline: str
    stage: str
    digest: str
    members: dict[str, str | None]
    old: dict[str, FileEntry | None]
    new: dict[str, FileEntry | None]


def approval_of(store: ProjectStore, digest: str) -> Exchange | None:
    """Return the approval of a change, by its digest. Only what a command of this user wrote counts."""
    try:
        found = to_struct(store.key.decode(read_regular(store.approvals / f"{digest}.json") or b""), Exchange)
    except ValueError:
        return None
    return found if found.fingerprint == user_fingerprint("approval", found.stage, digest) else None


def rejection_of(store: ProjectStore, change: Change, stage: str) -> Exchange | None:
    """Return the rejection of a change that a stage has to make again: its words, and who said them and when.

    Raises:
        CorruptStateError: a committed transcript is damaged.
    """
    found = store.exchanges.get(user_fingerprint("approval", stage, change.digest), change.members[stage])
    return found if found is not None and found.outcome == "rejected" else None


def is_rejected(store: ProjectStore, change: Change) -> bool:
    """Return whether a stage has to make a change again."""
    return any(rejection_of(store, change, name) is not None for name in change.members)


def waiting_changes(state: ProjectState) -> list[Change]:
    """Return the changes of a pipeline that its last builds held, and that are neither approved nor in place.

    Only what a build of this user wrote counts.
    """
    found, store = list[Change](), state.store
    for path in list_folder(store.approvals / "waiting"):
        with contextlib.suppress(ValueError):
            found.append(to_struct(store.key.decode(read_regular(path) or b""), Change))
    own = (one for one in found if one.pipeline == state.plan.pipeline.file)
    left = (one for one in own if any(store.workspace.entry(path) != entry for path, entry in one.new.items()))
    return sorted((one for one in left if approval_of(store, one.digest) is None), key=lambda one: one.stage)


MOST_LINES = 2_000
_MOST_BYTES = 1_000_000
_MOST_COMPARED = 10_000  # lines: `difflib` takes seconds for more


class FileChange(Struct, frozen=True):
    """What happens to a file, in one line, and its diff: no lines if it cannot be shown."""

    summary: str
    lines: tuple[str, ...]


def approval_clauses(seen: Preview) -> dict[str, str]:
    """Return the stages whose changes wait for approval or were rejected, each with a clause about it.

    Not those that run: they make other changes.
    """
    found, line = dict[str, str](), seen.plan.pipeline.command_line
    for one in waiting_changes(seen.state):
        wait = f"waits for approval: `{line('approve', one.stage)}`"
        clause = "was rejected: a build starts another attempt" if is_rejected(seen.state.store, one) else wait
        found |= {name: clause for name in one.members if isinstance(seen.decisions.get(name), Restore)}
    return found


def file_changes(state: ProjectState, change: Change) -> list[FileChange]:
    """Return the files of a change in the order of their paths."""
    return [_file_change(state, path, change.old.get(path), entry) for path, entry in sorted(change.new.items())]


def _file_change(state: ProjectState, path: str, old: FileEntry | None, new: FileEntry | None) -> FileChange:
    then, now, there = _lines(state, path, old), _lines(state, path, new), [one for one in (old, new) if one]
    lines: tuple[str, ...] = ()
    if then is None or now is None:
        how = f"not shown, {' -> '.join(format_size(one.digest.size_bytes) for one in there)}"
    else:
        names = (f"a/{path}" if old else "/dev/null", f"b/{path}" if new else "/dev/null")
        lines = tuple(unified_diff(then, now, *names, lineterm=""))
        how = " ".join(f"{sign}{sum(line.startswith(sign) for line in lines[2:])}" for sign in "+-")
    what = "new" if old is None else "deleted" if new is None else "changed"
    modes = {one.executable for one in there}
    mode = ", executable" if old is None and True in modes else ", its mode changes" if len(modes) > 1 else ""
    summary = f"{path}  {what} {how}{mode}"
    return FileChange(summary, (summary, *lines) if mode else lines)


def _lines(state: ProjectState, path: str, entry: FileEntry | None) -> list[str] | None:
    """Return the lines of a text; None if it is binary, too large to compare, or lost."""
    try:
        text = (
            state.read(path, entry).decode() if entry and entry.digest.size_bytes <= _MOST_BYTES else "\0" * bool(entry)
        )
    except (MissingBytesError, UnicodeDecodeError):
        return None
    # Not `splitlines`: a diff has to show each carriage return.
    lines = text.split("\n")
    lines = lines[:-1] if not lines[-1] else [*lines[:-1], f"{lines[-1]}\n\\ No newline at end of file"]
    return None if "\0" in text or len(lines) > _MOST_COMPARED else lines


def diff_text(files: Sequence[FileChange], most: int = MOST_LINES) -> str:
    """Return the diff of a change without hidden characters: at most so many lines, and then the number of others."""
    # The last line of a file may be two: see `_lines`.
    lines = [visible(line) for one in files for line in "\n".join(one.lines or (one.summary,)).split("\n")]
    left = len(lines) - most
    return "".join(f"{line}\n" for line in (*lines[:most], *((f"... {left:,} more lines",) if left > 0 else ())))
