"""Aspects that only a run finds, such as the base of each file that it changed: its record names them (ADR 87).

A record is today's if the values that its aspects have today give its key, as with the dependency files of a compiler.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from orch23.model.digest import Json
from orch23.model.record import Manifest, Record, core_of, key_of, retained_key, written_paths
from orch23.resolve.resolution import ResolvedStage, is_discovered

NO_FILE = "no file"
"""The value of a base where a run found no file; an aspect that is null would be left out."""


def todays_manifest(resolved: ResolvedStage, record: Record) -> Manifest:
    """Return the manifest of a stage with today's values of the aspects that a record names."""
    return manifest_with(resolved, _bases(resolved, written_paths(record)))


def found_manifest(resolved: ResolvedStage, written: Iterable[str]) -> Manifest:
    """Return the manifest of a result: that of its stage, with what the run found. It wrote or deleted these paths."""
    return manifest_with(resolved, _bases(resolved, written))


def manifest_with(resolved: ResolvedStage, found: Mapping[str, Json]) -> Manifest:
    """Return the manifest of a stage with these discovered aspects, in place of those that it has."""
    declared = {one: value for one, value in resolved.manifest.items() if not is_discovered(resolved.stage, one)}
    return dict(sorted({**declared, **found}.items()))


def with_manifest(resolved: ResolvedStage, manifest: Manifest) -> ResolvedStage:
    """Return a stage with another manifest, and its keys."""
    key = key_of(manifest)
    return replace(resolved, manifest=manifest, key=key, core=core_of(manifest, key))


def as_of_records(resolved: ResolvedStage, records: Iterable[Record]) -> ResolvedStage:
    """Return a stage with the discovered aspects of the first record that is today's, as far as verification goes.

    If none is, they are those of the first record, which then says what has changed since.
    """
    found: dict[str, ResolvedStage] = {}  # many records name the same aspects, and a key takes time
    same_core: ResolvedStage | None = None
    for record in records:
        names = "\0".join(sorted(written_paths(record)))
        if names not in found:
            found[names] = with_manifest(resolved, todays_manifest(resolved, record))
        one = found[names]
        if record.key in (one.key, retained_key(one.key)):
            return one
        if same_core is None and not record.failed and core_of(record.manifest) == one.core:
            same_core = one
    return same_core or next(iter(found.values()), resolved)


def _bases(resolved: ResolvedStage, paths: Iterable[str]) -> dict[str, Json]:
    # Also where there was no file: a file of the user that is there today is another base.
    aspects = {f"base:{path}": str(resolved.base.get(path, NO_FILE)) for path in paths}
    return {aspect: value for aspect, value in aspects.items() if is_discovered(resolved.stage, aspect)}
