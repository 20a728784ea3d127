"""The registry of executors: those of features beside the local one, and those of plugins."""

from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Final, TypeAlias

from orch23.model.diagnostic import Diagnostic
from orch23.model.plugins import LazyMapping, Registry
from orch23.model.ports import Executor, Surroundings

EXECUTOR_GROUP: Final = "orch23.executors"
MakeExecutor: TypeAlias = Callable[[Surroundings], Executor]


def _features() -> ModuleType:
    from orch23.model import features  # noqa: PLC0415 - few builds run elsewhere

    return features


def _names() -> Iterator[str]:
    yield from _features().EXECUTORS


def _load(name: str) -> MakeExecutor:
    make: MakeExecutor = _features().load_feature(_features().EXECUTORS[name])
    return make


_OWN: Final = LazyMapping(_names(), _load)


@cache
def executors_of(plugins: tuple[str, ...]) -> Registry[MakeExecutor]:
    """Return the functions that create executors, by name; the local one is not among them."""
    return Registry(_OWN, EXECUTOR_GROUP, plugins, _fault)


def _fault(found: object, _name: str) -> str:
    return "" if callable(found) else f"it must be a function of `Surroundings`, but is {found!r}"


def missing_executor(name: str) -> Diagnostic | None:
    """Return the error that the feature with an executor is not a part of this installation; None if there is none."""
    features = _features()
    is_there = features.has_feature(features.EXECUTORS, name)
    missing: Diagnostic | None = None if is_there else features.missing_feature(features.EXECUTORS[name])
    return missing
