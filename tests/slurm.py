"""A Slurm cluster of this machine alone, from Debian's programs, for tests."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "sinfo")
# Steps are found by their parents: control groups need systemd. What a node really has does not count.
_CONFIG = """
ClusterName=orch23
SlurmctldHost={node}(127.0.0.1)
NodeName={node} NodeAddr=127.0.0.1 CPUs=8 Sockets=8 RealMemory=4096
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
SlurmdParameters=config_overrides
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={daemon}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1
KillWait=2
"""


class Slurm:
    """The cluster. `environ` has the variables with which its programs find it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = {**os.environ, "SLURM_CONF": str(root / "slurm.conf")}

    def run(self, *command: str) -> str:
        """Run a program of Slurm, and return what it prints."""
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def jobs(self) -> list[str]:
        """Return the numbers of the jobs that run."""
        return self.run("squeue", "--noheader", "--states=RUNNING", "--format=%i").split()


@contextlib.contextmanager
def running_slurm(root: Path) -> Iterator[Slurm]:
    """Run a controller and a node, with the user of this process; its jobs are ended at the end."""
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        pytest.skip(f"needs Slurm: {', '.join(absent)} (apt-get install slurmctld slurmd slurm-client munge)")
    slurm = Slurm(root)
    for name in ("munge", "state", "spool"):
        (root / name).mkdir(mode=0o755, parents=True)
    key = root / "munge" / "key"
    key.touch(0o600)
    key.write_bytes(os.urandom(64))
    controller, daemon = _free_ports()
    node = socket.gethostname().partition(".")[0]
    settings = {"root": root, "node": node, "user": getpass.getuser(), "controller": controller, "daemon": daemon}
    (root / "slurm.conf").write_text(_CONFIG.format(**settings))
    munge = (f"--{name}-file={root}/munge/{name}" for name in ("key", "pid", "seed", "log"))
    with contextlib.ExitStack() as stack:
        # `--force`: the folders above are those of the test.
        stack.enter_context(
            _running(slurm, "munged", "--foreground", "--force", f"--socket={root}/munge/socket", *munge)
        )
        _wait(slurm, (root / "munge" / "socket").exists)
        stack.enter_context(_running(slurm, "slurmctld", "-D"))
        stack.enter_context(_running(slurm, "slurmd", "-D", "-N", node))
        _wait(slurm, lambda: _is_idle(slurm))
        stack.callback(_end_jobs, slurm)
        yield slurm


def _free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


@contextlib.contextmanager
def _running(slurm: Slurm, name: str, *options: str) -> Iterator[None]:
    program = shutil.which(name, path=_PATH)
    assert program is not None
    with (slurm.root / f"{name}.out").open("wb") as log:
        process = subprocess.Popen((program, *options), env=slurm.environ, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _is_idle(slurm: Slurm) -> bool:
    command = ("sinfo", "--noheader", "--format=%T")
    done = subprocess.run(command, env=slurm.environ, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.split() == ["idle"]


def _end_jobs(slurm: Slurm) -> None:
    slurm.run("scancel", "--user", getpass.getuser())
    _wait(slurm, lambda: not slurm.run("squeue", "--noheader").strip())


def _wait(slurm: Slurm, condition: Callable[[], object]) -> None:
    pause = threading.Event()
    for _ in range(600):
        if condition():
            return
        pause.wait(0.1)
    logs = {path.name: path.read_text(errors="replace")[-2000:] for path in slurm.root.glob("*.out")}
    pytest.fail(f"Slurm is not ready within 60 s: {logs}")
