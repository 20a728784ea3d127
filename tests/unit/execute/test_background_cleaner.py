"""Cleaning up does not hold up who goes on, piles nothing up, and is over when the executor is."""

import threading

import pytest

from orch23.execute.cleanup import BackgroundCleaner


def test_work_is_done_in_turn_by_another_thread_and_all_of_it_before_the_end() -> None:
    cleaner, done = BackgroundCleaner(), list[tuple[int, int]]()
    gate = threading.Event()
    cleaner.submit(lambda: done.append((0, threading.get_ident())) if gate.wait(20) else None)
    cleaner.submit(lambda: done.append((1, threading.get_ident())))
    assert done == []
    gate.set()
    cleaner.close()
    assert [number for number, _ in done] == [0, 1]
    assert threading.get_ident() not in {thread for _, thread in done}


def test_a_caller_cleans_up_itself_when_much_is_waiting() -> None:
    cleaner, done = BackgroundCleaner(), list[int]()
    gate, begun = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert gate.wait(20)

    cleaner.submit(slow)
    assert begun.wait(20)
    for _ in range(5):
        cleaner.submit(lambda: done.append(threading.get_ident()))
    assert done == [threading.get_ident()] * 3
    gate.set()
    cleaner.close()
    assert len(done) == 5


def test_an_error_is_raised_at_the_end_and_other_work_is_done() -> None:
    cleaner, done = BackgroundCleaner(), list[str]()

    def broken() -> None:
        raise ValueError

    cleaner.submit(broken)
    cleaner.submit(lambda: done.append("more"))
    with pytest.raises(ValueError):
        cleaner.close()
    assert done == ["more"]
    cleaner.submit(lambda: done.append("again"))
    cleaner.close()
    assert done == ["more", "again"]
