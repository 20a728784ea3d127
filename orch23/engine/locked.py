"""Find the records of a lock file by what they hold: a path, a key, an identity."""

from collections.abc import Iterable
from functools import cached_property

from orch23.model.digest import FileEntry
from orch23.model.manifest import identity_of
from orch23.model.record import LockFile, Record


class Locked:
    """The records of one lock file, in the order of their names; each index is made when it is first asked for."""

    def __init__(self, lock: LockFile) -> None:
        """Keep the lock, and index the paths."""
        self.records = [record for _, record in sorted(lock.owning().items())]
        self._owning: dict[str, list[Record]] = {}
        self._deleting: dict[str, list[Record]] = {}
        for record in self.records:
            for path in record.outputs:
                self._owning.setdefault(path, []).append(record)
            for path in record.deleted:
                self._deleting.setdefault(path, []).append(record)

    def owning(self, path: str) -> Iterable[Record]:
        """Return the records that have an output of that path."""
        return self._owning.get(path, ())

    def having(self, path: str, entry: FileEntry | None) -> Iterable[Record]:
        """Return the records whose output of that path is this very file."""
        return (record for record in self._owning.get(path, ()) if record.outputs[path] == entry)

    def deleting(self, path: str) -> Iterable[Record]:
        """Return the records that took away what was at that path."""
        return self._deleting.get(path, ())

    def of_key(self, key: str) -> Iterable[Record]:
        """Return the records of a stage key."""
        return self._by_key.get(key, ())

    def of_identity(self, identity: str) -> Iterable[Record]:
        """Return the records of what is the same stage under any name."""
        return self._by_identity.get(identity, ())

    def paths(self) -> set[str]:
        """Return every path that a record has as an output, or took away."""
        return {*self._owning, *self._deleting}

    @cached_property
    def _by_key(self) -> dict[str, list[Record]]:
        found: dict[str, list[Record]] = {}
        for record in self.records:
            found.setdefault(record.key, []).append(record)
        return found

    @cached_property
    def _by_identity(self) -> dict[str, list[Record]]:
        found: dict[str, list[Record]] = {}
        for record in self.records:
            found.setdefault(identity_of(record.manifest), []).append(record)
        return found
