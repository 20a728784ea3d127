"""Calls: what is under way ends with its time and with the build, whoever waits."""

import os
import socket
import threading

import pytest

from orch23.model.errors import ProviderError
from orch23.providers.connections import CallSockets, ClientConnection, ClientPool, Deadlines, OpenCalls

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
    sockets.add(one)


def connect_client(connection: ClientConnection, one) -> None:
    connection.trace("connection.connect_tcp.started", {"host": "x"})
    connection.trace("connection.connect_tcp.complete", {"return_value": Stream(one)})


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
    connection = ClientConnection()
    connection.trace("http11.receive_response_body.complete", {"return_value": None})
    connection.trace("connection.connect_tcp.complete", {"return_value": Stream(None)})
    connection.trace("connection.connect_tcp.failed", {"exception": OSError()})
    connection.call.shut_down()


# ---- clients with a connection that stays open ------------------------------------------------------


class Client:
    """A client of a library, with a connection that it opens at its first call."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.ours, self.theirs = socket.socketpair()
        self.is_closed = False
        connect_client(connection, self.ours)

    def close(self) -> None:
        self.is_closed = True
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def clients():
    now = [0.0]
    pool = ClientPool(max_idle_s=4.0, clock=lambda: now[0])
    yield pool, now
    pool.close()


def test_the_next_call_gets_the_client_of_the_last_one(clients) -> None:
    pool, _ = clients
    used = []
    for server in ("one", "one", "other"):
        with pool.client_for(server, CallSockets(), Client) as client:
            used.append(client)
    assert used[0] is used[1] is not used[2]


def test_two_calls_at_the_same_time_have_a_client_each(clients) -> None:
    pool, _ = clients
    with pool.client_for("s", CallSockets(), Client) as one, pool.client_for("s", CallSockets(), Client) as other:
        assert one is not other
    with pool.client_for("s", CallSockets(), Client) as again:
        assert again is one
    pool.close()
    assert one.is_closed
    assert other.is_closed


def test_a_client_that_was_not_used_for_long_is_closed(clients) -> None:
    pool, now = clients
    with pool.client_for("s", CallSockets(), Client) as first:
        pass
    now[0] = 4.5
    with pool.client_for("s", CallSockets(), Client) as second:
        assert first.is_closed
        assert second is not first


def test_a_client_of_a_failed_call_is_closed(clients) -> None:
    pool, _ = clients

    def fail() -> None:
        with pool.client_for("s", CallSockets(), Client) as client:
            used.append(client)
            raise ZeroDivisionError

    used: list[Client] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    assert used[0].is_closed


def test_a_client_of_a_call_that_was_shut_down_is_closed(clients) -> None:
    pool, _ = clients
    call = CallSockets()
    with pool.client_for("s", call, Client) as client:
        call.shut_down()
    assert client.is_closed


def test_a_call_that_uses_an_open_connection_can_be_shut_down(clients) -> None:
    pool, _ = clients
    with pool.client_for("s", CallSockets(), Client):
        pass
    call = CallSockets()
    with pool.client_for("s", call, Client) as client:
        client.ours.settimeout(LONG)
        call.shut_down()
        assert client.ours.recv(1) == b""


def test_a_deadline_after_the_end_of_a_call_does_not_affect_the_next_one(clients) -> None:
    pool, _ = clients
    earlier = CallSockets()
    with pool.client_for("s", earlier, Client):
        pass
    with pool.client_for("s", CallSockets(), Client) as client:
        earlier.shut_down()
        client.theirs.send(b"x")
        assert client.ours.recv(1) == b"x"


def test_a_client_is_closed_if_the_run_ends_during_its_call(clients) -> None:
    pool, _ = clients
    with pool.client_for("s", CallSockets(), Client) as client:
        pool.close()
    assert client.is_closed


def test_a_closed_client_keeps_no_descriptor(clients) -> None:
    pool, _ = clients
    before = os.listdir("/proc/self/fd")
    with pool.client_for("s", CallSockets(), Client) as client:
        again, theirs = socket.socketpair()
        with again, theirs:
            connect_client(client.connection, again)  # the library opens another one if the server closed the first
    pool.close()
    assert os.listdir("/proc/self/fd") == before


def test_a_pool_without_idle_time_keeps_no_client() -> None:
    with ClientPool().client_for("s", CallSockets(), Client) as client:
        pass
    assert client.is_closed


def test_an_idle_client_of_another_server_is_closed_after_its_time(clients) -> None:
    pool, now = clients
    with pool.client_for("one", CallSockets(), Client) as first:
        pass
    now[0] = 4.5
    with pool.client_for("other", CallSockets(), Client):
        assert first.is_closed


def test_after_an_error_over_a_reused_connection_no_other_idle_one_of_its_server_is_used(clients) -> None:
    pool, _ = clients
    with pool.client_for("s", CallSockets(), Client), pool.client_for("s", CallSockets(), Client) as idle:
        pass
    with pool.client_for("other", CallSockets(), Client) as elsewhere:
        pass

    def fail() -> None:
        with pool.client_for("s", CallSockets(), Client) as reused:
            assert reused is not idle
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert idle.is_closed
    assert not elsewhere.is_closed


def test_an_error_over_a_new_connection_leaves_idle_ones_open(clients) -> None:
    pool, _ = clients
    used: list[Client] = []

    def fail() -> None:
        with pool.client_for("s", CallSockets(), Client):
            with pool.client_for("s", CallSockets(), Client) as idle:
                used.append(idle)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not used[0].is_closed


# ---- deadlines --------------------------------------------------------------------------


def test_a_deadline_passes_during_the_body() -> None:
    over = threading.Event()
    with Deadlines().call_after(0.01, over.set):
        assert over.wait(LONG)


def test_a_body_that_ends_before_its_deadline_calls_nothing() -> None:
    deadlines, called, over = Deadlines(), [], threading.Event()
    with deadlines.call_after(0.01, lambda: called.append("early")):
        pass
    with deadlines.call_after(0.05, over.set):
        assert over.wait(LONG)
    assert called == []


def test_a_nearer_deadline_comes_first_although_it_was_set_last() -> None:
    deadlines, near = Deadlines(), threading.Event()
    with deadlines.call_after(3600, lambda: None), deadlines.call_after(0.01, near.set):
        assert near.wait(LONG)


def test_all_deadlines_share_one_thread_that_ends_with_the_last() -> None:
    before, deadlines = set(threading.enumerate()), Deadlines()
    with deadlines.call_after(3600, lambda: None), deadlines.call_after(3600, lambda: None):
        (watcher,) = set(threading.enumerate()) - before
    watcher.join(LONG)
    assert not watcher.is_alive()
