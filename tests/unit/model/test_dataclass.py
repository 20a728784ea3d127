"""The house's dataclasses behave as the library's do, and compile nothing before an instance is made."""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any, ClassVar

import pytest

from orch23.model import dataclass as house

KINDS: dict[str, dict[str, bool]] = {
    "frozen": {"frozen": True, "slots": True},
    "by name": {"frozen": True, "slots": True, "kw_only": True},
    "ordered": {"frozen": True, "slots": True, "order": True},
    "changing": {"slots": True},
    "without slots": {"frozen": True},
}


def declared(decorator: Callable[..., Any], **how: bool) -> Any:
    @decorator(**how)
    class Point:
        x: int
        y: int = 2
        names: list[str] = field(default_factory=list)
        shown: str = field(default="s", repr=False, compare=False)
        counted: int = field(default=7, init=False)
        made: list[int] = field(default_factory=list, init=False, compare=False)
        shared: ClassVar[int] = 3

        def double(self) -> int:
            return self.x * 2

    return Point


def outcome(act: Callable[[], Any]) -> Any:
    """Return what an act gives, or what it raises."""
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - it is compared with the library's
        return type(error), str(error)


ACTS: list[Callable[[Any], Any]] = [
    lambda point: repr(point(x=1)),
    lambda point: repr(point(1, 5, ["a"])),
    lambda point: point(x=1).shown + point(x=1, shown="t").shown,
    lambda point: (point(x=1).counted, point(x=1).made, point(x=1).double(), point.shared),
    lambda point: point(x=1) == point(x=1, shown="other"),
    lambda point: point(x=1) == point(x=2),
    lambda point: point(x=1) == 1,
    lambda point: point(x=1).__eq__(1),
    lambda point: point(x=1) < point(x=1, y=3),
    lambda point: [point(x=1) <= point(x=1), point(x=2) > point(x=1), point(x=1) >= point(x=2)],
    lambda point: point(x=1).__lt__(1),
    lambda point: point(),
    lambda point: point(x=1, z=2),
    lambda point: point(x=1, counted=2),
    lambda point: point(1, 2, [], "s", 7),
    lambda point: point(x=1).names is point(x=1).names,
    lambda point: repr(replace(point(x=1), y=9)),
    lambda point: dataclasses.asdict(point(x=1)),
    lambda point: repr(copy.copy(point(x=1))),
    lambda point: copy.deepcopy(point(x=1)).names is point(x=1).names,
    lambda point: [(one.name, one.init, one.compare, one.kw_only) for one in fields(point)],
    lambda point: tuple(point.__match_args__),
    lambda point: getattr(point, "__slots__", None),
    lambda point: point.__hash__ is None,
    lambda point: point.__init__.__qualname__ if point(x=1) else None,
    lambda point: hash(point(x=1, names=())) == hash(point(x=1, names=(), shown="other")),
    lambda point: hash(point(x=1)),
    lambda point: setattr(point(x=1), "x", 2),
    lambda point: delattr(point(x=1), "x"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(len(ACTS)))
def test_it_behaves_as_the_librarys(kind: str, number: int) -> None:
    ours, theirs = (declared(one, **KINDS[kind]) for one in (house.__dict__["dataclass"], dataclasses.dataclass))
    act = ACTS[number]
    got, expected = outcome(lambda: act(ours)), outcome(lambda: act(theirs))
    assert got == expected


def test_a_frozen_one_takes_no_other_attribute_either() -> None:
    point = declared(house.__dict__["dataclass"], frozen=True, slots=True)
    with pytest.raises(FrozenInstanceError, match="unknown"):
        point(1).unknown = 2


def test_what_is_done_after_the_fields_are_set_is_done() -> None:
    @house.dataclass(frozen=True, slots=True)
    class Square:
        side: int
        area: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "area", self.side**2)

    assert [Square(2).area, Square(3).area] == [4, 9]


def test_a_method_that_a_class_has_is_left_to_it() -> None:
    @house.dataclass(frozen=True, slots=True)
    class Quiet:
        secret: str

        def __repr__(self) -> str:
            return "Quiet"

    assert repr(Quiet("s")) == "Quiet"


def test_a_class_below_another_has_the_fields_of_both() -> None:
    @house.dataclass(frozen=True, slots=True)
    class Above:
        a: int

    @house.dataclass(frozen=True, slots=True)
    class Below(Above):
        b: int = 2

    assert repr(Below(1)) == f"{Below.__qualname__}(a=1, b=2)"
    assert repr(Above(1)) == f"{Above.__qualname__}(a=1)"
    assert Above(1) != Below(1)


def test_a_class_is_compiled_when_its_first_instance_is_made() -> None:
    point = declared(house.__dict__["dataclass"], frozen=True, slots=True)
    before = point.__init__
    point(1)
    assert point.__init__ is not before
    compiled = point.__init__
    point(2)
    assert point.__init__ is compiled
