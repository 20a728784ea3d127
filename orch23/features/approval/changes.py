"""Show the changes that wait: their diffs, and a clause about each stage."""

from collections.abc import Sequence
from difflib import unified_diff

from msgspec import Struct

from orch23.decide.dry_run import Preview
from orch23.decide.project_state import ProjectState
from orch23.features.approval.decisions import Change, is_rejected, waiting_changes
from orch23.model.digest import FileEntry
from orch23.model.errors import MissingBytesError
from orch23.model.plan import Restore
from orch23.model.text import visible
from orch23.report.values import format_size

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
