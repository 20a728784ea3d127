"""What installed distributions add to a pipeline that names them. One that is only installed adds nothing."""

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from orch23.checks.check import Check
from orch23.checks.registry import CHECKS
from orch23.model.diagnostic import Diagnostic
from orch23.model.nearest import nearest
from orch23.model.pipeline import Pipeline

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

CHECKS_GROUP = "orch23.checks"


class _Added(Struct, frozen=True):
    """Something of a plugin, which is loaded when it is asked for."""

    plugin: "Distribution"
    entry: "EntryPoint"


class Checks(Mapping[str, Check]):
    """The checks that a pipeline can name: those of orch23, then those of its plugins.

    Plugins are looked up when a name is none of orch23's, or all names are wanted.
    """

    def __init__(self, plugins: tuple[str, ...]) -> None:
        """Take the names of the distributions, the first that has a check of a name gives it."""
        self._plugins = plugins
        self._loaded: dict[str, Check] = {}

    def __getitem__(self, name: str) -> Check:
        """Return the check of a name.

        Raises:
            KeyError: there is none.

        """
        if name in CHECKS:
            return CHECKS[name]
        if name not in self._loaded:
            found = self._added[name].entry.load()
            if not isinstance(found, Check):
                message = f"BUG: {name} of a plugin is no check"
                raise TypeError(message)
            self._loaded[name] = found
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        """Say whether there is such a check, and load nothing."""
        return name in CHECKS or (bool(self._plugins) and name in self._added)

    def __iter__(self) -> Iterator[str]:
        """Give the names."""
        yield from CHECKS
        yield from (name for name in self._added if name not in CHECKS)

    def __len__(self) -> int:
        """Count the names."""
        return sum(1 for _ in self)

    def revision(self, name: str) -> int | str:
        """Return what the key of a stage has of a check: its revision, and of a plugin its name and version too."""
        if name in CHECKS:
            return CHECKS[name].revision
        plugin = self._added[name].plugin
        return f"{plugin.metadata['Name']} {plugin.version}, revision {self[name].revision}"

    def files(self, name: str) -> tuple[Path, ...]:
        """Return the files that tell when the plugin of a check is replaced; none for a check of orch23."""
        if name in CHECKS:
            return ()
        return (Path(str(self._added[name].plugin.locate_file(""))),)

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Give the plugins that are not installed."""
        return tuple(name for name in self._plugins if _installed(name) is None)

    @cached_property
    def _added(self) -> Mapping[str, _Added]:
        found: dict[str, _Added] = {}
        for plugin in filter(None, map(_installed, self._plugins)):
            for entry in plugin.entry_points.select(group=CHECKS_GROUP):
                found.setdefault(entry.name, _Added(plugin, entry))
        return found


@cache
def checks_of(plugins: tuple[str, ...]) -> Checks:
    """Return the checks that a pipeline with these plugins can name."""
    return Checks(plugins)


def _installed(name: str) -> "Distribution | None":
    from importlib.metadata import distribution  # noqa: PLC0415 - 20 modules, for pipelines with plugins alone

    try:
        return distribution(name)
    except (ModuleNotFoundError, ValueError):
        return None


def unknown_check(pipeline: Pipeline, stage: str, place: tuple[str | int, ...], name: str) -> Diagnostic:
    """Return the complaint that a step of `verify`, at a place below a stage, names a check that there is not."""
    known = checks_of(pipeline.plugins)
    close = nearest(name, list(known))
    hint = f"did you mean `{close[0]}`?" if close else f"the checks are: {', '.join(sorted(known))}"
    where = pipeline.locate("stages", stage, *place, "check") or pipeline.locate("stages", stage, *place)
    return Diagnostic("E828", f"no check is named `{name}`", where, hint)
