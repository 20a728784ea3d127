"""Find the lines of a pipeline's text to change: to set a key of a stage, add an item to a list, replace a word.

Only a text whose lines have the expected form is changed. The caller shows the key and its value otherwise.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from orch23.model.diagnostic import Location
from orch23.model.event_data import LikelyCause
from orch23.model.patterns import lazy_pattern

_PLAIN = lazy_pattern(r"[\w./@+-]+")


class LineEdit(Struct, frozen=True):
    """The change of one line, which counts from 1: `new` replaces `old`, or, if `inserts`, is added below it."""

    line: int
    old: str
    new: str
    inserts: bool = False

    def apply(self, text: str) -> str:
        """Return a text with the change."""
        lines = text.split("\n")
        lines[self.line - 1 : self.line] = [self.old, self.new] if self.inserts else [self.new]
        return "\n".join(lines)


def yaml_line(cause: LikelyCause) -> str:
    """Return the key with its value in one line: `limits: {memory: 2GiB}`, `inputs: [..., a.md]`."""
    value = _scalar(cause.value)
    first, *others = cause.key.split("/")
    text = f"[..., {value}]" if cause.appends else value
    for name in reversed(others):
        text = f"[{text}]" if name.isdecimal() else f"{{{name}: {text}}}"
    return f"{first}: {text}"


def with_word(
    edit: LineEdit | None, text: str, stage: str, places: Mapping[str, Location], cause: LikelyCause
) -> tuple[LineEdit, ...]:
    """Return the changes that write the new word of a cause in the command of a stage, together with another change.

    They are in the order of their lines, one for each; empty if the command does not have the old word.
    """
    old_word = re.escape(cause.old_word)
    if cause.old_word.startswith("~/"):
        old_word = rf"(?:~|\$HOME|\$\{{HOME\}}){re.escape(cause.old_word[1:])}"
    word = re.compile(rf"(?<![\w./~$-]){old_word}(?![\w/-]|\.\w)")
    lines = text.removeprefix("\ufeff").split("\n")
    found = {} if edit is None else {edit.line: edit}
    numbers = [number for number in _command_lines(len(lines), stage, places) if word.search(lines[number - 1])]
    for number in numbers:
        before = found.get(number)
        if before is not None and before.inserts:
            return ()
        old = lines[number - 1]
        found[number] = LineEdit(number, old, word.sub(lambda _: cause.new_word, before.new if before else old))
    return tuple(found[number] for number in sorted(found)) if numbers else ()


def _command_lines(last: int, stage: str, places: Mapping[str, Location]) -> range:
    """Return the numbers of the lines that have the command of a shell stage; none of another one."""
    path = f"stages/{stage}/shell"
    if path not in places:
        return range(0)
    first = places[path].line
    below = (place.line for other, place in places.items() if not f"{other}/".startswith(f"{path}/"))
    return range(first, min((line for line in below if line > first), default=last + 1))


def yaml_edit(text: str, stage: str, places: Mapping[str, Location], cause: LikelyCause) -> LineEdit | None:
    """Return the change that a cause needs, or None. `stage` is the name under `stages`; `places` are of the nodes."""
    lines = text.removeprefix("\ufeff").split("\n")
    base = f"stages/{stage}"
    names = cause.key.split("/")
    known = next((n for n in range(len(names), -1, -1) if "/".join((base, *names[:n])) in places), None)
    if known is None:
        return None
    place = places["/".join((base, *names[:known]))]
    if not 0 < place.line <= len(lines):
        return None
    value = _scalar(cause.value)
    if known == len(names):
        return _appended(lines, place, value) if cause.appends else _replaced(lines, place, value)
    rest = f"[{value}]" if cause.appends else value
    for name in reversed(names[known + 1 :]):
        rest = f"{{{name}: {rest}}}"
    return _added(lines, place, f"{names[known]}: {rest}", stage if known == 0 else names[known - 1])


def _scalar(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _appended(lines: Sequence[str], place: Location, value: str) -> LineEdit | None:
    """Add an item to the list at a place."""
    line = lines[place.line - 1]
    start = line[place.column - 1 :]
    if start.startswith("["):
        end = _end_of_flow(line, place.column - 1)
        if end is None:
            return None
        comma = ", " if line[place.column : end].strip() else ""
        return LineEdit(place.line, line, f"{line[:end].rstrip()}{comma}{value}{line[end:]}")
    if not start.startswith("- "):
        return None
    # After the last item: those below have the same indentation or a deeper one.
    indent = line[: place.column - 1]
    if indent.strip():
        return None
    last = place.line
    for number in range(place.line, len(lines)):
        below = lines[number]
        if not below.startswith((f"{indent}- ", f"{indent}  ")):
            break
        last = number + 1
    return LineEdit(last, lines[last - 1], f"{indent}- {value}", inserts=True)


def _replaced(lines: Sequence[str], place: Location, value: str) -> LineEdit | None:
    """Replace the plain value at a place."""
    line = lines[place.line - 1]
    end = place.column - 1 + place.length
    old = line[place.column - 1 : end]
    if not old.strip() or old[0] in "[{|>&*!":
        return None
    return LineEdit(place.line, line, f"{line[: place.column - 1]}{value}{line[end:]}")


def _added(lines: Sequence[str], place: Location, entry: str, name: str) -> LineEdit | None:
    """Add an entry to the mapping of this name. The place is that of its key or of its value."""
    number = place.line
    line = lines[number - 1]
    key = re.search(rf"(?:^|[\s{{,])(['\"]?){re.escape(name)}\1:", line)
    if key is None and number > 1:  # the place is that of the first entry below the key
        number -= 1
        line = lines[number - 1]
        key = re.search(rf"(?:^|[\s{{,])(['\"]?){re.escape(name)}\1:", line)
    if key is None:
        return None
    rest = line[key.end() :].lstrip()
    if rest.startswith("{"):
        at = line.index("{", key.end()) + 1
        comma = "" if line[at:].lstrip().startswith("}") else ", "
        return LineEdit(number, line, f"{line[:at]}{entry}{comma}{line[at:].lstrip()}")
    if rest and not rest.startswith("#"):
        return None
    below = next((one for one in lines[number:] if one.strip() and not one.lstrip().startswith("#")), "")
    before = len(line) - len(line.lstrip())
    indent = len(below) - len(below.lstrip())
    if indent <= before or below.lstrip().startswith("- "):
        return None
    return LineEdit(number, line, f"{' ' * indent}{entry}", inserts=True)


def _end_of_flow(line: str, start: int) -> int | None:
    """Return the index of the bracket that ends the list at an index; None if it is not in this line."""
    depth, quote = 0, ""
    for index in range(start, len(line)):
        char = line[index]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
            if depth == 0:
                return index
    return None
