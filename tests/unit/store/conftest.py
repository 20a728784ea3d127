"""Doubles of a failing disk: every call of the kernel that changes something can be made to fail or to be the last."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CHANGING = ("open", "write", "fsync", "rename", "replace", "unlink", "mkdir", "rmdir", "ftruncate")


class KilledError(BaseException):
    """The process is dead: nothing it would still like to do happens."""


class Disk:
    """Counts the changing calls made while it is `failing`, and lets one of them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.reached = False

    @contextlib.contextmanager
    def failing(self, at: int, error: int | None) -> Iterator[None]:
        """Fail the call number `at` with an errno, or with None kill the process there, half-way through a write."""
        self.reached = False
        calls = 0

        def wrap(name: str, real: Callable[..., object]) -> Callable[..., object]:
            def call(*args: object, **kwargs: object) -> object:
                nonlocal calls
                if name == "open" and not int(args[1]) & os.O_CREAT:  # type: ignore[call-overload]
                    return real(*args, **kwargs)
                calls += 1
                if calls == at or (error is None and calls > at):
                    self.reached = True
                    if name == "write":
                        data = bytes(args[1])  # type: ignore[call-overload]
                        real(args[0], data[: len(data) // 2]) if calls == at else None
                    if error is None:
                        raise KilledError
                    raise OSError(error, os.strerror(error))
                return real(*args, **kwargs)

            return call

        with self.monkeypatch.context() as patch:
            for name in CHANGING:
                patch.setattr(os, name, wrap(name, getattr(os, name)))
            with contextlib.suppress(KilledError, *([OSError] if error is not None else [])):
                yield

    def every_point(
        self, make: Callable[[int], Callable[[], object]], error: int | None, check: Callable[[], object]
    ) -> int:
        """Run what `make` prepares with the fault at each call in turn, and `check` after each; return the points."""
        for at in range(1, 500):
            run = make(at)
            with self.failing(at, error):
                run()
            check()
            if not self.reached:
                assert at > 1, "the scenario changed nothing"
                return at - 1
        message = "the scenario never came to an end"
        raise AssertionError(message)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


FAULTS = [None, errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE]


@pytest.fixture(params=FAULTS, ids=["kill", "ENOSPC", "EIO", "EROFS", "EMFILE"])
def fault(request: pytest.FixtureRequest) -> int | None:
    found: int | None = request.param
    return found


def _flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x01]) + data[middle + 1 :]


MUTATIONS: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda _: b"",
    "halved": lambda data: data[: len(data) // 2],
    "flipped": _flip,
    "zeroed": lambda data: bytes(len(data)),
    "last_byte_lost": lambda data: data[:-1],
    "garbage_behind": lambda data: data + b"\x00garbage",
    "twice": lambda data: data + data,
}


@pytest.fixture(params=sorted(MUTATIONS))
def damage(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Give a function that damages a file in place, in one of seven ways."""

    def apply(path: Path) -> None:
        data = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(MUTATIONS[request.param](data))

    return apply
