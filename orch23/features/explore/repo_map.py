"""Build the map of a repository for a task: its definitions with their lines, best first, within a number of tokens."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from orch23.attempt.estimate import CHARACTERS_PER_TOKEN
from orch23.features.explore.definitions import FileOutline, definitions
from orch23.features.explore.ranking import Ranked, rank

# Definitions that are grouped by file at once: so a long map, too, begins with the best ones of all files.
_GROUP: Final = 40
_SIGNATURES: Final = 40  # definitions that are shown with their first line
# Files beyond these are in the map by their paths.
_LARGEST_TOTAL_BYTES: Final = 64_000_000


class RepoMap(Struct, frozen=True):
    """The definitions and files of a repository, best first.

    `ranked` has an entry for each definition, and one for a file that comes before its definitions. `note` says which
    files have no definitions or inexact ones, and why.
    """

    ranked: tuple[Ranked, ...]
    note: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The paths, best first."""
        return tuple(dict.fromkeys(one.path for one in self.ranked))

    def render(self, tokens: int) -> str:
        """Return the start of the map, of at most so many tokens by estimate.

        A line is a path, or the lines and the name of a definition of the path above it.
        """
        left = tokens * CHARACTERS_PER_TOKEN
        groups: list[str] = []
        for start in range(0, len(self.ranked), _GROUP):
            entries = self.ranked[start : start + _GROUP]
            text = _group(entries, with_signatures=start < _SIGNATURES)
            while len(text) > left:
                entries = entries[:-1]
                text = _group(entries, with_signatures=start < _SIGNATURES)
            groups.append(text)
            left -= len(text)
            if len(entries) < _GROUP:
                break
        return "".join(groups)


def build(task_text: str, files: Mapping[str, bytes | str]) -> RepoMap:
    """Return the map of files, by their paths, for a task."""
    return map_of(task_text, outlines_of(files))


def outlines_of(files: Mapping[str, bytes | str]) -> list[FileOutline]:
    """Return the outline of each file, in the order of paths."""
    left = _LARGEST_TOTAL_BYTES
    found = []
    for path in sorted(files):
        content = files[path]
        left -= len(content)
        text = content if isinstance(content, str) else content.decode("utf-8", "replace")
        found.append(definitions(path, text if left >= 0 else "\0"))
    return found


def map_of(task_text: str, outlines: Iterable[FileOutline]) -> RepoMap:
    """Return the map of files with these outlines."""
    known = list(outlines)
    seen: set[str] = set()
    ranked = []
    for one in rank(task_text, known):
        if one.definition.kind or one.path not in seen:
            ranked.append(one)
        seen.add(one.path)
    gaps = Counter(one.gap for one in known if one.gap)
    first = {one.gap: one.path for one in reversed(known)}
    note = "; ".join(
        f"{first[gap]}: {gap}" if count == 1 else f"{count:,} files, such as {first[gap]}: {gap}"
        for gap, count in sorted(gaps.items())
    )
    return RepoMap(tuple(ranked), note)


def _group(entries: Sequence[Ranked], *, with_signatures: bool) -> str:
    of_file: dict[str, list[str]] = {}
    for one in entries:
        lines = of_file.setdefault(one.path, [f"{one.path}\n"])
        if one.definition.kind:
            lines.append(_line(one, with_signature=with_signatures))
    return "".join(line for lines in of_file.values() for line in lines)


def _line(one: Ranked, *, with_signature: bool) -> str:
    found = one.definition
    rest = ""
    if with_signature:
        rest = found.shown.partition(found.name.rpartition(".")[2])[2].rstrip(" :{(")
    place = f"L{found.first}" if found.first == found.last else f"L{found.first}-{found.last}"
    return f"  {place} {found.kind} {found.name}{rest}\n"
