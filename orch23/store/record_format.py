"""The format of records: as JSON in the store and in lock files, as lines of a file, and as rows of the index."""

from _blake2 import blake2b
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from orch23.model.digest import Digest, FileEntry, Json, canonical_json
from orch23.model.parsing import JsonObject, NaturalNumber, from_struct, parse_stored, refuse, to_struct
from orch23.model.record import Base, Record, core_of, identity_of
from orch23.snapshot.signatures import sha256_hex
from orch23.store.json_text import TRUSTED, StoreKey, checked_line, parse_written

EntryText: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}:(?:0|[1-9][0-9]{0,15})(?:\+x)?\Z")]
"""The entry of a file as text: `<sha256>:<size>`, with `+x` for an executable file."""

_ROW_BYTES = 16

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
    made: dict[str, EntryText] = {}
    git: dict[str, _BlobId] = {}
    texts: str = ""
    pipeline: str = ""
    task: str = ""
    tests: dict[str, NaturalNumber] = {}
    forgiven: tuple[str, ...] = ()
    proof: tuple[str, ...] = ()


def entry_to_json(entry: FileEntry) -> EntryText:
    """Return the text of a file's entry."""
    return f"{entry.digest.sha256}:{entry.digest.size_bytes}{'+x' if entry.executable else ''}"


def entry_from_json(text: EntryText) -> FileEntry:
    """Return the entry of a text that `entry_to_json` returned."""
    sha256, _, rest = text.partition(":")
    size = rest.removesuffix("+x")
    return FileEntry(Digest(sha256, int(size)), executable=size != rest)


def entries_to_json(entries: Mapping[str, FileEntry | None]) -> dict[str, EntryText | None]:
    """Return the texts of the entries of files by path, None for no file."""
    return {path: None if entry is None else entry_to_json(entry) for path, entry in entries.items()}


def entries_from_json(texts: Mapping[str, EntryText | None]) -> dict[str, FileEntry | None]:
    """Return the entries of texts that `entries_to_json` returned."""
    return {path: None if text is None else entry_from_json(text) for path, text in texts.items()}


def record_to_json(record: Record) -> JsonObject:
    """Return a record as a JSON object."""
    values: dict[str, Any] = {
        **asdict(record),
        "manifest": dict(record.manifest),
        "outputs": entries_to_json(record.outputs),
        "originals": entries_to_json(record.originals),
        "made": entries_to_json(record.made),
        "bases": {
            path: (entry_to_json(base.start), entry_to_json(base.instead_of) if base.instead_of else None)
            for path, base in record.bases.items()
        },
        "git": dict(record.git),
        "tests": dict(record.tests),
    }
    return from_struct(_Form(**values))


def record_from_json(value: Json) -> Record:
    """Return the record of a JSON object that `record_to_json` returned.

    Raises:
        ValueError: a field is missing, unknown or of the wrong type.
    """
    found = to_struct(value, _Form)
    values: dict[str, Any] = {
        **asdict(found),
        "outputs": entries_from_json(found.outputs),
        "originals": entries_from_json(found.originals),
        "made": entries_from_json(found.made),
        "bases": {
            path: Base(entry_from_json(start), entry_from_json(other) if other else None)
            for path, (start, other) in found.bases.items()
        },
    }
    return Record(**values)


class _Line(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line of a file of records: a record, or the digest of one above that is the newest again."""

    n: NaturalNumber
    again: str | None = None
    record: JsonObject | None = None


class RecordEntry(Struct, frozen=True):
    """A record with the SHA-256 of its canonical JSON, and a number that grows with each put.

    `is_proven`: a build of this user wrote it. Any other record makes a claim (ADR 60).
    """

    record: Record
    digest: str
    number: int
    is_proven: bool = True

    @property
    def order(self) -> tuple[int, str]:
        """The value by which entries are sorted, oldest first."""
        return self.number, self.digest


class RecordFile(Struct):
    """One file of records: its entries (oldest first), size, lines, and an error for each damaged line."""

    entries: dict[str, RecordEntry] = field(default_factory=dict)
    size_bytes: int = 0
    lines: int = 0
    errors: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, key: str, data: bytes, store_key: StoreKey = TRUSTED) -> Self:
        """Return the file of a stage key. Damaged lines and records of other keys are left out."""
        file = cls(size_bytes=len(data))
        for line in data.splitlines(keepends=True):
            file.lines += 1
            try:
                entry = file._parse_line(line, store_key)
                if entry.record.key != key:
                    refuse("is a record of another key")
            except ValueError as error:
                file.errors.append(f"line {file.lines} {error}")
            else:
                file.put(entry)
        return file

    def _parse_line(self, line: bytes, store_key: StoreKey) -> RecordEntry:
        inner, mac = checked_line(line)
        is_proven = store_key.proves(inner, mac)
        found = to_struct(parse_written(inner) if mac and is_proven else parse_stored(inner), _Line)
        digest = found.again or sha256_hex(inner.partition(b',"record":')[2][:-1])
        known = self.entries.get(digest)
        if known is not None and known.is_proven and not is_proven:
            refuse("was not written by a build of yours, unlike the record that it moves")
        if found.again is None:
            return RecordEntry(record_from_json(found.record), digest, found.n, is_proven)
        if known is None or found.record is not None:
            refuse("moves a record that is not there")
        return RecordEntry(known.record, digest, found.n, known.is_proven)

    @property
    def must_be_rewritten(self) -> bool:
        """Whether the file is damaged, or has no entry."""
        return bool(self.errors) or not self.entries

    def put(self, entry: RecordEntry) -> None:
        """Add an entry as the newest; an older one of the same record is removed."""
        self.entries.pop(entry.digest, None)
        self.entries[entry.digest] = entry

    def encode(self, store_key: StoreKey = TRUSTED) -> bytes:
        """Return the lines of all entries. A record that is not proven stays so."""
        bodies = ((one, canonical_json(record_to_json(one.record))) for one in self.entries.values())
        return b"".join(store_key.line(record_body(one.number, body), sign=one.is_proven) for one, body in bodies)


def record_body(number: int, body: bytes) -> bytes:
    """Return the value of the line of a record, given as canonical JSON."""
    return b'{"n":%d,"record":%s}' % (number, body)


def move_body(entry: RecordEntry) -> bytes:
    """Return the value of the line that makes a record above it the newest again."""
    return canonical_json(from_struct(_Line(entry.number, again=entry.digest)))


def lookup_keys(record: Record) -> Iterator[tuple[str, str]]:
    """Yield kind and value of each lookup that finds a record."""
    yield "key", record.key
    yield "core", core_of(record.manifest, record.key)
    yield "identity", identity_of(record.manifest)
    yield "stage", record.stage
    for path, entry in record.outputs.items():
        yield "path", path
        yield "file", file_lookup(path, entry)


def file_lookup(path: str, entry: FileEntry) -> str:
    """Return the value of the lookup of records with this file as an output."""
    return f"{entry} {path}"


def index_row(kind: str, value: str) -> bytes:
    """Return the key of the row of a lookup."""
    # A digest, since a name or a path may be a secret (ADR 31).
    return blake2b(f"{kind}\0{value}".encode("utf-8", "surrogatepass"), digest_size=_ROW_BYTES).digest()
