"""Write and read the logs of runs: the journal of events, and the files of each attempt."""

import contextlib
import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.errors import CorruptStateError, NotFoundError, SafetyError
from orch23.model.event import (
    EVENT_KINDS,
    EVENT_VERSION,
    CallSubmitted,
    Event,
    RunFinished,
    RunStarted,
    StageFinished,
    parse_event,
)
from orch23.model.event_data import EventData, EventLevel, StageStatus
from orch23.model.parsing import JsonObject, NaturalNumber, from_struct, parse_stored, refuse, to_struct
from orch23.model.paths import LOGS_FOLDER, is_run_file
from orch23.model.patterns import lazy_pattern
from orch23.model.text import escape_hidden
from orch23.snapshot.signatures import sha256
from orch23.store.json_text import compact_json
from orch23.store.safe_files import (
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    check_no_link,
    closing,
    list_folder,
    make_folder,
    make_subfolder,
    open_file,
    open_own,
    open_stream,
    read_and_close,
    sync_folder,
    write_all,
    write_atomic,
)

INTERRUPTED = "interrupted"
# The statuses of runs that the next one continues.
_CONTINUED = (INTERRUPTED, "waiting")
_RECORDED = (StageStatus.BUILT, StageStatus.VERIFIED)
_CLOSED = -1
_SUM_DIGITS = 16
_TYPE = b'"type":"'
_END_BYTES = len(b',"sum":"') + _SUM_DIGITS + len(b'"}\n')
# Submitted requests, failures and the end of a run (ADR 16). The ledger syncs its own events.
_DURABLE = (CallSubmitted, StageFinished, RunFinished)
# A finished stage is not synced if the next run finds the outcome by itself, or by the record.
_FOUND_AGAIN = frozenset(
    {StageStatus.FRESH, StageStatus.DONE, StageStatus.SKIPPED}
    | {StageStatus.BLOCKED, StageStatus.BUILT, StageStatus.RESTORED}
)


_Data = TypeVar("_Data", bound=EventData)


class _Line(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of a journal without its checksum, in the order in which the fields are written."""

    v: int
    seq: NaturalNumber
    ts: str
    level: EventLevel
    type: str
    role: str
    message: str
    data: JsonObject


_LINES = msgspec.json.Decoder(_Line)


class JournalLine(Struct, frozen=True):
    """One line of a journal: the event, its number from 1, its time in UTC."""

    seq: int
    ts: str
    event: Event


class Journal:
    """Writes `logs/<run>.jsonl`. The first event creates the file; events may come from any thread.

    Submitted requests, failures and the end of the run are durable when `notice` returns. `sync` makes all events so
    far durable, with one `fsync` for all threads that wait at the same time.
    """

    def __init__(self, logs: Path, run_id: str, clock: Callable[[], datetime]) -> None:
        """Choose the file. If there is a run with this id (two in one second), the id gets the first free number."""
        self.run_id, number = run_id, 1
        while os.path.lexists(logs / f"{self.run_id}.jsonl"):
            number += 1
            self.run_id = f"{run_id}-{number}"
        self.path = logs / f"{self.run_id}.jsonl"
        self._clock = clock
        self._lock = threading.Lock()
        self._synced = threading.Condition(self._lock)
        self._descriptor = _CLOSED
        self._number = 0
        self._good_bytes = 0
        self._is_torn = False
        self._durable_number = 0
        self._is_syncing = False
        self._sync_error: OSError | None = None

    def notice(self, event: Event) -> None:
        """Append one event.

        Raises:
            OSError: the write failed. The journal then ends with the event before. Or `sync` failed.
        """
        with self._lock:
            if self._descriptor == _CLOSED:
                self._descriptor = self._open()
            text = line_without_checksum(event, self._number + 1, format_timestamp(self._clock()))
            inner = text.encode("utf-8", "backslashreplace")
            self._append(self._descriptor, inner + b',"sum":"' + _line_sum(inner) + b'"}\n')
        data = event.data
        if isinstance(data, _DURABLE) and not (isinstance(data, StageFinished) and data.status in _FOUND_AGAIN):
            self.sync()

    def sync(self) -> None:
        """Return when all events so far are durable. One of the threads that wait syncs for all of them.

        Raises:
            OSError: this sync failed, or an earlier one. The kernel may have dropped what it could not write: then the
                next `fsync` succeeds without it.
        """
        with self._synced:
            number = self._number
            self._synced.wait_for(lambda: self._durable_number >= number or not self._is_syncing)
            if self._durable_number >= number:
                return
            if self._sync_error is not None:
                raise OSError(self._sync_error.errno, self._sync_error.strerror, str(self.path))
            self._is_syncing, written, descriptor = True, self._number, self._descriptor
        # Without the lock: other threads write meanwhile, and the next sync is for all of these.
        try:
            os.fsync(descriptor)
            self._durable_number = written
        except OSError as error:
            self._sync_error = error
            raise
        finally:
            with self._synced:
                self._is_syncing = False
                self._synced.notify_all()

    def close(self) -> None:
        """Close the file. No event may follow."""
        with self._synced:
            while self._is_syncing:
                self._synced.wait()
            if self._descriptor != _CLOSED:
                os.close(self._descriptor)
                self._descriptor = _CLOSED

    def _open(self) -> int:
        folder = self.path.parent
        is_new = not folder.exists()
        make_folder(folder, PRIVATE_FOLDER_MODE)
        if is_new:
            # Prompts and responses may be private: `git add .` must not add them.
            write_atomic(folder / ".gitignore", b"*\n", mode=PRIVATE_FILE_MODE)
        descriptor = open_own(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        sync_folder(folder)
        return descriptor

    def _append(self, descriptor: int, line: bytes) -> None:
        if self._is_torn:
            os.ftruncate(descriptor, self._good_bytes)
        # A full disk can leave a part of a line: what follows it would be unreadable.
        self._is_torn = True
        write_all(descriptor, line)
        self._is_torn = False
        self._good_bytes += len(line)
        self._number += 1


def new_run_id(now: datetime, key8: str) -> str:
    """Return the id of a run: the time in UTC when it began, and eight digits for what it builds."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{key8}"


def format_timestamp(moment: datetime) -> str:
    """Return a time as text: UTC with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"


def read_journal(path: Path) -> tuple[JournalLine, ...]:
    """Return the lines of a journal, without an end that a crash left damaged.

    Raises:
        NotFoundError: the journal does not exist.
        CorruptStateError: a line before the end is damaged.
    """
    try:
        with open_stream(path) as stream:
            data = stream.read()
    except FileNotFoundError:
        missing = Diagnostic("E709", f"there is no run {path.stem}", hint="`orch23 runs` lists the runs")
        raise NotFoundError(missing) from None
    return parse_journal(data, str(path))


def parse_journal(data: bytes, origin: str) -> tuple[JournalLine, ...]:
    """Return the lines of a journal's bytes; errors name the file `origin`. Raises what `read_journal` raises."""
    found: list[JournalLine] = []
    broken: tuple[int, str] | None = None
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line:
            continue
        try:
            read = _parse_line(line + b"\n")
            if broken is None and read.seq != len(found) + 1:
                broken = (number, f"has the number {read.seq} instead of {len(found) + 1}")
        except ValueError as error:
            broken = broken or (number, str(error))
        else:
            # A crash damages the end alone. With a good line after it, the damage has another cause.
            if broken is not None:
                at, problem = broken
                hint = "`orch23 reset` sets the journals aside; recorded responses are kept"
                message = f"line {at} of the journal {problem}"
                raise CorruptStateError(Diagnostic("E706", message, Location(origin, at, 1), hint))
            found.append(read)
    return tuple(found)


def latest_runs(logs: Path, pipeline_file: str) -> tuple[tuple[str, tuple[JournalLine, ...]], ...]:
    """Return id and lines of a pipeline's newest run and, if it was interrupted, of all interrupted ones before it.

    Raises:
        CorruptStateError: one of these journals is damaged.
    """
    found: list[tuple[str, tuple[JournalLine, ...]]] = []
    for path in journal_paths(logs):
        first, last = journal_ends(path)
        if first is not None and run_pipeline(first) != pipeline_file:
            continue
        if found and last is not None and not is_interrupted(last):
            break
        lines = read_journal(path)
        if lines and run_pipeline(lines[0]) == pipeline_file:
            is_ended = not is_interrupted(lines[-1])
            if not (found and is_ended):
                found.append((path.stem, lines))
            if is_ended:
                break
    return tuple(found)


def journal_paths(logs: Path) -> list[Path]:
    """Return the paths of the journals, newest first: by id, and within one second by first line and number.

    Raises:
        SafetyError: the folder is a link.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        check_no_link(logs)
    names = (path for path in list_folder(logs) if path.suffix == ".jsonl" and is_run_file(LOGS_FOLDER, path.name))
    paths = [path for path in names if path.is_file() and not path.is_symlink()]
    seconds = Counter(_second(path) for path in paths)
    return sorted(paths, key=lambda path: _age(path, shared=seconds[_second(path)] > 1), reverse=True)


def journal_pipeline(path: Path) -> str:
    """Return the pipeline file of a journal's run; empty if its first line cannot be read."""
    with contextlib.suppress(OSError), open_stream(path) as stream:
        if (first := whole_line(stream.readline())) is not None:
            return run_pipeline(first)
    return ""


def pipeline_journals(logs: Path, pipeline_file: str, newest: str = "") -> Iterator[Path]:
    """Yield the paths of a pipeline's journals, newest first; with `newest`, from that run on."""
    later = itertools.dropwhile(lambda path: newest not in ("", path.stem), journal_paths(logs))
    return (path for path in later if journal_pipeline(path) == pipeline_file)


def past_events(
    path: Path, *kinds: type[_Data], marks: Collection[bytes] = (), max_bytes: int = -1
) -> Iterator[tuple[JournalLine, _Data]]:
    """Yield the events of these kinds in a journal, or in its first bytes, whose line has one of the marks, if any.

    Only these lines are parsed. A damaged line is skipped, and so is a journal that cannot be read. `read_journal`
    reports damage.
    """
    types = {kind.kind.encode() for kind in kinds}
    with contextlib.suppress(OSError), open_stream(path) as stream:
        for line in stream if max_bytes < 0 else stream.readlines(max_bytes):
            at = line.find(_TYPE) + len(_TYPE)  # before all texts of others in the line
            if line[at : line.find(b'"', at)] in types and (not marks or any(one in line for one in marks)):
                read = whole_line(line.rstrip(b"\n") + b"\n")
                if read is not None and isinstance(read.event.data, kinds):
                    yield read, read.event.data


def stage_mark(stage: str) -> bytes:
    """Return the mark of lines about a stage, and about stages whose names begin with its name."""
    return escape_hidden(f'"role":{compact_json(stage)[:-1]}').encode("utf-8", "backslashreplace")


def stage_events(path: Path, stage: str) -> Iterator[Event]:
    """Yield the events in a journal of a stage, and of stages whose names begin with its name, by `past_events`."""
    return (line.event for line, _ in past_events(path, *EVENT_KINDS.values(), marks=(stage_mark(stage),)))


def stage_ends(logs: Path, pipeline_file: str, stage: str) -> Iterator[tuple[str, str, StageFinished]]:
    """Yield run, message and data of each end of a pipeline's stage, newest run first."""
    for path in pipeline_journals(logs, pipeline_file):
        for line, end in past_events(path, StageFinished, marks=(stage_mark(stage) + b'"',)):
            if line.event.role == stage:
                yield path.stem, line.event.message, end


def run_of_result(logs: Path, pipeline_file: str, stage: str, key: str) -> str:
    """Return the id of the newest run of a pipeline that recorded a stage's result with this key; empty if none did.

    A run that restored the result, or found it fresh, does not count.
    """
    ends = stage_ends(logs, pipeline_file, stage)
    return next((run for run, _, end in ends if end.key == key and end.status in _RECORDED), "")


def run_ids(logs: Path) -> list[str]:
    """Return the ids of the runs that have an event, newest first."""
    return [path.stem for path in journal_paths(logs) if any(past_events(path, *EVENT_KINDS.values()))]


def _second(path: Path) -> str:
    return path.stem.partition("-")[0]


def _age(path: Path, *, shared: bool) -> tuple[str, str, int, str]:
    began, _, rest = path.stem.partition("-")
    number = rest.rpartition("-")[2] if "-" in rest else ""
    first = journal_ends(path)[0] if shared else None
    return began, first.ts if first else "", int(number) if number.isdecimal() else 1, rest


def journal_ends(path: Path) -> tuple[JournalLine | None, JournalLine | None]:
    """Return the first and the last line of a journal without reading the rest; None for a damaged line."""
    with open_stream(path) as stream:
        first = stream.readline()
        stream.seek(0, 2)
        stream.seek(max(0, stream.tell() - (1 << 16)))
        end = stream.read()
    last = end[end.rfind(b"\n", 0, -1) + 1 :]
    return whole_line(first), whole_line(last)


def whole_line(line: bytes) -> JournalLine | None:
    """Return a line of a journal, None if it is damaged."""
    try:
        return _parse_line(line)
    except ValueError:
        return None


def is_interrupted(last: JournalLine) -> bool:
    """Return whether the next build continues a run with this last line."""
    return not isinstance(last.event.data, RunFinished) or last.event.data.status in _CONTINUED


def run_pipeline(first: JournalLine) -> str:
    """Return the pipeline file of a run by its first line."""
    return first.event.data.pipeline if isinstance(first.event.data, RunStarted) else ""


def has_checksum(line: bytes) -> bool:
    """Return whether a line of a journal ends with its checksum."""
    return line[-_END_BYTES:] == b',"sum":"' + _line_sum(line[:-_END_BYTES]) + b'"}\n'


def _parse_line(line: bytes) -> JournalLine:
    if not has_checksum(line):
        refuse("does not match its checksum")
    text = line[:-_END_BYTES] + b"}"
    try:
        found = _LINES.decode(text)
    except (msgspec.MsgspecError, RecursionError):  # half of a surrogate pair in a message; or no line of ours
        found = to_struct(parse_stored(text), _Line)
    if found.v != EVENT_VERSION:
        refuse(f"has version {found.v}")
    return JournalLine(found.seq, found.ts, parse_event(found.type, found.message, found.role, found.level, found.data))


def line_without_checksum(event: Event, number: int, moment: str) -> str:
    """Return the journal line of an event without its end. The checksum is made from this text."""
    data = event.data
    values = (EVENT_VERSION, number, moment, event.level, data.kind, event.role, event.message, from_struct(data))
    line: JsonObject = dict(zip(_Line.__struct_fields__, values, strict=True))
    return escape_hidden(compact_json(line)[:-1])


def _line_sum(inner: bytes) -> bytes:
    return sha256(inner).hexdigest()[:_SUM_DIGITS].encode("ascii")


_UNFIT = lazy_pattern(r"[^A-Za-z0-9._@-]")


class AttemptFiles(Struct, frozen=True):
    """The files of the attempts of one run. Only the user can read them: prompts and responses may be private."""

    folder: Path

    def attempt_folder(self, stage: str, attempt: int) -> Path:
        """Return the folder of one attempt of a stage."""
        return self.folder / f"{_UNFIT.sub('_', stage)}/attempt-{attempt}"

    def read(self, stage: str, attempt: int, name: str, max_bytes: int = -1) -> tuple[bytes, int] | None:
        """Return the bytes of a file, or the first `max_bytes`, and its whole size in bytes; None if there is none.

        Links below the folder of all runs are not followed, and other files than regular ones are not read.
        """
        path = (self.attempt_folder(stage, attempt) / name).relative_to(self.folder.parent).as_posix()
        with contextlib.suppress(OSError, SafetyError):
            if (descriptor := open_file(self.folder.parent, path)) is not None:
                size = os.fstat(descriptor).st_size
                return read_and_close(descriptor, max_bytes), size
        return None

    def keep(self, stage: str, attempt: int, name: str, text: str) -> None:
        """Write a file of an attempt; an earlier one of that name is replaced."""
        folder = self.attempt_folder(stage, attempt)
        make_folder(self.folder.parent, PRIVATE_FOLDER_MODE)
        # These files are for users and no run reads them: they are not made durable.
        for one in (self.folder, folder.parent, folder):
            make_subfolder(one, PRIVATE_FOLDER_MODE)
        with closing(open_own(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)) as descriptor:
            write_all(descriptor, text.encode("utf-8", "replace"))
