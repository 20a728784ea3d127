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
from orch23.report.diagnostics import visible
from orch23.report.values import pluralize
from orch23.store.promotion import PromotionResult, RefusePath


class OutputRemoval(Struct, frozen=True, kw_only=True):
    """The outputs to remove (`target`): path -> the original file that comes back, or None.

    `modified` are edited outputs, `accepted` those whose edit the user accepted: path -> the original. `refused` have
    protected names that no stage declares.
    """

    refusal: RefusePath
    refused: list[str] = field(default_factory=list)
    target: dict[str, FileEntry | None] = field(default_factory=dict)
    modified: dict[str, FileEntry | None] = field(default_factory=dict)
    accepted: dict[str, FileEntry | None] = field(default_factory=dict)


class RemovalResult(Struct, frozen=True):
    """What was removed, and what stayed: edited and accepted outputs, and protected names."""

    promoted: PromotionResult
    modified: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def plan_removal(session: Session, stages: Collection[str]) -> OutputRemoval:
    """Return which outputs these stages own, by their records and their failed attempts. No stage means all.

    Raises:
        NotFoundError: a name is not a stage, and no record has it.

    """
    owning = {
        name: record for name, record in session.lock.owner_records().items() if session.state.may_remove_by(record)
    }
    unknown = [name for name in stages if not any(name in (one, one.partition("@")[0]) for one in owning)]
    Selection(targets=tuple(unknown)).nodes(session.state.plan)
    records = [record for name, record in owning.items() if _is_selected(name, stages)]
    records += _kept_failures(session, stages)
    removal = OutputRemoval(refusal=DeclaredByPlan(session).refusal)
    for path in sorted({path for record in records for path in record.outputs}):
        _classify(session, removal, path, _original(records, path))
    return removal


def _classify(session: Session, removal: OutputRemoval, path: str, original: FileEntry | None) -> None:
    """Add an output to the removal, unless it is missing or is the original already."""
    current = session.store.workspace.entry(path)
    if current is None or current == original:
        return
    if removal.refusal(path) is not None:
        removal.refused.append(path)
    elif not session.state.ownership.is_known(path, current):
        removal.modified[path] = original
    elif session.state.ownership.is_accepted(path, current):
        removal.accepted[path] = original
    else:
        removal.target[path] = original


def _is_selected(name: str, stages: Collection[str]) -> bool:
    """Return whether one of these names is the stage, or the foreach of the item; no names select all."""
    return not stages or not {name, name.partition("@")[0]}.isdisjoint(stages)


def _kept_failures(session: Session, stages: Collection[str]) -> list[Record]:
    """Return the records of failed attempts that `on_failure: keep` promoted, of stages of this pipeline."""
    names = [name for name in session.state.plan.nodes if _is_selected(name, stages)]
    return [record for name in names for record in session.store.records.labelled(name) if record.failed]


def remove_outputs(project: Project, stages: Collection[str], *, force: bool = False) -> RemovalResult:
    """Remove the outputs of stages. The caller holds the build lock.

    `force` also removes edited and accepted outputs, and keeps their bytes in the store. Without it accepted outputs
    stay, and if there is an edited one nothing is removed.
    """
    session = open_read_session(project)
    removal = plan_removal(session, stages)
    if removal.modified and not force:
        return RemovalResult(PromotionResult(), tuple(removal.modified))
    forced = {**removal.modified, **removal.accepted} if force else {}
    left = () if force else tuple(removal.accepted)
    return RemovalResult(_promote(session, removal, forced), accepted=left, refused=tuple(removal.refused))


def remove_unmodified_outputs(project: Project) -> RemovalResult:
    """Remove every output that is unchanged since its run."""
    session = open_read_session(project)
    removal = plan_removal(session, ())
    promoted = _promote(session, removal, {})
    return RemovalResult(promoted, tuple(removal.modified), tuple(removal.accepted), tuple(removal.refused))


def _promote(session: Session, removal: OutputRemoval, forced: dict[str, FileEntry | None]) -> PromotionResult:
    store, target = session.store, {**removal.target, **forced}
    # An edit is removed on request, but only its user could write it again: its bytes go where nothing is deleted.
    for path in forced:
        digest = store.add_file(path)
        store.exchanges.put_original(store.contents.get(digest), None)
    # A promotion takes bytes from the store; an original may be only in the exchanges or in git.
    for path, entry in target.items():
        if entry is not None and not store.contents.has(entry.digest):
            store.contents.put(session.state.read(path, entry))
    # The states on disk are read again: they decide whether a file changed meanwhile.
    store.workspace.invalidate(target)
    old = {path: store.workspace.entry(path) for path in target}
    promoted = store.promoter.promote(target, old, removal.refusal)
    store.workspace.invalidate(target)
    return promoted


def _original(records: list[Record], path: str) -> FileEntry | None:
    return next((r.originals[path] for r in records if r.originals.get(path) is not None), None)


def run(console: Console, *, args: PipelineArguments, force: bool) -> int:
    """Remove outputs of stages."""
    project, stages = open_for_command(console, args)
    with project.store.build_lock():
        project.store.promoter.recover(project.refusal)
        taken = remove_outputs(project, stages, force=force)
    promoted = taken.promoted
    if taken.modified:
        hint = "`orch23 accept STAGE` keeps an edit; `orch23 clean --force` removes it"
        message = f"outputs were edited: {' '.join(taken.modified)}; nothing was removed"
        console.write_diagnostics((Diagnostic("E643", message, hint=hint),))
        return ExitCode.DECISION
    parts = [f"removed {pluralize(len(promoted.removed), 'file')}"]
    if promoted.written:
        parts.append(f"restored {pluralize(len(promoted.written), 'original file')}")
    kept = (
        (promoted.edited, "changed meanwhile"),
        (taken.accepted, "the edit was accepted"),
        (taken.refused, "protected, and no stage declares it"),
    )
    parts += [f"kept {visible(' '.join(paths))}: {why}" for paths, why in kept if paths]
    console.write_out("; ".join(parts) + "\n")
    return ExitCode.OK
