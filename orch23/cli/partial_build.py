"""The part of a project that an edit reaches, where the last build had nothing to do: opened, and remembered again."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from orch23.engine.dependency_index import (
    Head,
    OutdatedIndexError,
    Reach,
    Rows,
    all_rows,
    changed_rows,
    reach,
)
from orch23.engine.memory import lock_path
from orch23.model.digest import Digest, digest_bytes
from orch23.model.event import RunStarted
from orch23.model.pipeline import Pipeline, Stage
from orch23.model.plan import Plan
from orch23.model.record import LockFile, Record
from orch23.plan.nodes import place_of
from orch23.snapshot.looks import Detail, Looks, detail_from
from orch23.snapshot.reply import FOLDER as SNAPSHOTS
from orch23.snapshot.reply import Unrest, keep, place
from orch23.steps.registry import is_llm
from orch23.store.beneath import read_regular
from orch23.store.opening import Store, any_suspected

FEWEST = 64
"""Of fewer stages all are decided each time: that is quick, and each is reported."""
Declared: TypeAlias = Callable[[str], Mapping[str, Stage] | None]
_TABLE = "stages "
_PAIR = "index"
_TOKEN_BYTES = 16
_MOST_EDITED = 100


class PartialBuild(Struct, frozen=True, kw_only=True):
    """The stages that an edit reaches. `text` is the pipeline's, or empty if it is as it was at the last build.

    `digests` are those of the pipeline and the vars file, by their names below the root.
    """

    unrest: Unrest
    reach: Reach
    plan: Plan
    text: str
    digests: Mapping[str, Digest]

    @property
    def names(self) -> tuple[str, ...]:
        """Give the stages that have to be decided."""
        return self.reach.reached

    @property
    def lock_sha256(self) -> str:
        """Give the digest of the lock file that the last build left, in hex; empty where it left none."""
        looks = self.unrest.looks
        found = _detail(looks, lock_path(Path(), looks.facts["pipeline"]).as_posix())
        return found.sha256.hex() if found is not None else ""

    @property
    def lock_file(self) -> tuple[str, int]:
        """Give the digest of the lock file that the last build left, and its change time in ns, or 0."""
        looks, path = self.unrest.looks, lock_path(Path(), self.unrest.looks.facts["pipeline"]).as_posix()
        number = looks.paths.index(path) if path in looks.paths else -1
        ctime = self.unrest.difference.touched.get(number, looks.ctimes[number]) if number >= 0 else 0
        return self.lock_sha256, ctime

    @property
    def began(self) -> RunStarted:
        """Give what a build of everything says when it begins."""
        return self.reach.rows.head.began

    @property
    def models(self) -> tuple[str, ...]:
        """Give the models of all stages."""
        return tuple(self.unrest.looks.facts["models"].splitlines())

    @property
    def at_rest(self) -> dict[str, int]:
        """Give how many other stages there are, by how they end."""
        ends = dict(self.reach.rows.head.ends)
        ends["fresh"] = ends.get("fresh", 0) - len(self.names)
        return {status: number for status, number in ends.items() if number}

    def renewed(self, looks: Looks, written: Collection[str], **facts: str) -> Looks:
        """Return the last build's snapshot, with what this build decided on or wrote, and with these facts.

        `written` are the paths that it wrote, or that it compared with what it read. A folder into which it wrote is
        as it is now if all stages that list it were decided.
        """
        before, reached = self.unrest.looks, set(self.names)
        other = (path for path, now in looks.outside.items() if before.outside.get(path, now) != now)
        listed = {path for path in other if reached.issuperset(self.reach.rows.readers(path) or (path,))}
        before.renew(looks, self.unrest.difference, {*written, *listed})
        before.environ = looks.environ
        before.facts |= facts
        return before

    def check_age(self, store: Store) -> None:
        """Do nothing if nobody has built since it was found; for the holder of the build lock.

        Raises:
            OutdatedIndexError: somebody has.

        """
        if not self.unrest.is_current(str(store.root)) or not store.disk.records.is_indexed():
            raise OutdatedIndexError


def partial_build(unrest: Unrest, store: Store, declared: Declared) -> PartialBuild | None:
    """Return what an edit can reach; None where that is not known, or is nearly everything.

    `declared` reads the stages of a text of the pipeline that may lack some of them; None where it is not sound.
    """
    looks, root, facts = unrest.looks, store.root, unrest.looks.facts
    changed, file = [*unrest.difference.changed], facts["pipeline"]
    try:
        rows = Rows(store.index, _table(facts["question"]))
        if rows.head.token != facts.get(_PAIR) or not store.disk.records.is_indexed():
            return None
        digests = {one: _digest(looks, one) for one in rows.head.read if one not in changed}
        text, edited = "", {}
        if file in changed:
            data = read_regular(root / file) or b""
            text, digests[file] = data.decode("utf-8"), digest_bytes(data)
            edited = _edited(rows, text, declared)
            changed.remove(file)
        found = reach(rows, changed, lambda path: os.path.lexists(root / path), edited)
        plan = found.plan(edited)
    except (OutdatedIndexError, UnicodeError):
        return None
    return PartialBuild(unrest=unrest, reach=found, plan=plan, text=text, digests=digests)


def _edited(rows: Rows, text: str, declared: Declared) -> dict[str, Stage]:
    """Return the stages that a text declares otherwise than the one that was built, if the plan stays as it is.

    Raises:
        OutdatedIndexError: more than stages differ, or one would write, read or wait for something else.

    """
    from orch23.load.pieces import are_whole, edit_between  # noqa: PLC0415 - it loads the reader of YAML

    edit = edit_between(rows.text(), text)
    if edit is None or list(edit.before.stages) != list(edit.after.stages):
        raise OutdatedIndexError
    if not 0 < len(edit.names) <= _MOST_EDITED or not are_whole(edit.after, edit.names):
        raise OutdatedIndexError
    found = declared(edit.after.alone(edit.names))
    if found is None or set(found) != set(edit.names):
        raise OutdatedIndexError
    for name, stage in found.items():
        if _ties(rows.row(name).node) != _ties(stage):
            raise OutdatedIndexError
    return dict(found)


def _ties(stage: Stage) -> tuple[object, ...]:
    """Return what of a stage decides on its place in the plan, or what a run says of it when it begins."""
    asked = (stage.step.provider, stage.step.model) if is_llm(stage.step) else ()
    return (place_of(stage), stage.kind, stage.retry.max, asked)


# ---- remembering --------------------------------------------------------------------------------


class AtRest(Struct, frozen=True, kw_only=True):
    """What is known of a project whose next build has nothing to do: its plan, what was looked at, and the results."""

    question: str
    plan: Plan
    wanted: frozenset[str]
    lock: LockFile
    text: str
    read: tuple[str, ...]
    reads: Mapping[str, Collection[str]]
    records: Mapping[str, Record]
    began: RunStarted
    ends: Mapping[str, int]


def keep_at_rest(
    looks: Looks,
    store: Store,
    found: AtRest | None,
    part: PartialBuild | None,
    suspects: Callable[[Iterable[str]], bool],
) -> None:
    """Write a snapshot, and into the index what its stages rest on, unless `suspects` finds a secret in it.

    From the root, for the holder of the build lock.
    """
    looks.facts.pop(_PAIR, None)
    table = _table(looks.facts["question"])
    token = os.urandom(_TOKEN_BYTES).hex()
    try:
        fresh, changed = _rows(found, part, token) if found is not None else (None, None)
    except (OutdatedIndexError, UnicodeError, TypeError):  # a value that cannot be written
        fresh, changed = None, None
    if any_suspected(fresh or changed or {}, suspects):
        fresh, changed = None, None
    kept = {place(looks.facts["question"])} | _snapshots()
    unused = tuple(name for name in store.index.tables() if name.startswith(_TABLE) and _place(name) not in kept)
    if fresh is not None or changed is not None:
        looks.facts[_PAIR] = token
    store.save_index(
        fresh={table: fresh} if fresh is not None else {},
        changed={table: changed} if changed is not None else {},
        dropped=unused,
        suspects=suspects,
    )
    keep(looks)


def _rows(
    found: AtRest, part: PartialBuild | None, token: str
) -> tuple[Mapping[bytes, bytes] | None, Mapping[bytes, bytes | None] | None]:
    """Return all rows, or those that have changed; neither where the stages cannot be decided apart."""
    if part is not None:
        rows = part.reach.rows
        head = msgspec.structs.replace(rows.head, token=token, began=found.began)
        text = part.text or None
        return None, changed_rows(head, text, part.reach, found.plan, found.reads, found.records)
    if len(found.wanted) <= FEWEST or found.lock.retained or not _are_apart(found):
        return None, None
    head = Head(
        token,
        _without_stages(found.plan.pipeline),
        found.began,
        dict(found.ends),
        found.read,
    )
    return all_rows(head, found.text, found.plan, found.wanted, found.reads, found.records), None


def _without_stages(pipeline: Pipeline) -> Pipeline:
    folders = pipeline.transcript_folders
    return msgspec.structs.replace(pipeline, stages=(), skipped=(), locations={}, transcripts=folders)


def _are_apart(found: AtRest) -> bool:
    """Return whether the lines of the text show its stages, so that an edited one can be read by itself."""
    from orch23.load.pieces import cut  # noqa: PLC0415 - loaded with the pipeline

    pieces = cut(found.text)
    pipeline = found.plan.pipeline
    return pieces is not None and set(pieces.stages) == {one.name for one in (*pipeline.stages, *pipeline.skipped)}


def _table(question: str) -> str:
    return _TABLE + place(question).rpartition("/")[2]


def _place(table: str) -> str:
    return f"{SNAPSHOTS}/{table.removeprefix(_TABLE)}"


def _snapshots() -> set[str]:
    with contextlib.suppress(OSError):
        return {path.as_posix() for path in Path(SNAPSHOTS).iterdir()}
    return set()


def _digest(looks: Looks, path: str) -> Digest:
    detail = _detail(looks, path)
    if detail is None:
        raise OutdatedIndexError
    return Digest(detail.sha256.hex(), detail.size)


def _detail(looks: Looks, path: str) -> Detail | None:
    return detail_from(looks.detail(looks.paths.index(path))) if path in looks.paths else None
