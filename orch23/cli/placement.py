"""Make the executors of a build some of whose stages run elsewhere, and count the places of its stages."""

import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

from msgspec import Struct, field

from orch23.cli.parameters import EXECUTORS
from orch23.cli.project_loading import usual_executor
from orch23.decide.dry_run import Preview
from orch23.decide.machine_facts import executors_of, has_process
from orch23.engine.preflight import may_have_process
from orch23.engine.worker_threads import executor_of, resources_of
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError
from orch23.model.features import ADDRESSES, load_feature
from orch23.model.pipeline import LOCAL_EXECUTOR, ForeachStage, Pipeline, Stage
from orch23.model.plan import Expand, Maybe, Plan, Run, VerifyOnly
from orch23.model.ports import Executor, Surroundings
from orch23.model.server_url import is_loopback
from orch23.steps.registry import is_llm


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


class PlacedExecutors(Struct, eq=False):
    """The executors of a build, each made once. Safe for calls from several threads.

    Some are `made` already; `make` returns another one. The others return those of a stage.
    """

    made: dict[str, Executor]
    make: Callable[[str], Executor]
    name_of: Callable[[Stage], str]
    resources_of: Callable[[Stage], Mapping[str, float]]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_cancelled: bool = False

    def named(self, name: str) -> Executor:
        """Return the executor with a name.

        Raises:
            ConfigurationError: it cannot be made.
        """
        with self._lock:
            if name not in self.made:
                self.made[name] = self.make(name)
                if self._is_cancelled:
                    self.made[name].cancel()
            return self.made[name]

    def of(self, stage: Stage) -> Executor:
        """Return the executor for the steps of a stage.

        Raises:
            ConfigurationError: it cannot be made.
        """
        executor, resources = self.named(self.name_of(stage)), self.resources_of(stage)
        return executor.with_resources(resources) if resources and isinstance(executor, TakesResources) else executor

    def slots(self, name: str, usual: int) -> int:
        """Return how many stages an executor can run at once; the usual number if it does not know."""
        executor = self.named(name)
        return executor.slots() if isinstance(executor, CountsSlots) else usual

    def cancel(self) -> None:
        """Kill all running actions and start no more."""
        with self._lock:
            self._is_cancelled = True
            made = tuple(self.made.values())
        for executor in made:
            executor.cancel()


NameOf: TypeAlias = Callable[[Stage | ForeachStage], str]
"""Returns the name of the executor of a stage."""

_E_OFFLINE = "E489"
_MOST_ACTIONS = 1024
"""How many actions are sent to an engine at once, if the number of its slots limits the stages."""
_NOT_LIMITED = ""


class Placement(Struct, frozen=True, kw_only=True):
    """The executors of a build, and how many stages run at once at each place.

    `name_of` returns the executor of the processes of a stage; one without any is on this machine. `jobs` is the
    maximum of stages that the user or the pipeline states. Without it, each of `names`, the executors in use, has its
    own.
    """

    executors: PlacedExecutors
    name_of: NameOf
    names: Collection[str]
    jobs: int | None

    @property
    def places(self) -> Mapping[str, Callable[[], int]]:
        """The places with a limit of their own: with `jobs` only this machine."""
        cores = os.cpu_count() or 1
        names = self.names if self.jobs is None else (LOCAL_EXECUTOR,)
        return {
            name: (lambda: cores) if name == LOCAL_EXECUTOR else partial(self.executors.slots, name, cores)
            for name in names
        }

    def place_of(self, stage: Stage) -> str:
        """Return the place at which a stage counts."""
        if self.jobs is not None:
            return self.name_of(stage) if has_process(stage) else _NOT_LIMITED
        # An item of a foreach may have no process although its foreach could have some.
        place = self.name_of(stage)
        return place if place in self.names else next(iter(self.names))


def place_stages(
    pipeline: Pipeline,
    nodes: Collection[Stage | ForeachStage],
    name_of: NameOf,
    local: Executor,
    jobs: int | None,
    surroundings: Callable[[int], Surroundings],
    at_end: Callable[[Callable[[], None]], object],
) -> Placement:
    """Return the placement of stages. `surroundings` returns those of an executor for this many actions at once.

    `at_end` takes what closes an executor.

    Raises:
        ConfigurationError: an executor that a stage may need cannot be used.
    """
    makers = executors_of(pipeline.plugins)

    def make(name: str) -> Executor:
        usual = _MOST_ACTIONS if name in EXECUTORS else os.cpu_count() or 1
        made = makers[name](surroundings(jobs or usual))
        at_end(made.close)
        return made

    def name_of_processes(node: Stage | ForeachStage) -> str:
        return name_of(node) if may_have_process(node) else LOCAL_EXECUTOR

    executors = PlacedExecutors(
        {LOCAL_EXECUTOR: local}, make, name_of_processes, partial(resources_of, pipeline=pipeline)
    )
    takes_resources: dict[str, bool] = {}
    for node in nodes:
        name = name_of_processes(node)
        is_taking = name == LOCAL_EXECUTOR or isinstance(executors.named(name), TakesResources)
        takes_resources[name] = takes_resources.get(name, True) and (is_taking or not resources_of(node, pipeline))
    for name, is_taking in takes_resources.items():
        if not is_taking:
            surroundings(1).warn(f"the executor `{name}` takes no resources: those of its pools have no effect")
    names = tuple(takes_resources) or (LOCAL_EXECUTOR,)
    return Placement(executors=executors, name_of=name_of_processes, names=names, jobs=jobs)


def nodes_to_run(seen: Preview, selected: Collection[str]) -> tuple[Stage | ForeachStage, ...]:
    """Return the selected stages that run, or may run. The others need no cluster: their results may come from one."""
    running = [name for name in selected if isinstance(seen.decisions.get(name), Run | VerifyOnly | Maybe | Expand)]
    return tuple(map(seen.plan.nodes.__getitem__, running))


def check_offline(pipeline: Pipeline, name_of: NameOf, scheduler: str, cache: str, look: Callable[[], Preview]) -> None:
    """Refuse an offline build whose steps would be sent to another machine. `cache` is the cache of the workers.

    Raises:
        ConfigurationError: with the first stage that would be.
    """
    named = {"--scheduler": scheduler, "--cache": cache}
    # Addresses of other machines, and no paths of directories.
    there = {option: url for option, url in named.items() if "://" in url and urlsplit(url).scheme != "file"}
    beyond = {option: url for option, url in there.items() if not is_loopback(url)}
    if not beyond:
        return
    seen = look()
    for node in filter(may_have_process, nodes_to_run(seen, seen.decisions)):
        name, executor = node.name, name_of(node)
        for option, url in beyond.items() if executor != LOCAL_EXECUTOR else ():
            if option == "--cache" and executor == "reapi" and urlsplit(url).scheme not in {"grpc", "grpcs"}:
                continue  # its files are on the server
            # Not the address itself: it may have a password.
            message = f"its steps would be sent to {urlsplit(url).hostname}, which is not this machine (`{option}`)"
            hint = f"build without `--offline`, or name a server on this machine with `{option}`"
            raise ConfigurationError(
                Diagnostic(_E_OFFLINE, message, pipeline.locate("stages", name), hint, subject=name)
            )


def check_connections(plan: Plan, placement: Placement, look: Callable[[], Preview]) -> None:
    """Connect to the engines of llm stages that will certainly run: a model is not paid for a build that cannot go on.

    Raises:
        ConfigurationError: one cannot be reached.
    """
    elsewhere = [
        node
        for node in plan.nodes.values()
        if isinstance(node, Stage) and is_llm(node.step) and placement.name_of(node) != LOCAL_EXECUTOR
    ]
    if not elsewhere:
        return
    decisions = look().decisions
    for name in {placement.name_of(node) for node in elsewhere if isinstance(decisions.get(node.name), Run)}:
        executor = placement.executors.named(name)
        if isinstance(executor, Connects):
            executor.connect()


def check_scheduler_of(
    pipeline: Pipeline, nodes: Iterable[Stage | ForeachStage], named: str | None, scheduler: str
) -> None:
    """Refuse an address that a build would refuse, for the executors of some stages. Nothing is connected.

    Raises:
        ConfigurationError: it cannot, or must not, be used, or a library is missing.
    """
    usual = usual_executor(pipeline, named)
    names = {executor_of(node, pipeline, usual) for node in nodes if may_have_process(node)}
    for name in sorted(names.intersection(ADDRESSES)):
        load_feature(ADDRESSES[name])(scheduler)
