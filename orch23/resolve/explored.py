"""Files that a model with `explore` may look at, and today's bytes of the parts that it was shown."""

from collections.abc import Mapping

from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.file_policy import is_protected, secret_file_reason
from orch23.model.paths import match_any
from orch23.model.pipeline import Stage
from orch23.resolve.resolution import VisibleFiles, never_sent_error


def explorable(stage: Stage, tree: VisibleFiles, never_send: tuple[str, ...]) -> dict[str, FileEntry]:
    """Return the files that the model of a stage may look at, by path."""
    patterns = stage.explore
    found: Mapping[str, FileEntry] = {path: entry for one in patterns for path, entry in tree.matching(one).items()}
    return {path: found[path] for path in sorted(found) if not is_withheld(path, found[path], never_send)}


def is_withheld(path: str, entry: FileEntry, never_send: tuple[str, ...]) -> bool:
    """Return whether a file, or the target of a link, may not be shown: it may have secrets, or is never sent."""
    # A place is `PATH#PART`, so a path with `#` has none.
    places = [one for one in (path, entry.link) if one]
    hidden = any(secret_file_reason(one) or is_protected(one) for one in places)
    return "#" in path or hidden or never_sent_error(never_send, path, entry) is not None


def part_digest(place: str, stage: Stage, tree: VisibleFiles, never_send: tuple[str, ...]) -> str | None:
    """Return today's digest of a place, `PATH` or `PATH#PART`; None if it may not be shown, or is not there.

    Raises:
        MissingBytesError: no copy of the file is left.
    """
    path, _, part = place.partition("#")
    entry = tree.entry(path)
    if entry is None or not stage.explore or not match_any(stage.explore, path):
        return None
    if is_withheld(path, entry, never_send):
        return None
    if not part:
        return entry.digest.sha256
    from orch23.resolve.text_slices import SliceError, text_part  # noqa: PLC0415 - only for parts of files

    try:
        return digest_bytes(
            text_part(tree.read(path, entry).decode("utf-8", "replace"), path, part).text.encode()
        ).sha256
    except SliceError:
        return None
