"""Decide only the stages that an edit reaches, using the index of the last build."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from orch23.engine.dependency_index import OutdatedIndexError
from orch23.engine.partial_plan import Part, Since, part_of
from orch23.engine.session import lock_path
from orch23.model.digest import Digest
from orch23.model.pipeline import Stage
from orch23.snapshot.fast_path import StaleSnapshot, snapshot_path
from orch23.snapshot.stat_snapshot import StatSnapshot
from orch23.store.project_store import ProjectStore

PAIR = "index"
"""The fact of a snapshot that pairs it with its table of the index."""
TABLE = "stages "
"""Begins the names of these tables."""
StageReader: TypeAlias = Callable[[str], Mapping[str, Stage] | None]
"""Read the stages of a text of the pipeline that may lack some of them; None where it is not sound."""
_MOST_EDITED = 100


class PartialBuild(Struct, frozen=True, kw_only=True):
    """The part that an edit reaches, with the snapshot that it was found by."""

    stale_snapshot: StaleSnapshot
    part: Part

    @property
    def lock_file(self) -> tuple[str, int]:
        """Give the digest of the lock file that the last build left, in hex or empty, and its change time in ns, or 0.

        It left none where the digest is empty.
        """
        looks = self.stale_snapshot.snapshot
        path = lock_path(Path(), looks.facts["pipeline"]).as_posix()
        if path not in looks.paths:
            return "", 0
        number = looks.paths.index(path)
        ctime_ns = self.stale_snapshot.difference.touched.get(number, looks.ctimes[number])
        return looks.file_state(number).sha256.hex(), ctime_ns

    @property
    def models(self) -> tuple[str, ...]:
        """Give the models of all stages."""
        return tuple(self.stale_snapshot.snapshot.facts["models"].splitlines())

    def renewed(self, looks: StatSnapshot, written: Collection[str], **facts: str) -> StatSnapshot:
        """Return the last build's snapshot, with what this build decided on or wrote, and with these facts.

        `written` are the paths that it wrote, or that it compared with what it read. A folder into which it wrote is
        as it is now if all stages that list it were decided.
        """
        before, reached = self.stale_snapshot.snapshot, set(self.part.names)
        other = (path for path, now in looks.outside.items() if before.outside.get(path, now) != now)
        readers = self.part.reach.rows.readers
        listed = {path for path in other if reached.issuperset(readers(path) or (path,))}
        before.merge(looks, self.stale_snapshot.difference, {*written, *listed})
        before.environ = looks.environ
        before.facts |= facts
        return before

    def check_current(self, store: ProjectStore) -> None:
        """Do nothing if nobody has built since it was found; for the holder of the build lock.

        Raises:
            OutdatedIndexError: somebody has.

        """
        if not self.stale_snapshot.is_current(str(store.root)) or not store.local.records.is_indexed():
            raise OutdatedIndexError


def partial_build(stale_snapshot: StaleSnapshot, store: ProjectStore, declared: StageReader) -> PartialBuild | None:
    """Return what an edit can reach; None where that is not known, or is nearly everything."""
    looks = stale_snapshot.snapshot
    since = Since(
        table=table_name(looks),
        token=looks.facts.get(PAIR),
        file=looks.facts["pipeline"],
        changed=tuple(stale_snapshot.difference.changed),
        digest_of=lambda path: _digest(looks, path),
    )
    part = part_of(since, store, lambda before, after: _edited(before, after, declared))
    return None if part is None else PartialBuild(stale_snapshot=stale_snapshot, part=part)


def table_name(looks: StatSnapshot) -> str:
    """Return the name of the table that belongs to the command line of a snapshot."""
    return TABLE + snapshot_path(looks.facts["question"]).rpartition("/")[2]


def is_cut(text: str, names: frozenset[str]) -> bool:
    """Return whether the lines of a text show stages of these names, so that an edited one can be read by itself."""
    from orch23.load.stage_texts import split_stages  # noqa: PLC0415 - loaded with the pipeline

    pieces = split_stages(text)
    return pieces is not None and set(pieces.stages) == names


def _edited(before: str, after: str, declared: StageReader) -> Mapping[str, Stage] | None:
    """Return the stages that a text declares otherwise than the one before; None where more differs."""
    from orch23.load.stage_texts import are_valid_alone, edit_between  # noqa: PLC0415 - it loads the reader of YAML

    edit = edit_between(before, after)
    if edit is None or list(edit.before.stages) != list(edit.after.stages):
        return None
    if not 0 < len(edit.names) <= _MOST_EDITED or not are_valid_alone(edit.after, edit.names):
        return None
    found = declared(edit.after.alone(edit.names))
    return found if found is not None and set(found) == set(edit.names) else None


def _digest(looks: StatSnapshot, path: str) -> Digest | None:
    if path not in looks.paths:
        return None
    detail = looks.file_state(looks.paths.index(path))
    return Digest(detail.sha256.hex(), detail.size)
