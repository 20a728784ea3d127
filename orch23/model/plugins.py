"""What installed distributions add to a pipeline that names them. One that is only installed adds nothing."""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

_Value = TypeVar("_Value")
_GROUPS = "orch23."


def load(place: str) -> Any:
    """Return what stands at `module:attribute`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


class _Added(Struct, frozen=True):
    """Something of a plugin, which is loaded when it is asked for."""

    plugin: "Distribution"
    entry: "EntryPoint"


class Registry(Mapping[str, _Value], Generic[_Value]):
    """What a pipeline can name of one sort: what is orch23's own, then what its plugins have in a group.

    Plugins are looked up when a name is none of orch23's, or all names are wanted. The first that has a name gives it.
    """

    def __init__(
        self, own: Mapping[str, _Value], group: str, plugins: tuple[str, ...], fits: Callable[[object, str], bool]
    ) -> None:
        """Take what is orch23's own, the group of entry points, the names of the distributions, and who fits a name."""
        self._own, self._group, self._plugins, self._fits = own, group, plugins, fits
        self._loaded: dict[str, _Value] = {}

    def __getitem__(self, name: str) -> _Value:
        """Return what has a name.

        Raises:
            KeyError: there is none.
            ConfigurationError: what a plugin has under the name cannot be used.

        """
        if name in self._own:
            return self._own[name]
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        """Say whether there is such a name, and load nothing."""
        return name in self._own or (bool(self._plugins) and name in self._added)

    def __iter__(self) -> Iterator[str]:
        """Give the names."""
        yield from self._own
        if self._plugins:
            yield from (name for name in self._added if name not in self._own)

    def __len__(self) -> int:
        """Count the names."""
        return sum(1 for _ in self)

    def origin(self, name: str) -> str:
        """Return name and version of the plugin that gives a name, as they are part of a key; empty for orch23."""
        if name in self._own:
            return ""
        plugin = self._added[name].plugin
        return f"{plugin.metadata['Name']} {plugin.version}"

    def _load(self, name: str) -> _Value:
        where = f"`{name}` of {self.origin(name)} (entry points {self._group})"
        hint = "tell the author of the plugin, or leave it out of `plugins`"
        try:
            found = self._added[name].entry.load()
        except Exception as error:  # it is another's code
            message = f"{where} cannot be loaded: {type(error).__name__}: {error}"
            raise ConfigurationError(Diagnostic("E845", message, hint=hint)) from error
        if not self._fits(found, name):
            raise ConfigurationError(Diagnostic("E845", f"{where} is none: {found!r}", hint=hint))
        value: _Value = found
        return value

    @cached_property
    def _added(self) -> Mapping[str, _Added]:
        found: dict[str, _Added] = {}
        for plugin in filter(None, map(_installed, self._plugins)):
            for entry in plugin.entry_points.select(group=self._group):
                found.setdefault(entry.name, _Added(plugin, entry))
        return found


def not_installed(plugins: tuple[str, ...]) -> tuple[str, ...]:
    """Return the plugins that are not installed."""
    return tuple(name for name in plugins if _installed(name) is None)


@cache
def modules_of(plugins: tuple[str, ...]) -> frozenset[str]:
    """Return the top-level modules that plugins name as theirs."""
    installed = filter(None, map(_installed, plugins))
    return frozenset(_top(entry.module) for plugin in installed for entry in _entries(plugin))


@cache
def folders_of(plugins: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders of which one changes when another version of one of the plugins is found, or none.

    They are the one that each is installed in, and those that Python searches before that one.
    """
    found: dict[str, None] = {}
    for plugin in filter(None, map(_installed, plugins)):
        home = str(plugin.locate_file(""))
        found |= dict.fromkeys((*filter(None, takewhile(lambda one: one != home, sys.path)), home))  # noqa: B023
    return tuple(found)


@cache
def _installed(name: str) -> "Distribution | None":
    from importlib.metadata import distribution  # noqa: PLC0415 - 20 modules, for pipelines with plugins alone

    try:
        return distribution(name)
    except (ModuleNotFoundError, ValueError):
        return None


def _entries(plugin: "Distribution") -> "Iterator[EntryPoint]":
    """Give the entry points of a distribution that are for orch23."""
    return (entry for entry in plugin.entry_points if entry.group.startswith(_GROUPS))


def _top(module: str) -> str:
    return module.partition(".")[0]
