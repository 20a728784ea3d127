"""Threads stay for the next piece of work, and go when they are told to."""

import queue
import threading
from collections.abc import Callable
from functools import partial

from orch23.engine.worker_threads import WorkerThreads


def test_a_thread_that_is_free_takes_the_next_piece_and_a_busy_one_is_not_waited_for() -> None:
    before = set(threading.enumerate())
    hands, reported = WorkerThreads(), queue.SimpleQueue[tuple[str, threading.Thread]]()
    gates = {name: threading.Event() for name in ("one", "two", "three")}

    def piece(name: str) -> Callable[[], None]:
        this = threading.current_thread()
        assert this.name == f"stage-{name}"
        assert gates[name].wait(20)
        return partial(reported.put, (name, this))

    def give(name: str) -> None:
        hands.submit(f"stage-{name}", partial(piece, name))

    give("one")
    give("two")
    gates["two"].set()
    second = reported.get(timeout=20)
    hands.finished()
    give("three")
    gates["three"].set()
    third = reported.get(timeout=20)
    hands.finished()
    gates["one"].set()
    first = reported.get(timeout=20)
    hands.finished()
    assert [first[0], second[0], third[0]] == ["one", "two", "three"]
    assert third[1] is second[1]
    assert first[1] is not second[1]
    assert set(threading.enumerate()) - before == {first[1], second[1]}
    hands.shutdown()
    for _, thread in (first, second):
        thread.join(20)
        assert not thread.is_alive()
