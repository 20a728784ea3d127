"""Collect the decisions, events and read paths of a build with nothing to do, for the next build."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from msgspec import UNSET, Struct
from msgspec.structs import replace

from orch23.decide.dependency_index import (
    DependencyIndex,
    IndexHead,
    OutdatedIndexError,
    all_rows,
    changed_rows,
    head_of,
)
from orch23.decide.dry_run import replan
from orch23.decide.partial_plan import Part
from orch23.engine.build import Build
from orch23.model.event import RunFinished, RunStarted
from orch23.model.plan import Decision, Done, Fresh, Plan
from orch23.model.record import LockFile
from orch23.snapshot.signatures import EMPTY_DIRECTORY, EXISTS, signature
from orch23.snapshot.stat_snapshot import StatSnapshot
from orch23.store.project_store import ProjectStore

FEWEST = 64
"""With at most this many stages, every build decides and reports all of them: that is fast enough."""


class IdleBuild(Struct, frozen=True, kw_only=True):
    """A build with nothing to do: its decisions, its plan, what each stage read, its first and its last event.

    `wanted` are the selected stages, `empty` the foreach stages with an empty list that are reported, `lock` is the
    lock file that it finds. The `unaffected` stages were not decided since the build before. `store` is as it was for
    the decisions.
    """

    decisions: Mapping[str, Decision]
    plan: Plan
    reads: Mapping[str, Collection[str]]
    began: RunStarted
    ended: RunFinished
    wanted: frozenset[str]
    empty: tuple[str, ...]
    lock: LockFile
    unaffected: frozenset[str]
    store: ProjectStore


def idle_build_of(
    build: Build, began: RunStarted, ended: RunFinished, part: Part | None, *, moved: bool
) -> IdleBuild | None:
    """Return the decisions and events of the next build; None if it has something to do, or that is not known.

    `began` and `ended` are the first and the last event of this build. If it `moved` anything, all stages are planned
    again; also if it was to overwrite user edits, since the next build may have to keep them.
    """
    opened, selection, state = build.opened, build.options.selection, build.opened.state
    wanted = selection.nodes(state.plan)
    if moved or opened.decider.overwrite_edited:
        # From here on, only what the next build uses counts: git, and bytes of the store.
        state.git.was_used = False
        opened.store.local.contents.read_digests.clear()
        decisions, state, unaffected = replan(opened, build.writer.written_lock, selection)
    else:
        unaffected = build.unaffected
        ends = ((name, Done if name in state.done else Fresh) for name in state.plan.order if name in wanted)
        decisions = {name: end(state.results[name]) for name, end in ends}
    # HEAD can move without a change of any file that was read, so the answer of git is not repeated.
    if state.git.was_used or not all(isinstance(one, Fresh) for one in decisions.values()):
        return None
    counts = Counter(part.idle_counts if part is not None else {})
    skipped = selection.skipped(state.plan)
    counts.update(one.label for one in decisions.values())
    counts.update(skipped=len(skipped))
    lock, spec = build.writer.written_lock_sha256, _spec_of(opened.store, began.spec_file, part)
    return IdleBuild(
        decisions=decisions,
        plan=state.plan,
        reads=state.reads,
        began=replace(began, lock=lock, spec_hash=spec, at_rest=UNSET),
        ended=RunFinished(status="ok", stages=dict(+counts), limits=ended.limits),
        wanted=wanted,
        empty=tuple(name for name in skipped if not state.plan.idle[name].condition),
        lock=build.writer.written_lock,
        unaffected=unaffected,
        store=state.store,
    )


def spec_hash(store: ProjectStore, file: str) -> str:
    """Return the digest of the spec file of seeds 000 and 001, empty if there is none."""
    entry = store.workspace.entry(file) if file else None
    return f"sha256:{entry.digest.sha256}" if entry is not None else ""


def _spec_of(store: ProjectStore, file: str, part: Part | None) -> str:
    """Return the digest of the spec at the time of the decisions."""
    if part is None or file in part.since.changed or file in store.workspace.written_paths:
        return spec_hash(store, file)
    return part.rows.head.began.spec_hash


def add_read_paths(snapshot: StatSnapshot, store: ProjectStore, others: Mapping[Path, str]) -> bool:
    """Add the paths that decisions depend on; return False if one changed since, or is too recent to be trusted.

    A file that changed within the clock resolution of the file system may have changed again. `others` are further
    paths, with their earlier signatures.
    """
    blobs = store.local.contents
    files = [store.folder / "promote.json", *sorted(map(blobs.path_of, blobs.read_digests))]
    records = str(store.local.records.folder)
    snapshot.outside[records] = signature(records, EXISTS)  # without these the lock file is not trusted
    # It is empty after this build. If a killed build leaves directories in it, the next build has to remove them.
    snapshot.outside[str(store.sandbox_dirs)] = EMPTY_DIRECTORY
    return (
        all(snapshot.add_path(str(path)) for path in files)
        and all(snapshot.add_path(str(path)) and snapshot.outside[str(path)] == was for path, was in others.items())
        and store.workspace.add_to_snapshot(snapshot)
    )


class Table(Struct, frozen=True, kw_only=True):
    """The rows to write after a build with nothing to do: all of them, the changed ones, or none."""

    fresh: Mapping[bytes, bytes] | None = None
    changed: Mapping[bytes, bytes | None] | None = None

    def parts(self) -> Mapping[bytes, bytes | None]:
        """Return all rows to write."""
        return self.fresh or self.changed or {}


def table_of(
    found: IdleBuild,
    part: Part | None,
    before: DependencyIndex | None,
    *,
    token: str,
    text: str,
    read: Iterable[str],
    is_cut: Callable[[str, frozenset[str]], bool],
) -> Table:
    """Return the index rows of a build with nothing to do; none if its stages cannot be decided separately.

    `before` is the index of the last build: only rows that differ from it are written, unless most do. `token` pairs
    the rows with a snapshot. `text` is the pipeline's, `read` names the files that it was read from. `is_cut`
    returns whether the text can be split into stages of these names, so that one edited stage can be read alone.
    """
    plan, reads = found.plan, found.reads
    records = {name: one.record for name, one in found.decisions.items() if isinstance(one, Fresh)}
    try:
        if part is not None:
            index = part.rows
            head = replace(index.head, token=token, began=found.began)
            return Table(changed=changed_rows(head, part.text or None, index, part.names, plan, reads, records))
        declared = frozenset(one.name for one in (*plan.pipeline.stages, *plan.pipeline.skipped))
        # Which stages with `once` are done follows from all records.
        is_whole = found.lock.retained or any(one.task for one in found.lock.records.values())
        if len(found.wanted) <= FEWEST or is_whole or not is_cut(text, declared):
            return Table()
        # Each stage has a row of its own, so that an edit reads only the rows of the stages that it affects.
        head = IndexHead(token, head_of(plan.pipeline), found.began, dict(found.ended.stages), tuple(read), found.empty)
        rows = all_rows(head, text, plan, found.wanted, reads, records, found.lock.records)
        if before is not None and rows is not None and 2 * len(changed := before.changes_to(rows)) < len(rows):
            return Table(changed=changed)
        return Table(fresh=rows)
    except (OutdatedIndexError, UnicodeError, TypeError):  # a value that cannot be written
        return Table()
