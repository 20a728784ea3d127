"""Run one process with limited time and output, and leave nothing of it running."""

import _signal as signal  # type: ignore[import-not-found]  # `signal` builds enumerations on import, which is slow
import contextlib
import math
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import BinaryIO, Final, Literal, TypeAlias

from msgspec import Struct

from orch23.execute import process_tree
from orch23.execute.supervisor import LeaderExit, ProcessSpec, acquire_supervisor, release_supervisor
from orch23.store.safe_files import closing, write_all

_READ_BYTES = 1 << 16
_CHECK_EVERY_S = 0.1
_AFTER_LEADER_S = 2.0
_SOON_MS = 1
_STACKS_WITHIN_S = 1.0


class OutputLimits(Struct, frozen=True):
    """How much of the output of a process is kept: the head and the tail in memory, all in the log up to a limit.

    A process that prints more than `log_bytes` is killed. `file_bytes` is the largest file that it may write.
    """

    head_bytes: int = 64 << 10
    tail_bytes: int = 192 << 10
    log_bytes: int = 16 << 20
    file_bytes: int = 4 << 30


DEFAULT_OUTPUT: Final = OutputLimits()
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""The exit codes of shells for a program that is missing, or that cannot be executed."""

EndReason: TypeAlias = Literal["exited", "timed_out", "cancelled", "flooded", "overgrown"]


class ProcessOutcome(Struct, frozen=True, kw_only=True):
    """How a process ended and what it printed. `log` has all of the output if `head` and `tail` do not.

    `exit_code` is 128 + the number of the signal for a process that died of one. `survivors` are processes that could
    not be killed. `excess` names the limit that it exceeded, and was killed for unless it had exited. `lost` is True if
    its supervisor was killed: then some of its processes may be left. `errors` is the end of a separate stderr.
    """

    reason: EndReason
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
    """The output of one stream: head and tail in memory, and all of it in a file once they cannot hold it."""

    def __init__(self, limits: OutputLimits, log: Path | None, on_output: Callable[[bytes], None] | None) -> None:
        self.head, self.tail, self.size_bytes = bytearray(), bytearray(), 0
        self.log: Path | None = None  # once there is one
        self._limits, self._path, self._on_output = limits, log, on_output
        self._file: BinaryIO | None = None

    @property
    def flooded(self) -> bool:
        return self.size_bytes > self._limits.log_bytes

    def read(self, descriptor: int) -> int | None:
        """Read what is available, and return its size: 0 at the end of the stream, None if nothing is available."""
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return None
        self.size_bytes += len(data)
        if self._on_output is not None:
            self._on_output(data)
        is_long = self.size_bytes > self._limits.head_bytes + self._limits.tail_bytes
        if self._path is not None and self._file is None and is_long:
            self._file, self.log = self._path.open("wb"), self._path
            self._file.write(self.head + self.tail)
        if self._file is not None:
            self._file.write(data[: max(0, self._limits.log_bytes - self._file.tell())])
        head_left = max(0, self._limits.head_bytes - len(self.head))
        self.head += data[:head_left]
        self.tail += data[head_left:]
        if len(self.tail) > 2 * self._limits.tail_bytes + _READ_BYTES:
            del self.tail[: -self._limits.tail_bytes]
        return len(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            del self.tail[: max(0, len(self.tail) - self._limits.tail_bytes)]


@contextlib.contextmanager
def open_in_memory(data: bytes) -> Iterator[int]:
    """Yield the descriptor of a file in memory with the data, such as for a process to read."""
    with closing(os.memfd_create("orch23-request")) as descriptor:
        write_all(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor


def run_process(
    process: ProcessSpec,
    *,
    timeout_s: float,
    cancel: Event,
    log: Path,
    output: OutputLimits = DEFAULT_OUTPUT,
    errors: OutputLimits | None = None,
    on_output: Callable[[bytes], None] | None = None,
    exceeded_limit: Callable[[Sequence[int]], str | None] = lambda _: None,
) -> ProcessOutcome:
    """Run a process until it exits, times out, exceeds a limit or is cancelled; then kill all that it started.

    stdout and stderr are one stream, in order. With `errors` stderr is captured separately, up to these limits.
    `on_output` gets the bytes of stdout as they come. `exceeded_limit` is called every 0.1 s with the pids of the
    process and all that it started, and at the end without any, and returns which limit they exceed.

    Raises:
        OSError: the process could not be started.
    """
    capture = _Capture(output, log, on_output)
    error_capture = None if errors is None else _Capture(errors, None, None)
    captures: dict[int, _Capture] = {}
    began = time.monotonic()
    try:
        streams = (capture,) if error_capture is None else (capture, error_capture)
        started = _start(process, streams, captures, output.file_bytes)
        try:
            # Before the output is read: bwrap's command waits until this has set its limits.
            if process.on_start is not None:
                process.on_start(started.tree)
            reason, excess = _follow(started, captures, cancel, began + timeout_s, exceeded_limit)
            if reason == "timed_out" and process.shows_stacks:
                process_tree.send_to_handlers(started.find_members(), signal.SIGQUIT)
                _follow(started, captures, cancel, time.monotonic() + _STACKS_WITHIN_S, lambda _: None)
        finally:
            leader_exit = started.end()
        if reason == "exited":
            # What killed processes had written. No process writes any more, so this ends.
            for descriptor, one in captures.items():
                while not one.flooded and one.read(descriptor):
                    pass
            reason = "flooded" if any(one.flooded for one in captures.values()) else reason
            excess = exceeded_limit(()) or ""
    finally:
        for descriptor, one in captures.items():
            os.close(descriptor)
            one.close()
    return ProcessOutcome(
        reason=reason,
        exit_code=leader_exit.exit_code if leader_exit.exit_code >= 0 else 128 - leader_exit.exit_code,
        head=bytes(capture.head),
        tail=bytes(capture.tail),
        size_bytes=capture.size_bytes,
        log=capture.log,
        duration_s=time.monotonic() - began,
        survivors=leader_exit.survivors,
        excess=excess,
        lost=leader_exit.lost,
        errors=b"" if error_capture is None else bytes(error_capture.tail),
    )


def _start(
    process: ProcessSpec, streams: Iterable[_Capture], captures: dict[int, _Capture], file_bytes: int
) -> "_OwnChild | _Supervised":
    """Start a process, and add to `captures` the descriptors from which its streams can be read."""
    writing: list[int] = []
    try:
        for one in streams:
            reading, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            captures[reading] = one
            writing.append(theirs)
            # The process shares the flag, and few programs expect a stdout that does not block.
            os.set_blocking(theirs, True)
        start = _OwnChild if process.confinement is None else _Supervised
        return start(process, (writing[0], writing[-1]), file_bytes)
    finally:
        for descriptor in writing:
            os.close(descriptor)


class _OwnChild:
    """A process that orch23 started itself. Its other processes are searched among the orphans of orch23."""

    def __init__(self, process: ProcessSpec, streams: tuple[int, int], file_bytes: int) -> None:
        with process_tree.starting_leader():
            self._process = subprocess.Popen(
                list(process.argv),
                cwd=process.cwd,
                env=dict(process.env),
                stdin=process.stdin,
                stdout=streams[0],
                stderr=streams[1],
                start_new_session=True,
                pass_fds=process.pass_fds,
                umask=0o022,
            )
            self.tree = process_tree.register_leader(self._process.pid, process.marker, file_bytes)

    def find_members(self) -> Sequence[int]:
        return process_tree.find_members(self.tree)

    def end(self) -> LeaderExit:
        survivors = process_tree.kill_tree(self.tree)
        if self.tree.status is not None:
            # It was reaped already.
            self._process.returncode = self.tree.status
        status = self._process.wait()
        process_tree.forget_tree(self.tree)
        return LeaderExit(status, survivors)


class _Supervised:
    """A process that a supervisor started. The supervisor has no other children, so none of its processes can hide."""

    def __init__(self, process: ProcessSpec, streams: tuple[int, int], file_bytes: int) -> None:
        assert process.confinement is not None
        self._supervisor = acquire_supervisor(process.confinement)
        limit = process_tree.unique_file_limit(file_bytes)
        try:
            leader = self._supervisor.start(process, streams, limit)
        except BaseException:
            self._supervisor.close()
            raise
        self.tree = process_tree.ProcessTree(leader, process.marker, limit)

    def find_members(self) -> Sequence[int]:
        return process_tree.descendant_processes(self._supervisor.pid)

    def end(self) -> LeaderExit:
        leader_exit = self._supervisor.end(self.tree)
        if not leader_exit.survivors and not leader_exit.lost:
            release_supervisor(self._supervisor)
        return leader_exit


def _follow(
    started: _OwnChild | _Supervised,
    captures: Mapping[int, _Capture],
    cancel: Event,
    deadline: float,
    exceeded_limit: Callable[[Sequence[int]], str | None],
) -> tuple[EndReason, str]:
    """Read the output until there is a reason to stop. The leader is not reaped, so its pid cannot be reused."""
    leader = os.pidfd_open(started.tree.leader)
    # Not a selector: the one with epoll needs five system calls more.
    poll = select.poll()
    watched = {*captures, leader}
    with closing(leader):
        for descriptor in watched:
            poll.register(descriptor, select.POLLIN)
        has_exited, until, checked_at = False, deadline, time.monotonic()
        while True:
            # At least this often the clock and the stop signal are checked.
            patience_s = max(0.0, min(_CHECK_EVERY_S, until - time.monotonic()))
            # Once its output has ended, a process nearly always ends too.
            found = (watched == {leader} and poll.poll(_SOON_MS)) or poll.poll(math.ceil(patience_s * 1000))
            ready = {descriptor for descriptor, _ in found}
            now = time.monotonic()
            ended = {reading for reading in ready & captures.keys() if captures[reading].read(reading) == 0}
            if leader in ready:
                ended.add(leader)
                # A daemon may keep the streams open: then the output of two more seconds is read.
                has_exited, until = True, now + _AFTER_LEADER_S
            for descriptor in ended:
                poll.unregister(descriptor)
            watched -= ended
            if any(one.flooded for one in captures.values()):
                return "flooded", ""
            if has_exited and (now >= until or captures.keys().isdisjoint(watched)):
                return "exited", ""
            if not has_exited and (now >= until or cancel.is_set()):
                return "cancelled" if cancel.is_set() else "timed_out", ""
            if now >= checked_at + _CHECK_EVERY_S:
                if (excess := exceeded_limit(started.find_members())) is not None:
                    return "overgrown", excess
                checked_at = time.monotonic()
