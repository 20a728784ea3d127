"""Accept user edits of outputs as a result: verify and record them."""

from collections.abc import Collection, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from orch23.attempt.attempt import StageResult
from orch23.attempt.process_runner import Files, StageTrace
from orch23.attempt.safeguards import guard_edit
from orch23.attempt.stage_outcomes import metrics_of, missing_bytes_error
from orch23.attempt.stage_work import InputsChangedError, record_edit
from orch23.decide.dry_run import DryRun
from orch23.engine.build import Build
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.errors import (
    ExitCode,
    InvalidInputError,
    MissingBytesError,
    SafetyError,
    UsageError,
    custom_exit_code,
)
from orch23.model.event import Event, StageFinished
from orch23.model.event_data import StageStatus
from orch23.model.pipeline import family_of
from orch23.model.plan import Decision, Edited, Fresh, Maybe, Restore, Run, VerifyOnly
from orch23.model.record import Record
from orch23.plan.planner import Selection
from orch23.resolve.resolution import ResolvedStage
from orch23.store.promotion import refused_path_errors


def accept(build: Build, stages: Collection[str]) -> int:
    """Verify and record the edited outputs of stages, and return the exit code.

    In a chain, the last item that makes a path is recorded with the edit.

    Raises:
        InvalidInputError: the edit has a secret.
        NotFoundError: no stage has one of these names, or it is not known yet.
        SafetyError: its result would change a protected path that no stage declares.
        UsageError: a stage has no edited output, or an upstream stage has to run first.
    """
    decisions = DryRun(build.opened.decider).run()
    Selection(only=tuple(stages)).nodes(build.opened.state.plan)
    names = [name for name in decisions if not {name, family_of(name)}.isdisjoint(stages)]
    edits = {name: paths for name in names if (paths := _edited_paths(decisions[name]))}
    left = [stage for stage in stages if all(stage not in (name, family_of(name)) for name in edits)]
    labels = {stage: {decisions[name].label for name in names if stage in (name, family_of(name))} for stage in left}
    # A stage that reads what is accepted now is decided afterwards.
    if wrong := [stage for stage in left if not edits or labels[stage] != {"blocked"}]:
        hint = "`accept` is for outputs that plan shows as `edited`"
        states = [f"`{stage}` was edited: it is {', '.join(sorted(labels[stage])) or 'skipped'}" for stage in wrong]
        raise UsageError(*(Diagnostic("E642", f"no output of {state}", hint=hint) for state in states))
    code: int = ExitCode.OK
    for name, paths in _owners(build, edits, names).items():
        decision = decisions[name]
        decision = decision.edits or decision if isinstance(decision, Maybe) else decision
        recorded = decision.record if isinstance(decision, Edited | VerifyOnly | Fresh | Restore) else None
        code = max(code, _accept_one(build, name, paths, recorded))
    return code if code or not left else accept(build, left)


def _edited_paths(decision: Decision) -> tuple[str, ...]:
    """Return the outputs of a stage that a user edited, committed or not."""
    match decision:
        case (
            Edited(paths=paths)
            | VerifyOnly(adopted=paths)
            | Run(edits=Edited(paths=paths))
            | Maybe(waiting_on=(), edits=Edited(paths=paths))
        ):
            return paths
        case _:
            return ()


def _owners(build: Build, edits: Mapping[str, tuple[str, ...]], names: list[str]) -> dict[str, tuple[str, ...]]:
    """Assign each edited path to a stage: in a chain, to the last item that makes it."""
    state = build.opened.state
    found: dict[str, list[str]] = {}
    for path, name in {path: name for name, paths in edits.items() for path in paths}.items():
        makers = [
            n
            for n in names
            if (r := state.results.get(n) or state.lock.records.get(n)) is not None and path in r.outputs
        ]
        declared = [n for n in names if path in getattr(state.plan.nodes[n], "outputs", ())]
        found.setdefault((makers or declared or [name])[-1], []).append(path)
    return {name: tuple(paths) for name, paths in found.items()}


def _accept_one(build: Build, name: str, paths: tuple[str, ...], recorded: Record | None) -> int:
    opened, state = build.opened, build.opened.state
    _settle_before(build, name, state.plan.earlier_items(name))
    texts = {path: opened.store.workspace.read(path) or b"" for path in paths}
    # Accepted files are kept with the transcripts, which are committed.
    secret = guard_edit(
        build.worker.safeguards.secrets, {path: data.decode("utf-8", "replace") for path, data in texts.items()}
    )
    if secret:
        raise InvalidInputError(*secret)
    # The predicted result of the dry run is replaced by the accepted files.
    state.unsettle(name)
    state.unsettled.discard(name)
    resolved = opened.decider.resolve(name)
    edit = f"the edit of {', '.join(paths)}"
    try:
        made = _rest(build, resolved, paths, recorded)
        outputs = _outputs(build, paths, made.outputs)
        failure = made.failure or build.worker.verify(resolved, outputs, made.deleted)
    except (MissingBytesError, InputsChangedError) as error:
        if isinstance(error, MissingBytesError):
            problem = missing_bytes_error(name, error)
        else:
            message = f"{', '.join(error.args)} changed meanwhile"
            problem = Diagnostic("E711", message, hint="accept again", subject=name)
        return _failed(build, resolved, paths, f"{edit} could not be verified", (str(problem), (problem,)))
    if failure is not None:
        text = f"{edit} does not pass: {failure.summary}"
        return _failed(build, resolved, paths, text, (failure.feedback.excerpt, failure.diagnostics))
    if refused := build.writer.refused(outputs):
        raise SafetyError(*refused_path_errors(refused))
    fingerprint = record_edit(opened, resolved, outputs)
    # Earlier accepted outputs of the stage stay accepted: their bytes are still the user's.
    accepted = tuple(p for p, entry in outputs.items() if p in paths or state.ownership.is_accepted(p, entry))
    done = StageResult(
        outputs=outputs,
        deleted=made.deleted,
        exchanges=(fingerprint,),
        attempts=0,
        accepted=accepted,
        made=made.made,
        trace=build.worker.traces.pop(name, StageTrace()),
    )
    records = {name: build.writer.keep(resolved, done)}
    change = build.writer.change(records)
    if change.new and name in state.plan.gated:
        # The user has decided about the edited files alone: a build holds the others until they are approved.
        others, again = ", ".join(sorted(change.new)), opened.pipeline.command_line("build", name)
        text = f"accepted by hand: {', '.join(paths)}; {others} waits for approval: `{again}`"
        ended = StageFinished(status=StageStatus.WITHHELD, key=resolved.key, outputs=tuple(outputs))
        build.observer.notice(Event(ended, text, name))
        return ExitCode.APPROVAL
    build.writer.promote(records, change)
    build.writer.write_lock({name}, complete=False)
    metrics = metrics_of(resolved.stage, records[name]) or UNSET
    ended = StageFinished(status=StageStatus.VERIFIED, key=resolved.key, outputs=tuple(outputs), metrics=metrics)
    build.observer.notice(Event(ended, f"accepted by hand: {', '.join(paths)}", name))
    return ExitCode.OK


def _settle_before(build: Build, name: str, earlier: Collection[str]) -> None:
    """Settle the items of a chain before one that was edited: it starts from their versions."""
    state = build.opened.state
    for other in earlier:
        record = build.opened.lock.records.get(other)
        if record is None:
            command = build.opened.pipeline.command_line("build", "--overwrite-edited", other)
            hint = f"build `{other}` first: `{command}` keeps the edited bytes in the store"
            message = f"`{other}`, which comes before `{name}`, has no result yet"
            raise UsageError(Diagnostic("E642", message, hint=hint))
        state.settle(other, record)
        state.unsettled.discard(other)


def _failed(
    build: Build,
    resolved: ResolvedStage,
    paths: tuple[str, ...],
    text: str,
    failure: tuple[str, tuple[Diagnostic, ...]],
) -> int:
    """Report that the edit of these paths is refused; `failure` is an excerpt and its errors. Return the exit code."""
    excerpt, problems = failure
    data = StageFinished(status=StageStatus.FAILED, key=resolved.key, failure=excerpt, paths=paths)
    build.observer.notice(Event(data, text, resolved.stage.name, "error"))
    return custom_exit_code(ExitCode.FAILED, problems, build.opened.pipeline.exit_codes)


def _rest(build: Build, resolved: ResolvedStage, paths: tuple[str, ...], recorded: Record | None) -> StageResult:
    """Return the result of today's key, which the edits of these paths change: a recorded one, else of a run.

    Raises:
        UsageError: a model would make the other files, so those on disk are of earlier inputs.
    """
    decider, stage = build.opened.decider, resolved.stage
    record = recorded or next(iter(decider.todays(resolved)), None) or build.opened.state.former.get(stage.name)
    known = record.outputs if record is not None else {}
    deleted = tuple(path for path in (record.deleted if record is not None else ()) if path not in paths)
    done = StageResult(outputs=known, deleted=deleted, exchanges=(), attempts=0)
    is_todays = record is not None and record.key in (resolved.key, resolved.earlier_key)
    if record is not None and is_todays:
        made = {path: one for path, one in record.made.items() if path not in paths or not stage.step.asks_model}
        # What a command made is compared with what it makes later: the user decides once for each file that it makes.
        of_command = () if stage.step.asks_model else known.keys() & {*paths} - {*record.accepted}
        done = replace(done, made={**{path: known[path] for path in of_command}, **made})
    if record is None or is_todays or (known.keys() | set(stage.outputs)) <= set(paths):
        return done
    if not stage.step.asks_model:
        ran = build.worker.work(resolved, None)
        return replace(ran, made={path: one for path, one in ran.outputs.items() if path in paths})
    if others := sorted(known.keys() - set(paths)):
        hint = (
            f"commit the edit of {', '.join(paths)} and build: the run starts from it. "
            f"Or `{build.opened.pipeline.command_line('build', '--overwrite-edited', stage.name)}` replaces it"
        )
        message = f"`{stage.name}` has to run, and {', '.join(others)} would stay as made for earlier inputs"
        raise UsageError(Diagnostic("E642", message, hint=hint))
    return done


def _outputs(build: Build, paths: tuple[str, ...], made: Files) -> Files:
    """Return a stage's outputs: those that were made, with the edited files as on disk."""
    store, state = build.opened.store, build.opened.state
    outputs: dict[str, FileEntry] = {path: entry for path, entry in made.items() if state.has_bytes(path, entry)}
    for path in paths:
        entry = store.workspace.entry(path)
        if entry is not None:
            store.add_file(path)
            outputs[path] = entry
    return outputs
