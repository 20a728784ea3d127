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
    switched off.
    """

    __slots__ = ("began", "newest", "shelves", "skipped", "stages")

    def __init__(
        self,
        stages: list[Tie],
        *,
        newest: int,
        shelves: dict[str, int],
        began: dict[str, object],
        skipped: list[list[int]],
    ) -> None:
        """Take all of it."""
        self.stages, self.newest, self.shelves, self.began, self.skipped = stages, newest, shelves, began, skipped

    def to_bytes(self) -> bytes:
        """Return the file that `ties_from` reads."""
        body = json.dumps([self.newest, self.shelves, self.began, self.skipped, self.stages]).encode()
        return FORMAT + zlib.crc32(body).to_bytes(4, "big") + body

    def reach(self, changed: Iterable[str], is_there: Callable[[str], bool]) -> "Reach | None":
        """Return what a change of these paths can reach; None where that is not known, or nearly everything.

        A path is a file, or the whole path of a folder that was listed. Of a file that is gone only a stage that makes
        it can tell what that means.
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
        reached = {number for found in readers.values() for number in found}
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
    newest, shelves, began, skipped, stages = json.loads(data[start:])
    return Ties([Tie(*row) for row in stages], newest=newest, shelves=shelves, began=began, skipped=skipped)


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
