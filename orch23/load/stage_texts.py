"""Split the text of a pipeline by stage, so that only edited stages are read again."""

import re
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate, pairwise

from msgspec import Struct
from msgspec.structs import replace

from orch23.load.yaml_errors import PIPELINE_LIMITS
from orch23.load.yaml_text import parse_yaml
from orch23.model.diagnostic import Location
from orch23.model.parsing import as_mapping

# Each begins with a line break, which `re` searches for without trying to match at each character.
_STAGES = re.compile(r"\nstages:[ \t]*(?:#.*)?(?=\n)")
_FIRST = re.compile(r"\n( +)(?=[^ #\n])")
_END = re.compile(r"\n(?=[^ #\n])")
# A key in another spelling is not recognized: then the whole text is parsed.
_KEY = r"""(?=[^ #\n])(?:([A-Za-z0-9._-]+|"[A-Za-z0-9._-]+"|'[A-Za-z0-9._-]+')[ \t]*:(?=[ \t\n]))?"""


class StageTexts(Struct, frozen=True, dict=True):
    """The lines of a text: those before and after the stages, and those of each stage, in their order."""

    head: str
    stages: Mapping[str, str]
    tail: str

    @cached_property
    def first_lines(self) -> dict[str, int]:
        """The number of the first line of each stage, from 1."""
        counts = (lines.count("\n") for lines in self.stages.values())
        lines = accumulate(counts, initial=self.head.count("\n") + 1)
        return dict(zip(self.stages, lines, strict=False))  # the last number is the line after all stages

    def place_of(self, stage: str, file: str) -> Location:
        """Return the place of a stage's key in the text, the text of `file`."""
        lines = self.stages[stage]
        key = next(_FIRST.finditer(f"\n{lines}"))
        return Location(file, self.first_lines[stage] + lines.count("\n", 0, key.start()), len(key[1]) + 1)

    def alone(self, names: tuple[str, ...]) -> str:
        """Return a text with these stages and no other."""
        return "".join((self.head, *map(self.stages.__getitem__, names), self.tail))


def split_stages(text: str) -> StageTexts | None:
    """Return the parts of a text; None if its lines do not show them.

    Only lines are looked at, so a scalar of several lines may be cut in two: `are_valid_alone` finds that.
    """
    # With a line break before it, a line begins in the text where its match begins here.
    broken = f"\n{text}\n"
    heads = [found.end() for found in _STAGES.finditer(broken)]
    # YAML also ends a line at a carriage return, which is not looked for here.
    if len(heads) != 1 or "\r" in text:
        return None
    first, found = heads[0], _END.search(broken, heads[0])
    end = found.start() if found else len(broken) - 1
    indent = _FIRST.search(broken, first, end + 1)
    keys = list(re.compile(indent[0] + _KEY).finditer(broken, first, end + 1)) if indent else []
    names = {key[1].strip("\"'") for key in keys if key[1]}
    if not keys or len(names) != len(keys):  # a line at the indent of the stages is not a key, or repeats one
        return None
    # Comments before the first key belong to the first stage, all others to the stage above them.
    bounds = pairwise([first, *(key.start() for key in keys[1:]), end])
    stages = {key[1].strip("\"'"): text[begin:stop] for key, (begin, stop) in zip(keys, bounds, strict=True)}
    return StageTexts(text[:first], stages, text[end:])


def are_valid_alone(texts: StageTexts, names: tuple[str, ...]) -> bool:
    """Return whether the lines of each of these stages are valid YAML by themselves, and define this stage alone."""
    for name in names:
        parsed = parse_yaml(f"stages:\n{texts.stages[name]}", "", PIPELINE_LIMITS)
        tree = as_mapping(parsed.tree)
        if parsed.diagnostics or list(tree) != ["stages"] or list(as_mapping(tree["stages"])) != [name]:
            return False
    return True


def shift_locations(places: Mapping[str, Location], before: StageTexts, after: StageTexts) -> dict[str, Location]:
    """Return locations as they are in a text that differs in its stages only, without those in changed stages."""
    old, new = before.first_lines, after.first_lines
    more = sum(lines.count("\n") for lines in after.stages.values())
    more -= sum(lines.count("\n") for lines in before.stages.values())
    found = {}
    for path, place in places.items():
        stage = path.split("/")[1] if path.startswith("stages/") else None
        if stage is None:
            shift = more if place.line > before.head.count("\n") else 0
        elif before.stages.get(stage) == after.stages.get(stage, ""):
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
