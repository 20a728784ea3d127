"""Make results last: bytes, the record, the workspace, the lock file. Only the loop thread calls this."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orch23.engine.attempt import Attempted
from orch23.engine.session import Session
from orch23.model.digest import FileEntry
from orch23.model.errors import MissingBytesError
from orch23.model.pipeline import LLMStep
from orch23.model.record import LockFile, Record
from orch23.resolve.resolution import Resolved
from orch23.store.lock_file import write_lock
from orch23.store.promote import Promoted


@dataclass(slots=True)
class Committer:
    """Writes what a build made. The order is safety.md's: what is paid for is durable before the workspace changes."""

    session: Session
    _locked: dict[str, Record] = field(default_factory=dict)

    def fresh(self, resolved: Resolved, record: Record) -> Record:
        """Take a stage that is up to date: its record goes to the lock file, also when only the store had it."""
        self._locked[resolved.stage.name] = record
        return record

    def restore(self, resolved: Resolved, record: Record) -> Promoted:
        """Put a record's bytes back into the workspace."""
        self._keep_laid(record)
        self.session.world.settle(resolved.stage.name, record)
        self._locked[resolved.stage.name] = record
        return self._promote(resolved.stage.name, record)

    def commit(self, resolved: Resolved, done: Attempted) -> tuple[Record, Promoted]:
        """Keep a verified result and promote it."""
        record = self._record(resolved, done, failed=False)
        self.session.world.settle(resolved.stage.name, record)
        self._locked[resolved.stage.name] = record
        return record, self._promote(resolved.stage.name, record)

    def keep_failure(self, resolved: Resolved, done: Attempted) -> Promoted:
        """Promote the last attempt of a stage that failed, with a record that makes nothing fresh."""
        record = self._record(resolved, done, failed=True)
        return self._promote(resolved.stage.name, record)

    def changed_inputs(self, resolved: Resolved) -> tuple[str, ...]:
        """Return the source inputs that are no longer what the stage was given."""
        world, name = self.session.world, resolved.stage.name
        given = {**resolved.files, **resolved.verify_files}
        return tuple(
            path for path, entry in given.items() if world.view(name, path) != entry and path not in resolved.base
        )

    def bury(self, dead: Mapping[str, FileEntry | None]) -> Promoted:
        """Take dead files back to what a person had there, or away; leave those of which nobody has these bytes."""
        found = {path: entry for path, entry in dead.items() if entry is None or self._obtain(path, entry)}
        promoted = self._swap(found) if found else Promoted()
        return replace(promoted, foreign=(*promoted.foreign, *sorted(dead.keys() - found.keys())))

    def _obtain(self, path: str, entry: FileEntry) -> bool:
        """Bring bytes into the store; say whether they are there."""
        try:
            self.session.store.contents.put_bytes(self.session.world.read(path, entry))
        except MissingBytesError:
            return False
        return True

    def write_lock(self, green: set[str], *, complete: bool) -> None:
        """Write the lock file: today's records of what succeeded, and what it said of all that was not reached.

        `complete` says that everything is green: then what no stage stands for any more is dropped.
        """
        world = self.session.world
        kept = {name: r for name, r in self.session.lock.records.items() if world.alive(name) or not complete}
        unexpanded = {name.partition("@")[0] for name in kept if "@" in name and name not in world.plan.nodes}
        if complete:
            kept = {
                n: r
                for n, r in kept.items()
                if n in world.plan.nodes or n.partition("@")[0] in unexpanded & set(world.plan.nodes)
            }
        records = {**kept, **{name: r for name, r in self._locked.items() if name in green}}
        write_lock(self.session.lock_path, LockFile(records), self.session.pipeline.name)

    # ---- parts ----------------------------------------------------------------------------

    def _record(self, resolved: Resolved, done: Attempted, *, failed: bool) -> Record:
        """Write the record of a result: durable when this returns, after all its bytes."""
        store, stage = self.session.store, resolved.stage
        originals = self._originals(resolved, done)
        record = Record(
            stage=stage.name,
            key=resolved.key,
            manifest=resolved.manifest,
            outputs=dict(done.outputs),
            deleted=done.deleted,
            exchanges=done.exchanges,
            originals=originals,
            failed=failed,
        )
        store.contents.sync()
        store.records.put(record)
        return record

    def _originals(self, resolved: Resolved, done: Attempted) -> dict[str, FileEntry | None]:
        """Return version 0 of each path that a chain wrote, its bytes kept with the transcripts.

        What was not there when the stage was resolved is none: somebody made it while the model answered.
        """
        if resolved.stage.chain is None:
            return {}
        store, world, step = self.session.store, self.session.world, resolved.stage.step
        found: dict[str, FileEntry | None] = {}
        for path in (*done.outputs, *done.deleted):
            entry = world.original(path) if path in resolved.base or path in world.originals() else None
            found[path] = entry
            if entry is not None:
                data = self.session.world.read(path, entry)
                store.contents.put_bytes(data)
                store.exchanges.put_original(data, step.transcripts if isinstance(step, LLMStep) else None)
        return found

    def _keep_laid(self, record: Record) -> None:
        laid = self.session.world.laid
        for entry in record.outputs.values():
            if entry.digest.sha256 in laid and not self.session.store.contents.has(entry.digest):
                self.session.store.contents.put_bytes(laid[entry.digest.sha256])

    def _promote(self, name: str, record: Record) -> Promoted:
        return self._swap(self.session.world.target(name, record))

    def _swap(self, target: dict[str, FileEntry | None]) -> Promoted:
        """Bring the workspace to the target, but never over a file that no record knows and no version 0 is."""
        store, world = self.session.store, self.session.world
        store.workspace.invalidate(target)
        old = {path: store.workspace.entry(path) for path in target}
        foreign: list[str] = []
        new: dict[str, FileEntry | None] = {}
        for path, wanted in target.items():
            there = old[path]
            if there == wanted:
                continue
            if there is not None and not self._may_replace(path, there):
                if wanted is not None:
                    foreign.append(path)
                continue
            if there is not None:
                self._rescue(path, there)
            if wanted is not None and not store.contents.has(wanted.digest):
                store.contents.put_bytes(world.read(path, wanted))
            new[path] = wanted
        promoted = store.promoter.promote(new, {path: old[path] for path in new})
        store.workspace.invalidate(new)
        return replace(promoted, foreign=(*foreign, *promoted.foreign))

    def _may_replace(self, path: str, there: FileEntry) -> bool:
        world = self.session.world
        if self.session.appraiser.overwrite_edited or world.known_bytes(path, there):
            return True
        return world.originals().get(path) == there

    def _rescue(self, path: str, there: FileEntry) -> None:
        """Keep the bytes that are about to be replaced, if nobody else has them."""
        if not self.session.store.contents.has(there.digest):
            self.session.store.contents.put_file(self.session.store.root / path)
