"""The table of attacks and its driver, which runs inside a tier of the sandbox; needs nothing but Python.

An attack is a function that takes the world that it knows of (paths, ports, numbers of processes: more than any real
step is told) and returns what it got hold of. Each runs in a child of its own. Whether it got out is judged outside.
"""

import ctypes
import importlib
import json
import os
import platform
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

World = dict[str, Any]
LIBC = ctypes.CDLL(None, use_errno=True)
HERE = Path(__file__).resolve().parent
TABLES = ("attacks_on_files", "attacks_on_neighbours", "attacks_on_the_kernel")


@dataclass(frozen=True)
class Attack:
    """`judge` is how it is told that it got out; `plain` is who must get out by it where there is no sandbox."""

    run: Callable[[World], str | None]
    judge: str
    plain: str


ATTACKS: dict[str, Attack] = {}


def attack(judge: str, *, plain: str = "any", name: str = "") -> Callable[[Any], Any]:
    """Put a function into the table."""

    def register(function: Any) -> Any:
        ATTACKS[name or function.__name__] = Attack(function, judge, plain)
        return function

    return register


def system_call(x86_64: int, aarch64: int, *arguments: object) -> int:
    """Make a system call; OSError if it fails."""
    number = x86_64 if platform.machine() == "x86_64" else aarch64
    return checked(LIBC.syscall(ctypes.c_long(number), *arguments))


def checked(result: int) -> int:
    """Return what a C function gave; OSError if that says that it failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def say(line: str) -> None:
    """Tell the user who reads the output of the sandbox directory."""
    os.write(1, f"{line}\n".encode())


def main() -> None:
    """Run attacks by name; what each returns goes to loot/NAME."""
    sys.path.insert(0, str(HERE))
    sys.modules["attacking"] = sys.modules["__main__"]
    for table in TABLES:
        importlib.import_module(table)
    world = json.loads((HERE / "world.json").read_text())
    (HERE / "loot").mkdir(exist_ok=True)
    for name in sys.argv[1:]:
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            try:
                got = ATTACKS[name].run(world)
            except BaseException as problem:  # noqa: BLE001 - whatever it is, it did not get out
                say(f"{name}: {problem!r}")
                os._exit(1)
            (HERE / "loot" / name).write_text(got if isinstance(got, str) else "done", errors="replace")
            os._exit(0)
        os.waitpid(child, 0)
    say(f"tried {len(sys.argv) - 1}")


if __name__ == "__main__":
    main()
