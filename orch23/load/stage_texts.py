"""Split the text of a pipeline by stage, so that only edited stages are read again."""

import re
from collections.abc import Mapping
from itertools import accumulate, pairwise

from msgspec import Struct
from msgspec.structs import replace

from orch23.load.yaml_errors import PIPELINE_LIMITS
from orch23.load.yaml_text import parse_yaml
from orch23.model.diagnostic import Location
from orch23.model.parsing import as_mapping

_STAGES = re.compile(r"stages:[ \t]*(?:#.*)?")
# A key in another spelling is not recognized: then the whole text is parsed.
_KEY = re.compile(r"""( +)(?:([A-Za-z0-9._-]+)|"([A-Za-z0-9._-]+)"|'([A-Za-z0-9._-]+)')[ \t]*:(?:[ \t].*)?""")


class StageTexts(Struct, frozen=True):
    """The lines of a text: those before and after the stages, and those of each stage, in their order."""

    head: tuple[str, ...]
    stages: Mapping[str, tuple[str, ...]]
    tail: tuple[str, ...]

    def first_lines(self) -> dict[str, int]:
        """Return the number of the first line of each stage, from 1."""
        lines = accumulate(map(len, self.stages.values()), initial=len(self.head) + 1)
        return dict(zip(self.stages, lines, strict=False))  # the last number is the line after all stages

    def place_of(self, stage: str, file: str) -> Location:
        """Return the place of a stage's key in the text, the text of `file`."""
        lines, first = self.stages[stage], self.first_lines()[stage]
        number, key = next((n, key) for n, line in enumerate(lines, first) if (key := _KEY.fullmatch(line)) is not None)
        return Location(file, number, len(key[1]) + 1)

    def alone(self, names: tuple[str, ...]) -> str:
        """Return a text with these stages and no other."""
        return "\n".join((*self.head, *(line for name in names for line in self.stages[name]), *self.tail))


def split_stages(text: str) -> StageTexts | None:
    """Return the parts of a text; None if its lines do not show them.

    Only lines are looked at, so a scalar of several lines may be cut in two: `are_valid_alone` finds that.
    """
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if _STAGES.fullmatch(line)]
    # YAML also ends a line at a carriage return, which is not looked for here.
    if len(starts) != 1 or "\r" in text:
        return None
    first = starts[0] + 1
    end = next((n for n in range(first, len(lines)) if lines[n] and lines[n][0] not in " #"), len(lines))
    stages = _stages_of(lines[first:end])
    return StageTexts(tuple(lines[:first]), stages, tuple(lines[end:])) if stages else None


def _stages_of(block: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the lines of each stage in the lines below `stages:`; {} if a line at their indent is not a key."""
    plain = ((line, line.lstrip(" ")) for line in block)
    indent = next((len(line) - len(text) for line, text in plain if text and text[0] != "#"), 0)
    at_indent = [
        number
        for number, line in enumerate(block)
        if line.startswith(" " * indent) and line[indent : indent + 1] not in (" ", "", "#")
    ]
    keys = filter(None, [_KEY.fullmatch(block[number]) for number in at_indent])
    names = [key[2] or key[3] or key[4] for key in keys if len(key[1]) == indent]
    if len(set(names)) != len(at_indent):
        return {}
    # Comments before the first key belong to the first stage, all others to the stage above them.
    bounds = [0, *at_indent[1:], len(block)]
    return {name: tuple(block[begin:stop]) for name, (begin, stop) in zip(names, pairwise(bounds), strict=False)}


def are_valid_alone(texts: StageTexts, names: tuple[str, ...]) -> bool:
    """Return whether the lines of each of these stages are valid YAML by themselves, and define this stage alone."""
    for name in names:
        parsed = parse_yaml("\n".join(("stages:", *texts.stages[name])), "", PIPELINE_LIMITS)
        tree = as_mapping(parsed.tree)
        if parsed.diagnostics or list(tree) != ["stages"] or list(as_mapping(tree["stages"])) != [name]:
            return False
    return True


def shift_locations(places: Mapping[str, Location], before: StageTexts, after: StageTexts) -> dict[str, Location]:
    """Return locations as they are in a text that differs in its stages only, without those in changed stages."""
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
    """Two texts that differ in stages only; `names` are the stages of `after` that are new or changed."""

    before: StageTexts
    after: StageTexts
    names: tuple[str, ...]


def edit_between(before: str, after: str) -> TextEdit | None:
    """Return how two texts differ; None if more than stages differs, or if lines do not show the stages."""
    old, new = split_stages(before), split_stages(after)
    if old is None or new is None or (old.head, old.tail) != (new.head, new.tail):
        return None
    return TextEdit(old, new, tuple(name for name, lines in new.stages.items() if old.stages.get(name) != lines))
