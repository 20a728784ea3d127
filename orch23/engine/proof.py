"""Tell records of the lock file that this machine proves from claims, and keep claims within bounds (ADR 21).

A lock file comes with a clone, so anything can stand in it. The store does not: a record that it also has is proven.
"""

from collections.abc import Iterable

from orch23.decide.protected import admits
from orch23.model.manifest import identity_of
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import Plan
from orch23.model.ports import ResultIndex
from orch23.model.record import LockFile, Record
from orch23.plan.writers import writes_of


def is_proven(record: Record, records: ResultIndex) -> bool:
    """Return whether the store has a record of a lock file as well, under any name of the stage.

    Of what `reset` retained, the store has the part that was on disk then.
    """
    if not record.failed:
        return any(_content(record) == _content(one) for one in records.by_key(record.key))
    retained = (one for one in records.by_identity(identity_of(record.manifest)) if one.key == record.key)
    return any(one.outputs.items() <= record.outputs.items() for one in retained)


def bounded(lock: LockFile, plan: Plan, records: ResultIndex) -> LockFile:
    """Return a lock file without claims of today's stages on files that these may not write."""

    def stays(name: str, record: Record) -> bool:
        node = plan.nodes.get(name) or plan.nodes.get(name.partition("@")[0])
        return node is None or may_have_made(node, record) or is_proven(record, records)

    return LockFile(
        {name: record for name, record in lock.records.items() if stays(name, record)},
        {name: record for name, record in lock.retained.items() if stays(name, record)},
    )


def may_have_made(node: Stage | ForeachStage, record: Record) -> bool:
    """Return whether a stage may write every path of a record: inside its write scope, and of no protected name."""
    patterns = writes_of(node)
    return all(admits(patterns, path) for path in _paths(record))


def _paths(record: Record) -> Iterable[str]:
    return {*record.outputs, *record.deleted, *record.originals, *record.bases}


def _content(record: Record) -> tuple[object, ...]:
    return (
        dict(record.outputs),
        record.deleted,
        record.exchanges,
        dict(record.originals),
        dict(record.bases),
        record.accepted,
    )
