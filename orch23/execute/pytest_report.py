"""Provide orch23's pytest plugin to a step, and receive its signed report."""

import hashlib
import hmac
import secrets
import socket
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from orch23.model.digest import canonical_json
from orch23.resolve.commands import EMPTY_PYTEST_CONFIG, REPORTER_MODULE

REPORT_FD_VARIABLE = "ORCH23_REPORT_FD"
MAX_REPORT_BYTES = 16 << 20
_KEY_BYTES = 32
_READ_BYTES = 1 << 16
_MAC_HEX = 64


class ReportChannel:
    """A socket whose far end a process inherits. The key goes through it once, so no environment ever shows it."""

    def __init__(self) -> None:
        """Make the socket, and send the key ahead."""
        self._near, self._far = socket.socketpair()
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._near.sendall(self._key)
        self._data = bytearray()
        self._too_long = False
        self._thread = threading.Thread(target=self._collect, name="orch23-report", daemon=True)

    @property
    def far_fd(self) -> int:
        """Give the descriptor for the process."""
        return self._far.fileno()

    def start(self) -> None:
        """Begin to read, so that the process never waits for us."""
        self._thread.start()

    def finish(self) -> bytes | None:
        """Return the lines that were signed, or None if there are none; all that could write must have ended."""
        self._far.close()
        if self._thread.is_alive():
            self._near.shutdown(socket.SHUT_RD)  # what is there is still read; a survivor cannot keep us waiting
            self._thread.join()
        self._near.close()
        return verified_lines(bytes(self._data), self._key, too_long=self._too_long)

    def _collect(self) -> None:
        while True:
            try:
                data = self._near.recv(_READ_BYTES)
            except ConnectionResetError:  # the process never read its key: there is no report
                return
            if not data:
                return
            if len(self._data) + len(data) <= MAX_REPORT_BYTES:
                self._data += data
            else:
                self._too_long = True  # read on, lest the process hangs, but keep no more


def verified_lines(data: bytes, key: bytes, *, too_long: bool = False) -> bytes | None:
    """Return the JSON lines without their signatures; the first that is not signed becomes the last, `forged`."""
    lines: list[bytes] = []
    for number, line in enumerate(data.splitlines()):
        body = line[_MAC_HEX + 1 :]
        expected = hmac.new(key, b"%d %s" % (number, body), hashlib.sha256).hexdigest().encode()
        if not hmac.compare_digest(expected, line[:_MAC_HEX]):
            lines.append(canonical_json({"event": "forged", "line": number + 1}))
            break
        lines.append(body)
    if too_long:
        lines.append(canonical_json({"event": "too_long", "limit": MAX_REPORT_BYTES}))
    return b"".join(line + b"\n" for line in lines) if lines else None


def report_variables(channel: ReportChannel) -> dict[str, str]:
    """Return what tells the plugin where its end of the channel is."""
    return {REPORT_FD_VARIABLE: str(channel.far_fd)}


_FOLDER = Path(__file__).parent / "pytest_plugin"


@cache
def reporter_files() -> Mapping[str, bytes]:
    """Return the bytes of the files by name, as `Action.tools` has them. They are read once in a process."""
    return {name: (_FOLDER / name).read_bytes() for name in (f"{REPORTER_MODULE}.py", EMPTY_PYTEST_CONFIG)}
