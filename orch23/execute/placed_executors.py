"""Run the steps of each stage where its pools say: on this machine, or on the workers of an engine."""

import threading
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from orch23.model.pipeline import Stage
from orch23.model.ports import Executor


# Optional, and not a part of Executor: few plugins need them.
@runtime_checkable
class CountsSlots(Protocol):
    """An executor that knows how many actions it can run at once."""

    def slots(self) -> int:
        """Return the number now, without waiting for anything. It is called often."""


@runtime_checkable
class TakesResources(Protocol):
    """An executor that can choose workers by what they have."""

    def with_resources(self, resources: Mapping[str, float]) -> Executor:
        """Return an executor whose actions run on workers with these resources, by name; sizes are in bytes."""


@runtime_checkable
class Connects(Protocol):
    """An executor that can check whether it can be used."""

    def connect(self) -> None:
        """Connect to what runs the actions, if that was not done.

        Raises:
            ConfigurationError: it cannot be reached.
        """


class PlacedExecutors:
    """The executors of a build, each made once. Safe for calls from several threads."""

    def __init__(
        self,
        made: Mapping[str, Executor],
        make: Callable[[str], Executor],
        name_of: Callable[[Stage], str],
        resources_of: Callable[[Stage], Mapping[str, float]],
    ) -> None:
        """Use the executors that are made already; `make` returns another one. The others are those of a stage."""
        self._made, self._make = dict(made), make
        self._name_of, self._resources_of = name_of, resources_of
        self._lock = threading.Lock()
        self._is_cancelled = False

    def named(self, name: str) -> Executor:
        """Return the executor with a name.

        Raises:
            ConfigurationError: it cannot be made.
        """
        with self._lock:
            if name not in self._made:
                self._made[name] = self._make(name)
                if self._is_cancelled:
                    self._made[name].cancel()
            return self._made[name]

    def of(self, stage: Stage) -> Executor:
        """Return the executor for the steps of a stage.

        Raises:
            ConfigurationError: it cannot be made.
        """
        executor, resources = self.named(self._name_of(stage)), self._resources_of(stage)
        return executor.with_resources(resources) if resources and isinstance(executor, TakesResources) else executor

    def slots(self, name: str, usual: int) -> int:
        """Return how many stages an executor can run at once; the usual number if it does not know."""
        executor = self.named(name)
        return executor.slots() if isinstance(executor, CountsSlots) else usual

    def cancel(self) -> None:
        """Kill all running actions and start no more."""
        with self._lock:
            self._is_cancelled = True
            made = tuple(self._made.values())
        for executor in made:
            executor.cancel()
