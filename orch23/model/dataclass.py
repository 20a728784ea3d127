"""The decorator `dataclass` of all rooms: the library's, but nothing is compiled before it is used."""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter, ge, gt, le, lt
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["dataclass"]

_Instance = TypeVar("_Instance")


def _dataclass(
    *, frozen: bool = False, slots: bool = False, order: bool = False, kw_only: bool = False
) -> Callable[[type[_Instance]], type[_Instance]]:
    """Make a dataclass in a tenth of the time: a program is quick if it compiles only what it uses.

    The library collects the fields and makes the slots. It would compile six methods of each class, too, which is a
    third of all the time that it takes to load a build. Here `__init__` is compiled when the first instance is made,
    and the others are closures.
    """

    def made(declared: type[_Instance]) -> type[_Instance]:
        declared.__doc__ = declared.__doc__ or declared.__name__  # else the library would work out a signature
        cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(declared)
        methods = {"__init__": _first_init(cls, frozen=frozen), "__repr__": _repr, **_comparisons(cls, order=order)}
        methods["__hash__"] = _hash_of(cls) if frozen else None
        if frozen:
            methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
            methods |= {"__getstate__": _state, "__setstate__": _take_state}
        for name, method in methods.items():
            if name not in declared.__dict__:
                setattr(cls, name, method)
        return cls

    return made


def _first_init(cls: type, *, frozen: bool) -> Callable[..., None]:
    """Return an `__init__` that makes the real one, and is replaced by it."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes the method of that name
        init = _init_of(cls, frozen=frozen)
        type.__setattr__(cls, "__init__", init)
        init(self, *args, **kwargs)

    return __init__


def _init_of(cls: type, *, frozen: bool) -> Callable[..., None]:
    """Compile the `__init__` of a class, with its own signature."""
    known: dict[str, Any] = {"_missing": MISSING, "_set": object.__setattr__}
    leading: list[str] = ["self"]
    named: list[str] = []
    body: list[str] = []
    for field in dataclasses.fields(cls):
        known |= {f"_default_{field.name}": field.default, f"_make_{field.name}": field.default_factory}
        if field.init:
            (named if field.kw_only else leading).append(f"{field.name}{_default(field)}")
        value = _value(field)
        if value:
            body.append(f"_set(self, {field.name!r}, {value})" if frozen else f"self.{field.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    given = ", ".join([*leading, *(["*", *named] if named else [])])
    exec(f"def __init__({given}):\n " + "\n ".join(body or ["pass"]), known)  # noqa: S102 - as the library does: of names alone
    init: Callable[..., None] = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _default(field: "Field[Any]") -> str:
    if field.default is not MISSING:
        return f"=_default_{field.name}"
    return "=_missing" if field.default_factory is not MISSING else ""


def _value(field: "Field[Any]") -> str:
    """Return the text of what a field is set to; of one that is not given and has no default, nothing."""
    name, made = field.name, f"_make_{field.name}()"
    if field.default_factory is not MISSING:
        return f"{made} if {name} is _missing else {name}" if field.init else made
    if field.init:
        return name
    return f"_default_{name}" if field.default is not MISSING else ""


def _comparisons(cls: type, *, order: bool) -> dict[str, Any]:
    get = _getter([field.name for field in dataclasses.fields(cls) if field.compare])

    def equal(self: Any, other: Any) -> Any:
        return get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented

    def by(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
        return lambda a, b: compare(get(a), get(b)) if b.__class__ is a.__class__ else NotImplemented

    ordered = {f"__{compare.__name__}__": by(compare) for compare in (lt, le, gt, ge)} if order else {}
    return {"__eq__": equal, **ordered}


def _hash_of(cls: type) -> Callable[[Any], int]:
    hashed = [field.name for field in dataclasses.fields(cls) if (field.compare if field.hash is None else field.hash)]
    get = _getter(hashed)
    return lambda self: hash(get(self))


def _getter(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_to_set(_: object, name: str, value: object) -> None:
    del value
    message = f"cannot assign to field {name!r}"
    raise FrozenInstanceError(message)


def _refuse_to_delete(_: object, name: str) -> None:
    message = f"cannot delete field {name!r}"
    raise FrozenInstanceError(message)


def _state(self: Any) -> list[Any]:
    """Return what a copy is made from, which could not be set one by one."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _take_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass
