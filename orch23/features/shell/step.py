"""Find what a step ran with: the action of a failed attempt as it was kept, or the action of the last result."""

from msgspec import Struct
from msgspec.structs import replace

from orch23.attempt.kept_attempt import read_kept
from orch23.attempt.process_runner import ProcessRunner
from orch23.attempt.pytest_trust import TestTrust
from orch23.attempt.run_events import Reporter
from orch23.cli.project_loading import Project, open_for_reading
from orch23.decide.dry_run import preview
from orch23.decide.open_pipeline import OpenPipeline
from orch23.decide.ownership import is_of_plan
from orch23.decide.stage_view import StageTree
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.model.action import Action
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry
from orch23.model.errors import NotFoundError
from orch23.model.event_data import StageStatus
from orch23.model.pipeline import CommandsStep, Stage
from orch23.model.plan import Fresh, Restore
from orch23.model.record import Manifest, Record
from orch23.model.step import ProcessStep
from orch23.model.text import join_first
from orch23.plan.planner import Selection
from orch23.report.formats import Fanout
from orch23.resolve.commands import command_steps
from orch23.resolve.resolution import ResolvedStage
from orch23.store.run_logs import AttemptFiles, stage_ends


class FoundStep(Struct, frozen=True):
    """The action of a step, the stage as it is now, whose attempt it was, and what the user should know."""

    action: Action
    stage: Stage
    title: str
    note: str = ""


def find_step(project: Project, name: str, attempt: int | None) -> FoundStep:
    """Return the step of a stage: of the last attempt if that failed, of attempt number `attempt`, or of its result.

    Raises:
        NotFoundError: there is no such stage, attempt or result.
    """
    opened = open_for_reading(project)
    Selection(targets=(name,)).nodes(opened.state.plan)
    seen = preview(opened)
    again = f"`{project.pipeline.command_line('build', name)}` runs the stage"
    stage = seen.plan.nodes.get(name)
    if not isinstance(stage, Stage):
        items = [one for one in seen.plan.nodes if one.startswith(f"{name}@")]
        hint = f"name an item: {join_first(items, 5)}" if items else "it is skipped, or has no items yet"
        raise NotFoundError(Diagnostic("E664", f"`{name}` itself runs no step", hint=hint))
    withheld, never = "", NotFoundError(Diagnostic("E664", f"`{name}` has not run here yet", hint=again))
    # A folder of the store that no build made would be taken for the store of another user.
    if not opened.store.folder.is_dir():
        raise never
    for run, message, end in stage_ends(project.store.logs, project.pipeline.file, name):
        failed, number = end.status is StageStatus.FAILED, end.attempts if attempt is None else attempt
        withheld = end.key if end.status is StageStatus.WITHHELD else ""
        if not (failed or withheld or end.status.has_result) or (attempt is not None and not end.attempts):
            continue  # blocked or cancelled; or it had no attempt, and one is asked for
        kept = read_kept(AttemptFiles(project.store.logs / run), name, number) if failed or attempt else None
        if kept is not None:
            return FoundStep(_as_allowed(kept.action, stage), stage, f"attempt {number} of {run}, which failed")
        if failed or number > end.attempts:
            text = f"attempt {number} of `{name}` is not kept in {run}, which had {end.attempts}"
            text = text if end.attempts else f"`{name}` failed before its step could start: {message.split(chr(10))[0]}"
            raise NotFoundError(Diagnostic("E664", text, hint=f"{again} again"))
        break
    if (record := _record(opened, name, withheld)) is None:
        raise never
    if (decided := seen.decided_stages.get(name)) is None:
        text = f"what `{name}` reads is not known: a stage before it has no result"
        raise NotFoundError(Diagnostic("E664", text, hint=again))
    found = _action_of(opened, _as_recorded(decided.resolved, record.manifest), record)
    now = decided.decision
    is_todays = isinstance(now, Fresh) or (isinstance(now, Restore) and now.record.key == record.key)
    note = "" if is_todays else f"`{name}` is stale: the files are of its last result"
    return FoundStep(found, stage, "its last result", note)


def _as_allowed(kept: Action, stage: Stage) -> Action:
    """Return an action of `logs`, which are not trusted, with no more rights than the pipeline gives."""
    network, sandbox = kept.network and stage.network, kept.sandbox or stage.sandbox
    return replace(kept, network=network, sandbox=sandbox, min_tier=stage.min_tier, limits=stage.limits)


def _record(opened: OpenPipeline, name: str, withheld: str) -> Record | None:
    """Return the last result, or the one with the key `withheld`."""
    known = [one for one in opened.store.records.labelled(name) if not one.failed]
    mine = [one for one in known if is_of_plan(one, opened.state.plan, opened.store.root)]
    last = (opened.lock.records.get(name), *mine)
    return next((one for one in last if one is not None and withheld in ("", one.key)), None)


def _as_recorded(resolved: ResolvedStage, manifest: Manifest) -> ResolvedStage:
    """Return a stage with the files and the environment of a manifest."""

    def of(prefix: str) -> dict[str, str]:
        named = ((aspect.removeprefix(prefix), text) for aspect, text in manifest.items() if aspect.startswith(prefix))
        return {name: text for name, text in named if isinstance(text, str)}

    def entry(text: str) -> FileEntry:
        # Without its size: the bytes are found by the sha256 alone.
        sha256, _, link = text.partition(" -> ")
        return FileEntry(Digest(sha256.removesuffix("+x"), 0), sha256.endswith("+x"), link)

    files, verify_files, base = (
        {path: entry(text) for path, text in of(prefix).items()} for prefix in ("input:", "verify.input:", "base:")
    )
    stage = replace(resolved.stage, env=of("env:"))
    return replace(resolved, stage=stage, files=files, verify_files=verify_files, base=base)


def _action_of(opened: OpenPipeline, resolved: ResolvedStage, record: Record) -> Action:
    """Return what a build runs for a stage: its own process, else the first one that verifies its result."""
    stage, store, contents = resolved.stage, opened.store, opened.store.contents
    for data in resolved.composed:
        contents.put(data)
    runner = ProcessRunner(
        stage=stage,
        facts=resolved.facts,
        executor=LocalExecutor(sandbox_dirs=SandboxDirs(store.folder, store.sources), contents=contents, workers=1),
        contents=contents,
        tree=StageTree(opened.state, stage.name),
        redact=str,
        trust=lambda: TestTrust(opened.state, resolved, opened.state.plan),
        report=Reporter(observer=Fanout(), artifacts=AttemptFiles(store.logs)).of_stage(stage.name),
    )
    if isinstance(stage.step, ProcessStep):
        return runner.action_of(stage.step, {**resolved.parts, **resolved.files, **resolved.base})
    steps = (command_steps(one) if isinstance(one, CommandsStep) else (one,) for one in stage.verify.steps)
    process = next((one for some in steps for one in some if isinstance(one, ProcessStep)), None)
    given = {**resolved.verify_parts, **resolved.files, **resolved.verify_files, **resolved.base}
    files = {path: one for path, one in given.items() if path not in record.deleted}
    return runner.action_of(process, {**files, **record.outputs}, verifies=True)
