"""Read and write the records of some stages in a lock file, without taking the others apart."""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import digest_bytes
from orch23.model.errors import CorruptStateError
from orch23.model.record import LockFile
from orch23.store.beneath import open_file, read_all, read_regular, replace_file
from orch23.store.codes import E_LOCK_DAMAGED
from orch23.store.lock_file import Written, lock_text, parse_lock

_HEAD = re.compile(rb'\n  ("(?:[^"\\\n]|\\[^\n])*"): \{\n')  # of a record: no string holds a line break
_END = b'\n  "~": null\n'
_EMPTY = b'{\n "orch23_lock": 1,\n "pipeline": "",\n "records": {%b\n  "~": null\n }\n}\n'


def read_part(path: Path, stages: Collection[str], data: bytes | None = None) -> LockFile:
    """Return the records of these stages; `data` are the bytes of the file, if they were read already.

    Raises:
        CorruptStateError: the file does not hold each of them once, as it was written.

    """
    if data is None:
        data = read_regular(path) or b""
    spans = _spans(data, stages, str(path))
    return parse_lock(_EMPTY % b"".join(data[start:end] for start, end in spans.values()), str(path))


def write_part(root: Path, path: str, lock: LockFile, pipeline_name: str, read: bytes | None = None) -> Written:
    """Put these records in the place of those that the file has of their stages.

    `read` is the file as it was read before. If it is another one now, the sha256 is empty: the records of the other
    stages are then not those that were known.

    Raises:
        CorruptStateError: the file does not hold each of them once, as it was written.
        SafetyError: a directory of its path is a link.

    """
    source = open_file(root, path)
    before = read_all(source) if source is not None else b""
    text = lock_text(lock, pipeline_name).encode("utf-8")
    fresh = _spans(text, lock.records, path)
    pieces, at = [], 0
    for name, (start, end) in sorted(_spans(before, lock.records, path).items(), key=lambda one: one[1]):
        first, last = fresh[name]
        pieces += [before[at:start], text[first:last]]
        at = end
    data = b"".join((*pieces, before[at:]))
    sha256 = digest_bytes(data).sha256 if read is None or before == read else ""
    if data == before:
        return Written(changed=False, sha256=sha256)
    replace_file(root, path, data, 0o644)
    return Written(changed=True, sha256=sha256)


def _spans(data: bytes, stages: Collection[str], origin: str) -> Mapping[str, tuple[int, int]]:
    """Return where the record of each stage stands: from the line break before it up to that at its end."""
    heads = [(found.start(), found[1]) for found in _HEAD.finditer(data)]
    last = data.rfind(_END)
    ends = [*(start for start, _ in heads[1:]), last]
    where: dict[bytes, list[tuple[int, int]]] = {}
    for (start, name), end in zip(heads, ends, strict=True) if heads else ():
        where.setdefault(name, []).append((start, end))
    spans = {}
    for stage in stages:
        found = where.get(json.dumps(stage, ensure_ascii=False).encode("utf-8"), [])
        if len(found) != 1 or last < heads[-1][0]:
            message = f"the record of `{stage}` is not where it was written"
            hint = "build again: the whole of it is read then"
            raise CorruptStateError(Diagnostic(E_LOCK_DAMAGED, message, Location(origin, 1, 1), hint))
        spans[stage] = found[0]
    return spans
