"""The parameters of a command, once its command line is parsed, and the action that they are for."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from msgspec import Struct

from orch23.cli.console import Console, working_directory
from orch23.model.errors import BusyError
from orch23.snapshot.fast_path import StaleSnapshot

BUILD_ACTION = "build.build_stages"
EXECUTORS = ("local", "dask", "reapi")
"""The executors of orch23. A pipeline can name one of a plugin too."""
# The fact of a snapshot that has the parsed command line.
PARSED_FACT = "parsed"


class PipelineArguments(Struct, frozen=True, kw_only=True):
    """The pipeline and stages on a command line, how they select, and what overrides the pipeline's own values.

    The fields are the names of the parameters of commands. `cache` is the shared cache as the user names it. `executor`
    replaces the one in the pipeline; `scheduler` is the address that executors use. A command that only looks sets
    `needs_tools` to False: a missing tool is a fact, then, and not an error.
    """

    arguments: tuple[str, ...] = ()
    only: bool = False
    until: bool = False
    downstream: bool = False
    sets: tuple[str, ...] = ()
    vars_file: str | None = None
    provider: str | None = None
    model: str | None = None
    cache: str | None = None
    cache_write: bool = False
    executor: str | None = None
    scheduler: str = ""
    offline: bool = False
    needs_tools: bool = True


class GivenOptions(Struct, frozen=True):
    """The options of `build` and `plan` that are not about the pipeline or its stages, and that a plan depends on."""

    forced: tuple[str, ...] = ()
    resample: tuple[str, ...] = ()
    overwrite_edited: bool = False
    budget: str | None = None

    @property
    def demands(self) -> dict[str, Any]:
        """What they demand of the plan, as fields of `OpeningOptions`."""
        return {"forced": self.forced, "resample": self.resample, "overwrite_edited": self.overwrite_edited}


def parsed_build(argv: Sequence[str], stale_snapshot: StaleSnapshot | None) -> Console | None:
    """Return the console of a `build` whose command line an earlier build parsed; None if click has to (ADR 36).

    The snapshot of that build shows that the environment is the same.
    """
    if stale_snapshot is None:
        return None
    text = stale_snapshot.snapshot.facts.get(PARSED_FACT)
    # The path of a changed file of the program is absolute: its options may have changed.
    if text is None or any(map(os.path.isabs, stale_snapshot.difference.changed)):
        return None
    known, color, parameters = json.loads(text)
    # The snapshot is also used for builds with other options that do not change what is to be done.
    if known != list(argv):
        return None
    parameters = {name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()}
    return Console(color=color, argv=tuple(argv), stale_snapshot=stale_snapshot, parameters=parameters, was_parsed=True)


def run_build(console: Console) -> Any:
    """Run a build with the parameters on its console."""
    with console.resources:
        return run_action(load_action(BUILD_ACTION), console, console.parameters)


def run_action(action: Callable[..., Any], console: Console, parameters: Mapping[str, Any]) -> Any:
    """Run an action with all parameters by name.

    Those of `PipelineArguments` are passed together, as `args`, and those of `GivenOptions` as `given`.
    """
    named = dict(parameters)
    wait_s = named.pop("wait_lock", None)
    for name, form in (("args", PipelineArguments), ("given", GivenOptions)):
        first, *_ = fields = form.__struct_fields__
        if first in named:
            named[name] = form(**{field: named.pop(field) for field in fields if field in named})
    try:
        return action(console, **named)
    except BusyError as busy:
        if wait_s is not None:
            from orch23.model.features import LOCK_WAIT, load_feature  # noqa: PLC0415 - few commands wait

            busy.wait = partial(load_feature(LOCK_WAIT, "`--wait-lock` needs"), console, busy, wait_s)
        raise  # `main` waits, and runs the command again


def load_action(place: str) -> Callable[..., Any]:
    """Return an action, `MODULE.FUNCTION` of `cli/actions`, or of a feature."""
    if ":" in place:
        from orch23.model.features import load_feature  # noqa: PLC0415 - no build needs it

        action: Callable[..., Any] = load_feature(place)
        return action
    module, _, name = place.partition(".")
    return getattr(import_module(f"orch23.cli.actions.{module}"), name)  # type: ignore[no-any-return]  # of our own


def fact_of(console: Console) -> dict[str, str]:
    """Return the fact that a snapshot stores of the command line of a build; none if it cannot be stored."""
    # `-C` can be set by a variable, which is not stored.
    if not console.parameters or console.here != working_directory():
        return {}
    return {PARSED_FACT: json.dumps([console.argv, console.color, console.parameters])}
