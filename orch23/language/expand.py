"""Expand a foreach: build the stages of its items, and report unusable items."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from orch23.language.stages import NO_STAGES, render_foreach
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Json
from orch23.model.fields import describe_value
from orch23.model.parsing import YamlReader, json_at
from orch23.model.pipeline import Foreach, ForeachStage, SkippedStage, Stage
from orch23.resolve.slices import load_data, resolve_pointer
from orch23.resolve.text_slices import SliceError

# A key is part of the name of a stage, which is also the name of a folder in `logs/`.
_KEY = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Returns the location of a node of the pipeline by its path.
_Locate: TypeAlias = Callable[[str], Location | None]


class Expansion(Struct, frozen=True):
    """The stages of a foreach's items without the skipped ones, or what is wrong with the list."""

    stages: tuple[Stage, ...]
    problems: tuple[Diagnostic, ...] = ()
    skipped: tuple[SkippedStage, ...] = ()


def expand(
    foreach: ForeachStage,
    text: str | None,
    *,
    variables: Mapping[str, Json],
    read_yaml: YamlReader,
    locate: _Locate,
    former: Mapping[str, Stage] = NO_STAGES,
) -> Expansion:
    """Return the stages of a foreach. `text` is the content of its `from` file; a static list needs none.

    `former` are stages of an earlier expansion of the same foreach with the same variables, by name: equal items are
    not rendered again.
    """
    try:
        items = _items(foreach.foreach, text, read_yaml)
    except SliceError as error:
        return Expansion((), (_problem("E824", foreach, str(error), locate, error.hint),))
    keyed, problems = _keys(foreach, items, locate)
    # Items that have a key are built even if others have none, so that all errors are reported.
    have_keys = not problems
    # Other items decide the place of an item in a chain, and the stages that it needs.
    depends_on_others = foreach.foreach.sequential or foreach.foreach.needs_field is not None
    rendered = render_foreach(foreach, keyed, variables, former=NO_STAGES if depends_on_others else former)
    skipped = tuple(built.skipped for built in rendered if built.skipped is not None)
    keys = frozenset(key for key, _ in keyed)
    # A skipped item counts as not declared, but its name stays valid in `needs` (ADR 12).
    present = keys.difference(one.name.partition("@")[2] for one in skipped)
    stages: list[Stage] = []
    for built, (key, item) in zip(rendered, keyed, strict=True):
        problems += [
            Diagnostic(p.code, p.message, locate(p.path), p.hint, subject=f"{foreach.name}@{key}")
            for p in built.problems
        ]
        if built.stage is not None and have_keys:
            wanted = _needs(foreach, item)
            unknown = (f"item `{key}` needs `{name}`, which is not an item" for name in wanted if name not in keys)
            problems += [_problem("E827", foreach, text, locate, "name a key of the list") for text in unknown]
            needed = tuple(f"{foreach.name}@{name}" for name in wanted if name in present)
            stages.append(replace(built.stage, needs=(*built.stage.needs, *needed)) if needed else built.stage)
    return Expansion(() if problems else _with_own_inputs(stages), tuple(problems), skipped)


def _with_own_inputs(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    if not any(stage.step.asks_model for stage in stages):
        return tuple(stages)
    shared = set(stages[0].inputs).intersection(*(stage.inputs for stage in stages))
    owned = [tuple(at for at, one in enumerate(stage.inputs) if one not in shared) for stage in stages]
    return tuple(replace(stage, own_inputs=own) for stage, own in zip(stages, owned, strict=True))


def _items(foreach: Foreach, text: str | None, read_yaml: YamlReader) -> Sequence[Json]:
    """Return the items of a list. Raises SliceError: the file is malformed, or its pointer does not lead to a list."""
    if foreach.source is None:
        return foreach.values
    value = resolve_pointer(load_data(text or "", foreach.source, read_yaml), foreach.pointer)
    if isinstance(value, str) or not isinstance(value, Sequence):
        message = f"`{foreach.source}#{foreach.pointer}` is {describe_value(value)}, not a list"
        raise SliceError(message, "make it a list of items")
    return value


def _keys(
    foreach: ForeachStage, items: Sequence[Json], locate: _Locate
) -> tuple[list[tuple[str, Json]], list[Diagnostic]]:
    """Return the items that have a key of their own, and what is wrong with the keys of the others."""
    keyed: list[tuple[str, Json]] = []
    problems = []
    seen: dict[str, int] = {}
    for number, item in enumerate(items):
        key = _key(item, foreach.foreach.key)
        if not _KEY.fullmatch(key) or set(key) == {"."}:
            what = f"item {number} has no usable key" if not key else f"item {number} has the key `{key[:80]}`"
            problems.append(_problem("E825", foreach, what, locate, _key_hint(item, foreach.foreach.key)))
        elif key in seen:
            what = f"items {seen[key]} and {number} both have the key `{key}`"
            problems.append(_problem("E826", foreach, what, locate, "make the keys differ"))
        else:
            keyed.append((key, item))
        seen.setdefault(key, number)
    return keyed, problems


def _key(item: Json, field: str | None) -> str:
    """Return the key of an item: the item itself, or one of its fields; empty if that is not a text or a number."""
    if field is not None:
        item = json_at(item, field)
    if isinstance(item, bool) or not isinstance(item, str | int | float):
        return ""
    return "" if isinstance(item, float) and not math.isfinite(item) else str(item)


def _key_hint(item: Json, field: str | None) -> str:
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


def _needs(foreach: ForeachStage, item: Json) -> tuple[str, ...]:
    """Return the keys of the items that an item needs, as its field lists them."""
    field = foreach.foreach.needs_field
    if field is None or not isinstance(item, Mapping):
        return ()
    raw = item.get(field) or []
    return tuple(map(str, raw)) if isinstance(raw, Sequence) and not isinstance(raw, str) else (str(raw),)


def _problem(code: str, foreach: ForeachStage, message: str, locate: _Locate, hint: str) -> Diagnostic:
    return Diagnostic(code, message, locate(f"stages/{foreach.name}/foreach"), hint, subject=foreach.name)
