"""The first signal asks a build to stop, whatever the main thread does; the second stops it at once."""

import os
import queue
import signal
import threading

import pytest

from orch23.cli.build_run import SIGNALS, interrupt_on_signal


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


def test_the_first_signal_interrupts_and_the_second_stops_at_once() -> None:
    before = handlers()
    asked: queue.SimpleQueue[int] = queue.SimpleQueue()
    with interrupt_on_signal(asked.put):
        signal.raise_signal(signal.SIGTERM)
        assert asked.get(timeout=30) == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert asked.empty()
    assert handlers() == before


def test_a_signal_is_handled_while_the_main_thread_runs_no_python() -> None:
    """The C handler alone must be enough: here the signal comes in a thread, and the main one only waits for a lock."""
    asked: queue.SimpleQueue[int] = queue.SimpleQueue()

    def send() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # the main thread's wait is not interrupted by it

    with interrupt_on_signal(asked.put):
        sender = threading.Thread(target=send)
        sender.start()
        assert asked.get(timeout=30) == signal.SIGTERM
        sender.join()


def test_another_thread_builds_without_signals() -> None:
    before = handlers()
    seen: list[object] = []

    def build() -> None:
        with interrupt_on_signal(lambda _signum: None):
            seen.extend(handlers())

    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
    assert seen == before


def test_below_nohup_a_hangup_is_ignored() -> None:
    signals: list[int] = []
    heard = threading.Event()

    def interrupt(number: int) -> None:
        signals.append(number)
        heard.set()

    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupt_on_signal(interrupt):
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            assert heard.wait(20)
    finally:
        signal.signal(signal.SIGHUP, former)
    assert signals == [signal.SIGTERM]
