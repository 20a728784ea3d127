"""The guards of conftest have teeth: what they are to catch fails the test it happens in."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guards import NetworkGuard, NetworkUseError

ROOT = Path(__file__).parent.parent

ACCIDENTS = """\
import os, socket

def test_connects_and_hides_it():
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=0.01)
    except Exception:
        pass

def test_asks_for_a_name():
    socket.getaddrinfo("example.org", 443)

def test_leaves_a_variable():
    os.environ["LEFT_BEHIND"] = "1"

def test_removes_a_variable():
    del os.environ["PATH"]

def test_leaves_the_directory():
    os.chdir("/")

def test_starts_as_it_should():
    assert "LEFT_BEHIND" not in os.environ and "PATH" in os.environ and os.getcwd() != "/"

def test_talks_to_itself():
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
"""


@pytest.mark.slow
def test_each_accident_fails_its_test_and_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / "test_accidents.py").write_text(ACCIDENTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "tests.guards", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    said = done.stdout.splitlines()
    bad = {line.split(" - ")[0].rpartition("::")[2] for line in said if line.startswith(("FAILED", "ERROR"))}
    good = {line.rpartition("::")[2] for line in said if line.startswith("PASSED")}
    assert bad == {
        "test_connects_and_hides_it",
        "test_asks_for_a_name",
        "test_leaves_a_variable",
        "test_removes_a_variable",
        "test_leaves_the_directory",
    }
    assert {"test_starts_as_it_should", "test_talks_to_itself"} <= good, done.stdout


@pytest.mark.parametrize(
    "address",
    [("192.0.2.1", 80), ("example.org", 80), ("127.0.0.1.example.org", 80), ("2001:db8::1", 80, 0, 0)],
)
def test_an_address_elsewhere_is_refused_and_remembered(address: tuple[object, ...]) -> None:
    guard = NetworkGuard()
    guard.armed = True
    with pytest.raises(NetworkUseError):
        guard.check("socket.connect", (None, address))
    assert len(guard.seen) == 1


@pytest.mark.parametrize(
    "address", [("127.0.0.1", 80), ("127.8.8.8", 1), ("::1", 80, 0, 0), ("localhost", 80), "/run/socket"]
)
def test_an_address_here_is_let_through(address: object) -> None:
    guard = NetworkGuard()
    guard.armed = True
    guard.check("socket.connect", (None, address))
    assert guard.seen == []


def test_the_guard_is_on_in_every_test(no_network: NetworkGuard) -> None:
    with pytest.raises(NetworkUseError):
        socket.getaddrinfo("example.org", 443)
    assert no_network.seen
    no_network.seen.clear()  # this once it was meant
