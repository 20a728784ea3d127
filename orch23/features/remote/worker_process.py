"""Start the process of a dask worker, and start it again when it was killed."""

import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from types import FrameType

import msgspec
from msgspec import Struct, field

NO_SCHEDULER = 69
"""The exit status of a worker that could not reach its scheduler: EX_UNAVAILABLE of sysexits.h."""

WAS_FROZEN = 75
"""The exit status of a worker that its cluster has removed while it was stopped: EX_TEMPFAIL."""

# Not `-m`: the function that clients name would be in a second copy of the module.
_PROGRAM = "from orch23.features.remote.dask_worker import main; main()"
_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """The options of `orch23 worker`. `folder` is an absolute path. `resources` are what actions share, by name."""

    scheduler: str
    slots: int
    folder: str
    cache_url: str = ""
    allowed: bool = False
    resources: Mapping[str, float] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the settings as one line of JSON."""
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "WorkerSettings":
        """Return the settings that `to_bytes` was called on."""
        return msgspec.json.decode(data, type=cls)


# Not dask's Nanny: it starts no new process after one that was killed while it started.
class WorkerProcess:
    """Keeps one worker process running."""

    def __init__(self, settings: WorkerSettings) -> None:
        """Start nothing yet."""
        self._settings = settings
        self._stop = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def serve(self) -> bool:
        """Run the process until the scheduler ends, or SIGINT or SIGTERM arrives. Only for the main thread.

        Return False if the scheduler could not be reached.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)
        pause_s = _PAUSE_S
        while not self._stop.is_set():
            status = self._run_once()
            if status in {0, NO_SCHEDULER}:
                return status == 0
            # One that was killed or stopped is started again at once, one that fails each time not.
            pause_s = _PAUSE_S if status < 0 or status == WAS_FROZEN else min(2 * pause_s, _LONGEST_PAUSE_S)
            self._stop.wait(pause_s)
        return True

    def _run_once(self) -> int:
        # In a session of its own, so that a Ctrl-C of the terminal does not kill it before its steps.
        command = (sys.executable, "-P", "-c", _PROGRAM)
        with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
            self._process = process
            assert process.stdin is not None
            process.stdin.write(self._settings.to_bytes())
            process.stdin.flush()
            if self._stop.is_set():
                process.terminate()
            status = process.wait()
            self._process = None
            return status

    def _end(self, _signum: int, _frame: FrameType | None) -> None:
        """Ask the process to cancel its actions and end. A second signal kills it."""
        is_second = self._stop.is_set()
        self._stop.set()
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL if is_second else signal.SIGTERM)
