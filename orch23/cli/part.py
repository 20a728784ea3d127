"""The part of a project that an edit can reach, where all the rest is as a build left it that had nothing to do."""

import os
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from orch23.engine.memory import lock_path
from orch23.load.pipeline import document_keys
from orch23.load.yaml_text import decode
from orch23.model.digest import Json
from orch23.model.pipeline import ForeachStage, LLMStep, Pipeline
from orch23.snapshot.looks import Looks, detail_from
from orch23.snapshot.reply import TIES, Unrest, keep, place, put
from orch23.snapshot.ties import Reach, Ties, ties_from
from orch23.store.beneath import read_regular
from orch23.store.opening import FOLDER
from orch23.store.records import Records, RecordsPart

RECORDS = "records"


class OutdatedError(Exception):
    """What was known of the rest of a project is so no more: everything is to be decided."""


class Part(Struct, frozen=True, kw_only=True):
    """The stages that may have something to do, and those that they rest on.

    `edited` is the one whose text in the pipeline is another, `text_before` what that of all of them was before.
    """

    unrest: Unrest
    reach: Reach
    records: RecordsPart
    edited: str = ""
    text_before: str = ""

    @property
    def stages(self) -> tuple[str, ...]:
        """Give all of them."""
        return tuple(tie.name for tie in self.reach.stages)

    @property
    def ties(self) -> Ties:
        """Give what is known of all stages."""
        return self.reach.ties

    @property
    def lock_sha256(self) -> str:
        """Return the digest of the lock file that the last build left, in hex; empty where it left none."""
        looks, file = self.unrest.looks, lock_path(Path(), self.unrest.looks.facts["pipeline"]).as_posix()
        return detail_from(looks.detail(looks.paths.index(file))).sha256.hex() if file in looks.paths else ""

    @property
    def began(self) -> Mapping[str, Json]:
        """Give what a build of the whole says of itself."""
        return cast("Mapping[str, Json]", self.ties.began)

    @property
    def models(self) -> tuple[str, ...]:
        """Give who answers in the whole."""
        return tuple(self.unrest.looks.facts["models"].splitlines())

    @property
    def at_rest(self) -> dict[str, int]:
        """Give how many stages nothing happens to, by how they end."""
        found = {"fresh": len(self.ties.stages) - len(self.reach.reached), "skipped": len(self.ties.skipped)}
        return {status: number for status, number in found.items() if number}

    def renewed(self, looks: Looks, written: Collection[str], **facts: str) -> Looks:
        """Return the looks of the last build, with those of this one at what it decided on or wrote, and these facts.

        `written` are the paths that it wrote, or that it compared with what it read.
        """
        before = self.unrest.looks
        before.renew(looks, self.unrest.difference, written)
        before.environ = looks.environ
        before.facts |= facts
        return before

    def check_text(self, text: str) -> None:
        """Do nothing if the pipeline reads as it did when its stages were told apart.

        Raises:
            OutdatedError: it was saved since.

        """
        if text != self.ties.text:
            raise OutdatedError

    def check_stages(self, pipeline: Pipeline, load: Callable[[str], Pipeline]) -> None:
        """Do nothing if a pipeline has these stages and no other, tied as they were; `load` reads another text of it.

        Raises:
            OutdatedError: it has not, or the edited one would write, read or wait for something else.

        """
        if {stage.name for stage in pipeline.stages} != set(self.stages) or pipeline.skipped:
            raise OutdatedError
        if self.edited:
            before = load(self.text_before)
            same = replace(before, stages=pipeline.stages, locations=pipeline.locations) == pipeline
            if (
                not same
                or document_keys(before).keys() != document_keys(pipeline).keys()
                or _tied(before, self.edited) != _tied(pipeline, self.edited)
            ):
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
    data = read_regular(root / f"{place(facts['question'])}{TIES}") or b""
    ties = ties_from(data)
    if ties is None or facts.get("ties") != f"{zlib.crc32(data):08x}":
        return None
    changed, before = [*unrest.difference.changed], ties
    edited: list[int] = []
    if facts["pipeline"] in changed:
        text = read_regular(root / facts["pipeline"])
        found = ties.edited(decode(text, "")[0]) if text is not None else None
        if found is None:
            return None
        changed.remove(facts["pipeline"])
        ties, edited = found[0], [found[1]]
    reach = ties.reach(changed, lambda path: os.path.lexists(root / path), edited)
    if reach is None:
        return None
    return Part(
        unrest=unrest,
        reach=reach,
        records=RecordsPart({key for tie in reach.stages for key in tie.keys}, ties.newest),
        edited=ties.stages[edited[0]].name if edited else "",
        text_before=Reach(before, reach.reached, reach.around).without_the_rest(before.text) if edited else "",
    )


def _tied(pipeline: Pipeline, name: str) -> tuple[object, ...]:
    """Return what of a stage others are tied to, or what a run says of it when it begins."""
    stage = next(one for one in pipeline.stages if one.name == name)
    if isinstance(stage, ForeachStage):
        raise OutdatedError
    asked = (stage.step.provider, stage.step.model) if isinstance(stage.step, LLMStep) else ()
    reads = (stage.inputs, stage.verify.inputs, stage.requires, stage.needs)
    return (stage.kind, reads, stage.outputs, stage.fence, stage.chain, stage.retry.max, stage.promote, asked)


def keep_tied(looks: Looks, ties: Ties | None) -> None:
    """Write a snapshot, and beside it what the stages are tied by; from the root, for the holder of the build lock."""
    looks.facts.pop("ties", None)
    if ties is not None:
        data = ties.to_bytes()
        looks.facts["ties"] = f"{zlib.crc32(data):08x}"
        put(f"{place(looks.facts['question'])}{TIES}", data)
    keep(looks)
