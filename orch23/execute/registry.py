"""The registry of executors: those of orch23 beside the local one, and those of plugins."""

from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

from orch23.model.plugins import LazyMapping, Registry, load_object
from orch23.model.ports import Executor, Surroundings

EXECUTOR_GROUP: Final = "orch23.executors"
MakeExecutor: TypeAlias = Callable[[Surroundings], Executor]

_PLACES: Final = {
    "dask": "orch23.execute.remote.dask_engine:make_executor",
    "reapi": "orch23.execute.remote.reapi_engine:make_executor",
}


_OWN: Final[LazyMapping[MakeExecutor]] = LazyMapping(_PLACES, lambda name: load_object(_PLACES[name]))


@cache
def executors_of(plugins: tuple[str, ...]) -> Registry[MakeExecutor]:
    """Return the functions that create executors, by name; the local one is not among them."""
    return Registry(_OWN, EXECUTOR_GROUP, plugins, _fault)


def _fault(found: object, _name: str) -> str:
    return "" if callable(found) else f"it must be a function of `Surroundings`, but is {found!r}"
