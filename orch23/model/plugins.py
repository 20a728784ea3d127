"""Registries: load objects by name, from orch23 or from installed plugins."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint


_Value = TypeVar("_Value")


class LazyMapping(Mapping[str, _Value]):
    """Values by name, in the order of the names. A value is made when it is first used."""

    def __init__(self, names: Iterable[str], make: Callable[[str], _Value]) -> None:
        """Set the names, which are read at the first use, and the function that makes the value of a name."""
        self._given, self._make = names, make
        self._made: dict[str, _Value] = {}

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(self._given)

    def __getitem__(self, name: str) -> _Value:
        """Return the value of a name, the same each time."""
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        """Return whether the name is known, without making its value."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Count the names."""
        return len(self._names)


_GROUPS = "orch23."
# `orch23_checks` is part of the wheel of orch23, so its checks need no `plugins` key (ADR 32).
_OWN = frozenset({"orch23", "orch23_checks"})
# The distributions that were looked up, by the name in the pipeline; None for one that is not installed.
_KNOWN: "dict[str, Distribution | None]" = {}
_LONGEST = 300
REPORT_PLUGIN_HINT = "report it to the author of the plugin, or remove it from `plugins`"


def type_validator(kind: type[object]) -> Callable[[object, str], str]:
    """Return a function that returns why a value cannot be used: it is not of this type; else an empty text."""

    def fault(found: object, _name: str) -> str:
        return "" if isinstance(found, kind) else f"it must be a `{kind.__name__}`, and is {_cut(repr(found))}"

    return fault


def exception_text(error: BaseException) -> str:
    """Return an exception in one line."""
    message = " ".join(str(error).split())
    return _cut(f"{type(error).__name__}: {message}" if message else type(error).__name__)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


@cache  # each step of a stage asks for its runner several times
def load_object(place: str) -> Any:
    """Return the object at `module:attribute`.

    Raises:
        ConfigurationError: it is of a plugin, and cannot be loaded.
    """
    module, _, name = place.partition(":")
    # Code of a plugin runs at its import: it may raise anything, and may call sys.exit.
    try:
        return getattr(import_module(module), name)
    except (Exception, SystemExit) as error:
        if _top(module) in _OWN:
            raise
        raise _unusable(place, exception_text(error)) from error


def load_object_as(kind: type[_Value], place: str) -> _Value:
    """Return the object at `module:attribute`, which must be of a type.

    Raises:
        ConfigurationError: it is of a plugin, and cannot be loaded or is of another type.
    """
    found = load_object(place)
    if not isinstance(found, kind):
        raise _unusable(place, type_validator(kind)(found, place))
    return found


def _unusable(place: str, why: str) -> ConfigurationError:
    owner = next((one for one in _found_plugins() if _top(place) in _tops(one)), None)
    of_plugin = f" of the plugin {_versioned(owner)}" if owner is not None else ""
    return ConfigurationError(
        Diagnostic("E845", f"`{place}`{of_plugin} cannot be used: {why}", hint=REPORT_PLUGIN_HINT)
    )


def plugin_error_of(error: BaseException) -> ConfigurationError | None:
    """Return the error that the code of a plugin failed, if the exception came from it; None if not.

    The exception may be raised in code that the plugin called.
    """
    # One place reads the traceback; handlers would be needed around every call of a plugin (ADR 32).
    found, place, below = None, "", error.__traceback__
    while below is not None:
        code, module = below.tb_frame.f_code, str(below.tb_frame.f_globals.get("__name__"))
        owner = _owner(module, code.co_filename)
        if owner is not None:
            found, place = owner, f"`{code.co_name}`, {module}:{below.tb_lineno}"
        elif isinstance(error, OSError) and _top(module) in _OWN:
            found = None  # a full disk or a missing permission in orch23 is not the fault of the plugin that called it
        below = below.tb_next
    if found is None:
        return None
    message = f"the code of the plugin {_versioned(found)} failed: {exception_text(error)} ({place})"
    return ConfigurationError(Diagnostic("E847", message, hint=REPORT_PLUGIN_HINT))


def used_plugins() -> tuple[str, ...]:
    """Return name and version of the plugins that were looked up so far."""
    return tuple(map(_versioned, _found_plugins()))


def _owner(module: str, file: str) -> "Distribution | None":
    if _top(module) in _OWN:
        return None
    known = _found_plugins()
    exact = (plugin for plugin in known if file in (str(plugin.locate_file(one)) for one in plugin.files or ()))
    return next(exact, None) or next((plugin for plugin in known if _top(module) in _tops(plugin)), None)


def _found_plugins() -> "list[Distribution]":
    return [plugin for plugin in _KNOWN.values() if plugin is not None]


class _Added(Struct, frozen=True):
    """An object of a plugin, which is loaded when it is first used."""

    plugin: "Distribution"
    entry: "EntryPoint"


class Registry(LazyMapping[_Value]):
    """The objects of one kind that a pipeline can name: those of orch23, then those of its plugins in a group.

    Plugins are looked up only for a name that orch23 does not have, or for all names. If several plugins have a name,
    the first one counts.
    """

    def __init__(
        self, own: Mapping[str, _Value], group: str, plugins: tuple[str, ...], fault: Callable[[object, str], str]
    ) -> None:
        """Set the objects of orch23, the group of entry points, and the names of the distributions.

        `fault` returns why an object of a plugin cannot be used under a name; an empty text if it can.
        """
        super().__init__((), self._load)
        self._own, self._group, self._plugins, self._fault = own, group, plugins, fault

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return (*self._own, *self.added)

    def __getitem__(self, name: str) -> _Value:
        """Return the object with a name.

        Raises:
            KeyError: the name is not known.
            ConfigurationError: the object that a plugin has under the name cannot be used.
        """
        return self._own[name] if name in self._own else super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        """Return whether the name is known, without loading its object."""
        return name in self._own or (bool(self._plugins) and name in self._added)

    def plugin_version(self, name: str) -> str:
        """Return name and version of the plugin with a name, as in stage keys; empty for a name of orch23."""
        added = self._added.get(name) if self._plugins and name not in self._own else None
        return "" if added is None else _versioned(added.plugin)

    @property
    def added(self) -> Collection[str]:
        """Return the names that plugins add."""
        return [name for name in self._added if name not in self._own] if self._plugins else ()

    def unusable(self, name: str, why: str) -> ConfigurationError:
        """Return the error that the object of a plugin under a name cannot be used."""
        message = f"`{name}` of the plugin {self.plugin_version(name)} ({self._group}) cannot be used: {why}"
        return ConfigurationError(Diagnostic("E845", message, hint=REPORT_PLUGIN_HINT))

    def _load(self, name: str) -> _Value:
        entry = self._added[name].entry
        try:
            found = entry.load()
        except (Exception, SystemExit) as error:
            raise self.unusable(name, exception_text(error)) from error
        if why := self._fault(found, name):
            raise self.unusable(name, why)
        value: _Value = found
        return value

    # Searched only for a name that orch23 does not have: the search takes 39 ms (ADR 32).
    @cached_property
    def _added(self) -> Mapping[str, _Added]:
        found: dict[str, _Added] = {}
        for plugin in filter(None, map(_installed, self._plugins)):
            for entry in plugin.entry_points.select(group=self._group):
                found.setdefault(entry.name, _Added(plugin, entry))
        return found


def missing_plugins(plugins: tuple[str, ...]) -> tuple[str, ...]:
    """Return the plugins that are not installed."""
    return tuple(name for name in plugins if _installed(name) is None)


def plugin_codes(plugins: tuple[str, ...]) -> Mapping[str, tuple[str, str, str]]:
    """Return title, explanation and plugin of each diagnostic code of plugins, by the code in capitals.

    The modules of their entry points are loaded: `CODES` in these has the explanations.

    Raises:
        ConfigurationError: such a module cannot be loaded.
    """
    found: dict[str, tuple[str, str, str]] = {}
    for plugin in filter(None, map(_installed, plugins)):
        for module in dict.fromkeys(entry.value.partition(":")[0].strip() for entry in _entries(plugin)):
            table = load_object(f"{module}:__dict__").get("CODES")
            if isinstance(table, Mapping):
                found |= {str(code).upper(): (*texts, _versioned(plugin)) for code, texts in table.items()}
    return found


@cache
def plugin_modules(plugins: tuple[str, ...]) -> frozenset[str]:
    """Return the top-level modules of the entry points of plugins."""
    return frozenset().union(*(_tops(plugin) for plugin in map(_installed, plugins) if plugin is not None))


@cache
def plugin_folders(plugins: tuple[str, ...]) -> tuple[str, ...]:
    """Return the folders to watch: one of them changes if another version of a plugin is found, or none any more.

    They are the folder in which each plugin is installed, and those that Python searches before it.
    """
    found: dict[str, None] = {}
    for plugin in filter(None, map(_installed, plugins)):
        home = str(plugin.locate_file(""))
        before = takewhile(home.__ne__, sys.path)
        found |= dict.fromkeys((*filter(None, before), home))
    return tuple(found)


def _installed(name: str) -> "Distribution | None":
    if name not in _KNOWN:
        from importlib.metadata import distribution  # noqa: PLC0415 - 20 modules, for pipelines with plugins alone

        try:
            _KNOWN[name] = distribution(name)
        except (ModuleNotFoundError, ValueError):
            _KNOWN[name] = None
    return _KNOWN[name]


def _tops(plugin: "Distribution") -> frozenset[str]:
    """Return the top-level modules that the entry points of a distribution for orch23 are in."""
    return frozenset(_top(entry.value) for entry in _entries(plugin))


def _entries(plugin: "Distribution") -> "Iterator[EntryPoint]":
    return (entry for entry in plugin.entry_points if entry.group.startswith(_GROUPS))


def _versioned(plugin: "Distribution") -> str:
    return f"{plugin.metadata['Name']} {plugin.version}"


def _top(place: str) -> str:
    """Return the top-level module of a module, or of `module:attribute`."""
    return place.partition(":")[0].partition(".")[0]
