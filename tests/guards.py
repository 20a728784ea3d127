"""Guards that make accidents loud: a test that reaches for the network, or leaves os.environ changed, fails."""

import ipaddress
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_IGNORED_VARIABLES = frozenset({"PYTEST_CURRENT_TEST"})  # pytest writes its phase there
_LOOPBACK_NAMES = frozenset({"", "localhost", "ip6-localhost", "localhost.localdomain"})


class NetworkUseError(Exception):
    """A test tried to reach another machine."""


class NetworkGuard:
    """Refuses what leaves this machine while it is armed, and remembers it, should the code swallow the refusal."""

    def __init__(self) -> None:
        self.armed = False
        self.seen: list[str] = []

    def check(self, event: str, args: tuple[object, ...]) -> None:
        """Refuse an audit event of the interpreter (PEP 578) that is about another machine."""
        target = _target(event, args)
        if target is not None and not _is_local(target):
            self.seen.append(f"{event} {target!r}")
            message = f"{event} to {target!r}: tests need no network"
            raise NetworkUseError(message)


GUARD = NetworkGuard()
_REACHING = frozenset(
    {"socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"}
)


def _audit(event: str, args: tuple[object, ...]) -> None:
    # Each call of the kernel has an event: most are let through as quickly as possible.
    if event in _REACHING and GUARD.armed:
        GUARD.check(event, args)


sys.addaudithook(_audit)  # stays for the life of the process: hence `armed`


def _target(event: str, args: tuple[object, ...]) -> object | None:
    """Return the address or the name that an event is about, None where it is about neither."""
    match event, args:
        case (("socket.connect" | "socket.sendto" | "socket.sendmsg"), (_, address, *_)):
            return address[0] if isinstance(address, tuple) else None  # AF_UNIX addresses are no tuples
        case (("socket.getaddrinfo" | "socket.gethostbyname"), (host, *_)):
            return host
    return None


def _is_local(target: object) -> bool:
    text = target.decode("ascii", "replace") if isinstance(target, bytes) else str(target)
    if text in _LOOPBACK_NAMES:
        return True
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


@pytest.fixture(autouse=True)
def no_network() -> Iterator[NetworkGuard]:
    """Fail the test that reaches for another machine, also where the code under test hides the refusal."""
    GUARD.seen.clear()
    GUARD.armed = True
    try:
        yield GUARD
    finally:
        GUARD.armed = False
    if GUARD.seen:
        pytest.fail(f"the network was reached for: {'; '.join(GUARD.seen)}")


@pytest.fixture(autouse=True)
def environment_restored() -> Iterator[None]:
    """Fail the test that leaves os.environ other than it was, and put it back for the next one."""
    before = _environment()
    folder = Path.cwd()
    yield
    after, moved = _environment(), Path.cwd() != folder
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    for name in changed:
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]
    if moved:
        os.chdir(folder)
    if changed or moved:
        what = [f"os.environ[{name!r}]" for name in changed] + ["the current directory"] * moved
        pytest.fail(f"left changed: {', '.join(what)}")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _IGNORED_VARIABLES}
