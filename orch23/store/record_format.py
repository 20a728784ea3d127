"""A record as JSON, the same in the store and in the lock file."""

import re

from orch23.model.digest import Digest, FileEntry, Json
from orch23.model.record import Base, Record
from orch23.store.strict_json import fields, mapping, text, texts, truth

_ENTRY = re.compile(r"([0-9a-f]{64}):(0|[1-9][0-9]{0,15})(\+x)?", re.ASCII)
_BLOB_ID = re.compile(r"[0-9a-f]{40}", re.ASCII)
_FIELDS = ("stage", "key", "manifest", "outputs", "deleted", "exchanges", "originals", "failed")
_OPTIONAL_FIELDS = ("bases", "accepted", "git", "texts")
"""Written only where there is something to say: a record of an earlier version has none of them and keeps its text."""


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
    """Return a record as a JSON object; the fields that older records lack are written only if they are not empty."""
    body: dict[str, Json] = {
        "stage": record.stage,
        "key": record.key,
        "manifest": dict(record.manifest),
        "outputs": {path: entry_to_json(entry) for path, entry in record.outputs.items()},
        "deleted": list(record.deleted),
        "exchanges": list(record.exchanges),
        "originals": {path: entry_to_json(entry) for path, entry in record.originals.items()},
        "failed": record.failed,
    }
    if record.bases:
        body["bases"] = {
            path: [entry_to_json(base.start), entry_to_json(base.instead_of)] for path, base in record.bases.items()
        }
    if record.accepted:
        body["accepted"] = list(record.accepted)
    if record.git:
        body["git"] = dict(record.git)
    if record.texts:
        body["texts"] = record.texts
    return body


def record_from_json(value: object) -> Record:
    """Return the record that `record_to_json` wrote.

    Raises:
        ValueError: a field is missing, unknown or of the wrong type.

    """
    given = mapping(value)
    found = fields(value, (*_FIELDS, *(name for name in _OPTIONAL_FIELDS if name in given)))
    return Record(
        stage=text(found["stage"]),
        key=text(found["key"]),
        manifest=mapping(found["manifest"]),
        outputs={path: entry_from_json(entry) for path, entry in mapping(found["outputs"]).items()},
        deleted=texts(found["deleted"]),
        exchanges=texts(found["exchanges"]),
        originals={path: optional_entry(entry) for path, entry in mapping(found["originals"]).items()},
        bases={path: _base(base) for path, base in mapping(found.get("bases", {})).items()},
        accepted=texts(found.get("accepted", [])),
        git={sha256: _blob_id(blob) for sha256, blob in mapping(found.get("git", {})).items()},
        texts=text(found.get("texts", "")),
        failed=truth(found["failed"]),
    )


def _base(value: object) -> Base:
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004 - a pair
        message = f"expected two digests of a base, found {value!r}"
        raise ValueError(message)
    return Base(entry_from_json(value[0]), optional_entry(value[1]))


def _blob_id(value: object) -> str:
    found = text(value)
    if _BLOB_ID.fullmatch(found) is None:
        message = f"expected a git blob id, found {value!r}"
        raise ValueError(message)
    return found
