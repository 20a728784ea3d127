"""What a pipeline has made by a moment: the entries that its records tell, and where the bytes still are."""

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Protocol, TypeAlias

from msgspec import Struct, field

from orch23.model.digest import FileEntry
from orch23.model.paths import match_any
from orch23.model.pipeline import ForeachStage, Pipeline, Stage
from orch23.model.plan import Plan
from orch23.model.record import LockFile
from orch23.plan.writers import writes_of

BytesOf: TypeAlias = Callable[[str, FileEntry], bytes | None]
"""Return the bytes of an entry from wherever they still are, or None."""


class Files(Protocol):
    """Files by path: those on disk, or those of a revision."""

    def entry(self, path: str) -> FileEntry | None:
        """Return what is at a path, or None if that is no regular file."""

    def read(self, path: str) -> bytes | None:
        """Return the bytes at a path, or None if that is no regular file."""

    def found(self, path: str) -> FileEntry | None:
        """Return what an input of this path is: the file there, or the one that its links lead to, or None."""

    def listing(self, pattern: str, *, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the paths of the files that a pattern means, sorted; links that are excluded are not followed."""


class Made(Struct, frozen=True, kw_only=True, dict=True):
    """The made files of a moment, as the records of its stages say; `today` is None for today itself.

    Of a past moment a file is unknown where no record could tell of it, or where nobody can say what it is today: it is
    taken as today's then, and is no change of its own. `is_dead` returns whether a file of a stage that has ended is
    about to be removed; in a commit no file is.
    """

    paths: frozenset[str]
    plan: Plan
    lock: LockFile
    files: Files
    bytes_of: BytesOf
    today: "Made | None" = None
    is_dead: Callable[[str], bool] = lambda _path: False
    _lost: dict[str, bool] = field(default_factory=dict)

    def entry(self, path: str) -> FileEntry | None:
        """Return what was made at a path, or None if nothing was, or it is about to be removed."""
        if self.today is not None and path in self.unknown:
            return self.today.entry(path)
        if path in self._told:
            return self._told[path]
        return None if self.is_dead(path) else self.files.entry(path)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of what was made at a path; today's where those that were then are lost."""
        if self.today is not None and self.is_lost(path):
            return self.today.read(path)
        entry = self.entry(path)
        return None if entry is None else self.bytes_of(path, entry)

    @cached_property
    def unknown(self) -> frozenset[str]:
        """Give the paths of which this moment tells nothing, and is taken as today."""
        if self.today is None:
            return frozenset()
        if not self.lock.records:
            return self.paths
        return frozenset(path for path in self.paths if self._is_untold(path) or self.today.is_unmade(path))

    def is_lost(self, path: str) -> bool:
        """Say whether a file differs from today's, and nobody has the bytes of one of the two to say in which part."""
        if self.today is None or path not in self.paths:
            return False
        if path not in self._lost:
            both = {self.entry(path), self.today.entry(path)}
            self._lost[path] = len(both) > 1 and any(
                one is not None and self.bytes_of(path, one) is None for one in both
            )
        return self._lost[path]

    def is_unmade(self, path: str) -> bool:
        """Say whether a file is not there since a stage that may make it has no result."""
        return self._is_untold(path) and self.entry(path) is None

    def _is_untold(self, path: str) -> bool:
        return path not in self._told and any(match_any(patterns, path) for patterns in self._unbuilt)

    @cached_property
    def _told(self) -> dict[str, FileEntry | None]:
        """Give the last version of each path that the records of living stages tell."""
        found: dict[str, FileEntry | None] = {}
        records = self.lock.records
        later = (name for name in records if name not in self.plan.nodes and self._is_alive(name))
        for name in (*self.plan.order, *later):
            if name in records:
                found |= dict.fromkeys(records[name].deleted)
                found |= records[name].outputs
        return found

    @cached_property
    def _unbuilt(self) -> tuple[tuple[str, ...], ...]:
        """Give what the stages may write that have no record; of a foreach, if none of its items has."""
        known = {*self.lock.records, *(name.partition("@")[0] for name in self.lock.records)}
        nodes: list[Stage | ForeachStage] = [*self.plan.pipeline.stages]
        if self.today is None:
            nodes += self.plan.nodes.values()
        return tuple(writes_of(node) for node in nodes if node.name not in known)

    def _is_alive(self, name: str) -> bool:
        return name in self.plan.nodes or isinstance(self.plan.nodes.get(name.partition("@")[0]), ForeachStage)


def made_by(pipelines: Collection[Pipeline | None], locks: Collection[LockFile]) -> frozenset[str]:
    """Return the paths that stages make: literal outputs, and what records say of those that are not."""
    return frozenset(_declared(pipelines)) | {p for lock in locks for r in lock.records.values() for p in r.outputs}


def _declared(pipelines: Collection[Pipeline | None]) -> Iterator[str]:
    for pipeline in pipelines:
        for node in pipeline.stages if pipeline is not None else ():
            if isinstance(node, Stage):
                yield from (path for path in node.outputs if not path.endswith("/"))
