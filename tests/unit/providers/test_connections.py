"""Calls: what is under way ends with its time and with the build, whoever waits."""

import os
import socket
import threading

import pytest

from orch23.model.errors import ProviderError
from orch23.providers.connections import CallSockets, OpenCalls

LONG = 30.0


class Stream:
    """What the HTTP library hands to a trace: a way to a socket."""

    def __init__(self, found) -> None:
        self.found = found

    def get_extra_info(self, name: str):
        return self.found if name == "socket" else None


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.settimeout(LONG)
    with ours, theirs:
        yield ours


def connect(sockets: CallSockets, one) -> None:
    sockets.trace("connection.connect_tcp.started", {"host": "x"})
    sockets.trace("connection.connect_tcp.complete", {"return_value": Stream(one)})


def test_a_reader_is_woken_when_the_time_is_up(pair) -> None:
    with OpenCalls().track(0.01) as sockets:
        connect(sockets, pair)
        assert pair.recv(1) == b""
        assert sockets.is_shut_down


def test_a_reader_is_woken_with_an_error_when_the_build_ends(pair) -> None:
    calls = OpenCalls()
    reading = threading.Event()

    def end() -> None:
        reading.wait(LONG)
        calls.close()

    ender = threading.Thread(target=end)
    ender.start()

    def read() -> None:
        with calls.track(LONG) as sockets:
            connect(sockets, pair)
            reading.set()
            raise OSError(pair.recv(1))

    with pytest.raises(ProviderError, match="build ended"):
        read()
    ender.join()


def test_a_connection_that_comes_about_after_the_cut_is_cut_too(pair) -> None:
    sockets = CallSockets()
    sockets.shut_down()
    connect(sockets, pair)
    assert pair.recv(1) == b""
    sockets.close()


def test_a_connection_that_tls_has_taken_over_is_cut_too() -> None:
    ours, theirs = socket.socketpair()
    with theirs, OpenCalls().track(0.01) as sockets:
        connect(sockets, ours)
        with socket.socket(fileno=ours.detach()) as under_tls:  # as `wrap_socket` does before its handshake
            under_tls.settimeout(LONG)
            assert under_tls.recv(1) == b""


def test_a_call_keeps_no_descriptor(pair) -> None:
    before = os.listdir("/proc/self/fd")
    with OpenCalls().track(LONG) as sockets:
        connect(sockets, pair)
        assert len(os.listdir("/proc/self/fd")) == len(before) + 1
    assert os.listdir("/proc/self/fd") == before


def test_what_is_over_is_left_alone(pair) -> None:
    calls = OpenCalls()
    with calls.track(LONG) as sockets:
        connect(sockets, pair)
    calls.close()
    assert not sockets.is_shut_down


def test_nothing_begins_after_the_end() -> None:
    calls = OpenCalls()
    calls.close()
    with pytest.raises(ProviderError, match="build ended"), calls.track(LONG):
        pytest.fail("it began")
    with pytest.raises(ProviderError, match="build ended"):
        calls.wait(LONG)


def test_other_failures_pass_as_they_are() -> None:
    def fail() -> None:
        with OpenCalls().track(LONG):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_a_trace_of_something_else_is_no_connection(pair) -> None:
    sockets = CallSockets()
    sockets.trace("http11.receive_response_body.complete", {"return_value": None})
    sockets.trace("connection.connect_tcp.complete", {"return_value": Stream(None)})
    sockets.trace("connection.connect_tcp.failed", {"exception": OSError()})
    sockets.shut_down()
