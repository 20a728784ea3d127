"""Take outputs of stages back: away, or to what a person had at that path before."""

from collections.abc import Collection
from dataclasses import dataclass

from orch23.cli.wiring import Project, open_reading
from orch23.engine.session import Session
from orch23.model.digest import FileEntry
from orch23.model.record import Record
from orch23.plan.select import Selection
from orch23.store.promote import Promoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """What would be taken back: path -> what takes its place (None: nothing). `modified` are a person's edits."""

    target: dict[str, FileEntry | None]
    modified: tuple[str, ...] = ()


def survey(session: Session, stages: Collection[str]) -> Taking:
    """Return which outputs the records of these stages own. No stage named means all of them.

    Raises:
        NotFoundError: a name is no stage, and no record has it either.

    """
    recorded = session.lock.records
    unknown = [name for name in stages if not any(name in (one, one.partition("@")[0]) for one in recorded)]
    Selection(targets=tuple(unknown)).nodes(session.world.plan)
    wanted = [r for name, r in recorded.items() if not stages or {name, name.partition("@")[0]} & set(stages)]
    target: dict[str, FileEntry | None] = {}
    modified = []
    for path in sorted({path for record in wanted for path in record.outputs}):
        there = session.store.workspace.entry(path)
        original = _original(wanted, path)
        if there is None or there == original:
            continue
        if session.world.known_bytes(path, there):
            target[path] = original
        else:
            modified.append(path)
    return Taking(target=target, modified=tuple(modified))


def take_back(project: Project, stages: Collection[str], *, force: bool = False) -> tuple[Promoted, tuple[str, ...]]:
    """Take the outputs of stages back and return what was done, and the edited files that are in the way.

    With `force` edited files are taken too, their bytes kept in the store. Without it, and with any in the way,
    nothing is done. The caller holds the build lock.
    """
    session = open_reading(project)
    taking = survey(session, stages)
    if taking.modified and not force:
        return Promoted(), taking.modified
    return _promote(session, taking, taking.modified), ()


def take_unmodified(project: Project) -> tuple[Promoted, tuple[str, ...]]:
    """Take back every output that is as a record says, and return what was done and what was left."""
    session = open_reading(project)
    taking = survey(session, ())
    return _promote(session, taking, ()), taking.modified


def _promote(session: Session, taking: Taking, forced: tuple[str, ...]) -> Promoted:
    store, target = session.store, dict(taking.target)
    for path in forced:
        digest = store.contents.put_file(store.root / path)
        store.exchanges.put_original(store.contents.read(digest), None)
        target[path] = _original(list(session.lock.records.values()), path)
    for path, entry in target.items():
        if entry is not None and not store.contents.has(entry.digest):
            data = store.exchanges.get_original(entry.digest, None)
            store.contents.put_bytes(data if data is not None else session.world.read(path, entry))
    store.workspace.invalidate(target)
    promoted = store.promoter.promote(target, {path: store.workspace.entry(path) for path in target})
    store.workspace.invalidate(target)
    return promoted


def _original(records: list[Record], path: str) -> FileEntry | None:
    return next((r.originals[path] for r in records if r.originals.get(path) is not None), None)
