"""Aspects that only a run finds, such as the base of each file that it changed: its record names them (ADR 87).

A record is today's if the values that its aspects have today give its key, as with the dependency files of a compiler.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from orch23.model.digest import Json
from orch23.model.record import Manifest, Record, core_of, key_of, retained_key, written_paths
from orch23.resolve.resolution import ResolvedStage, is_discovered

PartOf: TypeAlias = Callable[[str], str | None]

EXPLORED_ASPECT = "explored:"
"""Before `PATH` or `PATH#PART`: the digest of what the model was shown of a file (ADR 91)."""

NO_FILE = "no file"
"""The value of a base where a run found no file; an aspect that is null would be left out."""


def todays_manifest(resolved: ResolvedStage, record: Record, part_of: PartOf = lambda _: None) -> Manifest:
    """Return the manifest of a stage with today's values of the aspects that a record names."""
    explored = {place: part_of(place) or NO_FILE for place in explored_places(record.manifest)}
    return found_manifest(resolved, written_paths(record), explored)


def found_manifest(
    resolved: ResolvedStage, written: Iterable[str], explored: Mapping[str, Json] | None = None
) -> Manifest:
    """Return the manifest of a result: that of its stage, with what the run found. It wrote or deleted these paths.

    `explored` are the digests of the parts that its model was shown, by place; None: nothing ran, and they stay.
    """
    stage = resolved.stage
    known = {
        aspect: value
        for aspect, value in resolved.manifest.items()
        if not is_discovered(stage, aspect) or (explored is None and aspect.startswith(EXPLORED_ASPECT))
    }
    parts = {f"{EXPLORED_ASPECT}{place}": value for place, value in (explored or {}).items()}
    # Also where there was no file: a file of the user that is there today is another base.
    bases = {f"base:{path}": str(resolved.base.get(path, NO_FILE)) for path in written}
    found = {aspect: value for aspect, value in bases.items() if is_discovered(stage, aspect)}
    return dict(sorted({**known, **parts, **found}.items()))


def explored_places(manifest: Manifest) -> tuple[str, ...]:
    """Return the places of files, `PATH` or `PATH#PART`, that a manifest names as shown to a model."""
    return tuple(one.removeprefix(EXPLORED_ASPECT) for one in manifest if one.startswith(EXPLORED_ASPECT))


def with_manifest(resolved: ResolvedStage, manifest: Manifest) -> ResolvedStage:
    """Return a stage with another manifest, and its keys."""
    key = key_of(manifest)
    return replace(resolved, manifest=manifest, key=key, core=core_of(manifest, key))


def as_of_records(
    resolved: ResolvedStage, records: Iterable[Record], part_of: PartOf = lambda _: None
) -> ResolvedStage:
    """Return a stage with the discovered aspects of the first record that is today's; if none is, of the first one.

    `part_of` returns today's digest of a place; None if it may not be shown today, or is not there.
    """
    found: dict[object, ResolvedStage] = {}  # many records name the same aspects, and a key takes time
    same_core: ResolvedStage | None = None
    for record in records:
        names = frozenset(written_paths(record)), frozenset(explored_places(record.manifest))
        if names not in found:
            found[names] = with_manifest(resolved, todays_manifest(resolved, record, part_of))
        one = found[names]
        if record.key in (one.key, retained_key(one.key)):
            return one
        if same_core is None and not record.failed and core_of(record.manifest) == one.core:
            same_core = one
    return same_core or next(iter(found.values()), resolved)
