"""Run a process restricted by Landlock and seccomp, without namespaces."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from orch23.execute.launch import Launch
from orch23.execute.sandbox import landlock, visible_paths
from orch23.execute.sandbox_tree import writable_parts
from orch23.execute.supervisor import Confinement
from orch23.model.action import LANDLOCK_TIER

# Not /dev/shm: it is shared with all processes of the machine, and counts for no limit.
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full")
_RANDOM_DEVICES: Final = ("/dev/random", "/dev/urandom")


def confinement(rules: int, *, network: bool) -> Confinement:
    """Return the confinement by the ruleset of this descriptor."""
    return Confinement(program="orch23.execute.sandbox.landlock_child", request=(network,), descriptors=(rules,))


class LandlockLauncher(Struct, frozen=True):
    """Let a supervisor start processes, which restrict themselves before they become the step.

    `closed` are the user's home and the project: no process gets access to them.
    """

    closed: tuple[Path, ...] = ()
    tier = LANDLOCK_TIER

    @contextlib.contextmanager
    def prepare(self, launch: Launch) -> Iterator[Launch]:
        """Yield the launch with the restrictions of its process.

        Raises:
            OSError: the kernel has no Landlock, or no descriptor is left.
        """
        # A ruleset for each launch: it contains the sandbox directory, and rules cannot be removed.
        with landlock.ruleset(self._rules(launch)) as rules:
            yield replace(launch, confinement=confinement(rules, network=launch.network))

    def _rules(self, launch: Launch) -> Iterator[tuple[str, int]]:
        read, write = landlock.READ_RIGHTS, landlock.WRITE_RIGHTS
        for path in (
            *visible_paths.readable_paths(self.closed),
            *(visible_paths.NETWORK_SETTINGS if launch.network else ()),
            *("/proc", *_RANDOM_DEVICES),
            *visible_paths.interpreter_paths(launch.interpreter, self.closed),
            *launch.reads,
            launch.sandbox_dir.tools,
        ):
            yield str(path), read
        yield from ((path, read | write) for path in _DEVICES)
        yield str(launch.sandbox_dir.root), write if launch.writable is None else read
        if launch.writable is not None:
            yield from ((str(part), write) for part in writable_parts(launch.sandbox_dir, launch.writable))
