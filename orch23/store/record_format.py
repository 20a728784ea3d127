"""Encode records of results as JSON, the same in the store and in lock files."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from orch23.model.digest import Digest, FileEntry, Json
from orch23.model.parsing import JsonObject, from_struct, to_struct
from orch23.model.record import Base, Record

EntryText: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}:(?:0|[1-9][0-9]{0,15})(?:\+x)?\Z")]
"""The entry of a file as text: `<sha256>:<size>`, with `+x` for an executable file."""

_BlobId: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9a-f]{40}\Z")]


class _Form(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The fields of a record. A field with a default is written only if its value differs.

    So a record of an earlier version, which has none of these fields, keeps its text and its digest.
    """

    stage: str
    key: str
    manifest: JsonObject
    outputs: dict[str, EntryText]
    deleted: tuple[str, ...]
    exchanges: tuple[str, ...]
    originals: dict[str, EntryText | None]
    failed: bool
    bases: dict[str, tuple[EntryText, EntryText | None]] = {}
    accepted: tuple[str, ...] = ()
    git: dict[str, _BlobId] = {}
    texts: str = ""


def entry_to_json(entry: FileEntry) -> EntryText:
    """Return the text of a file's entry."""
    return f"{entry.digest.sha256}:{entry.digest.size_bytes}{'+x' if entry.executable else ''}"


def optional_entry_to_json(entry: FileEntry | None) -> EntryText | None:
    """Return the text of a file's entry, None for no file."""
    return None if entry is None else entry_to_json(entry)


def entry_from_json(text: EntryText) -> FileEntry:
    """Return the entry of a text that `entry_to_json` returned."""
    sha256, _, rest = text.partition(":")
    size = rest.removesuffix("+x")
    return FileEntry(Digest(sha256, int(size)), executable=size != rest)


def optional_entry_from_json(text: EntryText | None) -> FileEntry | None:
    """Return the entry of a text, None for no file."""
    return None if text is None else entry_from_json(text)


def record_to_json(record: Record) -> JsonObject:
    """Return a record as a JSON object."""
    return from_struct(
        _Form(
            stage=record.stage,
            key=record.key,
            manifest=dict(record.manifest),
            outputs={path: entry_to_json(entry) for path, entry in record.outputs.items()},
            deleted=record.deleted,
            exchanges=record.exchanges,
            originals={path: optional_entry_to_json(entry) for path, entry in record.originals.items()},
            failed=record.failed,
            bases={
                p: (entry_to_json(base.start), optional_entry_to_json(base.instead_of))
                for p, base in record.bases.items()
            },
            accepted=record.accepted,
            git=dict(record.git),
            texts=record.texts,
        )
    )


def record_from_json(value: Json) -> Record:
    """Return the record of a JSON object that `record_to_json` returned.

    Raises:
        ValueError: a field is missing, unknown or of the wrong type.

    """
    found = to_struct(value, _Form)
    return Record(
        stage=found.stage,
        key=found.key,
        manifest=found.manifest,
        outputs={path: entry_from_json(entry) for path, entry in found.outputs.items()},
        deleted=found.deleted,
        exchanges=found.exchanges,
        originals={path: optional_entry_from_json(entry) for path, entry in found.originals.items()},
        bases={
            path: Base(entry_from_json(one), optional_entry_from_json(two)) for path, (one, two) in found.bases.items()
        },
        accepted=found.accepted,
        git=found.git,
        texts=found.texts,
        failed=found.failed,
    )
