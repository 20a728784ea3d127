"""Run one process with limited time and output, and leave nothing of it running."""

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TypeAlias

from msgspec import Struct

from orch23.execute import process_tree
from orch23.execute.supervisor import Confinement, LeaderExit, acquire_supervisor, release_supervisor

_READ_BYTES = 1 << 16
_WAKE_S = 0.1
_AFTER_LEADER_S = 2.0


class StopSignal(Protocol):
    """What says that a process must stop: a threading.Event, or the like."""

    def is_set(self) -> bool:
        """Say whether it must."""


class OutputLimits(Struct, frozen=True):
    """How much is kept of what a process prints: in memory the head and the tail, in the log all up to a cap.

    A process that prints more than `log_bytes` is killed. `file_bytes` is the largest file that it may write.
    """

    head_bytes: int = 64 << 10
    tail_bytes: int = 192 << 10
    log_bytes: int = 16 << 20
    file_bytes: int = 4 << 30


EndReason: TypeAlias = Literal["exited", "timed_out", "cancelled", "flooded", "overgrown"]


class ProcessOutcome(Struct, frozen=True, kw_only=True):
    """How a process ended and what it printed. `log` holds all of it where `head` and `tail` do not.

    `exit_code` is 128 + the signal's number for a process that died of one. `survivors` resisted being killed. `excess`
    is what it took too much of, where it was killed for that. `lost` is True where its supervisor was killed, so that
    it is not known what is left of it. `errors` is the end of stderr, where that was apart.
    """

    end: EndReason
    exit_code: int
    head: bytes
    tail: bytes
    size_bytes: int
    log: Path | None
    duration_s: float
    survivors: tuple[int, ...] = ()
    excess: str = ""
    lost: bool = False
    errors: bytes = b""


class _Capture:
    """The head and the tail of a stream in memory; the whole in a file, from the moment that they cannot hold it."""

    def __init__(self, caps: OutputLimits, log: Path | None, on_output: Callable[[bytes], None] | None = None) -> None:
        self.head = bytearray()
        self.tail = bytearray()
        self.size_bytes = 0
        self._caps = caps
        self._path = log
        self._on_output = on_output
        self._file: BinaryIO | None = None

    @property
    def log(self) -> Path | None:
        return self._path if self._file is not None else None

    @property
    def flooded(self) -> bool:
        return self.size_bytes > self._caps.log_bytes

    def add(self, data: bytes) -> None:
        self.size_bytes += len(data)
        room = self._caps.head_bytes - len(self.head)
        if self._on_output is not None:
            self._on_output(data)
        is_long = self.size_bytes > self._caps.head_bytes + self._caps.tail_bytes
        if self._path is not None and self._file is None and is_long:
            self._file = self._path.open("wb")
            self._file.write(self.head + self.tail)
        if self._file is not None:
            left = self._caps.log_bytes - self._file.tell()
            self._file.write(data[: max(0, left)])
        self.head += data[:room] if room > 0 else b""
        self.tail += data[max(0, room) :]
        if len(self.tail) > 2 * self._caps.tail_bytes + _READ_BYTES:
            del self.tail[: -self._caps.tail_bytes]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            del self.tail[: max(0, len(self.tail) - self._caps.tail_bytes)]


def run_process(  # noqa: PLR0913 - one process fully spelled out, all by keyword
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    cancel: StopSignal,
    log: Path,
    caps: OutputLimits | None = None,
    marker: str = "",
    pass_fds: tuple[int, ...] = (),
    stdin: int = subprocess.DEVNULL,
    errors: OutputLimits | None = None,
    on_output: Callable[[bytes], None] | None = None,
    confinement: Confinement | None = None,
    gate: Callable[[process_tree.ProcessTree], None] | None = None,
    fault: Callable[[Sequence[int]], str | None] = lambda _: None,
) -> ProcessOutcome:
    """Run a process to its end, its time, its cap or the wish to stop; then kill all that it started.

    stdin is /dev/null, if no other is given; stdout and stderr are one stream, in order, unless `errors` says how much
    of stderr is taken by itself. `on_output` gets what is printed on stdout, as it comes. `marker` is the value of
    ORCH23_ROOM in `env`.
    With a `confinement` a supervisor starts it, held to that. `gate` is called with its family, once it is there.
    `fault` is called every 0.1 s with its processes, and returns what it uses too much of.

    Raises:
        OSError: it could not be started.

    """
    caps = caps if caps is not None else OutputLimits()
    capture = _Capture(caps, log, on_output)
    aside = None if errors is None else _Capture(errors, None)
    captures: dict[int, _Capture] = {}
    writing: list[int] = []
    began = time.monotonic()

    try:
        started: _Searched | _Supervised
        try:
            for one in (capture,) if aside is None else (capture, aside):
                reading, far = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
                captures[reading] = one
                writing.append(far)
                os.set_blocking(far, True)
            streams = (writing[0], writing[-1])
            if confinement is None:
                started = _Searched(argv, cwd, env, stdin, streams, pass_fds, caps.file_bytes, marker)
            else:
                started = _Supervised(argv, cwd, env, stdin, streams, pass_fds, caps.file_bytes, marker, confinement)
        finally:
            for descriptor in writing:
                os.close(descriptor)
        try:
            if gate is not None:
                gate(started.family)
            end, excess = _follow(started, captures, cancel, began + timeout_s, fault)
        finally:
            ended = started.end()
        if end == "exited":
            for descriptor, one in captures.items():
                _drain(descriptor, one)
            end = "flooded" if any(one.flooded for one in captures.values()) else end
    finally:
        for descriptor, one in captures.items():
            os.close(descriptor)
            one.close()
    return ProcessOutcome(
        end=end,
        exit_code=ended.exit_code if ended.exit_code >= 0 else 128 - ended.exit_code,
        head=bytes(capture.head),
        tail=bytes(capture.tail),
        size_bytes=capture.size_bytes,
        log=capture.log,
        duration_s=time.monotonic() - began,
        survivors=ended.survivors,
        excess=excess,
        lost=ended.lost,
        errors=b"" if aside is None else bytes(aside.tail),
    )


class _Searched:
    """A process that orch23 started itself: what is left of it is searched for among all that became orch23's."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        stdin: int,
        streams: tuple[int, int],
        pass_fds: tuple[int, ...],
        file_bytes: int,
        marker: str,
    ) -> None:
        with process_tree.starting_leader():
            self._process = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env=dict(env),
                stdin=stdin,
                stdout=streams[0],
                stderr=streams[1],
                start_new_session=True,
                pass_fds=pass_fds,
            )
            self.family = process_tree.register_leader(self._process.pid, marker, file_bytes)
        self.leader = self._process.pid

    def watch(self) -> Sequence[int]:
        """Return the processes that it has now."""
        return process_tree.find_members(self.family)

    def end(self) -> LeaderExit:
        """Kill it and all that is left of it."""
        survivors = process_tree.kill_tree(self.family)
        status = self._process.wait()
        process_tree.forget_tree(self.family)
        return LeaderExit(status, survivors)


class _Supervised:
    """A process that a supervisor started, which has no others below it: nothing that is left of it can hide."""

    def __init__(  # noqa: PLR0913, PLR0917 - what `run_process` was given
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        stdin: int,
        streams: tuple[int, int],
        pass_fds: tuple[int, ...],
        file_bytes: int,
        marker: str,
        confinement: Confinement,
    ) -> None:
        self._supervisor = acquire_supervisor()
        limit = process_tree.unique_file_limit(file_bytes)
        try:
            self.leader = self._supervisor.start(
                argv,
                cwd=cwd,
                env=env,
                stdin=stdin,
                streams=streams,
                pass_fds=pass_fds,
                file_bytes=limit,
                confinement=confinement,
            )
        except BaseException:
            self._supervisor.close()
            raise
        self.family = process_tree.ProcessTree(self.leader, marker, limit)

    def watch(self) -> Sequence[int]:
        """Return the processes that it has now."""
        return process_tree.descendant_processes(self._supervisor.pid)

    def end(self) -> LeaderExit:
        """Kill it and all that is left of it."""
        ended = self._supervisor.end(self.family)
        if not ended.survivors and not ended.lost:
            release_supervisor(self._supervisor)
        return ended


def _follow(
    started: _Searched | _Supervised,
    captures: Mapping[int, _Capture],
    cancel: StopSignal,
    deadline: float,
    fault: Callable[[Sequence[int]], str | None],
) -> tuple[EndReason, str]:
    """Read what it prints until there is a reason to stop; the leader is left unreaped, so its number is safe."""
    leader = os.pidfd_open(started.leader)
    try:
        with selectors.DefaultSelector() as selector:
            for reading in captures:
                selector.register(reading, selectors.EVENT_READ)
            selector.register(leader, selectors.EVENT_READ)
            exited_at: float | None = None
            watched_at = time.monotonic()
            while True:
                ready = {key.fd for key, _ in selector.select(_patience(deadline, exited_at))}
                now = time.monotonic()
                for reading in ready & captures.keys():
                    if not _read(reading, captures[reading]):
                        selector.unregister(reading)
                if leader in ready:
                    selector.unregister(leader)
                    exited_at = now
                if (end := _stop_reason(captures.values(), cancel, deadline, exited_at, now)) is not None:
                    return end, ""
                watched = selector.get_map() or {}
                if exited_at is not None and (
                    captures.keys().isdisjoint(watched) or now >= exited_at + _AFTER_LEADER_S
                ):
                    return "exited", ""
                if exited_at is None and now >= watched_at + _WAKE_S:
                    excess = fault(started.watch())
                    if excess is not None:
                        return "overgrown", excess
                    watched_at = time.monotonic()
    finally:
        os.close(leader)


def _patience(deadline: float, exited_at: float | None) -> float:
    """Return how long to wait for something to happen before looking at the clock and the wish to stop."""
    until = deadline if exited_at is None else exited_at + _AFTER_LEADER_S
    return max(0.0, min(_WAKE_S, until - time.monotonic()))


def _stop_reason(
    captures: Iterable[_Capture], cancel: StopSignal, deadline: float, exited_at: float | None, now: float
) -> EndReason | None:
    if any(one.flooded for one in captures):
        return "flooded"
    if cancel.is_set() and exited_at is None:
        return "cancelled"
    if now >= deadline and exited_at is None:
        return "timed_out"
    return None


def _read(reading: int, capture: _Capture) -> bool:
    """Take what is there now; False at the end of the stream."""
    try:
        data = os.read(reading, _READ_BYTES)
    except BlockingIOError:
        return True
    capture.add(data)
    return bool(data)


def _drain(reading: int, capture: _Capture) -> None:
    """Take what the killed had still written; nobody writes any more, so this ends."""
    while not capture.flooded:
        try:
            data = os.read(reading, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            return
        capture.add(data)
