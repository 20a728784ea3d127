"""Decide only the stages that an edit reaches, using the index of the last build."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from orch23.decide.dependency_index import DependencyIndex, OutdatedIndexError
from orch23.decide.partial_plan import Part, Since, part_of
from orch23.model.digest import Digest
from orch23.model.pipeline import Stage
from orch23.snapshot.fast_path import StaleSnapshot, snapshot_path
from orch23.snapshot.stat_snapshot import StatSnapshot
from orch23.store.lock_file import lock_path
from orch23.store.project_store import ProjectStore

# The fact of a snapshot that pairs it with its table of the index.
PAIR = "index"
# The prefix of the names of these tables.
TABLE = "stages "
# Reads the stages in a text of the pipeline, which may have only some of them; None if it has errors.
StageReader: TypeAlias = Callable[[str], Mapping[str, Stage] | None]
# The maximum number of edited stages that are read alone; after larger edits the whole pipeline is read.
_MAX_EDITED = 100


class LastBuild(Struct, frozen=True):
    """The last build of a command, which had nothing to do: its snapshot, with the changes since, and its index."""

    stale_snapshot: StaleSnapshot
    rows: DependencyIndex

    def merged_snapshot(
        self, newer: StatSnapshot, written: Collection[str], is_decided: Callable[[str], bool], **facts: str
    ) -> StatSnapshot:
        """Return the last build's snapshot, updated with the files that this build read or wrote, and with `facts`.

        `written` are the paths that this build wrote, or read and compared. A folder that it changed is updated only
        if all stages that list the folder were decided: the others must still see the change.
        """
        before = self.stale_snapshot.snapshot
        # A folder is stored as one state: with its new state, stages that were not decided would miss the change.
        changed = (path for path, now in newer.outside.items() if before.outside.get(path, now) != now)
        listed = {path for path in changed if (names := self.rows.readers(path)) and all(map(is_decided, names))}
        # The other files stay as the last full build found them: an edit during this build must still be noticed.
        before.merge(newer, self.stale_snapshot.difference, {*written, *listed})
        before.environ = newer.environ
        before.facts |= facts
        return before

    def check_current(self, store: ProjectStore) -> None:
        """Check that no other build ran since the snapshot was read. The caller holds the build lock.

        Raises:
            OutdatedIndexError: another build ran.
        """
        # The snapshot and the index were read before the lock was taken.
        if not self.stale_snapshot.is_current(str(store.root)) or not store.local.records.is_indexed():
            raise OutdatedIndexError


def lock_file_of(stale_snapshot: StaleSnapshot) -> tuple[str, int]:
    """Return the hex SHA-256 and the change time in ns of the lock file of the last build; `("", 0)` without one."""
    snapshot, difference = stale_snapshot.snapshot, stale_snapshot.difference
    path = lock_path(Path(), snapshot.facts["pipeline"]).as_posix()
    if (digest := _digest(snapshot, path)) is None:
        return "", 0
    number = snapshot.paths.index(path)
    return digest.sha256, difference.touched.get(number, snapshot.ctimes[number])


def partial_build(
    stale_snapshot: StaleSnapshot, store: ProjectStore, read_stages: StageReader, asked: Collection[str] = ()
) -> Part | None:
    """Return the part that an edit, or an `asked` stage, can reach; None if not known, or nearly everything."""
    return part_of(since_snapshot(stale_snapshot), store, lambda index, text: _edited(index, text, read_stages), asked)


def since_snapshot(stale_snapshot: StaleSnapshot) -> Since:
    """Return what has changed since the build of a snapshot."""
    snapshot = stale_snapshot.snapshot
    return Since(
        table=table_name(snapshot),
        token=snapshot.facts.get(PAIR),
        file=snapshot.facts["pipeline"],
        changed=tuple(stale_snapshot.difference.changed),
        digest_of=lambda path: _digest(snapshot, path),
    )


def table_name(snapshot: StatSnapshot) -> str:
    """Return the name of the index table of a snapshot: there is one for each command line."""
    return TABLE + snapshot_path(snapshot.facts["question"]).rpartition("/")[2]


def can_split(text: str, names: frozenset[str]) -> bool:
    """Return whether a text splits into exactly these stages by its lines: an edited one can then be read alone."""
    from orch23.load.stage_texts import split_stages  # noqa: PLC0415 - loaded with the pipeline

    pieces = split_stages(text)
    return pieces is not None and set(pieces.stages) == names


def _edited(index: DependencyIndex, text: str, read_stages: StageReader) -> Mapping[str, Stage] | None:
    """Return the stages that a text of the pipeline declares otherwise than the index; None if anything else differs.

    Raises:
        OutdatedIndexError: one of them has no row, such as a foreach.
    """
    from orch23.load.stage_texts import are_valid_alone, edit_between  # noqa: PLC0415 - loads the YAML reader

    edit = edit_between(index.text(), text)
    # Only edits inside of stages are read alone: a new, removed or moved stage changes the plan.
    if edit is None or list(edit.before.stages) != list(edit.after.stages):
        return None
    if not 0 < len(edit.names) <= _MAX_EDITED or not are_valid_alone(edit.after, edit.names):
        return None
    for name in edit.names:  # before the text is read: all items of a long list would be rendered for nothing
        index.row(name)
    found = read_stages(edit.after.alone(edit.names))
    return found if found is not None and set(found) == set(edit.names) else None


def _digest(snapshot: StatSnapshot, path: str) -> Digest | None:
    if path not in snapshot.paths:
        return None
    sha256, size_bytes, _ = snapshot.contents((snapshot.paths.index(path),))[0]
    return Digest(sha256, size_bytes) if sha256.strip("0") else None
