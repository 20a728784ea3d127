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

MAX_REPORT_BYTES = 16 << 20
_KEY_BYTES = 32
_READ_BYTES = 1 << 16
_MAC_HEX = 64


class ReportChannel:
    """A socket pair; the process inherits one end. The key is sent through it once, so no environment shows it."""

    def __init__(self) -> None:
        """Create the sockets and send the key."""
        self._ours, self._theirs = socket.socketpair()
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._ours.sendall(self._key)
        self._data = bytearray()
        self._too_long = False
        self._thread = threading.Thread(target=self._collect, name="orch23-report", daemon=True)

    @property
    def far_fd(self) -> int:
        """The descriptor for the process."""
        return self._theirs.fileno()

    def start(self) -> dict[str, str]:
        """Start to read, so that the process never waits for orch23. Return the variable that names its descriptor."""
        self._thread.start()
        return {"ORCH23_REPORT_FD": str(self.far_fd)}

    def finish(self) -> bytes | None:
        """Return the signed lines, or None if there are none. The processes of the step must have ended."""
        self._theirs.close()
        if self._thread.is_alive():
            # What was sent is still read, but a process that could not be killed does not keep us waiting.
            self._ours.shutdown(socket.SHUT_RD)
            self._thread.join()
        self._ours.close()
        return verified_lines(bytes(self._data), self._key, too_long=self._too_long)

    def _collect(self) -> None:
        while True:
            try:
                data = self._ours.recv(_READ_BYTES)
            except ConnectionResetError:
                # The process never read its key: there is no report.
                return
            if not data:
                return
            if len(self._data) + len(data) <= MAX_REPORT_BYTES:
                self._data += data
            else:
                # Read on, since the process would block otherwise, but keep no more.
                self._too_long = True


def verified_lines(data: bytes, key: bytes, *, too_long: bool = False) -> bytes | None:
    """Return the JSON lines without signatures. An event `forged` replaces the first unsigned line and the rest."""
    # Each signature covers the number of its line, so that a line cannot be repeated, dropped or moved.
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


_FOLDER = Path(__file__).parent / "pytest_plugin"


@cache
def reporter_files() -> Mapping[str, bytes]:
    """Return the bytes of the plugin's files by name, as in `Action.tools`. They are read once in a process."""
    return {name: (_FOLDER / name).read_bytes() for name in (f"{REPORTER_MODULE}.py", EMPTY_PYTEST_CONFIG)}
