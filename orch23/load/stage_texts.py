"""Split the text of a pipeline by stage, so that only edited stages are read again."""

import re
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from orch23.load.yaml_text import PIPELINE_LIMITS, parse_yaml
from orch23.model.diagnostic import Location

_STAGES = re.compile(r"stages:[ \t]*(?:#.*)?")
_KEY = re.compile(r"""( +)(?:([A-Za-z0-9._-]+)|"([A-Za-z0-9._-]+)"|'([A-Za-z0-9._-]+)')[ \t]*:(?:[ \t].*)?""")


class StageTexts(Struct, frozen=True):
    """A text in pieces: the lines before and after the stages, and the lines of each stage, in their order."""

    head: tuple[str, ...]
    stages: Mapping[str, tuple[str, ...]]
    tail: tuple[str, ...]

    def first_lines(self) -> dict[str, int]:
        """Return the number of the first line of each stage, from 1."""
        found, line = {}, len(self.head) + 1
        for name, lines in self.stages.items():
            found[name] = line
            line += len(lines)
        return found

    def alone(self, names: tuple[str, ...]) -> str:
        """Return a text with these stages and no other."""
        lines = [*self.head, *(line for name in names for line in self.stages[name]), *self.tail]
        return "\n".join(lines)


def split_stages(text: str) -> StageTexts | None:
    """Return the pieces of a text as far as its lines show them; None where they do not.

    Only lines are looked at, so a scalar of several lines may be cut in two: `are_whole` tells.
    """
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if _STAGES.fullmatch(line)]
    if len(starts) != 1 or "\r" in text:
        return None
    first = starts[0] + 1
    end = next((n for n in range(first, len(lines)) if lines[n] and lines[n][0] not in " #"), len(lines))
    indent = next((_indent(line) for line in lines[first:end] if line.strip(" ") and line.lstrip(" ")[0] != "#"), 0)
    stages: dict[str, tuple[str, ...]] = {}
    name, begin = "", first
    for number in range(first, end):
        line = lines[number]
        if not line.startswith(" " * indent) or line[indent : indent + 1] in (" ", "", "#"):
            continue
        key = _KEY.fullmatch(line)
        if key is None or len(key[1]) != indent:
            return None
        if name:
            stages[name] = tuple(lines[begin:number])
            begin = number
        name = key[2] or key[3] or key[4]
        if name in stages:
            return None
    if not name:
        return None
    stages[name] = tuple(lines[begin:end])
    return StageTexts(tuple(lines[:first]), stages, tuple(lines[end:]))


def are_valid_alone(pieces: StageTexts, names: tuple[str, ...]) -> bool:
    """Return whether each of these pieces is valid YAML by itself, with the one entry that it is named by."""
    for name in names:
        text = "\n".join(("stages:", *pieces.stages[name]))
        parsed = parse_yaml(text, "", PIPELINE_LIMITS)
        tree = parsed.tree
        stages = tree.get("stages") if isinstance(tree, Mapping) and len(tree) == 1 else None
        if parsed.diagnostics or not isinstance(stages, Mapping) or list(stages) != [name]:
            return False
    return True


def shift_locations(places: Mapping[str, Location], before: StageTexts, after: StageTexts) -> dict[str, Location]:
    """Return places in a text as they are in another one that has the same lines outside of its stages.

    The places of stages are those whose lines are the same in both.
    """
    old, new = before.first_lines(), after.first_lines()
    more = sum(map(len, after.stages.values())) - sum(map(len, before.stages.values()))
    found = {}
    for path, place in places.items():
        stage = path.split("/")[1] if path.startswith("stages/") else None
        if stage is None:
            shift = more if place.line > len(before.head) else 0
        elif before.stages.get(stage) == after.stages.get(stage, ()):
            shift = new[stage] - old[stage]
        else:
            continue
        found[path] = replace(place, line=place.line + shift)
    return found


class TextEdit(Struct, frozen=True):
    """Two texts in pieces that differ in stages alone; `names` are the stages of `after` that are new or changed."""

    before: StageTexts
    after: StageTexts
    names: tuple[str, ...]


def edit_between(before: str, after: str) -> TextEdit | None:
    """Return what differs between two texts; None where more than stages does, or lines do not show the stages."""
    old, new = split_stages(before), split_stages(after)
    if old is None or new is None or (old.head, old.tail) != (new.head, new.tail):
        return None
    return TextEdit(old, new, tuple(name for name, lines in new.stages.items() if old.stages.get(name) != lines))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
