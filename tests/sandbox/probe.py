"""Run the table of attacks inside one tier and judge from outside who got out: `python -m tests.sandbox.probe TIER`.

Needs nothing but Python and orch23's own code, so that it also runs as a user who can see little else. Prints JSON.
"""

import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import platform
import resource
import secrets
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from orch23.execute.launch import PlainLauncher
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox.bubblewrap import BWRAP_PATHS, BubblewrapLauncher, NamespacesLauncher
from orch23.execute.sandbox.landlock import LandlockLauncher
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.execute.sandbox_tree import LEAST_SHARED_FILES, SandboxDir
from orch23.execute.shared_trees import SharedTrees
from orch23.features.toolchains.finding import find_tool
from orch23.model.action import Action, Completed
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.step import Tool
from orch23.model.tool import FoundTool
from tests.doubles import memory as memory_contents

TOOLS = (
    *(".rustup/toolchains/stable-x86_64/bin", ".nvm/versions/node/v22.1.0/bin", "miniconda3/bin"),
    *(".local/share/fnm/node-versions/v22.1.0/installation/bin", ".pyenv/versions/3.12.1/bin"),
    *(".local/share/mise/installs/go/1.22.3/bin", ".asdf/installs/nodejs/22.1.0/bin", "sdk/go1.22.3/bin"),
    *(".sdkman/candidates/java/21-tem/bin", ".local/share/uv/tools/lint/bin", ".local/share/pipx/venvs/lint/bin"),
    *(".local/bin", "bin", ".cargo/bin", "opt/x/bin"),
)
HERE = Path(__file__).resolve().parent
SECRET_NAME = "PROBE_SECRET"
_NEIGHBOUR = """
import ctypes, os, sys, time
secret = ctypes.create_string_buffer(os.environ["PROBE_SECRET"].encode())
print(ctypes.addressof(secret), flush=True)
time.sleep(1000)
"""


def launcher(
    tier: str, closed: tuple[Path, ...] = ()
) -> BubblewrapLauncher | NamespacesLauncher | LandlockLauncher | PlainLauncher:
    """Return a tier by its name, without trying it."""
    if tier == "bubblewrap":
        return BubblewrapLauncher(next(Path(name) for name in BWRAP_PATHS if Path(name).exists()), closed)
    if tier == "namespaces":
        return NamespacesLauncher(closed=closed)
    return LandlockLauncher(closed) if tier == "landlock" else PlainLauncher()


def table() -> dict[str, Any]:
    """Return all attacks."""
    sys.path.insert(0, str(HERE))
    try:
        attacking = importlib.import_module("attacking")
        for name in attacking.TABLES:
            importlib.import_module(name)
    finally:
        sys.path.remove(str(HERE))
    return dict(attacking.ATTACKS)


class Memory:
    """Inputs and results of actions, in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.kept = memory_contents()

    def copy_into(self, path: str, entry: FileEntry, target: str) -> bool:
        Path(target).write_bytes(self.files[path])
        return True


class World:
    """What lies and runs outside of the sandbox directory, and what became of it."""

    def __init__(self, folder: Path, names: list[str], stack: contextlib.ExitStack) -> None:
        self.folder, self.names, self.stack = folder, names, stack
        self.secret = os.environ.get(SECRET_NAME) or secrets.token_hex(16)
        self.unique = f"probe-{secrets.token_hex(8)}"
        self.heard: list[bytes] = []
        self.victims = folder / "victims"
        self.victims.mkdir(parents=True)
        for name in names:
            (self.victims / name).write_text("canary")
            (self.victims / name).chmod(0o600)
        self.readable = folder / "environment/lib/readable"  # of the interpreter that the step is given
        (folder / "environment/bin").mkdir(parents=True)
        (folder / "environment/bin/python").symlink_to(sys.executable)
        for name in names:
            self.readable.mkdir(parents=True, exist_ok=True)
            (self.readable / name).write_text("canary")
            (self.readable / name).chmod(0o600)
        self.listed = folder / "listed"
        (self.listed / self.secret).mkdir(parents=True)
        self.other_group = _prepare_groups(self.victims)
        with contextlib.suppress(OSError):  # not every file system has them
            os.setxattr(self.victims / "read_an_attribute", "user.secret", self.secret.encode())
        self.places = {
            "project": folder / "project/spec.md",
            "git": folder / "project/.git/config",
            "store": folder / "project/.orch23/cas/blob",
            "pipeline": folder / "project/pipeline.yaml",
            "home": folder / "home/notes.txt",
            "startup": folder / "home/.profile",
            "key": folder / "home/.ssh/id_ed25519",
            "shared_memory": Path("/dev/shm", self.unique + "-canary"),
            **{name: folder / "home" / name for name in sys.modules["attacks_on_files"].CREDENTIALS},
        }
        for place in self.places.values():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(self.secret)
            place.chmod(0o600)
        self.tools = [self._tool(number, place) for number, place in enumerate(TOOLS)]
        stack.callback(self.places["shared_memory"].unlink, missing_ok=True)
        self.rooms = folder / "project/.orch23/rooms"
        self.other = SandboxDir(self.rooms / "other", "other")
        self.other.work.mkdir(parents=True)
        (self.other.work / "secret").write_text(self.secret)
        self.prey = {name: self._sleeper() for name in names}
        self.neighbour, self.address = self._neighbour()
        self.segment = self._segment()
        inherited = os.open(self.places["key"], os.O_RDONLY)
        os.set_inheritable(inherited, True)
        stack.callback(os.close, inherited)
        self.ports = self._listen()
        _queue(self.unique, make=True)
        stack.callback(_unlink_queue, self.unique)
        self.before = self._state()

    def reported(self, tier: str) -> dict[str, Any]:
        """Return what the attacks are told."""
        return {
            "sandboxed": tier != "none",
            "unique": self.unique,
            "victims": str(self.victims),
            "readable": str(self.readable),
            "listed": str(self.listed),
            "other_group": self.other_group,
            "places": {name: str(path) for name, path in self.places.items()},
            "rooms": str(self.rooms),
            "other_room": str(self.other.root),
            "neighbour": self.neighbour,
            "address": self.address,
            "builder": os.getpid(),
            "segment": self.segment,
            "secret_inside": "x" * len(self.secret),
            "prey": {name: process.pid for name, process in self.prey.items()},
            **self.ports,
        }

    def _tool(self, number: int, place: str) -> FoundTool:
        """Install a program in the home directory, and return what a step sees of it."""
        path = self.folder / "home" / place / f"tool{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        tool = Tool(path.name, f"~/{place}/{path.name}" if place.startswith("opt") else "")
        found = find_tool(tool, str(self.folder / "project"), {"HOME": str(self.folder / "home")})
        assert str(path) in found.shown or str(path.parent) in found.shown, found
        return found

    # ---- processes, memory, sockets --------------------------------------------------------------

    def _sleeper(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process

    def _neighbour(self) -> tuple[int, int]:
        with self.places["key"].open() as stdin:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _NEIGHBOUR, self.secret],
                stdin=stdin,
                stdout=subprocess.PIPE,
                env={SECRET_NAME: self.secret},
                cwd=self.folder,
            )
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        assert process.stdout is not None
        self.stack.callback(process.stdout.close)
        return process.pid, int(process.stdout.readline())

    def _segment(self) -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        segment = int(libc.shmget(0, ctypes.c_size_t(4096), 0o1600))
        assert segment >= 0
        self.stack.callback(libc.shmctl, segment, 0, None)  # IPC_RMID
        libc.shmat.restype = ctypes.c_void_p
        address = libc.shmat(segment, None, 0)
        ctypes.memmove(address, self.secret.encode(), len(self.secret))
        libc.shmdt(ctypes.c_void_p(address))
        return segment

    def _listen(self) -> dict[str, Any]:
        tcp = socket.create_server(("0.0.0.0", 0))
        tcp6 = socket.socket(type=socket.SOCK_DGRAM)
        tcp6.bind(("127.0.0.1", 0))
        path, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        path.bind(str(self.folder / "s"))
        path.listen()
        abstract.bind("\0" + self.unique)
        abstract.listen()
        datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        datagrams.bind(str(self.folder / "d"))
        nameless = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        nameless.bind("\0" + self.unique + "-datagrams")
        for one in (tcp, tcp6, path, abstract, datagrams, nameless):
            self.stack.callback(one.close)
        threading.Thread(target=self._call_the_service, daemon=True).start()
        for listener in (tcp, path, abstract):
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        for receiver in (tcp6, datagrams, nameless):
            threading.Thread(target=self._receive, args=(receiver,), daemon=True).start()
        return {
            "tcp": tcp.getsockname()[1],
            "udp": tcp6.getsockname()[1],
            "path_socket": str(self.folder / "s"),
            "path_datagrams": str(self.folder / "d"),
            "abstract_datagrams": "\0" + self.unique + "-datagrams",
            "address_of_machine": _address(),
        }

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                threading.Thread(target=self._receive, args=(connection,), daemon=True).start()

    def _receive(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(4096):
                self.heard.append(data)

    def _call_the_service(self) -> None:
        """Call, again and again, a name on which nobody should listen."""
        while self.folder.exists():
            with socket.socket(socket.AF_UNIX) as one, contextlib.suppress(OSError):
                one.connect("\0" + self.unique + "-service")
                self._receive(one)
            time.sleep(0.02)

    # ---- judging ---------------------------------------------------------------------------------

    def _state(self) -> dict[str, object]:
        """Return all that no attack may change: victims and places, priorities, limits."""
        found: dict[str, object] = {name: _look(self.victims / name) for name in self.names}
        found |= {f"write_to_{name}": _look(path) for name, path in self.places.items()}
        for name, process in self.prey.items():
            found[f"treatment of {name}"] = _treatment(process.pid) if process.poll() is None else None
        found |= {f"readable {name}": _look(self.readable / name) for name in self.names}
        return found

    def escaped(self, name: str, judge: str, loot: str | None) -> bool:
        """Say whether an attack got out."""
        if judge == "changed":
            now = _look(self.places[name[9:]] if name.startswith("write_to_") else self.victims / name)
            return (now, _look(self.readable / name)) != (self.before[name], self.before[f"readable {name}"])
        process = self.prey[name]
        match judge:
            case "secret":
                return loot is not None and self.secret in loot
            case "said":
                return loot is not None
            case "killed":
                return process.poll() is not None
            case "treated":
                return _treatment(process.pid) != self.before[f"treatment of {name}"]
            case "unqueued":
                return not _queue(self.unique)
            case "reached":
                return f"{name};" in b"".join(self.heard).decode(errors="replace")
        made = {
            "made": Path("/", *_folder_of(name), self.unique),
            "made_in_other_room": self.other.work / "taken",
            "made_in_rooms": self.rooms / "taken",
            "made_cron_job": Path("/etc/cron.d", self.unique),
            "made_by_systemd": Path(f"/tmp/{self.unique}-systemd"),
        }[judge]
        there = os.path.lexists(made)
        with contextlib.suppress(OSError):
            made.unlink()
        return there


def _folder_of(name: str) -> tuple[str, ...]:
    folders = {folder.strip("/").replace("/", "_") or "the_top": folder for folder in _made_in()}
    return tuple(folders.get(name.removeprefix("make_in_"), "/nowhere").strip("/").split("/"))


def _made_in() -> tuple[str, ...]:
    return tuple(sys.modules["attacks_on_files"].MADE_IN)


def _look(path: Path) -> object:
    try:
        status = path.lstat()
        attributes = sorted(os.listxattr(path)) if stat.S_ISREG(status.st_mode) else []
        owners = (status.st_uid, status.st_gid)
        return (path.read_bytes(), status.st_mode, status.st_mtime_ns, owners, attributes, _flags(path))
    except FileNotFoundError:
        return None


def _flags(path: Path) -> bytes:
    """Return the flags of an inode; nothing where its file system has none."""
    with path.open("rb") as file, contextlib.suppress(OSError):
        return fcntl.ioctl(file, 0x80086601, bytes(8))  # FS_IOC_GETFLAGS
    return b""


def _treatment(pid: int) -> object:
    """Return how the kernel treats a process: its priorities, its policy, its processors and its limits."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = 252 if platform.machine() == "x86_64" else 31
    disk = libc.syscall(ctypes.c_long(number), ctypes.c_int(1), ctypes.c_int(pid))  # ioprio_get
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    return (os.getpriority(os.PRIO_PROCESS, pid), disk, os.sched_getscheduler(pid), os.sched_getaffinity(pid), limits)


def _queue(name: str, *, make: bool = False) -> bool:
    """Say whether a queue of messages is there; make it first."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = 240 if platform.machine() == "x86_64" else 180
    flags = os.O_RDONLY | (os.O_CREAT if make else 0)
    queue = libc.syscall(ctypes.c_long(number), name.encode(), ctypes.c_int(flags), ctypes.c_int(0o600), None)
    if queue >= 0:
        os.close(queue)
    return bool(queue >= 0)


def _unlink_queue(name: str) -> None:
    number = 241 if platform.machine() == "x86_64" else 181
    ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), name.encode())


def _prepare_groups(victims: Path) -> int:
    """Return a group that this user may give a file of its own to, which it does not have yet."""
    victim = victims / "change_the_group"
    if os.getuid() == 0 and victim.exists():
        os.chown(victim, -1, 12345)
    return next((group for group in os.getgroups() if group != os.getgid()), os.getgid())


def _address() -> str:
    """Return an address of this machine beside the loopback; the loopback where it has none."""
    with socket.socket(type=socket.SOCK_DGRAM) as one, contextlib.suppress(OSError):
        one.connect(("192.0.2.1", 9))  # sends nothing
        return str(one.getsockname()[0])
    return "127.0.0.1"


@contextlib.contextmanager
def executor(
    tier: str,
    memory: Memory,
    rooms: Path,
    closed: tuple[Path, ...],
    python: Path | None = None,
    tools: Sequence[FoundTool] = (),
) -> Iterator[LocalExecutor]:
    """Give an executor whose actions run in a tier, by an interpreter, which is this one by default."""
    trees = SharedTrees(rooms.with_name("trees"), memory)
    one = LocalExecutor(
        sandbox_dirs=SandboxDirs(rooms, memory, shared=lambda: trees),
        contents=memory.kept,
        workers=2,
        interpreters=lambda _: python or Path(sys.executable),
        tools=lambda *_: tools,
        launcher=launcher(tier, closed),
    )
    try:
        yield one
    finally:
        one.close()


def probe(tier: str, *, network: bool = False) -> dict[str, object]:
    """Run all attacks inside a tier; without one, those that must get out then. Return who did."""
    attacks = table()
    user = ("any", "root") if os.getuid() == 0 else ("any",)
    names = [name for name, one in attacks.items() if tier != "none" or one.plain in user]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="probe-", dir="/var/tmp")))
        world = World(folder, names, stack)
        files = {path.name: path.read_bytes() for path in HERE.glob("attack*.py")}
        # Enough for a mount, where the tier makes any.
        filler = {f"filler/{number}": b"" for number in range(LEAST_SHARED_FILES)}
        memory = Memory({**files, **filler, "world.json": json.dumps(world.reported(tier)).encode()})
        inputs = {path: FileEntry(digest_bytes(data)) for path, data in memory.files.items()}
        run_all = "; ".join(Path(one.program).name for one in world.tools)
        action = Action(
            argv=("/bin/sh", "-ec", f"{run_all}; exec python attacking.py {' '.join(names)}"),
            programs={"all": ""},
            inputs=inputs,
            timeout_s=120,
            network=network,
        )
        closed, python = (folder / "home", folder / "project"), folder / "environment/bin/python"
        with executor(tier, memory, world.rooms, closed, python, world.tools) as running:
            outcome = running.run(action)
        assert isinstance(outcome, Completed), outcome
        assert f"tried {len(names)}\n" in outcome.result.output.text, outcome.result.output.text
        assert not outcome.result.violations, outcome.result.violations
        loot = {
            path.removeprefix("loot/"): memory.kept.get(entry.digest).decode(errors="replace")
            for path, entry in outcome.result.written.items()
            if path.startswith("loot/")
        }
        time.sleep(0.2)  # what was sent at the very end is still on its way to our listeners
        escaped = [name for name in names if world.escaped(name, attacks[name].judge, loot.get(name))]
    return {"tier": tier, "user": os.getuid(), "tried": names, "escaped": escaped, "said": outcome.result.output.text}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe(sys.argv[1], network="network" in sys.argv[2:])))
