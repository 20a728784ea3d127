import errno
import hashlib
import json
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from orch23.model.errors import CorruptStateError, NotFoundError
from orch23.model.event import EVENT_KINDS, Event, StageFinished, parse_event
from orch23.model.event_data import EventLevel
from orch23.store.run_logs import (
    AttemptFiles,
    Journal,
    is_interrupted,
    latest_runs,
    new_run_id,
    parse_journal,
    past_events,
    read_journal,
    run_ids,
    stage_ends,
    stage_mark,
)

SOON_S = 20.0  # for what happens at once, unless there is a deadlock
MOMENT = datetime(2026, 11, 21, 14, 30, 22, 123456, tzinfo=UTC)
EVENTS = [
    parse_event("run_started", "todo", data={"pipeline": "p.yaml", "run_id": "r"}),
    parse_event("stage_started", "go", "code", data={"key": "k"}),
    parse_event("attempt_started", "1", "code", data={"attempt": 1, "key": "k"}),
    parse_event("stage_finished", "done", "code", data={"status": "built", "key": "k"}),
    parse_event("run_finished", "ok", data={"status": "ok"}),
]


def clock() -> datetime:
    return MOMENT


def of_day(number: str) -> str:
    return f"2026010{number}T000000Z-00000000"


def write(logs: Path, run_id: str, events: list[Event]) -> Path:
    if run_id.isdigit():
        run_id = of_day(run_id)
    journal = Journal(logs, run_id, clock)
    for event in events:
        journal.notice(event)
    journal.close()
    return journal.path


def test_a_line_has_the_shape_that_is_promised(tmp_path: Path) -> None:
    path = write(tmp_path / "logs", "r1", EVENTS[:1])
    line = json.loads(path.read_text())
    checksum = line.pop("sum")
    assert len(checksum) == 16
    assert list(line) == ["v", "seq", "ts", "level", "type", "role", "message", "data"]
    assert line["ts"] == "2026-11-21T14:30:22.123Z"
    assert (line["v"], line["seq"], line["role"]) == (1, 1, "orch23")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def values_of(form: inspect.Type) -> st.SearchStrategy[Any]:  # noqa: C901, PLR0911 - one a kind of type
    """Give values of a type that a fact of an event may have."""
    match form:
        case inspect.IntType(ge=least):
            return st.integers(min_value=least)
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.StrType():
            return TEXT
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.EnumType(cls=cls):
            return st.sampled_from([*cls])
        case inspect.UnionType(types=types):
            return st.one_of(*map(values_of, types))
        case inspect.VarTupleType(item_type=item):
            return st.lists(values_of(item), max_size=3).map(tuple)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values_of(key), values_of(value), max_size=3)
        case inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: values_of(field.type) for field in fields})
        case _:
            raise AssertionError(form)


@st.composite
def some_events(draw: st.DrawFn) -> Event:
    """Give an event of any type, with any facts that its type allows."""
    form = inspect.type_info(draw(st.sampled_from([*EVENT_KINDS.values()])))
    return Event(draw(values_of(form)), draw(TEXT), draw(TEXT), draw(st.sampled_from(get_args(EventLevel))))


@pytest.mark.slow
@given(st.lists(some_events(), max_size=6))
def test_events_come_back_as_they_were(events: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), "r", events)
        lines = read_journal(path) if events else ()
    assert [line.event for line in lines] == events
    assert [line.seq for line in lines] == list(range(1, len(events) + 1))


def test_no_event_no_file(tmp_path: Path) -> None:
    Journal(tmp_path / "logs", "r", clock).close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotFoundError):
        read_journal(tmp_path / "logs" / "r.jsonl")
    assert run_ids(tmp_path / "logs") == []
    assert latest_runs(tmp_path / "logs", "p.yaml") == ()


def test_a_folder_of_journals_that_is_made_is_not_for_git_and_one_that_was_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for folder in (tmp_path / "logs", tmp_path / "mine"):
        journal = Journal(folder, "r", lambda: datetime(2026, 1, 1, tzinfo=UTC))
        journal.notice(parse_event("warning", "w"))
        journal.close()
    assert (tmp_path / "logs/.gitignore").read_text() == "*\n"
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["r.jsonl"]


def test_every_torn_end_leaves_the_lines_before_it(tmp_path: Path) -> None:
    data = write(tmp_path, "r", EVENTS).read_bytes()
    whole = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    for size in range(len(data) + 1):
        lines = parse_journal(data[:size], "r.jsonl")
        assert len(lines) == sum(1 for end in whole if end - 1 <= size)
        assert [line.event for line in lines] == EVENTS[: len(lines)]


def test_an_end_that_a_power_cut_zeroed_is_torn_too(tmp_path: Path) -> None:
    data = write(tmp_path, "r", EVENTS).read_bytes()
    assert len(parse_journal(data[:-40] + bytes(400), "r")) == len(EVENTS) - 1


def test_damage_before_the_end_is_named_with_its_line(tmp_path: Path) -> None:
    lines = write(tmp_path, "r", EVENTS).read_bytes().splitlines(keepends=True)
    damaged = [
        [lines[0], lines[1].replace(b"go", b"no"), *lines[2:]],
        [lines[0], *lines[2:]],
        [lines[0], lines[0], *lines[2:]],
        [lines[0], b"\0\0\n", *lines[2:]],
        [lines[0], lines[1][:-3] + b"\n", *lines[2:]],
    ]
    for one in damaged:
        with pytest.raises(CorruptStateError) as caught:
            parse_journal(b"".join(one), "logs/r.jsonl")
        [found] = caught.value.diagnostics
        assert (found.code, found.location and found.location.line) == ("E706", 2)
        assert found.hint


def test_no_damage_gives_other_events(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = write(tmp_path, "r", EVENTS)
    damage(path)
    try:
        lines = read_journal(path)
    except CorruptStateError:
        return
    assert [line.event for line in lines] == EVENTS[: len(lines)]


@pytest.mark.parametrize("value", ["[" * 200_000, "NaN", "1" * 5000, '{"a":1,"a":2}', '"\\ud800"', ""])
def test_a_line_that_someone_else_wrote_with_its_checksum_is_no_crash(tmp_path: Path, value: str) -> None:
    path = write(tmp_path / "logs", "1", EVENTS)
    inner = b'{"v":1,"seq":2,"ts":"","level":"info","type":"stage_started","role":"a","message":"","data":{"key":%s}'
    inner %= value.encode()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = inner + b',"sum":"' + hashlib.sha256(inner).hexdigest()[:16].encode() + b'"}\n'
    path.write_bytes(b"".join(lines))
    is_read = value == '"\\ud800"'
    with nullcontext() if is_read else pytest.raises(CorruptStateError):
        assert len(read_journal(path)) == len(EVENTS)


def test_a_journal_of_another_version_is_not_guessed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orch23.store.run_logs.EVENT_VERSION", 2)
    path = write(tmp_path, "r", EVENTS)
    monkeypatch.undo()
    assert read_journal(path) == ()


def test_a_full_disk_leaves_a_journal_that_goes_on(tmp_path: Path, disk: Any) -> None:
    journal = Journal(tmp_path, "r", clock)
    journal.notice(EVENTS[0])
    with disk.failing(1, 28), pytest.raises(OSError, match="No space"):
        journal.notice(EVENTS[1])
    journal.notice(EVENTS[2])
    journal.close()
    assert [line.event for line in read_journal(journal.path)] == [EVENTS[0], EVENTS[2]]


def test_after_a_fault_at_any_call_the_journal_is_a_beginning_of_the_run(
    tmp_path: Path, disk: Any, fault: int | None
) -> None:
    noticed: list[Event] = []

    def make(at: int) -> Callable[[], object]:
        noticed.clear()
        journal = Journal(tmp_path / str(at), "r", clock)
        make.path = journal.path  # type: ignore[attr-defined]

        def run() -> None:
            for event in EVENTS:
                journal.notice(event)
                noticed.append(event)

        return run

    def check() -> None:
        path = make.path  # type: ignore[attr-defined]
        events = [line.event for line in read_journal(path)] if path.exists() else []
        assert events[: len(noticed)] == noticed
        assert events == EVENTS[: len(events)]

    assert disk.every_point(make, fault, check) >= 10


@pytest.mark.slow  # without coverage, whose tracing of starting threads fails now and then in CPython 3.11
def test_events_of_many_threads_are_whole_lines(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "r", clock)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: journal.notice(parse_event("warning", str(n))), range(300)))
    journal.close()
    lines = read_journal(journal.path)
    assert sorted(int(line.event.message) for line in lines) == list(range(300))


def test_an_event_that_no_one_finds_again_is_durable_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    journal = Journal(tmp_path, "r", clock)
    journal.notice(parse_event("warning", "w"))
    base = len(synced)
    others = (parse_event(kind, "x") for kind in ("warning", "call_submitted", "llm_response", "call_reserved"))
    for event, more in zip((*others, *EVENTS[-2:]), (0, 1, 0, 0, 0, 1), strict=True):
        journal.notice(event)
        base += more
        assert len(synced) == base, event.type
    journal.close()


class SlowDisk:
    """An `fsync` that waits for the test, and how many lines the journal had when each of them began."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, journal: Journal) -> None:
        self._journal = journal
        self._may_end = threading.Semaphore(0)
        self.fails = False
        self.begun: queue.Queue[int] = queue.Queue()
        journal.notice(parse_event("warning", "the first event creates the file"))
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, _descriptor: int) -> None:
        self.begun.put(len(self._journal.path.read_bytes().splitlines()))
        assert self._may_end.acquire(timeout=SOON_S)
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def next_begin(self) -> int:
        return self.begun.get(timeout=SOON_S)

    def end(self) -> None:
        self._may_end.release()

    def writes(self, pool: ThreadPoolExecutor, text: str) -> "Future[str]":
        """Write an event and sync in a thread; return when the thread waits for the disk or for another thread."""
        waiters = self._journal._synced._waiters  # type: ignore[attr-defined]
        before, written = len(waiters), self._journal._number

        def write() -> str:
            self._journal.notice(parse_event("warning", text))
            self._journal.sync()
            return text

        writing = pool.submit(write)
        until = time.monotonic() + SOON_S
        while self._journal._number == written or (written > 1 and len(waiters) == before):
            assert time.monotonic() < until
        return writing


def test_threads_that_wait_at_the_same_time_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, "r", clock)
    disk = SlowDisk(monkeypatch, journal)
    with ThreadPoolExecutor(3) as pool:
        first = disk.writes(pool, "first")
        assert disk.next_begin() == 2
        others = [disk.writes(pool, text) for text in ("second", "third")]
        disk.end()
        assert first.result(SOON_S) == "first"
        assert disk.next_begin() == 4, "a sync that began before an event does not make it durable"
        assert not any(one.done() for one in others)
        disk.end()
        assert [one.result(SOON_S) for one in others] == ["second", "third"]
    journal.sync()
    assert disk.begun.empty(), "all of it is durable"
    journal.close()


def test_every_thread_that_waits_for_a_sync_learns_that_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, "r", clock)
    disk = SlowDisk(monkeypatch, journal)
    with ThreadPoolExecutor(3) as pool:
        first = disk.writes(pool, "first")
        disk.next_begin()
        others = [disk.writes(pool, text) for text in ("second", "third")]
        disk.fails = True
        disk.end()
        for one in (first, *others):
            with pytest.raises(OSError, match="Input/output error"):
                one.result(SOON_S)
    disk.fails = False
    with pytest.raises(OSError, match="Input/output error"):
        journal.sync()
    assert disk.begun.empty(), "the next sync would succeed without what the kernel has dropped"
    journal.close()


def test_closing_waits_for_a_sync_that_is_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, "r", clock)
    disk = SlowDisk(monkeypatch, journal)
    with ThreadPoolExecutor(2) as pool:
        writing = disk.writes(pool, "first")
        disk.next_begin()
        closing = pool.submit(journal.close)
        while not journal._synced._waiters:  # type: ignore[attr-defined]
            assert not closing.done()
        disk.end()
        closing.result(SOON_S)
        assert writing.done() or writing.result(SOON_S)


def test_run_ids_begin_with_their_time_in_utc(tmp_path: Path) -> None:
    assert new_run_id(MOMENT, "1a2b3c4d") == "20261121T143022Z-1a2b3c4d"
    assert new_run_id(MOMENT.astimezone(timezone(timedelta(hours=5))), "1a2b3c4d") == "20261121T143022Z-1a2b3c4d"


@pytest.mark.parametrize(("first", "second"), [("aaaaaaaa", "ffffffff"), ("ffffffff", "aaaaaaaa")])
def test_runs_of_one_second_are_in_their_order_whatever_they_build(tmp_path: Path, first: str, second: str) -> None:
    """A pipeline that is edited and built again at once has another id in the same second."""
    for number, key in enumerate([first, second]):
        moment = datetime(2026, 2, 15, 14, 30, 22, 100 * 1000 * (number + 1), tzinfo=UTC)
        journal = Journal(tmp_path, new_run_id(moment, key), lambda now=moment: now)  # type: ignore[misc]
        journal.notice(parse_event("run_started", "", data={"pipeline": "p.yaml"}))
        journal.close()
    assert [run.rpartition("-")[2] for run in run_ids(tmp_path)] == [second, first]


def test_a_second_run_of_one_second_has_a_journal_of_its_own(tmp_path: Path) -> None:
    first = write(tmp_path, "20261121T143022Z-1a2b3c4d", EVENTS)
    before = first.read_bytes()
    second = write(tmp_path, "20261121T143022Z-1a2b3c4d", EVENTS[:2])
    assert second.name == "20261121T143022Z-1a2b3c4d-2.jsonl"
    assert first.read_bytes() == before
    assert run_ids(tmp_path) == [second.stem, first.stem]


def test_of_past_events_only_the_lines_of_the_kinds_and_with_a_mark_are_parsed(tmp_path: Path) -> None:
    ends = [parse_event("stage_finished", "", f"s{i}", data={"status": "built"}) for i in range(20)]
    quoted = parse_event("warning", 'not an event of "type":"stage_finished"', "s1")
    path = write(tmp_path, "1", [*EVENTS[:-1], *ends, quoted])
    with patch("orch23.store.run_logs.parse_event", wraps=parse_event) as parsed:
        found = [line.event.role for line, _ in past_events(path, StageFinished, marks=(stage_mark("s1"),))]
        assert found == ["s1", *(f"s1{i}" for i in range(10))]
        assert parsed.call_count == 11, "quotes in a message are escaped"
        assert [(run, end.status) for run, _, end in stage_ends(tmp_path, "p.yaml", "s1")] == [(path.stem, "built")]
        assert parsed.call_count == 11 + 1 + 1, "and the first line of the journal"


# ---- where an interrupted run stopped --------------------------------------------------------------


def started(pipeline: str = "p.yaml") -> Event:
    return parse_event("run_started", "", data={"pipeline": pipeline})


def answered(fingerprint: str) -> Event:
    return parse_event("llm_response", "", "code", data={"fingerprint": fingerprint, "replayed": False})


def attempt(number: int, key: str = "k") -> Event:
    return parse_event("attempt_started", "", "code", data={"attempt": number, "key": key})


def over(status: str, key: str = "k") -> Event:
    return parse_event("stage_finished", "", "code", data={"status": status, "key": key})


def run_over(status: str) -> Event:
    return parse_event("run_finished", "", data={"status": status})


def cut_off(logs: Path, pipeline: str = "p.yaml") -> list[tuple[str, list[Event]]]:
    runs = latest_runs(logs, pipeline)
    return [(run, [line.event for line in lines]) for run, lines in runs if is_interrupted(lines[-1])]


def test_a_killed_run_is_interrupted(tmp_path: Path) -> None:
    events = [started(), attempt(1), answered("f1"), attempt(2), answered("f2")]
    write(tmp_path, "1", events)
    assert cut_off(tmp_path) == [(of_day("1"), events)]
    assert cut_off(tmp_path, "q.yaml") == []


@pytest.mark.parametrize("status", ["ok", "failed", "limit"])
def test_a_run_that_came_to_an_end_is_not_interrupted(tmp_path: Path, status: str) -> None:
    write(tmp_path, "1", [started(), attempt(1)])
    write(tmp_path, "2", [started(), attempt(1), answered("f"), run_over(status)])
    assert cut_off(tmp_path) == []


def test_a_run_that_was_stopped_is_interrupted(tmp_path: Path) -> None:
    events = [started(), attempt(1), answered("f"), over("cancelled"), run_over("interrupted")]
    write(tmp_path, "1", events)
    assert cut_off(tmp_path) == [(of_day("1"), events)]


def test_runs_of_other_pipelines_in_between_do_not_matter(tmp_path: Path) -> None:
    write(tmp_path, "1", [started(), attempt(1)])
    write(tmp_path, "2", [started("q.yaml"), attempt(1, "x"), run_over("ok")])
    assert [run for run, _ in cut_off(tmp_path)] == [of_day("1")]


def test_what_was_interrupted_twice_is_not_forgotten(tmp_path: Path) -> None:
    write(tmp_path, "0", [started(), attempt(4), answered("old"), run_over("failed")])
    write(tmp_path, "1", [started(), attempt(1), answered("f1"), attempt(2)])
    write(tmp_path, "2", [started(), attempt(1, "other")])
    assert [run for run, _ in cut_off(tmp_path)] == [of_day("2"), of_day("1")]


def test_a_run_killed_before_its_first_line_is_not_a_run(tmp_path: Path) -> None:
    path = write(tmp_path, "1", [started()])
    path.write_bytes(path.read_bytes()[:10])
    assert cut_off(tmp_path) == []
    assert run_ids(tmp_path) == []


def test_a_damaged_journal_that_would_have_to_be_read_stops(tmp_path: Path) -> None:
    path = write(tmp_path, "1", [started(), attempt(1), answered("f1"), attempt(2)])
    path.write_bytes(path.read_bytes().replace(b'"attempt":1', b'"attempt":0'))
    with pytest.raises(CorruptStateError):
        latest_runs(tmp_path, "p.yaml")
    write(tmp_path, "2", [started(), run_over("ok")])
    assert cut_off(tmp_path) == []


def test_a_file_of_an_attempt_is_read_whole_or_in_part_with_its_size(tmp_path: Path) -> None:
    files = AttemptFiles(tmp_path / "run")
    files.keep("code@a/b", 2, "prompt.txt", "a poem")
    assert files.read("code@a/b", 2, "prompt.txt") == (b"a poem", 6)
    assert files.read("code@a/b", 2, "prompt.txt", 3) == (b"a p", 6)
    assert files.read("code@a/b", 1, "prompt.txt") is None
    assert files.read("code@a/b", 2, "../attempt-2/prompt.txt") is None


@pytest.mark.parametrize("link", ["run/code/attempt-1/prompt.txt", "run/code/attempt-1", "run/code", "run"])
def test_a_link_in_the_logs_is_not_followed(tmp_path: Path, link: str) -> None:
    """A sandboxed step cannot write here, but a clone can bring a folder of logs."""
    logs, outside = tmp_path / "logs", tmp_path / "outside"
    AttemptFiles(outside / "run").keep("code", 1, "prompt.txt", "private")
    place = logs / link
    place.parent.mkdir(parents=True)
    place.symlink_to(outside / link)
    assert AttemptFiles(logs / "run").read("code", 1, "prompt.txt") is None


def test_a_pipe_in_the_logs_is_not_read(tmp_path: Path) -> None:
    files = AttemptFiles(tmp_path / "run")
    files.keep("code", 1, "other.txt", "")
    os.mkfifo(files.attempt_folder("code", 1) / "prompt.txt")
    assert files.read("code", 1, "prompt.txt") is None
