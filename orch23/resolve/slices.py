"""Take slices of files, and compose files that contain nothing but slices."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn, TypeAlias

from msgspec import Struct

from orch23.model.diagnostic import did_you_mean
from orch23.model.digest import Json, canonical_json
from orch23.model.parsing import YamlReader, parse_json
from orch23.model.patterns import lazy_pattern
from orch23.model.text import pointer_parts
from orch23.resolve.text_slices import SliceError, first_line, markdown_section, text_part

_INDEX = lazy_pattern(r"0|[1-9][0-9]{0,8}")
# A step such as `[id=T1]` still finds its item after others were inserted before it.
_BY_FIELD = lazy_pattern(r"^\[([A-Za-z0-9_.-]+)=(.*)\]$")

PointerStep = str | int | tuple[str, str]
"""A step of a pointer: a key of a mapping, a position in a list, or the field and value that an item of a list has."""


def _refuse(message: str, hint: str) -> NoReturn:
    raise SliceError(message, hint)


class Slice(Struct, frozen=True):
    """A part of a file: a part of its text (see `text_slices`), or the canonical JSON of a value.

    A step such as `0` can be a key of a mapping or a position in a list. `keys` are the numbers of the steps of the
    pointer that are keys. `level` is the level of a section's heading, 1 to 6; 0 for other parts.
    """

    selector: str
    text: str
    keys: tuple[int, ...] = ()
    level: int = 0

    @property
    def steps(self) -> tuple[PointerStep, ...]:
        """Return the steps of the pointer."""
        found = enumerate(pointer_parts(self.selector))
        return tuple(step if number in self.keys else _of_list(step) for number, step in found)


def take_slice(text: str, path: str, selector: str, read_yaml: YamlReader) -> Slice:
    """Return a slice of a file.

    Raises:
        SliceError: no part, or more than one, has that name; or the file is not JSON or YAML.
    """
    if not selector.startswith("/"):
        part = text_part(text, path, selector)
        return Slice(selector, part.text, level=part.level)
    values = _values(load_data(text, path, read_yaml), selector)
    steps = zip(pointer_parts(selector), values, strict=False)  # the last value has no further step
    keys = (n for n, (step, above) in enumerate(steps) if isinstance(above, Mapping) and _of_list(step) != step)
    # Canonical: the layout of the file and the order of its keys are not part of the stage's key.
    return Slice(selector, canonical_json(values[-1]).decode("utf-8"), tuple(keys))


def load_data(text: str, path: str, read_yaml: YamlReader) -> Json:
    """Return the value of a JSON or YAML file by its name.

    Raises:
        SliceError: the text is not valid, or the file is neither.
    """
    try:
        if path.endswith(".json"):
            return parse_json(text)
        if path.endswith((".yaml", ".yml")):
            return read_yaml(text)
    except ValueError as error:
        message = f"`{path}` is not valid {'JSON' if path.endswith('.json') else 'YAML'}: {error}"
        raise SliceError(message, "fix the file") from error
    _refuse(
        f"`{path}` is neither JSON nor YAML",
        "pointers work on .json, .yaml and .yml; `#Heading` works on Markdown, and `#L1-9` on any text",
    )


def resolve_pointer(value: Json, pointer: str) -> Json:
    """Return what an RFC 6901 pointer names; a step into a list may also be `[field=value]`.

    Raises:
        SliceError: a step leads nowhere, or to more than one item.
    """
    return _values(value, pointer)[-1]


def _values(value: Json, pointer: str) -> list[Json]:
    found = [value]
    seen = ""
    for raw, step in zip(pointer.split("/")[1:], pointer_parts(pointer), strict=True):
        seen = f"{seen}/{raw}"
        found.append(_step(found[-1], step, seen))
    return found


def _of_list(step: str) -> PointerStep:
    """Return a step as a position or a field in a list; unchanged if it is neither."""
    by_field = _BY_FIELD.match(step)
    if by_field:
        return by_field[1], by_field[2]
    return int(step) if _INDEX.fullmatch(step) else step


def has_field(item: Json, selected: tuple[str, str]) -> bool:
    """Return whether an item of a list is one that a field and its value select."""
    name, wanted = selected
    return isinstance(item, Mapping) and name in item and str(item[name]) == wanted


def _step(value: Json, step: str, seen: str) -> Json:
    if isinstance(value, Mapping):
        if step in value:
            return value[step]
        keys = list(value)
        _refuse(f"nothing is at `{seen}`", did_you_mean(step, keys) or "the keys are: " + ", ".join(keys[:8]))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _list_item(value, step, seen)
    _refuse(f"nothing is at `{seen}`: there is no list or mapping above it", "shorten the pointer")


def _list_item(value: Sequence[Json], step: str, seen: str) -> Json:
    place = _of_list(step)
    if isinstance(place, tuple):
        found = [one for one in value if has_field(one, place)]
        if len(found) == 1:
            return found[0]
        _refuse(f"{len(found) or 'no'} items match `{seen}`", f"exactly one item may have {place[0]} = {place[1]}")
    if isinstance(place, int) and place < len(value):
        return value[place]
    _refuse(
        f"nothing is at `{seen}`: the list has {len(value)} items",
        f"leave `{seen}` out for the whole list; or count from 0, or name an item by a field: `[id=T1]`",
    )


# The steps to a value, and the value.
_Part: TypeAlias = tuple[tuple[PointerStep, ...], Json]

# YAML 1.1 reads `1e5` as a text and `1.0e5` as a number; JSON reads both as the same number.
_FLOAT_WITHOUT_POINT = lazy_pattern(r'"(?:[^"\\]|\\.)*+"?|(?<!\.)\b[0-9]+(?=e)')
# Characters that YAML does not allow unescaped, or reads as the end of a line.
_UNPRINTABLE = lazy_pattern("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def compose_slices(slices: Iterable[Slice]) -> bytes:
    """Return the bytes of a file that has these slices and nothing else, each part once.

    The order and the layout of the source are not part of a stage's key, so the result does not depend on them.
    Sections are sorted by level, deepest first, so that each ends where the next one begins, and then by text; after
    these, ranges of lines by their numbers.
    """
    # The step must not see the rest of the file: an edit there does not change its key.
    found = sorted(set(slices), key=lambda one: one.selector)
    sections = [one for one in found if not one.selector.startswith("/")]
    outermost = [one for one in sections if not any(_has(other, one) for other in sections if other is not one)]
    outermost = [*{one.text: one for one in outermost}.values()]
    outermost.sort(key=lambda one: (-one.level, first_line(one.selector), one.text))
    # `json` and not `parse_json`: the text of a pointer is canonical JSON of a value that was read strictly.
    parts: list[_Part] = [(one.steps, json.loads(one.text)) for one in found if one.selector.startswith("/")]
    return "\n".join([*(one.text for one in outermost), *([_json(_value(parts))] if parts else [])]).encode("utf-8")


def _has(outer: Slice, inner: Slice) -> bool:
    if not inner.level:
        return len(outer.text) > len(inner.text) and f"\n{inner.text}" in f"\n{outer.text}"
    try:
        return markdown_section(outer.text, inner.selector) == inner.text
    except SliceError:
        return False


def _value(parts: Sequence[_Part]) -> Json:
    """Return the value that has these parts at their places."""
    below: dict[PointerStep, list[_Part]] = {}
    for steps, value in parts:
        if not steps:
            return value
        below.setdefault(steps[0], []).append((steps[1:], value))
    if any(isinstance(step, str) for step in below):
        return {str(step): _value(ones) for step, ones in below.items()}
    return _list(below)


def _list(below: Mapping[PointerStep, list[_Part]]) -> list[Json]:
    """Return a list with items at their positions, null before them, and after them the items selected by a field."""
    items = [
        _Item(None, {step[0]: step[1]}, parts) if isinstance(step, tuple) else _Item(int(step), {}, parts)
        for step, parts in below.items()
    ]
    for step in below:
        if isinstance(step, tuple):  # only one item of the source has that field, so these are the same item
            same = [one for one in items if has_field(one.value(), step)]
            for other in same[1:]:
                same[0].add(other)
                items.remove(other)
    placed = {one.position: one.value() for one in items if one.position is not None}
    selected = [one.value() for one in items if one.position is None]
    return [placed.get(number) for number in range(max(placed, default=-1) + 1)] + selected


class _Item(Struct, eq=False):
    position: int | None
    fields: dict[str, str]
    parts: list[_Part]

    def add(self, other: "_Item") -> None:
        self.position = other.position if self.position is None else self.position
        self.fields |= other.fields
        self.parts += other.parts

    def value(self) -> Json:
        value = _value(self.parts)
        return {**self.fields, **value} if isinstance(value, Mapping) else value


def _json(value: Json) -> str:
    """Return JSON that every YAML parser reads as the same value."""
    text = canonical_json(value).decode("utf-8")
    text = _FLOAT_WITHOUT_POINT.sub(lambda m: m[0] if m[0].startswith('"') else f"{m[0]}.0", text)
    return _UNPRINTABLE.sub(lambda m: f"\\u{ord(m[0]):04x}", text) + "\n"
