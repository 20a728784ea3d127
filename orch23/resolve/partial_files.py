"""Compose the file that a step is given of slices alone, from what its key holds: their selectors and their texts."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from orch23.model.digest import Json, canonical_json
from orch23.resolve.slices import Slice, SliceError, Step, has_field, section

_Part: TypeAlias = tuple[tuple[Step, ...], Json]
"""The steps to a value, and the value."""

_FLOAT_WITHOUT_POINT = re.compile(r'"(?:[^"\\]|\\.)*"|(?<!\.)\b[0-9]+(?=e)')
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def compose(slices: Iterable[Slice]) -> bytes:
    """Return the bytes of a file that has these slices and nothing else.

    What is selected twice is in it once. The order and the layout of the source are in no key, so they do not show:
    the sections of deeper headings come first, so that each ends where the next one begins, and then the smaller text.
    """
    found = sorted(set(slices), key=lambda one: one.selector)
    texts = _sections([one for one in found if not one.selector.startswith("/")])
    # The text of a pointer is canonical JSON, written from a value that was read strictly.
    parts: list[_Part] = [(one.steps, json.loads(one.text)) for one in found if one.selector.startswith("/")]
    return "\n".join([*texts, *([_json(_value(parts))] if parts else [])]).encode("utf-8")


def _sections(slices: Sequence[Slice]) -> list[str]:
    """Return the texts of sections in their order, without those that are below another one."""
    outermost = [one.text for one in slices if not any(_has(other, one) for other in slices if other is not one)]
    return sorted(outermost, key=lambda text: (len(text.lstrip("#")) - len(text), text))


def _has(outer: Slice, inner: Slice) -> bool:
    try:
        return section(outer.text, inner.selector) == inner.text
    except SliceError:
        return False


def _value(parts: Sequence[_Part]) -> Json:
    """Return the value that has these parts at their places."""
    below: dict[Step, list[_Part]] = {}
    for steps, value in parts:
        if not steps:
            return value
        below.setdefault(steps[0], []).append((steps[1:], value))
    if any(isinstance(step, str) for step in below):
        return {str(step): _value(ones) for step, ones in below.items()}
    return _list(below)


def _list(below: Mapping[Step, list[_Part]]) -> list[Json]:
    """Return a list with items at their positions, null before them, and after them those that a field selects."""
    items = [
        _Item(None, {step[0]: step[1]}, parts) if isinstance(step, tuple) else _Item(int(step), {}, parts)
        for step, parts in below.items()
    ]
    for step in below:
        if isinstance(step, tuple):  # only one item of the source has that field
            same = [one for one in items if has_field(one.value(), step)]
            for one in same[1:]:
                same[0].add(one)
                items.remove(one)
    placed = {one.position: one.value() for one in items if one.position is not None}
    selected = [one.value() for one in items if one.position is None]
    return [placed.get(number) for number in range(max(placed, default=-1) + 1)] + selected


class _Item(Struct, eq=False):
    """An item of a list, known by its position or by fields that it has."""

    position: int | None
    fields: dict[str, str]
    parts: list[_Part]

    def add(self, other: "_Item") -> None:
        """Add what is known of the same item."""
        self.position = other.position if self.position is None else self.position
        self.fields |= other.fields
        self.parts += other.parts

    def value(self) -> Json:
        """Return what is known of the item."""
        value = _value(self.parts)
        return {**self.fields, **value} if isinstance(value, Mapping) else value


def _json(value: Json) -> str:
    """Return JSON that every YAML parser reads as the same value."""
    text = canonical_json(value).decode("utf-8")
    text = _FLOAT_WITHOUT_POINT.sub(lambda m: m[0] if m[0].startswith('"') else f"{m[0]}.0", text)
    return _UNPRINTABLE.sub(lambda m: f"\\u{ord(m[0]):04x}", text) + "\n"
