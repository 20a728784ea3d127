"""A download ends at its deadline, or when the build is stopped, whatever the server does."""

import contextlib
import hashlib
import itertools
import socket
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from orch23.attempt.safeguards import NetworkAccess
from orch23.features.fetch import connections
from orch23.features.fetch.connections import FetchError
from orch23.features.fetch.download import FETCH_RUNNER, download
from orch23.features.fetch.step.spec import FetchStep
from tests.file_server import answering

SHA = hashlib.sha256(b"data").hexdigest()
MANY = 200_000


def outside(tmp_path, *, offline=False):
    return NetworkAccess(partial_dir=tmp_path / "partial", environ={}, trust_command=str, offline=offline)


def silent(connection):
    while connection.recv(1 << 16):
        pass


def not_yet(connection):
    connection.recv(1 << 16)
    for _ in range(MANY):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


def slow_header(connection):
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    silent(connection)


def slow_body(connection):
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nda")  # without a length, the end of the connection is that of the file
    silent(connection)


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "server"),
    [("http", silent), ("https", silent), ("http", not_yet), ("http", slow_header), ("http", slow_body)],
    ids=["silent", "no handshake", "100 Continue", "header", "body"],
)
def test_a_download_ends_at_its_deadline(tmp_path, scheme, server):
    with answering(server) as port, pytest.raises(FetchError, match="timed out") as caught:
        download(FetchStep(sha256=SHA, url=f"{scheme}://127.0.0.1:{port}/x"), outside(tmp_path), timeout_s=0.2)
    assert caught.value.is_timeout


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_stopped_build_aborts_its_download(tmp_path, scheme):
    it = outside(tmp_path)

    def stop(connection):
        connection.recv(1 << 16)
        it.close()
        silent(connection)

    with answering(stop) as port, pytest.raises(FetchError, match="the build was interrupted"):
        download(FetchStep(sha256=SHA, url=f"{scheme}://127.0.0.1:{port}/x"), it, timeout_s=300)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_lookup_that_hangs_does_not_block_the_download(tmp_path, monkeypatch, is_stopped):
    it, end = outside(tmp_path), threading.Event()

    def hang(*_args, **_more):
        if is_stopped:
            it.close()
        end.wait()
        return []

    monkeypatch.setattr("socket.getaddrinfo", hang)
    with contextlib.ExitStack() as stack:
        stack.callback(end.set)
        with pytest.raises(FetchError, match="the build was interrupted" if is_stopped else "timed out"):
            download(FetchStep(sha256=SHA, url="http://files.invalid/x"), it, timeout_s=300 if is_stopped else 0.05)


def test_a_stage_that_waits_for_the_same_file_keeps_to_its_own_deadline(tmp_path):
    step = FetchStep(sha256=SHA, url="http://127.0.0.1:9/x")
    stage = SimpleNamespace(timeout_s=0.05)
    waiting: Any = SimpleNamespace(resolved=SimpleNamespace(stage=stage), outside=outside(tmp_path), report=Mock())
    with FETCH_RUNNER._locks[SHA], pytest.raises(FetchError, match="timed out"):
        FETCH_RUNNER._entry(waiting, step)


@pytest.mark.parametrize("host", ["files.invalid", "192.0.2.1", "[2001:db8::1]", "localhost.invalid", "2130706433"])
def test_offline_no_connection_leaves_the_machine(tmp_path, monkeypatch, host):
    def unreachable(*_args, **_more):
        pytest.fail("nothing is looked up or connected")

    monkeypatch.setattr("socket.getaddrinfo", unreachable)
    monkeypatch.setattr("socket.create_connection", unreachable)
    for url in (f"http://{host}/x", f"https://{host}/x"):
        with pytest.raises(FetchError) as caught:
            download(FetchStep(sha256=SHA, url=url), outside(tmp_path, offline=True), timeout_s=5)
        assert caught.value.diagnostic.code == "E455"


@pytest.mark.parametrize(
    ("proxy", "offline", "used"),
    [
        ("http://proxy.invalid:3128", False, "proxy.invalid"),
        ("http://proxy.invalid:3128", True, None),
        ("proxy.invalid:3128", True, None),
        ("http://127.0.0.1.invalid", True, None),
        ("http://me@127.0.0.1:3128", True, "127.0.0.1"),
        ("localhost:3128", True, "localhost"),
    ],
)
def test_offline_a_proxy_is_one_of_this_machine(proxy, offline, used):
    found = connections._proxy("http://localhost:9/x", "localhost:9", {"http_proxy": proxy}, offline=offline)
    assert (found.hostname if found else None) == used


def test_the_error_of_an_invalid_proxy_does_not_show_its_password(tmp_path):
    it = NetworkAccess(partial_dir=tmp_path, environ={"http_proxy": "http://me:secret@host:port"}, trust_command=str)
    with pytest.raises(FetchError, match="the proxy in http_proxy is not a valid URL") as caught:
        download(FetchStep(sha256=SHA, url="http://files.invalid/x"), it, timeout_s=5)
    assert "secret" not in str(caught.value)


def test_a_name_of_this_machine_is_tried_at_all_its_addresses(tmp_path, monkeypatch):
    tried = itertools.count()

    def refused(where, *_args):
        next(tried)
        raise ConnectionRefusedError(111, f"refused by {where[0]}")

    monkeypatch.setattr("socket.create_connection", refused)
    monkeypatch.setattr("orch23.features.fetch.download._PAUSES_S", ())
    with pytest.raises(FetchError, match="refused by ::1"):
        download(FetchStep(sha256=SHA, url="http://localhost:9/x"), outside(tmp_path, offline=True), timeout_s=5)
    assert next(tried) == 2
    assert socket.create_connection is refused
