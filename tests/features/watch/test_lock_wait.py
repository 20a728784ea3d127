import math
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from orch23.cli.console import Console
from orch23.features.watch import lock_wait
from orch23.model.errors import BusyError
from orch23.store.access import hold_build_lock


def test_who_waits_for_the_lock_hears_of_its_holder_once_and_from_time_to_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console, held, lock = Console(), ExitStack(), tmp_path / "lock"
    held.enter_context(hold_build_lock(lock))
    with pytest.raises(BusyError) as caught, hold_build_lock(lock):
        pass

    def sleep(_seconds: float) -> None:
        assert lock_wait.is_locked(lock)
        if len(console.err_written) == 3:
            held.close()

    monkeypatch.setattr("orch23.features.watch.lock_wait.time.sleep", sleep)
    monkeypatch.setattr(lock_wait, "_BEAT_S", 0)
    assert lock_wait.wait_for_lock(console, caught.value, math.inf, 0.0)
    starts = [line.partition(" process")[0] for line in console.err_written]
    assert starts == ["waiting for another build:", "still waiting for", "still waiting for"]
    assert all(str(os.getpid()) in line for line in console.err_written)
    assert not lock_wait.is_locked(lock)
    with hold_build_lock(lock):
        assert not lock_wait.wait_for_lock(console, caught.value, 60.0, -math.inf)
    assert "; waited 1m 00s" in str(caught.value.diagnostics[0])
