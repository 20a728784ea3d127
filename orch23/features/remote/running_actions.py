"""Keep where actions run on other machines, until their results are fetched: a killed build cannot cancel them."""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from orch23.model.digest import Digest, digest_bytes
from orch23.model.ports import RunningActions
from orch23.store.json_text import TRUSTED, StoreKey
from orch23.store.safe_files import PRIVATE_FILE_MODE, read_regular, try_unlink, write_atomic

_MAX_PLACE_CHARACTERS = 2000
_KEPT_S = 2 * 86_400.0
"""No engine keeps an execution, or its result, much longer."""


class _Entry(Struct, frozen=True, kw_only=True):
    """An action that was submitted to an engine. `noted_s` is a Unix time."""

    engine: str
    sha256: str
    place: str
    noted_s: float


class ActionFiles(RunningActions):
    """The files of submitted actions in a folder of the store. Safe for calls from several threads; never raises.

    They need not survive a power cut, so they are not synced.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time, store_key: StoreKey = TRUSTED) -> None:
        """Read nothing yet. `clock` returns the Unix time."""
        self._folder, self._clock, self._store_key = folder, clock, store_key
        self._lock = threading.Lock()
        self._left: list[_Entry] | None = None

    def take(self, engine: str, action: Digest) -> str:
        """See the port: only actions of earlier builds are found."""
        with self._lock:
            if self._left is None:
                self._left = self._read_all()
            for entry in self._left:
                if (entry.engine, entry.sha256) == (engine, action.sha256):
                    self._left.remove(entry)
                    return entry.place
        return ""

    def note(self, engine: str, action: Digest, place: str) -> None:
        """See the port."""
        if not 0 < len(place) <= _MAX_PLACE_CHARACTERS:
            return
        with self._lock:
            if self._left is None:  # before it could find its own ones
                self._left = self._read_all()
        entry = _Entry(engine=engine, sha256=action.sha256, place=place, noted_s=self._clock())
        with contextlib.suppress(OSError, ValueError):
            data = self._store_key.encode(entry)
            write_atomic(self._path(engine, place), data, mode=PRIVATE_FILE_MODE, durable=False)

    def forget(self, engine: str, place: str) -> None:
        """See the port."""
        try_unlink(self._path(engine, place))

    def _path(self, engine: str, place: str) -> Path:
        name = digest_bytes(f"{engine}\n{place}".encode("utf-8", "surrogateescape")).sha256
        return self._folder / f"{name}.json"

    def _read_all(self) -> list[_Entry]:
        try:
            paths = sorted(self._folder.iterdir())
        except OSError:
            return []
        return [entry for path in paths if (entry := self._read(path)) is not None]

    def _read(self, path: Path) -> _Entry | None:
        """Return the entry of a file; remove a file that is damaged, unfinished or old."""
        with contextlib.suppress(OSError, ValueError):
            entry = self._store_key.decode(read_regular(path) or b"", _Entry)
            if self._clock() < entry.noted_s + _KEPT_S:
                return entry
        try_unlink(path)
        return None
