"""The registry of executors: those of features beside the local one, and those of plugins."""

from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

from orch23.model.diagnostic import Diagnostic
from orch23.model.plugins import LazyMapping, Registry
from orch23.model.ports import Executor, Surroundings

EXECUTOR_GROUP: Final = "orch23.executors"
MakeExecutor: TypeAlias = Callable[[Surroundings], Executor]


@cache
def executors_of(plugins: tuple[str, ...]) -> Registry[MakeExecutor]:
    """Return the functions that create executors, by name; the local one is not among them."""
    from orch23.model.features import EXECUTORS, load_feature  # noqa: PLC0415 - few builds run elsewhere

    own: LazyMapping[MakeExecutor] = LazyMapping(EXECUTORS, lambda name: load_feature(EXECUTORS[name]))
    fault = "it must be a function of `Surroundings`, but is {!r}"
    return Registry(own, EXECUTOR_GROUP, plugins, lambda found, _: "" if callable(found) else fault.format(found))


def missing_executor(name: str) -> Diagnostic | None:
    """Return the error that the feature with an executor is not a part of this installation; None if there is none."""
    from orch23.model.features import EXECUTORS, has_feature, missing_feature  # noqa: PLC0415 - likewise

    return None if has_feature(EXECUTORS, name) else missing_feature(EXECUTORS[name])
