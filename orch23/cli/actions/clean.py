"""Run `clean`: remove outputs of stages, or put the original files back."""

from collections.abc import Collection

from msgspec import Struct, field

from orch23.cli.console import Console
from orch23.cli.declaration import PipelineArguments
from orch23.cli.opening import open_for_command
from orch23.cli.project_loading import Project, open_read_session
from orch23.engine.protected_files import DeclaredByPlan
from orch23.engine.session import Session
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.errors import ExitCode
from orch23.model.record import Record
from orch23.plan.planner import Selection
from orch23.report.diagnostics import render_diagnostics, visible
from orch23.report.values import pluralize
from orch23.store.promotion import PromotionResult, RefusePath


class OutputRemoval(Struct, frozen=True, kw_only=True):
    """What would be taken back: path -> what takes its place (None: nothing).

    `modified` are user edits, `accepted` those that the user had accepted: path -> the original. `refused` have
    protected names that no stage declares: they stay.
    """

    refusal: RefusePath
    refused: list[str] = field(default_factory=list)
    target: dict[str, FileEntry | None] = field(default_factory=dict)
    modified: dict[str, FileEntry | None] = field(default_factory=dict)
    accepted: dict[str, FileEntry | None] = field(default_factory=dict)


class RemovalResult(Struct, frozen=True):
    """What was taken back, and what stayed: edited files, accepted ones, those that no stage may change."""

    promoted: PromotionResult
    modified: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def plan_removal(session: Session, stages: Collection[str]) -> OutputRemoval:
    """Return which outputs these stages own, by their records and by what a failed attempt left. No stage means all.

    Raises:
        NotFoundError: a name is no stage, and no record has it either.

    """
    owning = {
        name: record for name, record in session.lock.owner_records().items() if session.state.may_remove_by(record)
    }
    unknown = [name for name in stages if not any(name in (one, one.partition("@")[0]) for one in owning)]
    Selection(targets=tuple(unknown)).nodes(session.state.plan)
    wanted = [r for name, r in owning.items() if not stages or {name, name.partition("@")[0]} & set(stages)]
    wanted += _kept_failures(session, stages)
    taking = OutputRemoval(refusal=DeclaredByPlan(session).refusal)
    for path in sorted({path for record in wanted for path in record.outputs}):
        there = session.store.workspace.entry(path)
        original = _original(wanted, path)
        if there is None or there == original:
            continue
        if taking.refusal(path) is not None:
            taking.refused.append(path)
        elif not session.state.ownership.is_known(path, there):
            taking.modified[path] = original
        elif session.state.ownership.is_accepted(path, there):
            taking.accepted[path] = original
        else:
            taking.target[path] = original
    return taking


def _kept_failures(session: Session, stages: Collection[str]) -> list[Record]:
    """Return the records of failed attempts that `on_failure: keep` promoted, of stages of this pipeline."""
    nodes = session.state.plan.nodes
    names = [name for name in nodes if not stages or {name, name.partition("@")[0]} & set(stages)]
    return [record for name in names for record in session.store.records.labelled(name) if record.failed]


def remove_outputs(project: Project, stages: Collection[str], *, force: bool = False) -> RemovalResult:
    """Take the outputs of stages back. The caller holds the build lock.

    With `force` edited and accepted files are taken too, their bytes kept in the store. Without it accepted ones stay,
    and with any edited one nothing is done.
    """
    session = open_read_session(project)
    taking = plan_removal(session, stages)
    if taking.modified and not force:
        return RemovalResult(PromotionResult(), tuple(taking.modified))
    forced = {**taking.modified, **taking.accepted} if force else {}
    left = () if force else tuple(taking.accepted)
    return RemovalResult(_promote(session, taking, forced), accepted=left, refused=tuple(taking.refused))


def remove_unmodified_outputs(project: Project) -> RemovalResult:
    """Take back every output that is as a run left it, and return what was done and what was left."""
    session = open_read_session(project)
    taking = plan_removal(session, ())
    promoted = _promote(session, taking, {})
    return RemovalResult(promoted, tuple(taking.modified), tuple(taking.accepted), tuple(taking.refused))


def _promote(session: Session, taking: OutputRemoval, forced: dict[str, FileEntry | None]) -> PromotionResult:
    store, target = session.store, {**taking.target, **forced}
    for path in forced:
        digest = store.add_file(path)
        store.exchanges.put_original(store.contents.get(digest), None)
    for path, entry in target.items():
        if entry is not None and not store.contents.has(entry.digest):
            store.contents.put(session.state.read(path, entry))
    store.workspace.invalidate(target)
    old = {path: store.workspace.entry(path) for path in target}
    promoted = store.promoter.promote(target, old, taking.refusal)
    store.workspace.invalidate(target)
    return promoted


def _original(records: list[Record], path: str) -> FileEntry | None:
    return next((r.originals[path] for r in records if r.originals.get(path) is not None), None)


def run(console: Console, *, args: PipelineArguments, force: bool) -> int:
    """Remove what stages made, and no other file."""
    project, stages = open_for_command(console, args)
    with project.store.build_lock():
        project.store.promoter.recover(project.refusal)
        taken = remove_outputs(project, stages, force=force)
    promoted = taken.promoted
    if taken.modified:
        hint = "`orch23 accept STAGE` keeps an edit; `orch23 clean --force` gives it up"
        message = f"edited since they were made: {' '.join(taken.modified)}; nothing was removed"
        console.write_err(
            render_diagnostics((Diagnostic("E643", message, hint=hint),), {}, color=console.err_style.color)
        )
        return ExitCode.DECISION
    told = [f"removed {pluralize(len(promoted.removed), 'file')}"]
    told += [f"brought back {pluralize(len(promoted.written), 'file')}"] if promoted.written else []
    told += [f"left {visible(' '.join(promoted.edited))}, which changed meanwhile"] if promoted.edited else []
    told += [f"kept {visible(' '.join(taken.accepted))}, which a user had accepted"] if taken.accepted else []
    told += [f"left {visible(' '.join(taken.refused))}: protected, and no stage names it"] if taken.refused else []
    console.write_out("; ".join(told) + "\n")
    return ExitCode.OK
