"""Test which tiers of the sandbox work on this machine, and choose the best.

What counts is what happened outside; that the attempts were made is all that is believed from within.
"""

import atexit
import contextlib
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from orch23.execute.cleanup import temporary_folder
from orch23.execute.launch import Launch, Launcher, LaunchRefusedError, PlainLauncher, RefusingLauncher
from orch23.execute.process import ProcessOutcome, run_process
from orch23.execute.sandbox import landlock
from orch23.execute.sandbox.bubblewrap import BWRAP_PATHS, BubblewrapLauncher, NamespacesLauncher
from orch23.execute.sandbox.restricted import LandlockLauncher
from orch23.execute.sandbox_dir import SandboxDir
from orch23.model.diagnostic import Diagnostic

_WITHIN_S = 20.0
_OF_THE_MACHINE = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EINTR}
)
_CANARY = b"untouched\n"
_WRITABLE = "out"

_PROGRAM: Final = """\
import _socket, sys
canary, port, tree, *inside = sys.argv[1:]
def attempt(name, act):
    try:
        act()
    except OSError:
        print(name, "refused", flush=True)
    else:
        print(name, "done", flush=True)
def write(path):
    with open(path + "/inside" if path != canary else path, "w") as file:
        file.write("x")
def connect():
    one = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    one.settimeout(5)
    one.connect(("127.0.0.1", int(port)))
attempt("inside", lambda: [write(folder) for folder in inside])
attempt("tree", lambda: write(tree))
attempt("outside", lambda: write(canary))
attempt("connect", connect)
"""


def tier_fault(launcher: Launcher) -> str | None:
    """Return what a tier does not do on this machine, or None where it does all that it must.

    Raises:
        OSError: the machine refused what the test needs: a file, a descriptor.

    """
    try:
        with temporary_folder("sandbox") as folder:
            return _tried(launcher, folder)
    except LaunchRefusedError as refused:
        return refused.diagnostic.message
    except OSError as problem:
        if problem.errno in _OF_THE_MACHINE:
            raise  # it says nothing of the tier: to take a lesser one for it would be wrong
        return str(problem)


def _tried(launcher: Launcher, folder: Path) -> str | None:
    canary = folder / "canary"
    canary.write_bytes(_CANARY)
    room = SandboxDir(folder / "room", "self-test")
    for part in (room.own, room.root, room.work, room.work / _WRITABLE, room.home, room.tmp):
        part.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        end = _run(launcher, room, canary, listener.getsockname()[1])
        reached = False
        with contextlib.suppress(BlockingIOError):
            listener.accept()[0].close()
            reached = True
    said = end.head.decode("utf-8", "replace").split("\n")
    if (
        (end.end, end.exit_code) != ("exited", 0)
        or "inside done" not in said
        or not (room.work / _WRITABLE / "inside").exists()
    ):
        return _last_line(end)
    if canary.read_bytes() != _CANARY or "outside refused" not in said:
        return "a file outside of the room could be written"
    if reached or "connect refused" not in said:
        return "this machine's network could be reached"
    if (room.work / "inside").exists() or "tree refused" not in said:
        return "a tree that is read-only could be written"
    return None


def _run(launcher: Launcher, room: SandboxDir, canary: Path, port: int) -> ProcessOutcome:
    seen = launcher.seen(room)
    interpreter = Path(sys.executable)
    inside = map(str, (seen.work, seen.work / _WRITABLE, seen.home, seen.tmp))
    wanted = Launch(
        argv=(str(interpreter), "-I", "-S", "-B", "-c", _PROGRAM, str(canary), str(port), *inside),
        env={"PATH": os.defpath, "HOME": str(seen.home), "TMPDIR": str(seen.tmp), "LANG": "C.UTF-8"},
        cwd=room.work,
        room=room,
        interpreter=interpreter,
        writable=(f"{_WRITABLE}/",),
    )
    with launcher.prepare(wanted) as launch:
        end = run_process(
            launch.argv,
            cwd=launch.cwd,
            env=launch.env,
            timeout_s=_WITHIN_S,
            cancel=threading.Event(),
            log=room.own / "output.log",
            pass_fds=launch.pass_fds,
            stdin=launch.stdin,
            confinement=launch.confinement,
            gate=launch.gate,
        )
        return end if launch.judge is None else launch.judge(end)


def _last_line(end: ProcessOutcome) -> str:
    """Say in a line why even honest work failed."""
    lines = [line for line in end.head.decode("utf-8", "replace").splitlines() if line.strip()]
    return f"an honest program ended with {end.exit_code}: {lines[-1] if lines else 'it said nothing'}"


ALLOW_OPTION: Final = "--allow-unsandboxed"
"""The one option that lets a step run without a sandbox."""

INSTALL_HINT: Final = "install bubblewrap (`apt-get install bubblewrap`, `dnf install bubblewrap`)"
NAMESPACES_HINT: Final = (
    f"{INSTALL_HINT}, or allow user namespaces (Ubuntu: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; "
    "containers: another seccomp profile)"
)
"""What helps where neither bubblewrap nor orch23's own program could make namespaces."""


class TierChoice(Struct, frozen=True):
    """The best tier that works here, None where none does, and for every better one why it does not."""

    launcher: BubblewrapLauncher | LandlockLauncher | None
    failed: tuple[tuple[str, str], ...] = ()

    @property
    def tier(self) -> str:
        """Name the tier."""
        return self.launcher.tier if self.launcher is not None else "none"

    @property
    def why(self) -> str:
        """Say why it is no better one; nothing where it is the best."""
        return "; ".join(f"{name}: {reason}" for name, reason in self.failed)


def best_tier(programs: Sequence[str] = BWRAP_PATHS, *, namespaces: bool = True) -> TierChoice:
    """Return the best tier that passes the self-test; `programs` are where bubblewrap may be.

    `namespaces` tells whether orch23's own program is tried in the place of bubblewrap.
    """
    failed: list[tuple[str, str]] = []
    present = [Path(name) for name in programs if os.access(name, os.X_OK)]
    if not present:
        failed.append(("bubblewrap", "it is not installed"))
    for launcher in (BubblewrapLauncher(program, nested=nested) for program in present for nested in (True, False)):
        reason = tier_fault(launcher)
        if reason is None:
            return TierChoice(launcher, tuple(failed))
        failed.append((str(launcher.program), reason))
    if namespaces:
        reason = tier_fault(NamespacesLauncher())
        if reason is None:
            return TierChoice(NamespacesLauncher(), tuple(failed))
        failed.append(("user namespaces", reason))
    version = landlock.abi()
    if version < landlock.MIN_ABI:
        what = f"its interface is version {version}, {landlock.MIN_ABI} is needed" if version else "the kernel has none"
        failed.append(("Landlock", what))
        return TierChoice(None, tuple(failed))
    reason = tier_fault(LandlockLauncher())
    if reason is None:
        return TierChoice(LandlockLauncher(), tuple(failed))
    failed.append(("Landlock", reason))
    return TierChoice(None, tuple(failed))


class SandboxLauncher:
    """A launcher that chooses its tier when it is first asked for it, or in the background when told to begin.

    Where there is no tier nothing is started, unless `allowed` says that a step may go without. `closed` are places
    that no interpreter's prefix may open: the user's home and the project.
    """

    def __init__(
        self, choose_tier: Callable[[], TierChoice], *, closed: tuple[Path, ...] = (), allowed: bool = False
    ) -> None:
        """Keep how to choose; nothing is tried yet."""
        self._choose = choose_tier
        self._closed = closed
        self._allowed = allowed
        self._lock = threading.Lock()
        self._choice: TierChoice | None = None

    @property
    def choice(self) -> TierChoice:
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

    def seen(self, room: SandboxDir) -> SandboxDir:
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
        return PlainLauncher() if self._allowed else RefusingLauncher(no_sandbox_error(self.choice))


_LOCK = threading.Lock()
_CHOSEN: list[TierChoice] = []  # what the machine can do stays true as long as this process lives


def best_tier_once() -> TierChoice:
    """Return the best tier, tried at most once in a process."""
    with _LOCK:
        if not _CHOSEN:
            _CHOSEN.append(best_tier())
        return _CHOSEN[0]


def no_sandbox_error(choice: TierChoice) -> Diagnostic:
    """Return the complaint that steps cannot be confined on this machine."""
    hint = f"{NAMESPACES_HINT}; {ALLOW_OPTION} runs steps without one, as this user: see `orch23 doctor`"
    return Diagnostic("E483", f"there is no sandbox on this machine ({choice.why})", hint=hint)


def not_allowed_error() -> Diagnostic:
    """Return the complaint that a stage wants no sandbox, and whoever builds has not said yes to that."""
    hint = f"read what it runs, then build with {ALLOW_OPTION}; or take `sandbox: off` away"
    return Diagnostic("E484", "it says `sandbox: off`, which has to be allowed", hint=hint)
