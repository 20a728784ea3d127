"""Expand a foreach: build the stages of its items, and report unusable items."""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Json
from orch23.model.pipeline import ForeachStage, SkippedStage, Stage
from orch23.resolve.slices import SliceError, YamlReader, load_data, resolve_pointer
from orch23.resolve.stages import render_foreach

_KEY = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Expansion(Struct, frozen=True):
    """The stages of a foreach's items without those that are switched off, or what is wrong with the list."""

    stages: tuple[Stage, ...]
    problems: tuple[Diagnostic, ...] = ()
    skipped: tuple[SkippedStage, ...] = ()


def expand(
    foreach: ForeachStage,
    text: str | None,
    *,
    variables: Mapping[str, Json],
    read_yaml: YamlReader,
    locate: Callable[[str], Location | None],
) -> Expansion:
    """Return the stages of a foreach. `text` is the content of its `from` file; a static list needs none.

    `locate` gives the place of a node of the pipeline by its path.
    """
    value: Json = list(foreach.foreach.values)
    source = foreach.foreach.source
    if source is not None:
        try:
            value = resolve_pointer(load_data(text or "", source, read_yaml), foreach.foreach.pointer)
        except SliceError as error:
            return Expansion((), (_problem("E824", foreach, str(error), locate, error.hint),))
    if isinstance(value, str) or not isinstance(value, Sequence):
        what = f"`{source}#{foreach.foreach.pointer}` is {_kind(value)}, not a list"
        return Expansion((), (_problem("E824", foreach, what, locate, "make it a list of items"),))
    keyed, problems = _keys(foreach, value, locate)
    are_all = not problems
    stages: list[Stage] = []
    rendered = render_foreach(foreach, keyed, variables)
    skipped = tuple(built.skipped for built in rendered if built.skipped is not None)
    off = {one.name for one in skipped}
    keys = frozenset(key for key, _ in keyed)
    for built, (key, item) in zip(rendered, keyed, strict=True):
        problems += [
            Diagnostic(p.code, p.message, locate(p.path), p.hint, subject=f"{foreach.name}@{key}")
            for p in built.problems
        ]
        if built.stage is not None and are_all:
            needs, unknown = _needs(foreach, item, keys)
            problems += [
                _problem(
                    "E827", foreach, f"item `{key}` needs `{name}`, which is no item", locate, "name a key of the list"
                )
                for name in unknown
            ]
            stages.append(
                replace(built.stage, needs=(*built.stage.needs, *(need for need in needs if need not in off)))
            )
    return Expansion(() if problems else tuple(stages), tuple(problems), skipped)


def _keys(
    foreach: ForeachStage, items: Sequence[Json], locate: Callable[[str], Location | None]
) -> tuple[list[tuple[str, Json]], list[Diagnostic]]:
    """Return the items with a key of their own, and what is wrong with the keys of the others."""
    field = foreach.foreach.key
    keyed: list[tuple[str, Json]] = []
    problems = []
    seen: dict[str, int] = {}
    for number, item in enumerate(items):
        raw = item.get(field) if field is not None and isinstance(item, Mapping) else (item if field is None else None)
        key = "" if isinstance(raw, bool) or not isinstance(raw, str | int | float) or _is_endless(raw) else str(raw)
        if not _KEY.fullmatch(key) or set(key) == {"."}:
            what = f"item {number} has no usable key" if not key else f"item {number} has the key `{key[:80]}`"
            problems.append(_problem("E825", foreach, what, locate, _key_hint(item, field)))
        elif key in seen:
            what = f"items {seen[key]} and {number} both have the key `{key}`"
            problems.append(_problem("E826", foreach, what, locate, "make the keys differ"))
        else:
            keyed.append((key, item))
        seen.setdefault(key, number)
    return keyed, problems


def _is_endless(value: str | float) -> bool:
    """Return whether a value is an infinite number, or not a number at all."""
    return isinstance(value, float) and not math.isfinite(value)


def _key_hint(item: Json, field: str | None) -> str:
    """Return how an item gets a usable key, by what it is."""
    if field is not None and not isinstance(item, Mapping):
        return f"remove `key: {field}`, since the items have no fields, or make every item a mapping that has `{field}`"
    if field is not None:
        return f"give every item a field `{field}` with a text of A-Z a-z 0-9 . _ - or a number"
    if isinstance(item, Mapping):
        usable = [name for name, value in item.items() if isinstance(value, str) and _KEY.fullmatch(value)]
        return f"name the field that holds the keys: `key: {usable[0] if usable else 'FIELD'}`"
    if isinstance(item, bool):
        return f'write it as a text: "{str(item).lower()}"'
    return "an item is a text of A-Z a-z 0-9 . _ - or a number; for others write `{id: NAME, value: ...}` and `key: id`"


def _needs(foreach: ForeachStage, item: Json, keys: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the stages that an item needs by its field, and the names in it that are no items."""
    field = foreach.foreach.needs_field
    if field is None or not isinstance(item, Mapping):
        return (), ()
    raw = item.get(field) or []
    wanted = [str(one) for one in raw] if isinstance(raw, Sequence) and not isinstance(raw, str) else [str(raw)]
    return (
        tuple(f"{foreach.name}@{key}" for key in wanted if key in keys),
        tuple(key for key in wanted if key not in keys),
    )


def _problem(
    code: str, foreach: ForeachStage, message: str, locate: Callable[[str], Location | None], hint: str
) -> Diagnostic:
    """Return a problem of the list itself."""
    return Diagnostic(code, message, locate(f"stages/{foreach.name}/foreach"), hint, subject=foreach.name)


def _kind(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case _:
            return "a mapping"
