"""A record as JSON, the same in the store and in the lock file."""

import re

from orch23.model.digest import Digest, FileEntry, Json
from orch23.model.record import Record
from orch23.store.strict_json import fields, mapping, text, texts, truth

_ENTRY = re.compile(r"([0-9a-f]{64}):(0|[1-9][0-9]{0,15})(\+x)?", re.ASCII)
_FIELDS = ("stage", "key", "manifest", "outputs", "deleted", "exchanges", "originals", "failed")


def entry_to_json(entry: FileEntry | None) -> str | None:
    """Return a file's identity as `<sha256>:<size>`, with `+x` for an executable; None where there is no file."""
    if entry is None:
        return None
    return f"{entry.digest.sha256}:{entry.digest.size_bytes}{'+x' if entry.executable else ''}"


def entry_from_json(value: object) -> FileEntry:
    """Return the file's identity that `entry_to_json` wrote.

    Raises:
        ValueError: it is none.

    """
    found = _ENTRY.fullmatch(text(value))
    if found is None:
        message = f"expected a file's digest, found {value!r}"
        raise ValueError(message)
    return FileEntry(Digest(found[1], int(found[2])), executable=found[3] is not None)


def optional_entry(value: object) -> FileEntry | None:
    """Return the file's identity, or None for the mark of no file.

    Raises:
        ValueError: it is neither.

    """
    return None if value is None else entry_from_json(value)


def record_to_json(record: Record) -> dict[str, Json]:
    """Return a record as a JSON object with all of its fields."""
    return {
        "stage": record.stage,
        "key": record.key,
        "manifest": dict(record.manifest),
        "outputs": {path: entry_to_json(entry) for path, entry in record.outputs.items()},
        "deleted": list(record.deleted),
        "exchanges": list(record.exchanges),
        "originals": {path: entry_to_json(entry) for path, entry in record.originals.items()},
        "failed": record.failed,
    }


def record_from_json(value: object) -> Record:
    """Return the record that `record_to_json` wrote.

    Raises:
        ValueError: a field is missing, unknown or of the wrong type.

    """
    found = fields(value, _FIELDS)
    return Record(
        stage=text(found["stage"]),
        key=text(found["key"]),
        manifest=mapping(found["manifest"]),
        outputs={path: entry_from_json(entry) for path, entry in mapping(found["outputs"]).items()},
        deleted=texts(found["deleted"]),
        exchanges=texts(found["exchanges"]),
        originals={path: optional_entry(entry) for path, entry in mapping(found["originals"]).items()},
        failed=truth(found["failed"]),
    )
