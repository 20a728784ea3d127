"""Lines of remote steps: each is heard once, while the step runs if its engine can; memory stays bounded."""

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orch23.features.remote.dask_engine import DaskEngine
from orch23.features.remote.engine import WorkerLost
from orch23.features.remote.live_lines import (
    BATCH_CHARACTERS,
    MAX_CHARACTERS,
    SEND_EACH_S,
    HeardLines,
    Line,
    LineBatches,
    PrintedLines,
)
from orch23.model.action import Action, Completed
from orch23.model.text import LineListener
from tests.features.remote.clusters import dask_cluster
from tests.features.remote.engines import Rig, fake_rig, reapi_rig, remote_rig
from tests.reapi_workers import scheduler_of, serving_executions


class Listener:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.cut: list[str] = []
        self.known: list[str] = []

    def know(self, text: str) -> None:
        self.known.append(text)

    def __call__(self, line: str, *, cut: bool = False) -> None:
        (self.cut if cut else self.lines).append(line)


@contextmanager
def rig_of(kind: str, folder: Path) -> Iterator[Rig]:
    if kind == "dask":
        with (
            dask_cluster(folder / "cluster", options=("--allow-unsandboxed",)) as cluster,
            remote_rig(folder, DaskEngine(cluster.address)) as rig,
        ):
            rig.engine.cluster = cluster
            yield rig
    elif kind == "fake":
        with fake_rig(folder, worker={"allowed": True}) as rig:
            yield rig
    else:
        with serving_executions(folder / "server") as server:
            scheduler = scheduler_of(server) if kind == "server" else f"{server.url}?orch23=none"
            with reapi_rig(folder, scheduler) as rig:
                rig.engine.server = server
                yield rig


@pytest.fixture(scope="module", params=["fake", "dask", "server", "plain"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig_of(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


def started(heard: HeardLines) -> LineListener:
    listener = heard.new_start()
    assert listener is not None
    return listener


def bash(text: str, *words: str, **given: Any) -> Action:
    return Action(argv=("bash", "-c", text, *words), inputs={}, sandbox=False, **given)


@pytest.mark.stride(3)
@pytest.mark.slow
def test_a_line_is_heard_while_the_step_runs(rig: Rig, tmp_path: Path) -> None:
    go_on, heard = tmp_path / "go-on", Listener()

    def hear(line: str, *, cut: bool = False) -> None:
        heard(line, cut=cut)
        if line == "begun":
            go_on.touch()

    # The step waits for what is done only after its line was heard.
    text = 'echo begun; while [ ! -e "$0" ]; do sleep 0.02; done; echo; printf "the end"'
    outcome = rig.executor.run(bash(text, str(go_on), timeout_s=60), hear)
    assert isinstance(outcome, Completed), outcome
    assert outcome.result.exit_code == 0
    assert heard.lines == ["begun", "", "the end"]


@pytest.mark.stride(3)
@pytest.mark.slow
def test_each_line_of_a_long_output_is_heard_once(rig: Rig) -> None:
    heard = Listener()
    text = "for i in $(seq 60000); do echo line $i; done; echo again; echo again; head -c 9000 /dev/zero | tr '\\0' x"
    outcome = rig.executor.run(bash(text), heard)
    assert isinstance(outcome, Completed), outcome
    assert outcome.result.output.log is not None
    assert Counter(heard.lines) == Counter([*(f"line {number}" for number in range(1, 60001)), "again", "again"])
    assert [line[:1000] for line in heard.cut] == ["x" * 1000]


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dask", "server"])
def test_a_flood_stays_bounded(tmp_path: Path, kind: str) -> None:
    live: list[int] = []
    with rig_of(kind, tmp_path) as rig:
        submit = rig.engine.submit

        def counting(work: Any, hear: Any) -> Any:
            def count(line: str, *, cut: bool = False) -> None:
                live.append(len(line))
                hear(line, cut=cut)

            return submit(work, count)

        rig.engine.submit = counting
        outcome = rig.executor.run(bash("yes 0123456789 | head -c 100000000"), Listener())
        assert "killed: it printed more than" in outcome.result.output.text
        assert sum(live) <= MAX_CHARACTERS
        if kind == "dask":
            topics = rig.engine.cluster.local.scheduler._broker._topics
            events = [event for topic in topics.values() for _, event in topic.events if "lines" in event]
            assert events
            assert all(sum(len(line) for line, _ in event["lines"]) <= BATCH_CHARACTERS for event in events)
            # No name of its own stays on the scheduler for an action or a build.
            assert {name for name, topic in topics.items() if any("lines" in e for _, e in topic.events)} == {
                rig.engine._client().id
            }


@pytest.mark.slow
def test_a_stream_is_read_on_after_a_cut_and_lines_are_heard_once(tmp_path: Path) -> None:
    go_on, heard = tmp_path / "go-on", Listener()
    with rig_of("server", tmp_path) as rig:
        faults = ["UNAVAILABLE", "NOT_FOUND"]
        rig.engine.server.fault = lambda method: faults.pop() if method == "Read" and faults else ""
        # Each call ends after a while, and the next one goes on.
        rig.engine._stream_s = 0.5

        def hear(line: str, *, cut: bool = False) -> None:
            heard(line, cut=cut)
            if line == "two":
                go_on.touch()

        text = 'echo one; sleep 0.8; echo two; while [ ! -e "$0" ]; do sleep 0.02; done; echo three'
        outcome = rig.executor.run(bash(text, str(go_on), timeout_s=60), hear)
        assert isinstance(outcome, Completed), outcome
        assert outcome.result.exit_code == 0
        assert heard.lines == ["one", "two", "three"]
        assert faults == []


@pytest.mark.slow
def test_a_server_whose_streams_cannot_be_read_costs_no_line(tmp_path: Path) -> None:
    heard = Listener()
    with rig_of("server", tmp_path) as rig:
        rig.engine.server.fault = lambda method: "PERMISSION_DENIED" if method == "Read" else ""
        assert isinstance(rig.executor.run(bash("echo one; echo two"), heard), Completed)
        assert heard.lines == ["one", "two"]


def test_lines_of_a_second_start_are_heard_again_and_late_ones_of_the_first_are_not() -> None:
    listener = Listener()
    heard = HeardLines(listener)
    first = started(heard)
    first("one")
    heard.pass_on()
    second = started(heard)
    first("late")
    second("one")
    heard.finish([b"one\ntwo\n"])
    assert listener.lines == ["one", "one", "two"]


@pytest.mark.slow
def test_after_a_fault_the_lines_of_the_next_start_are_heard(tmp_path: Path) -> None:
    with fake_rig(tmp_path, worker={"allowed": True}) as rig:
        faults = [WorkerLost("w1 ended")]

        def lose(reply: bytes) -> bytes:
            if faults:
                raise faults.pop()
            return reply

        rig.engine.on_reply = lose
        listener = Listener()
        assert isinstance(rig.executor.run(bash("echo one"), listener), Completed)
        assert listener.lines in (["one"], ["one", "one"])
        assert len(rig.engine.submitted) == 2


def test_lines_that_did_not_arrive_come_from_the_output() -> None:
    listener = Listener()
    heard = HeardLines(listener)
    add = started(heard)
    add("b")
    add("a")
    heard.finish([b"a\r\na\nb\n\xc3", b"\xa9"])
    assert listener.lines == ["b", "a", "a", "é"]


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dask", "server"])
def test_without_a_listener_no_line_is_sent(tmp_path: Path, kind: str) -> None:
    with rig_of(kind, tmp_path) as rig:
        outcome = rig.executor.run(bash("echo one"))
        assert isinstance(outcome, Completed), outcome
        assert outcome.result.output.text == "one\n"
        if kind == "dask":
            topics = rig.engine.cluster.local.scheduler._broker._topics
            (start,) = [event for topic in topics.values() for _, event in topic.events if "lines" in event]
            assert not start["lines"]
        else:
            assert rig.engine.server.calls.count("Read") == 0


@pytest.mark.slow
def test_a_line_that_another_program_sends_is_limited() -> None:
    listener = Listener()
    heard = HeardLines(listener)
    add = started(heard)
    for _ in range(2000):
        add("x" * 100_000)
    for _ in range(1_000_000):
        add("")
    heard.pass_on()
    assert sum(map(len, listener.cut)) <= MAX_CHARACTERS + 5000
    assert len(listener.cut) + len(listener.lines) < MAX_CHARACTERS / 10
    assert len(heard._heard) < MAX_CHARACTERS / 10


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_batches_are_small_and_not_too_many() -> None:
    sent: list[list[Line]] = []
    clock = Clock()
    batches = LineBatches(lambda lines: sent.append([*lines]), clock)
    for number in range(1000):
        batches(f"{number:04}")
    assert sent == [[("0000", False)]], "the others wait"
    while clock.now_s < 3:
        clock.now_s += SEND_EACH_S
        batches.send_waiting()
    assert [line for batch in sent for line, _ in batch] == [f"{number:04}" for number in range(1000)]
    assert max(sum(len(line) + 1 for line, _ in batch) for batch in sent) <= BATCH_CHARACTERS


@pytest.mark.slow
def test_a_flood_ends_the_batches() -> None:
    sent: list[Line] = []
    clock = Clock()
    batches = LineBatches(sent.extend, clock)
    for _ in range(1_000_000):
        batches("0123456789")
    clock.now_s = 10.0
    batches.send_waiting()
    assert sent == [("0123456789", False)]
    assert not batches._waiting


def test_a_channel_that_fails_ends_the_batches_and_not_the_step() -> None:
    def fail(_lines: object) -> None:
        raise OSError

    batches = LineBatches(fail)
    batches("one")
    batches("two")
    assert not batches._waiting


def test_printed_lines_are_limited_and_a_closed_stream_is_no_error() -> None:
    stream = io.StringIO()
    lines = PrintedLines(stream)
    lines("one")
    lines("two", cut=True)
    assert stream.getvalue() == "one\ntwo...\n"
    for _ in range(3):
        lines("x" * (MAX_CHARACTERS // 2))
    assert len(stream.getvalue()) <= MAX_CHARACTERS
    stream.close()
    PrintedLines(stream)("three")


def test_what_is_known_of_a_step_is_reported_when_it_changes(tmp_path: Path) -> None:
    listener = Listener()
    lines = HeardLines(listener)
    for text in ("", "no word from its worker for 11s", "no word from its worker for 11s", "", ""):
        lines.know(text)
    assert listener.known == ["no word from its worker for 11s", ""]
    HeardLines(lambda _line, *, cut=False: None).know("no listener for it")
    with fake_rig(tmp_path, worker={"allowed": True}) as rig:
        rig.engine.known = lambda _submission: "waiting for a worker"
        rig.executor.run(Action(argv=("sleep", "1"), inputs={}, sandbox=False), listener)
    assert listener.known[2:] == ["waiting for a worker"]
