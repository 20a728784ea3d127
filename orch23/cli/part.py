"""The part of a project that an edit can reach, where all the rest is as a build left it that had nothing to do."""

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from orch23.model.digest import Json
from orch23.model.pipeline import Pipeline
from orch23.snapshot.looks import Looks
from orch23.snapshot.reply import TIES, Unrest, keep, place, put
from orch23.snapshot.ties import Reach, Ties, ties_from
from orch23.store.opening import FOLDER
from orch23.store.records import Records, RecordsPart

RECORDS = "records"


class OutdatedError(Exception):
    """What was known of the rest of a project is so no more: everything is to be decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The stages that may have something to do, and those that they rest on."""

    unrest: Unrest
    reach: Reach
    records: RecordsPart

    @property
    def stages(self) -> tuple[str, ...]:
        """Give all of them."""
        return tuple(tie.name for tie in self.reach.stages)

    @property
    def ties(self) -> Ties:
        """Give what is known of all stages."""
        return self.reach.ties

    @property
    def began(self) -> Mapping[str, Json]:
        """Give what a build of the whole says of itself."""
        return cast("Mapping[str, Json]", self.ties.began)

    @property
    def at_rest(self) -> dict[str, int]:
        """Give how many stages nothing happens to, by how they end."""
        found = {"fresh": len(self.ties.stages) - len(self.reach.reached), "skipped": len(self.ties.skipped)}
        return {status: number for status, number in found.items() if number}

    def renewed(self, looks: Looks, **facts: str) -> Looks:
        """Return what was looked at before, with what was looked at again, and with these facts in place of the old."""
        before = self.unrest.looks
        before.renew(looks, self.unrest.difference)
        before.environ = looks.environ
        before.facts |= facts
        return before

    def check_stages(self, pipeline: Pipeline) -> None:
        """Do nothing if a pipeline has these stages and no other.

        Raises:
            OutdatedError: it has not.

        """
        if {stage.name for stage in pipeline.stages} != set(self.stages) or pipeline.skipped:
            raise OutdatedError

    def check_age(self, root: Path) -> None:
        """Do nothing if nobody has built since it was found; for the holder of the build lock.

        Raises:
            OutdatedError: somebody has.

        """
        if not self.unrest.is_current(str(root)) or Records(root / FOLDER / RECORDS).shelves() != self.ties.shelves:
            raise OutdatedError


def part_of(unrest: Unrest) -> Part | None:
    """Return what the changes can reach; None where that is not known, or nearly everything."""
    facts = unrest.looks.facts
    root = Path(facts["root"])
    try:
        data = (root / f"{place(facts['question'])}{TIES}").read_bytes()
    except OSError:
        return None
    ties = ties_from(data)
    if ties is None or facts.get("ties") != f"{zlib.crc32(data):08x}":
        return None
    reach = ties.reach(unrest.difference.changed, lambda path: os.path.lexists(root / path))
    if reach is None:
        return None
    keys = {key for tie in reach.stages for key in tie.keys}
    return Part(unrest=unrest, reach=reach, records=RecordsPart(keys, ties.newest))


def keep_tied(looks: Looks, ties: Ties | None) -> None:
    """Write a snapshot, and beside it what the stages are tied by; from the root, for the holder of the build lock."""
    looks.facts.pop("ties", None)
    if ties is not None:
        data = ties.to_bytes()
        looks.facts["ties"] = f"{zlib.crc32(data):08x}"
        put(f"{place(looks.facts['question'])}{TIES}", data)
    keep(looks)
