"""What the lock files of a project need of its store."""

from pathlib import Path

from orch23.engine.memory import lock_path
from orch23.store.collection import Needs
from orch23.store.lock_file import read_lock
from orch23.store.lock_files import files_of


def lock_needs(root: Path, keys: frozenset[str]) -> Needs:
    """Return what the lock files of a project need, and some keys: a quick look, without any other plan."""
    locks, pipelines = files_of(root)
    locks |= {lock_path(root, name) for name in pipelines}
    records = tuple(record for path in sorted(locks) for record in read_lock(path).records.values())
    return Needs(keys=keys | {record.key for record in records}, records=records)
