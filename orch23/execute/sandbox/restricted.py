"""Run a process restricted by Landlock and seccomp, without namespaces."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from orch23.execute.launch import Launch
from orch23.execute.sandbox import landlock, visible_paths
from orch23.execute.sandbox_dir import SandboxDir, writable_parts
from orch23.execute.supervisor import Confinement

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full")
_CHANCE: Final = ("/dev/random", "/dev/urandom")


class LandlockLauncher(Struct, frozen=True):
    """Starts processes that have restricted themselves. `closed` are places that are opened to none: home and project.

    A supervisor starts them: the process restricts itself, and becomes the step.
    """

    closed: tuple[Path, ...] = ()
    tier = "landlock"

    def seen(self, room: SandboxDir) -> SandboxDir:
        """Return the room as it is: without namespaces there is one tree for all."""
        return room

    @contextlib.contextmanager
    def prepare(self, launch: Launch) -> Iterator[Launch]:
        """Give the launch with what its process has to give up first.

        Raises:
            OSError: the kernel has no Landlock, or no descriptor is left.

        """
        with landlock.ruleset(self._places(launch)) as rules:
            yield replace(launch, confinement=Confinement(rules, launch.network))

    def _places(self, launch: Launch) -> Iterator[tuple[str, int]]:
        read, write = landlock.READ_RIGHTS, landlock.WRITE_RIGHTS
        for path in (
            *visible_paths.readable_paths(self.closed),
            *(visible_paths.NETWORK_SETTINGS if launch.network else ()),
            *("/proc", *_CHANCE),
            *visible_paths.interpreter_paths(launch.interpreter, self.closed),
            *launch.reads,
        ):
            yield str(path), read
        for path in _DEVICES:
            yield path, read | write
        yield str(launch.room.tools), read
        if launch.writable is None:
            yield str(launch.room.root), write
            return
        yield str(launch.room.root), read
        for part in writable_parts(launch.room, launch.writable):
            yield str(part), write
