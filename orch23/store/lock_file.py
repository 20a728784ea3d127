"""Find, read and write lock files: records of results as text that git can merge."""

import contextlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Json, canonical_json, digest_bytes, is_identical
from orch23.model.errors import CorruptStateError
from orch23.model.parsing import JsonObject, parse_stored, refuse, to_struct
from orch23.model.paths import IGNORED_NAMES, LOCK_MARK, LOGS_FOLDER, SHA256
from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import DEFAULT_SCRATCH
from orch23.model.record import LockFile, Record
from orch23.snapshot.signatures import sha256
from orch23.store.json_text import parse_written, with_sum, without_sum
from orch23.store.record_format import record_from_json, record_to_json
from orch23.store.safe_files import read_file, read_regular, replace_file, walk_tree

_DAMAGED, _OTHER_VERSION = "E702", "E704"
_SUFFIXES = (".yaml", ".yml")
_TEMPLATE = ".template"
_HEAD_BYTES = 4096
_PIPELINE_BYTES = 1 << 20
_VERSION = lazy_pattern(rb'^[ \t]*+\{?[ \t]*+"?version"?[ \t]*+:', re.MULTILINE)
_MARKER = lazy_pattern(r"^(<{7} |={7}\r?$|>{7} |\|{7} )", re.MULTILINE)
_STAGES = lazy_pattern(rb'(?:^|[{,])[ \t]*+"?stages"?[ \t]*+:', re.MULTILINE)


def find_lock_files(root: Path, mark: bytes = b"") -> tuple[set[Path], set[str]]:
    """Return the lock files below the root, and the pipelines: beside a lock file, at the root, or in pipelines/.

    With `mark`, also pipelines elsewhere that have these bytes.
    """
    locks: set[Path] = set()
    pipelines: set[str] = set()
    usual = (root, root / "pipelines")

    def is_skipped(path: str) -> bool:
        return path == LOGS_FOLDER or path.rpartition("/")[2] in IGNORED_NAMES

    # A folder that this user cannot read is left out: no build reads a pipeline in it.
    for name, entry in walk_tree(root, is_skipped=is_skipped, ignored=(OSError,)):
        if not name.endswith((".lock", *_SUFFIXES)) or not entry.is_file(follow_symlinks=False):
            continue
        path = root / name
        if path.suffix == ".lock":
            if LOCK_MARK in _head(path):
                locks.add(path)
                pipelines |= {one.relative_to(root).as_posix() for one in pipelines_of(path)}
        elif (path.parent in usual or (mark and mark in _head(path, whole=True))) and _is_pipeline(path):
            pipelines.add(name)
    return locks, pipelines


def lock_path(root: Path, pipeline_file: str) -> Path:
    """Return the path of the lock file: beside the pipeline, `x.yaml` -> `x.lock`."""
    return (root / pipeline_file).with_suffix(".lock")


def pipelines_of(lock: Path) -> list[Path]:
    """Return the pipelines beside a lock file that it may be of."""
    return [path for suffix in _SUFFIXES if (path := lock.with_suffix(suffix)).is_file()]


def is_lock_of_pipeline(root: Path, path: str) -> bool:
    """Return whether a path below the root is, or would be, the lock file of a pipeline.

    Raises:
        SafetyError: a directory of the path is a link.
    """
    if not path.casefold().endswith(".lock"):
        return False
    if LOCK_MARK in (read_file(root, path, _HEAD_BYTES) or b""):
        return True
    stem = path[: -len(".lock")]
    beside = (read_file(root, f"{stem}{suffix}", _PIPELINE_BYTES) or b"" for suffix in _SUFFIXES)
    return any(b"version" in text and b"stages" in text for text in beside)


def _is_pipeline(path: Path) -> bool:
    """Return whether a file looks like a pipeline; templates and hidden files are not built."""
    if path.stem.endswith(_TEMPLATE) or path.name.startswith("."):
        return False
    text = _head(path, whole=True)
    return _VERSION.search(text) is not None and _STAGES.search(text) is not None


def _head(path: Path, *, whole: bool = False) -> bytes:
    with contextlib.suppress(OSError):
        return read_regular(path, _PIPELINE_BYTES if whole else _HEAD_BYTES) or b""
    return b""


LOCK_VERSION = 2
# Values that a record leaves out. A constant: a block that followed from the records could change in one branch what
# the records of another branch mean (ADR 61).
_DEFAULTS: JsonObject = {
    "deleted": [],
    "exchanges": [],
    "failed": False,
    "manifest": {"action_format": 1, "cwd": ".", "scratch": list(DEFAULT_SCRATCH)},
    "originals": {},
}
# The last entry of `records`; no stage can have this name. With it the block of every stage ends with a comma, so that
# git can merge two branches that add stages.
_END = "~"
# The beginning of a record and of the end mark: lines within a record are indented by more.
_NEXT = b'\n  "'
_LAST = b'\n  "~": null\n'
# The line break before a record, and its first line.
_HEAD = lazy_pattern(rb'\n  "(?:[^"\\\n]|\\.)*+": \{(?=\n)')
# Aspects that follow from contents, as those whose value is a digest do.
_CONTENTS = ("item", "list:", "verify.list:")
_MOST_DEFAULTS = 1024  # characters
_MOST_ERRORS = 100
# Up to so many records are searched for one by one.
_FEW = 16


def _members(value: JsonObject) -> str:
    return canonical_json(value).decode()[1:-1]


_START = f'{{\n "orch23_lock": {LOCK_VERSION},\n "defaults": {{{_members(_DEFAULTS)}}},\n "pipeline": '
_EMPTY = _START.encode() + b'"",\n "records": {%b\n  "~": null\n }\n}\n'
_EITHER = "take either side, with git checkout --ours FILE or --theirs, then build: both lead to the same result"
_RESTORE = "restore the file of an earlier commit, or delete it and build: store and commits have the same records"


class _Form(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A lock file. Its records are decoded one by one, so that every damaged record is reported."""

    orch23_lock: int
    pipeline: str
    records: JsonObject
    defaults: JsonObject = {}
    # Both sort after `records`: the functions that read a part of the file rely on it.
    released: JsonObject = {}
    retained: JsonObject = {}


def read_lock(path: Path) -> LockFile:
    """Return the records of a lock file; none if it does not exist.

    Raises:
        CorruptStateError: it has conflict markers or is damaged; the errors name all damaged records.
    """
    if (data := read_regular(path)) is not None:
        return decode_lock(data, str(path))
    if os.path.lexists(path):
        hint = "move it away; without a lock file orch23 uses the records of the store, or builds again"
        raise _error(_DAMAGED, "the lock file is not a regular file", Location(str(path), 1, 1), hint)
    return LockFile()


class KnownLock(Struct, frozen=True):
    """The bytes of a lock file that orch23 wrote, and the records in them."""

    data: bytes
    lock: LockFile


def read_known_lock(path: Path, sha256: str) -> KnownLock | None:
    """Return a lock file that an earlier build wrote; None if it has another SHA-256 (in hex) now.

    Its form and its checksums were right then, so they are not checked again.
    """
    data = read_regular(path)
    if data is None or digest_bytes(data).sha256 != sha256:
        return None
    return KnownLock(data, decode_lock(data, str(path), is_known=True))


class LockWrite(Struct, frozen=True):
    """The result of a write: the SHA-256 of the file in hex, and its status if it was written.

    It is true if the file was written.
    """

    sha256: str
    file: os.stat_result | None = None

    def __bool__(self) -> bool:
        """Return whether the file was written."""
        return self.file is not None


def write_lock(root: Path, path: str, lock: LockFile, pipeline_name: str, known: KnownLock | None = None) -> LockWrite:
    """Write a lock file below the root, unless it has the same text already.

    The text of records that are those of a `known` file is taken from there.

    Raises:
        SafetyError: a directory of its path is a link.
    """
    texts = {} if known is None else _texts_in(known, lock, path)
    data = b"".join(piece.encode("utf-8") for piece in _pieces(lock, pipeline_name, texts))
    before = read_file(root, path)
    if before is not None and (before.replace(b"\r\n", b"\n") == data or _is_earlier_form(before, lock, pipeline_name)):
        return LockWrite(digest_bytes(before).sha256)
    return LockWrite(digest_bytes(data).sha256, replace_file(root, path, data, 0o644))


def _is_earlier_form(data: bytes, lock: LockFile, pipeline_name: str) -> bool:
    """Return whether a file of version 1 has these records: then it stays as it is."""
    with contextlib.suppress(CorruptStateError):
        head = f'{{\n "orch23_lock": 1,\n "pipeline": {_quoted(pipeline_name)},\n'
        return data.startswith(head.encode()) and decode_lock(data, "") == lock
    return False


def lock_digest(path: Path) -> str:
    """Return the SHA-256 of a lock file in hex; empty if there is no such file."""
    data = read_regular(path)
    return digest_bytes(data).sha256 if data is not None else ""


def lock_pipeline(path: Path) -> str:
    """Return the name of the pipeline of a lock file; empty if it cannot be read."""
    with contextlib.suppress(ValueError):
        return str(to_struct(parse_stored(read_regular(path) or b""), JsonObject).get("pipeline", ""))
    return ""


def encode_lock(lock: LockFile, pipeline_name: str) -> str:
    """Return the text of a lock file: sorted, without times and absolute paths, a checksum in every record."""
    return "".join(_pieces(lock, pipeline_name))


def _texts_in(known: KnownLock, lock: LockFile, origin: str) -> Mapping[str, str]:
    """Return the text of each record that is in a known lock file, by stage, without the comma at its end."""
    same = [name for name, record in lock.records.items() if known.lock.records.get(name) is record]
    try:
        spans = _spans(known.data, same, origin, is_known=True)
    except CorruptStateError:  # somebody has formatted the file
        return {}
    return {name: known.data[start : end - 1].decode("utf-8") for name, (start, end) in spans.items()}


def _pieces(lock: LockFile, pipeline_name: str, texts: Mapping[str, str] = {}) -> Iterator[str]:
    """Yield the text of a lock file record by record: all records as one value take six times its memory."""
    yield f'{_START}{_quoted(pipeline_name)},\n "records": '
    yield from _part({**lock.records, _END: None}, texts, failed=False)
    for part in ("released", "retained"):
        if records := getattr(lock, part):
            yield f',\n "{part}": '
            yield from _part(records, {}, failed=True)
    yield "\n}\n"


def _part(records: Mapping[str, Record | None], texts: Mapping[str, str], *, failed: bool) -> Iterator[str]:
    before = "{"
    for name, record in sorted(records.items()):
        yield before
        yield texts[name] if name in texts else _text_of(name, record, failed=failed)
        before = ","
    yield "\n }"


def _text_of(name: str, record: Record | None, *, failed: bool) -> str:
    """Return the text of a record, from the line break before it.

    It has one line for what follows from the pipeline, and one for what follows from contents. The second one always
    changes, so git shows a conflict in a record with both lines of each side (ADR 61).
    """
    if record is None:
        return f"\n  {_quoted(name)}: null"
    if record.failed is not failed:
        refuse(f"BUG: the record of {record.stage} is in the wrong part of a lock file")
    body, given = with_sum(record_to_json(replace(record, pipeline=""))), {**_DEFAULTS, "stage": name}
    manifest, usual = body.pop("manifest"), given.pop("manifest")
    # Most are digests of inputs.
    digests = {a: v for a, v in manifest.items() if a[:6] == "input:" and type(v) is str}
    lines: tuple[JsonObject, JsonObject] = ({}, digests)
    for aspect in {**usual, **manifest}.keys() - digests.keys():
        value, default = manifest.get(aspect), usual.get(aspect)
        if not is_identical(value, default):
            is_digest = isinstance(value, str) and SHA256.match(value) is not None
            lines[is_digest or aspect.startswith(_CONTENTS)][aspect] = value
    parts = ",\n    ".join(_members(line) for line in lines if line)
    rest = {field: value for field, value in body.items() if not is_identical(value, given.get(field))}
    return f'\n  {_quoted(name)}: {{\n   "manifest":{{{parts}}},{_members(rest)}\n  }}'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def read_lock_records(path: Path, stages: Collection[str], data: bytes, *, is_known: bool = False) -> LockFile:
    """Return only the records of these stages from the bytes of a lock file that orch23 wrote.

    With `is_known`, a digest has shown that these are the bytes that orch23 wrote, so no record is there twice.

    Raises:
        CorruptStateError: the file does not have each of these records once, in the form that orch23 writes.
    """
    spans = _spans(data, stages, str(path), is_known=is_known)
    return decode_lock(_EMPTY % b"".join(data[start:end] for start, end in spans.values()), str(path))


def write_lock_records(
    root: Path, path: str, lock: LockFile, pipeline_name: str, read: bytes, *, is_unchanged: bool = False
) -> LockWrite:
    """Replace the records of some stages in a lock file.

    `read` are the bytes as they were read before; with `is_unchanged` they are still those of the file. If the file has
    changed since, the SHA-256 is empty: the caller does not know the records of the other stages.

    Raises:
        CorruptStateError: the file does not have each of these records once, in the form that orch23 writes.
        SafetyError: a directory of its path is a link.
    """
    before = read if is_unchanged else read_file(root, path) or b""
    text = encode_lock(lock, pipeline_name).encode("utf-8")
    fresh = _spans(text, lock.records, path)
    # Not copied: a large file is read, hashed and written in about the time that two copies of it take.
    old, new = memoryview(before), memoryview(text)
    pieces, at, is_same = [], 0, True
    spans = _spans(before, lock.records, path, is_known=before == read)
    for name, (start, end) in sorted(spans.items(), key=lambda one: one[1]):
        first, last = fresh[name]
        is_same = is_same and before[start:end] == text[first:last]
        pieces += [old[at:start], new[first:last]]
        at = end
    pieces.append(old[at:])
    file = None if is_same else replace_file(root, path, pieces, 0o644)
    hasher = sha256(size=len(text) + len(before))
    for piece in pieces:
        hasher.update(piece)
    return LockWrite(hasher.hexdigest() if before == read else "", file)


def _places(data: bytes) -> Mapping[bytes, tuple[int, bool]]:
    """Return where each first line of a record is first, with the line break before it, and whether it is there twice.

    One pass: a search for each of many stages would read the whole file each time.
    """
    found: dict[bytes, tuple[int, bool]] = {}
    for one in _HEAD.finditer(data):
        # The line break at its end may be the one before the next record.
        head = one[0] + b"\n"
        found[head] = (found[head][0], True) if head in found else (one.start(), False)
    return found


def _spans(
    data: bytes, stages: Collection[str], origin: str, *, is_known: bool = False
) -> Mapping[str, tuple[int, int]]:
    """Return start and end of the record of each stage, from the line break before it to the one at its end."""
    last = data.rfind(_LAST) if data.startswith(_START.encode()) else -1
    places = _places(data) if len(stages) > _FEW else None
    spans = {}
    for stage in stages:
        head = b"\n  %b: {\n" % _quoted(stage).encode("utf-8")
        if places is None:
            start = data.find(head)
            is_twice = not is_known and data.find(head, start + 1) >= 0
        else:
            start, is_twice = places.get(head, (-1, False))
        end = data.find(_NEXT, start + len(head))
        if not 0 <= start < end <= last or (is_twice and not is_known):
            message = f"the record of `{stage}` is not in the form that orch23 writes"
            hint = "build again: the whole lock file is read then"
            raise _error(_DAMAGED, message, Location(origin, 1, 1), hint)
        spans[stage] = start, end
    return spans


def decode_lock(data: bytes, origin: str, *, is_known: bool = False, only_intact: bool = False) -> LockFile:
    """Return the records of a lock file's bytes; errors name the file `origin`.

    With `is_known`, a digest has shown that these are the bytes that orch23 wrote. With `only_intact`, records that do
    not match their checksums are left out. Raises what `read_lock` raises.
    """
    try:
        document = "" if is_known else data.decode("utf-8")
        if (conflict := _MARKER.search(document)) is not None:
            location = Location(origin, document.count("\n", 0, conflict.start()) + 1, 1, 7)
            marked = _error("E701", "the lock file has conflict markers of git", location, _EITHER)
            return _of_both_sides(_sides_of(document), marked)
        body = parse_written(data) if is_known else parse_stored(document)
        if (version := to_struct(body, JsonObject).get("orch23_lock")) not in (1, LOCK_VERSION):
            message = f"the lock file has version {version!r}, but this orch23 supports versions 1 and {LOCK_VERSION}"
            hint = "use the version of orch23 that wrote it, or delete the file and build"
            raise _error(_OTHER_VERSION, message, Location(origin, 1, 1), hint)
        form = to_struct(body, _Form)
        if _END not in form.records:
            refuse("the end mark is missing")
        # Each record gets them, so large ones would cost as much as many large records.
        if len(_members(form.defaults)) > _MOST_DEFAULTS:
            refuse(f"`defaults` has more than {_MOST_DEFAULTS} characters")
        read = partial(_records, form.defaults, origin, document, _without_sum if is_known else without_sum)
        found = [read(part) for part in (form.records, form.retained, form.released)]
        if (errors := [error for _, damaged in found for error in damaged]) and not only_intact:
            raise CorruptStateError(*errors)
        return LockFile(found[0][0], found[1][0], (), found[2][0])
    except ValueError as error:
        message = f"the lock file cannot be read: {error}"
        unreadable = _error(_DAMAGED, message, Location(origin, 1, 1), _RESTORE)
        if only_intact:
            raise unreadable from error
        return _of_both_sides([data], unreadable)


def _of_both_sides(sides: Iterable[bytes], damaged: CorruptStateError) -> LockFile:
    """Return the records of both sides of a merge: no side decides what is believed (ADR 19).

    Git may merge lines of both sides into one record, so that it is on neither side: it is left out.
    """
    try:
        found = [decode_lock(one, "", only_intact=True) for side in sides for one in _repeated_blocks(side)]
    except CorruptStateError as error:
        raise damaged from error
    released = {name: record for lock in reversed(found) for name, record in lock.released.items()}
    # If one side released a stage, the records of the other side own no file.
    records = {n: record for lock in reversed(found) for n, record in lock.records.items() if n not in released}
    retained = {n: record for lock in reversed(found) for n, record in lock.retained.items() if n not in released}
    others = (record for lock in found for name, record in lock.records.items() if record != records.get(name))
    return LockFile(records, retained, tuple(others), released)


def _repeated_blocks(data: bytes) -> Iterator[bytes]:
    """Yield a text with the first block of each record, and one with the last: a merge may leave a stage two."""
    end = data.find(_LAST)
    places = [*(head.start() for head in _HEAD.finditer(data, 0, max(end, 0))), end]
    blocks = [data[start:after] for start, after in pairwise(places)]
    for some in (reversed(blocks), blocks):
        named = {block.partition(b": {")[0]: block for block in some}
        yield b"".join((data[: places[0]], *named.values(), data[end:]))
        if len(named) == len(blocks):
            return


def _sides_of(document: str) -> tuple[bytes, bytes]:
    """Return both sides of a text with conflict markers, without the common base that git may show."""
    both: tuple[list[str], list[str]] = ([], [])
    into: Sequence[list[str]] = both
    for line in document.split("\n"):
        if (mark := _MARKER.search(line)) is not None:
            into = {"<": both[:1], "|": (), "=": both[1:], ">": both}[mark[0][0]]
        else:
            for side in into:
                side.append(line)
    return "\n".join(both[0]).encode(), "\n".join(both[1]).encode()


def _without_sum(block: Json) -> JsonObject:
    """Return what `without_sum` does, of a block with the right checksum."""
    body = to_struct(block, JsonObject)
    del body["sum"]
    return body


def _records(
    defaults: JsonObject,
    origin: str,
    document: str,
    content_of: Callable[[Json], JsonObject],
    blocks: Mapping[str, Json],
) -> tuple[dict[str, Record], list[Diagnostic]]:
    found: dict[str, Record] = {}
    errors: list[Diagnostic] = []
    for name, block in blocks.items():
        if name == _END:
            continue
        try:
            found[name] = record_from_json(content_of(_completed(name, block, defaults)))
        except ValueError as error:
            if len(errors) < _MOST_ERRORS:  # the search for each place reads the file
                errors.append(_bad_record(origin, document, name, error))
    return found, errors


def _completed(name: str, block: Json, defaults: JsonObject) -> JsonObject:
    """Return a record with the values that it leaves out. An aspect that is null is not in its manifest."""
    if not defaults:
        return to_struct(block, JsonObject)
    body = {**defaults, "stage": name, **to_struct(block, JsonObject)}
    given = to_struct(defaults.get("manifest", {}), JsonObject)
    manifest = given | to_struct(body.get("manifest"), JsonObject)
    left = {aspect for aspect in given if manifest[aspect] is None}
    return {**body, "manifest": {aspect: manifest[aspect] for aspect in sorted(manifest) if aspect not in left}}


def _error(code: str, message: str, location: Location, hint: str) -> CorruptStateError:
    return CorruptStateError(Diagnostic(code, message, location, hint))


def _bad_record(origin: str, document: str, name: str, error: ValueError) -> Diagnostic:
    at = document.find(f"\n  {_quoted(name)}:")
    line = document.count("\n", 0, at + 1) + 1 if at >= 0 else 1
    message = f"the record of stage `{name}` {error}"
    return Diagnostic("E703", message, Location(origin, line, 3), _RESTORE, subject=name)
