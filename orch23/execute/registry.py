"""The registry of executors from plugins."""

from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

from orch23.model.plugins import Registry
from orch23.model.ports import Executor, Surroundings

EXECUTOR_GROUP: Final = "orch23.executors"
MakeExecutor: TypeAlias = Callable[[Surroundings], Executor]


@cache
def executors_of(plugins: tuple[str, ...]) -> Registry[MakeExecutor]:
    """Return the functions that create the executors of these plugins, by name."""
    return Registry({}, EXECUTOR_GROUP, plugins, _fault)


def _fault(found: object, _name: str) -> str:
    return "" if callable(found) else f"it must be a function of `Surroundings`, but is {found!r}"
