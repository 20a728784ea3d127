"""Test which tiers of the sandbox work on this machine, and choose the best.

Effects are checked outside of the sandbox. The output of the test program only shows that it made each attempt: code in
a sandbox is not trusted (ADR 14).
"""

import contextlib
import errno
import os
import sys
import threading
from pathlib import Path
from typing import Final

from orch23.execute.cleanup import temporary_folder
from orch23.execute.launch import Launch, Launcher, LaunchRefusedError, TierChoice, run_launch
from orch23.execute.process import ProcessOutcome
from orch23.execute.sandbox_tree import SandboxDir

_TIMEOUT_S = 20.0
# Errors that say nothing about a tier: the machine lacks what the test needs.
_MACHINE_ERRORS = frozenset(
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
    """Return why a tier does not isolate a process on this machine, or None if it does.

    Raises:
        OSError: the machine refused what the test needs: a file, a descriptor.
    """
    try:
        with temporary_folder("sandbox") as folder:
            return _fault_in(launcher, folder)
    except LaunchRefusedError as refused:
        return refused.diagnostic.message
    except OSError as problem:
        # Not a reason to choose a weaker tier.
        if problem.errno in _MACHINE_ERRORS:
            raise
        return str(problem)


def _fault_in(launcher: Launcher, folder: Path) -> str | None:
    import socket  # noqa: PLC0415 - only for this test

    canary = folder / "canary"
    canary.write_bytes(_CANARY)
    sandbox_dir = SandboxDir(folder / "room", "self-test")
    writable = sandbox_dir.work / _WRITABLE
    above = (sandbox_dir.orch23_folder, sandbox_dir.root, sandbox_dir.work)
    for part in (*above, writable, sandbox_dir.home, sandbox_dir.tmp):
        part.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        end = _run(launcher, sandbox_dir, canary, listener.getsockname()[1])
        reached = False
        with contextlib.suppress(BlockingIOError):
            listener.accept()[0].close()
            reached = True
    printed = end.head.decode("utf-8", "replace").splitlines()
    works = (end.reason, end.exit_code) == ("exited", 0) and "inside done" in printed
    if not works or not (writable / "inside").exists():
        last = next((line for line in reversed(printed) if line.strip()), "it printed nothing")
        return f"a test program exited with status {end.exit_code}: {last}"
    if canary.read_bytes() != _CANARY or "outside refused" not in printed:
        return "a file outside of the sandbox directory could be written"
    if reached or "connect refused" not in printed:
        return "the network of this machine could be reached"
    if (sandbox_dir.work / "inside").exists() or "tree refused" not in printed:
        return "a read-only tree could be written"
    return None


def _run(launcher: Launcher, sandbox_dir: SandboxDir, canary: Path, port: int) -> ProcessOutcome:
    seen, interpreter = sandbox_dir.seen_from_inside(launcher.tier), Path(sys.executable)
    inside = map(str, (seen.work, seen.work / _WRITABLE, seen.home, seen.tmp))
    wanted = Launch(
        argv=(str(interpreter), "-I", "-S", "-B", "-c", _PROGRAM, str(canary), str(port), *inside),
        env={"PATH": os.defpath, "HOME": str(seen.home), "TMPDIR": str(seen.tmp), "LANG": "C.UTF-8"},
        cwd=sandbox_dir.work,
        sandbox_dir=sandbox_dir,
        interpreter=interpreter,
        writable=(f"{_WRITABLE}/",),
    )
    with launcher.prepare(wanted) as launch:
        return run_launch(launch, timeout_s=_TIMEOUT_S, cancel=threading.Event())


def best_tier() -> TierChoice:
    """Return the best tier that passes the self-test."""
    from orch23.execute.sandbox import bubblewrap, landlock  # noqa: PLC0415 - tables that `sandbox: off` does not need

    version = landlock.abi()
    too_old = f"its interface has version {version}, and {landlock.MIN_ABI} is needed"
    missing = {"bubblewrap": "it is not installed", "Landlock": too_old if version else "the kernel does not have it"}
    present: dict[str, str] = {}
    for path in (one for one in bubblewrap.BWRAP_PATHS if os.access(one, os.X_OK)):
        # Where /bin is a link, one program has two of these paths.
        present.setdefault(os.path.realpath(path), path)
    # orch23's own program first: its steps start in a third of the time. bubblewrap works where only programs with an
    # AppArmor profile may create namespaces, and on Linux before 5.12.
    candidates: list[tuple[str, Launcher | None]] = [
        ("user namespaces", bubblewrap.NamespacesLauncher()),
        *((one, bubblewrap.BubblewrapLauncher(Path(one))) for one in present.values()),
        *(() if present else [("bubblewrap", None)]),
        ("Landlock", landlock.LandlockLauncher() if version >= landlock.MIN_ABI else None),
    ]
    failed: list[tuple[str, str]] = []
    # No versions are checked: distributions remove features, and containers forbid calls (ADR 14).
    for name, launcher in candidates:
        reason = missing[name] if launcher is None else tier_fault(launcher)
        if reason is None:
            return TierChoice(launcher, tuple(failed))
        failed.append((name, reason))
    return TierChoice(None, tuple(failed))


_LOCK = threading.Lock()
# The abilities of the machine do not change while this process lives.
_CHOSEN: list[TierChoice] = []


def best_tier_once() -> TierChoice:
    """Return the best tier; the self-test runs at most once in a process."""
    with _LOCK:
        if not _CHOSEN:
            _CHOSEN.append(best_tier())
        return _CHOSEN[0]
