"""Choose the best tier of the sandbox that does on this machine what it must; tried once in a process."""

import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from orch23.execute.launch import Launch, Launcher, PlainLauncher, RefusingLauncher
from orch23.execute.rooms import Room
from orch23.execute.sandbox import landlock
from orch23.execute.sandbox.bubblewrap import PROGRAMS, Bubblewrap, Namespaces
from orch23.execute.sandbox.restricted import Restricted
from orch23.execute.sandbox.self_test import fault
from orch23.model.diagnostic import Diagnostic

ALLOWING: Final = "--allow-unsandboxed"
"""The one option that lets a step run without a sandbox."""

INSTALL: Final = "install bubblewrap (`apt-get install bubblewrap`, `dnf install bubblewrap`)"
ALLOW_NAMESPACES: Final = (
    f"{INSTALL}, or allow user namespaces (Ubuntu: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; "
    "containers: another seccomp profile)"
)
"""What helps where neither bubblewrap nor orch23's own program could make namespaces."""


class Choice(Struct, frozen=True):
    """The best tier that works here, None where none does, and for every better one why it does not."""

    launcher: Bubblewrap | Restricted | None
    failed: tuple[tuple[str, str], ...] = ()

    @property
    def tier(self) -> str:
        """Name the tier."""
        return self.launcher.tier if self.launcher is not None else "none"

    @property
    def why(self) -> str:
        """Say why it is no better one; nothing where it is the best."""
        return "; ".join(f"{name}: {reason}" for name, reason in self.failed)


def choose(programs: Sequence[str] = PROGRAMS, *, namespaces: bool = True) -> Choice:
    """Return the best tier that passes the self-test; `programs` are where bubblewrap may be.

    `namespaces` tells whether orch23's own program is tried in the place of bubblewrap.
    """
    failed: list[tuple[str, str]] = []
    present = [Path(name) for name in programs if os.access(name, os.X_OK)]
    if not present:
        failed.append(("bubblewrap", "it is not installed"))
    for launcher in (Bubblewrap(program, nested=nested) for program in present for nested in (True, False)):
        reason = fault(launcher)
        if reason is None:
            return Choice(launcher, tuple(failed))
        failed.append((str(launcher.program), reason))
    if namespaces:
        reason = fault(Namespaces())
        if reason is None:
            return Choice(Namespaces(), tuple(failed))
        failed.append(("user namespaces", reason))
    version = landlock.abi()
    if version < landlock.LEAST_ABI:
        what = (
            f"its interface is version {version}, {landlock.LEAST_ABI} is needed" if version else "the kernel has none"
        )
        failed.append(("Landlock", what))
        return Choice(None, tuple(failed))
    reason = fault(Restricted())
    if reason is None:
        return Choice(Restricted(), tuple(failed))
    failed.append(("Landlock", reason))
    return Choice(None, tuple(failed))


class Sandbox:
    """A launcher that chooses its tier when it is first asked for it, or in the background when told to begin.

    Where there is no tier nothing is started, unless `allowed` says that a step may go without. `closed` are places
    that no interpreter's prefix may open: the user's home and the project.
    """

    def __init__(
        self, choose_tier: Callable[[], Choice], *, closed: tuple[Path, ...] = (), allowed: bool = False
    ) -> None:
        """Keep how to choose; nothing is tried yet."""
        self._choose = choose_tier
        self._closed = closed
        self._allowed = allowed
        self._lock = threading.Lock()
        self._choice: Choice | None = None

    @property
    def choice(self) -> Choice:
        """Give the choice; the first to ask waits for it."""
        with self._lock:
            if self._choice is None:
                self._choice = self._choose()
            return self._choice

    @property
    def tier(self) -> str:
        """Name the tier."""
        return self.choice.tier

    def begin(self) -> None:
        """Choose while other work goes on; a process that ends earlier waits, so that the test leaves no folder."""
        thread = threading.Thread(target=self._choose_ahead, name="orch23-sandbox", daemon=True)
        thread.start()
        atexit.register(thread.join)

    def _choose_ahead(self) -> None:
        with contextlib.suppress(Exception):  # who asks for the choice tries again, and is told
            _ = self.choice

    def seen(self, room: Room) -> Room:
        """Return the room with the paths that a process in it has to use."""
        return self._launcher().seen(room)

    def prepare(self, launch: Launch) -> AbstractContextManager[Launch]:
        """Give the launch that runs this one confined.

        Raises:
            LaunchRefusedError: there is no sandbox here, and nobody said that it may go without.

        """
        return self._launcher().prepare(launch)

    def _launcher(self) -> Launcher:
        if self.choice.launcher is not None:
            return replace(self.choice.launcher, closed=self._closed)
        return PlainLauncher() if self._allowed else RefusingLauncher(no_sandbox(self.choice))


_LOCK = threading.Lock()
_CHOSEN: list[Choice] = []  # what the machine can do stays true as long as this process lives


def choose_once() -> Choice:
    """Return the best tier, tried at most once in a process."""
    with _LOCK:
        if not _CHOSEN:
            _CHOSEN.append(choose())
        return _CHOSEN[0]


def no_sandbox(choice: Choice) -> Diagnostic:
    """Return the complaint that steps cannot be confined on this machine."""
    hint = f"{ALLOW_NAMESPACES}; {ALLOWING} runs steps without one, as this user: see `orch23 doctor`"
    return Diagnostic("E483", f"there is no sandbox on this machine ({choice.why})", hint=hint)


def not_allowed() -> Diagnostic:
    """Return the complaint that a stage wants no sandbox, and whoever builds has not said yes to that."""
    hint = f"read what it runs, then build with {ALLOWING}; or take `sandbox: off` away"
    return Diagnostic("E484", "it says `sandbox: off`, which has to be allowed", hint=hint)
