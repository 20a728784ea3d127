"""What `watch` does if the thread that reads the events fails."""

import threading
import time
from pathlib import Path

from orch23.features.watch.watched_files import FolderEvents
from orch23.features.watch.watching import _changed_text


class Broken:
    """A watcher whose thread has ended."""

    def watch(self, *_: object) -> set[tuple[int, str]]:
        message = "error in underlying watcher"
        raise RuntimeError(message)

    def close(self) -> None:
        """Release nothing."""


def test_a_watcher_that_failed_is_replaced(tmp_path: Path) -> None:
    events = FolderEvents()
    assert events.follow([str(tmp_path)])
    assert not events.follow([str(tmp_path)])
    events.close()
    events._notify = Broken()  # type: ignore[assignment]
    assert not events.wait(0.01)
    assert events.follow([str(tmp_path)])
    written = threading.Timer(0.05, (tmp_path / "a").touch)
    written.start()
    try:
        until = time.monotonic() + 20
        while not events.wait(1.0):
            assert time.monotonic() < until
    finally:
        written.join()
        events.close()


def test_a_signal_ends_a_wait_and_a_pause(tmp_path: Path) -> None:
    events = FolderEvents()
    events.follow([str(tmp_path)])
    events.stop.received.append(15)
    try:
        assert not events.wait(3600)
        events.pause(3600)
    finally:
        events.close()


def test_a_file_that_changed_twice_is_named_once() -> None:
    assert _changed_text(("b", "a", "b")) == "a, b changed"
    assert _changed_text(("a",) * 9) == "a changed"
