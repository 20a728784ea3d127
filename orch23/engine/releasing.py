"""Release the files of a stage: from then on their bytes are a user's, as if the user had had them accepted."""

from collections.abc import Mapping

from msgspec.structs import replace

from orch23.engine.ownership import RELEASED
from orch23.model.digest import FileEntry, digest_json
from orch23.model.record import LockFile, Record
from orch23.store.opening import Store


def release_files(store: Store, lock: LockFile, stage: str) -> tuple[str, ...]:
    """Note for each file on disk that a stage (or an item of it) owns that it is the user's; return the paths.

    The lock file is the caller's to change. Only for the holder of the build lock.
    """
    known = [record for name, record in lock.owning().items() if stage in (name, name.partition("@")[0])]
    kept = [record for record in store.records.labelled(stage) if record.failed]
    released: list[str] = []
    for record in (*known, *kept):
        there = {path: entry for path in record.outputs if (entry := store.workspace.entry(path)) is not None}
        if there:
            store.records.put(_released(record, there))
            released += there
    return tuple(dict.fromkeys(released))


def _released(record: Record, there: Mapping[str, FileEntry]) -> Record:
    key = digest_json({"released": {path: str(entry) for path, entry in there.items()}})
    manifest = {"kind": RELEASED}
    return replace(record, key=key, manifest=manifest, outputs=there, deleted=(), accepted=tuple(there), failed=True)
