"""The port of a sandbox: how a process that is about to be started is started confined instead."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Protocol

from msgspec import Struct

from orch23.execute.kinship import Family
from orch23.execute.process import ProcessEnd
from orch23.execute.rooms import Room
from orch23.execute.supervisor import Confinement
from orch23.model.diagnostic import Diagnostic
from orch23.model.step_limits import DEFAULT_LIMITS, StepLimits


class LaunchRefusedError(Exception):
    """Nothing was started, since it could not, or may not, be started as the sandbox would have it."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        """Keep what is to be told."""
        super().__init__(str(diagnostic))
        self.diagnostic = diagnostic


class Launch(Struct, frozen=True, kw_only=True):
    """What is about to be started: command, environment, room, folders it must be able to read, and how.

    `stdin` is what the process reads; a launcher may start it with another, and let the command read this one. `reads`
    are further paths that it must be able to read. With a `confinement` it is started by a supervisor, which holds it
    to that. `writable` are the paths of the room's tree that the process may write, beside HOME and TMPDIR; None means
    all of it. `gate` is called with the family of the process, once it is there. `judge` is told how it ended, and says
    how that is to be understood; it may raise LaunchRefusedError.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    room: Room
    interpreter: Path
    network: bool = False
    limits: StepLimits = DEFAULT_LIMITS
    writable: tuple[str, ...] | None = None
    reads: tuple[Path, ...] = ()
    pass_fds: tuple[int, ...] = ()
    stdin: int = DEVNULL
    confinement: Confinement | None = None
    gate: Callable[[Family], None] | None = None
    judge: Callable[[ProcessEnd], ProcessEnd] | None = None


class Launcher(Protocol):
    """The port of a sandbox."""

    @property
    def tier(self) -> str:
        """Name the sandbox as it is shown."""

    def seen(self, room: Room) -> Room:
        """Return the room with the paths that a process in it has to use."""

    def prepare(self, launch: Launch) -> AbstractContextManager[Launch]:
        """Give the launch that runs this one confined; what it needs is held until the process has ended.

        Raises:
            LaunchRefusedError: it cannot, or may not, be run.
            OSError: its program is not there, or there is no room or descriptor left.

        """


class PlainLauncher:
    """No sandbox: the process may do what this user may."""

    tier = "none"

    def seen(self, room: Room) -> Room:
        """Return the room as it is."""
        return room

    @contextmanager
    def prepare(self, launch: Launch) -> Iterator[Launch]:
        """Give the launch as it is."""
        yield launch


class RefusingLauncher(Struct, frozen=True):
    """Starts nothing, and says why."""

    diagnostic: Diagnostic
    tier = "none"

    def seen(self, room: Room) -> Room:
        """Return the room as it is."""
        return room

    def prepare(self, launch: Launch) -> AbstractContextManager[Launch]:
        """Refuse.

        Raises:
            LaunchRefusedError: always.

        """
        del launch
        raise LaunchRefusedError(self.diagnostic)
