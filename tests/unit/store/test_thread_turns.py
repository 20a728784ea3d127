"""One thread has the turn at a time, but no thread waits long for it."""

import threading
from collections.abc import Callable

import pytest

from orch23.store import thread_turns
from orch23.store.thread_turns import PAUSE, TURN


class Recorded:
    """A lock that notes how long each `acquire` waits at most."""

    def __init__(self) -> None:
        self.lock, self.timeouts = threading.Lock(), list[float]()

    def acquire(self, *, timeout: float) -> bool:
        self.timeouts.append(timeout)
        return self.lock.acquire(timeout=timeout)

    def release(self) -> None:
        self.lock.release()


def in_a_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_one_thread_at_a_time_has_the_turn() -> None:
    count = most = 0

    def work() -> None:
        nonlocal count, most
        for _ in range(200):
            with TURN, TURN:
                count += 1
                most = max(most, count)
                count -= 1

    for thread in [in_a_thread(work) for _ in range(4)]:
        thread.join()
    assert (count, most) == (0, 1)


def test_a_pause_gives_the_turn_to_another_thread() -> None:
    reached, done = threading.Event(), threading.Event()

    def work() -> None:
        with TURN:
            reached.set()
            done.wait(60)

    with TURN:
        with PAUSE:
            thread = in_a_thread(work)
            assert reached.wait(60)
            done.set()
        thread.join()


def test_a_turn_that_is_not_given_back_blocks_no_thread() -> None:
    reached, done = threading.Event(), threading.Event()

    def work() -> None:
        with TURN:
            reached.set()
            done.wait(60)

    thread = in_a_thread(work)
    assert reached.wait(60)
    with TURN, PAUSE:
        pass
    done.set()
    thread.join()
    with TURN:
        pass


def test_a_pause_without_a_turn_does_nothing() -> None:
    with PAUSE, TURN:
        pass
    assert not thread_turns._LOCK.lock.locked()


def test_a_pause_within_a_pause_leaves_the_turn_free() -> None:
    with TURN:
        with PAUSE, PAUSE:
            pass
        assert thread_turns._LOCK.lock.locked()
    assert not thread_turns._LOCK.lock.locked()


def test_only_one_thread_waits_for_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage pauses often: if each pause waited for the copy of a large file, the stage would be slower than alone."""
    recorded = Recorded()
    monkeypatch.setattr(thread_turns._LOCK, "lock", recorded)
    reached, done = threading.Event(), threading.Event()

    def copy() -> None:
        with TURN:
            reached.set()
            done.wait(60)

    thread = in_a_thread(copy)
    assert reached.wait(60)
    for _ in range(3):
        with TURN, PAUSE:
            pass
    done.set()
    thread.join()
    with TURN, PAUSE:
        pass
    patience = thread_turns._PATIENCE_S
    assert recorded.timeouts == [patience, patience, 0, 0, 0, 0, 0, patience, patience]


def test_an_exception_gives_the_turn_back() -> None:
    for within in (TURN, PAUSE):
        with pytest.raises(ZeroDivisionError), TURN, within:
            raise ZeroDivisionError
        assert not thread_turns._LOCK.lock.locked()
