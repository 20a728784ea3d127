"""Which stage looked at what, and who comes after whom: what an edit can reach, without loading a pipeline."""

import json
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

FORMAT = b"orch23 ties 1\n"


class Tie(NamedTuple):
    """One stage at rest. Other stages are told by their number.

    `after` are the stages that it comes after, `named` those that its text names. `looked` is what it looked at: files
    by their path, folders that it listed by their whole path. `makes` are its files, `keys` the records of it or of its
    files. `lines` are those of the pipeline's text that are its own, from and up to, counted from 0. `free` says that
    it can be decided beside its neighbours alone.
    """

    name: str
    after: list[int]
    named: list[int]
    looked: list[str]
    makes: list[str]
    keys: list[str]
    lines: list[int]
    free: bool


class Ties:
    """All stages of a project at rest.

    `newest` is the number of the newest record, `shelves` the change times of the folders of records in ns, by name;
    `began` is what a build of the whole says of itself when it begins, `skipped` are the lines of the stages that are
    switched off, `text` is the pipeline's.
    """

    __slots__ = ("began", "newest", "shelves", "skipped", "stages", "text")

    def __init__(
        self,
        stages: list[Tie],
        *,
        newest: int,
        shelves: dict[str, int],
        began: dict[str, object],
        skipped: list[list[int]],
        text: str,
    ) -> None:
        """Take all of it."""
        self.stages, self.newest, self.shelves, self.began = stages, newest, shelves, began
        self.skipped, self.text = skipped, text

    def to_bytes(self) -> bytes:
        """Return the file that `ties_from` reads."""
        body = json.dumps([self.newest, self.shelves, self.began, self.skipped, self.text, self.stages]).encode()
        return FORMAT + zlib.crc32(body).to_bytes(4, "big") + body

    def edited(self, text: str) -> "tuple[Ties, int] | None":
        """Return the ties as they are with another text of the pipeline, and the one stage whose lines differ.

        None where there is no such stage. What its text means now is not looked at.
        """
        first, last = _differing_lines(self.text, text)
        number = next((n for n, tie in enumerate(self.stages) if tie.lines[0] <= first and last < tie.lines[1]), None)
        if number is None:
            return None
        begin, end = self.stages[number].lines
        more = text.count("\n") - self.text.count("\n")
        if not begins_with(text.split("\n")[begin], self.stages[number].name):
            return None

        def moved(lines: list[int]) -> list[int]:
            return [line + more if line >= end else line for line in lines]

        return (
            Ties(
                [tie._replace(lines=moved(tie.lines)) for tie in self.stages],
                newest=self.newest,
                shelves=self.shelves,
                began=self.began,
                skipped=[moved(lines) for lines in self.skipped],
                text=text,
            ),
            number,
        )

    def reach(
        self, changed: Iterable[str], is_there: Callable[[str], bool], edited: Iterable[int] = ()
    ) -> "Reach | None":
        """Return what a change of these paths can reach; None where that is not known, or nearly everything.

        A path is a file, or the whole path of a folder that was listed. Of a file that is gone only a stage that makes
        it can tell what that means. `edited` are stages that are declared otherwise.
        """
        readers: dict[str, list[int]] = {path: [] for path in changed}
        makers: set[str] = set()
        followers: list[list[int]] = [[] for _ in self.stages]
        for number, tie in enumerate(self.stages):
            for path in tie.looked:
                if path in readers:
                    readers[path].append(number)
            makers.update(path for path in tie.makes if path in readers)
            for before in tie.after:
                followers[before].append(number)
        if not all(found and (path in makers or is_there(path)) for path, found in readers.items()):
            return None
        reached = {number for found in readers.values() for number in found}.union(edited)
        waiting = list(reached)
        while waiting:
            for number in followers[waiting.pop()]:
                if number not in reached:
                    reached.add(number)
                    waiting.append(number)
        if 2 * len(reached) > len(self.stages) or not all(self.stages[number].free for number in reached):
            return None
        return Reach(self, sorted(reached), sorted(self._around(reached)))

    def _around(self, reached: set[int]) -> set[int]:
        """Return the stages whose files these read, and all that are named by one of either."""
        around = {before for number in reached for before in self.stages[number].after} - reached
        waiting = [*reached, *around]
        while waiting:
            for number in self.stages[waiting.pop()].named:
                if number not in reached and number not in around:
                    around.add(number)
                    waiting.append(number)
        return around


def ties_from(data: bytes) -> Ties | None:
    """Return what `to_bytes` gave; None for anything else."""
    start = len(FORMAT) + 4
    if not data.startswith(FORMAT) or zlib.crc32(data[start:]).to_bytes(4, "big") != data[len(FORMAT) : start]:
        return None
    try:
        newest, shelves, began, skipped, text, stages = json.loads(data[start:])
        rows = [Tie(*row) for row in stages]
    except (ValueError, TypeError):  # of another orch23, or there would be no checksum
        return None
    return Ties(rows, newest=newest, shelves=shelves, began=began, skipped=skipped, text=text)


class Reach:
    """What a change can reach, by numbers: stages that have to be decided, and those around that they rest on."""

    __slots__ = ("around", "reached", "ties")

    def __init__(self, ties: Ties, reached: list[int], around: list[int]) -> None:
        """Take all three."""
        self.ties, self.reached, self.around = ties, reached, around

    @property
    def names(self) -> tuple[str, ...]:
        """Give the stages that have to be decided."""
        return tuple(self.ties.stages[number].name for number in self.reached)

    @property
    def stages(self) -> list[Tie]:
        """Give them, and those around."""
        return [self.ties.stages[number] for number in (*self.reached, *self.around)]

    def without_the_rest(self, text: str) -> str:
        """Return a pipeline's text in which all other stages are comments, each line in its place."""
        kept = {*self.reached, *self.around}
        lines = text.split("\n")
        rest = [tie.lines for number, tie in enumerate(self.ties.stages) if number not in kept]
        for first, end in (*rest, *self.ties.skipped):
            lines[first:end] = ["#"] * (end - first)
        return "\n".join(lines)


def _differing_lines(before: str, after: str) -> tuple[int, int]:
    """Return the first and the last line of a text that are not in another; of lines that only came, the one before."""
    old, new = before.split("\n"), after.split("\n")
    first = _equal(zip(old, new, strict=False))
    tail = _equal(zip(reversed(old[first:]), reversed(new[first:]), strict=False))
    last = len(old) - tail - 1
    return min(first, max(last, 0)), last


def _equal(pairs: Iterable[tuple[str, str]]) -> int:
    """Return how many pairs are of two that are equal, before the first of which they are not."""
    number = 0
    for one, other in pairs:
        if one != other:
            break
        number += 1
    return number


def begins_with(line: str, stage: str) -> bool:
    """Say whether a line of a pipeline begins the text of a stage."""
    return line.strip().partition(":")[0].rstrip() in (stage, f'"{stage}"', f"'{stage}'")
