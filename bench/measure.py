"""Run a command and say what it took: wall time, processor time of it and its children, and its peak memory."""

import marshal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a command took, and how it ended."""

    wall_s: float
    cpu_s: float
    memory_bytes: int
    code: int
    late: bool


class Runner(Protocol):
    """Who runs a command and measures it."""

    def run(self, argv: Sequence[str], folder: Path, environment: Mapping[str, str], limit_s: float) -> Run:
        """Run a command, at most so long."""

    def said(self) -> str:
        """Return the end of what the last run printed."""


class Stopwatch(AbstractContextManager["Stopwatch"]):
    """The process that starts what is measured."""

    def __init__(self, output: Path) -> None:
        """Take the file that each run's output goes to."""
        self.output = output
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(LAUNCHER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the process go."""
        self._process.communicate()

    def run(self, argv: Sequence[str], folder: Path, environment: Mapping[str, str], limit_s: float) -> Run:
        """Run a command, at most so long."""
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        order = marshal.dumps((list(argv), dict(environment), str(folder), str(self.output), limit_s))
        pipe_in.write(len(order).to_bytes(4) + order)
        pipe_in.flush()
        answer = marshal.loads(pipe_out.read(int.from_bytes(pipe_out.read(4))))  # noqa: S302 - from our own child
        return Run(**answer)

    def said(self) -> str:
        """Return the end of what the last run printed."""
        return self.output.read_text(encoding="utf-8", errors="replace")[-600:].strip()
