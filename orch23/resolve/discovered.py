"""Aspects that only a run finds, such as the base of each file that it changed: its record names them (ADR 87).

A record is today's if the values that its aspects have today give its key, as with the dependency files of a compiler.
For a model with `explore`, these are also the parts of files that it was shown (ADR 91). With a depfile, a record names
only some of the inputs that patterns match (ADR 99).
"""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from orch23.model.digest import FileEntry, Json, digest_bytes
from orch23.model.file_policy import is_protected, secret_file_reason
from orch23.model.paths import match_any
from orch23.model.pipeline import Stage
from orch23.model.record import Manifest, Record, core_of, key_of, retained_key, written_paths
from orch23.resolve.resolution import (
    MATCHED,
    ResolvedStage,
    VisibleFiles,
    explored_files,
    input_value,
    is_discovered,
    never_sent_error,
)

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


def with_tracked(resolved: ResolvedStage, tracked: Container[str] | None = None) -> ResolvedStage:
    """Return a stage with a depfile, in whose key only these of the files that its patterns match count; None: all.

    Steps of `verify` may read all of them.
    """
    manifest, verifies = {**resolved.manifest}, bool(resolved.stage.verify.steps)
    for path in resolved.files.keys() - resolved.stage.literal_inputs:
        counts, value = tracked is None or path in tracked, input_value(resolved.files[path])
        manifest[f"input:{path}"] = value if counts else None
        if path not in resolved.verify_files:
            manifest[f"verify.input:{path}"] = value if verifies and not counts else None
    return with_manifest(resolved, {one: manifest[one] for one in sorted(manifest) if manifest[one] is not None})


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
        if resolved.stage.depfile is not None and MATCHED not in record.manifest:
            continue  # of another declaration, or what `reset` has kept
        named = frozenset([one for one in record.manifest if one.startswith(("input:", EXPLORED_ASPECT))])
        names = frozenset(written_paths(record)), named
        if names not in found and resolved.stage.depfile is None:
            found[names] = with_manifest(resolved, todays_manifest(resolved, record, part_of))
        elif names not in found:
            found[names] = with_tracked(resolved, frozenset([one.removeprefix("input:") for one in named]))
        one = found[names]
        if record.key in (one.key, retained_key(one.key)):
            return one
        if same_core is None and not record.failed and core_of(record.manifest) == one.core:
            same_core = one
    return same_core or next(iter(found.values()), resolved)


def explorable(stage: Stage, tree: VisibleFiles, never_send: tuple[str, ...]) -> dict[str, FileEntry]:
    """Return the files that the model of a stage may look at, by path."""
    found = {path: entry for one in stage.explore for path, entry in explored_files(one, tree).items()}
    return {path: found[path] for path in sorted(found) if not _is_withheld(path, found[path], never_send)}


def _is_withheld(path: str, entry: FileEntry, never_send: tuple[str, ...]) -> bool:
    """Return whether a file, or the target of a link, may not be shown: it may have secrets, or is never sent."""
    # A place is `PATH#PART`, so a path with `#` has none. A line break in a name would be a line of the map.
    hidden = any(secret_file_reason(one) or is_protected(one) for one in (path, entry.link) if one)
    return "#" in path or not path.isprintable() or hidden or never_sent_error(never_send, path, entry) is not None


def part_digest(place: str, stage: Stage, tree: VisibleFiles, never_send: tuple[str, ...]) -> str | None:
    """Return today's digest of a place, `PATH` or `PATH#PART`; None if it may not be shown, or is not there.

    Raises:
        MissingBytesError: no copy of the file is left.
    """
    path, _, part = place.partition("#")
    entry = tree.entry(path)
    if entry is None or not match_any(stage.explore, path) or _is_withheld(path, entry, never_send):
        return None
    if not part:
        return entry.digest.sha256
    from orch23.resolve.text_slices import SliceError, text_part  # noqa: PLC0415 - only for parts of files

    try:
        text = text_part(tree.read(path, entry).decode("utf-8", "replace"), path, part).text
    except SliceError:
        return None
    return digest_bytes(text.encode()).sha256
