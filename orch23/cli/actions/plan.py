"""Run `plan` and `status`: show what a build would do, with estimates of calls, tokens and cost."""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cache, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from orch23.attempt.conversation import RequestBuilder
from orch23.attempt.estimate import EstimateBasis, estimate, expected_savings
from orch23.attempt.first_call import FirstCall, first_call_of
from orch23.attempt.stage_errors import lasting_errors, stage_warnings
from orch23.cli.author_data import check_input_schemas, read_scripted_responses
from orch23.cli.console import Console
from orch23.cli.opening import (
    cache_address,
    last_build_of,
    of_part,
    open_for_command,
    parse_budget,
    selection_of,
    texts_of,
    used_cache,
)
from orch23.cli.parameters import GivenOptions, PipelineArguments
from orch23.cli.project_loading import Project, noted_errors, open_for_reading, usual_executor
from orch23.decide.decisions import DecidedStage
from orch23.decide.dependency_index import OutdatedIndexError
from orch23.decide.dry_run import Preview, preview
from orch23.decide.open_pipeline import OpeningOptions
from orch23.decide.stage_view import StageTree
from orch23.engine.preflight import check_tools, foreseen_failures
from orch23.model.diagnostic import Diagnostic, Location, Severity
from orch23.model.errors import ExitCode, InvalidInputError, MissingBytesError, Orch23Error
from orch23.model.event import BatchWaiting
from orch23.model.llm import Request
from orch23.model.pipeline import NO_CACHE, Stage, family_of
from orch23.model.plan import Estimate, Expand, Fresh, Maybe, Run, VerifyOnly
from orch23.plan.diagnostics import check_items
from orch23.plan.planner import Selection, closure
from orch23.providers.adapter import CallContext, ProviderContext
from orch23.providers.prices import Prices
from orch23.providers.recordings import RecordingProvider, ReplayOnlyProvider, UniqueCalls
from orch23.providers.registry import adapter_for, readiness_errors, request_parameters
from orch23.report.plan_json import plan_json
from orch23.report.plan_text import plan_text, status_text
from orch23.report.plan_view import PlanView, model_names, plan_view
from orch23.snapshot.fast_path import StaleSnapshot
from orch23.steps.registry import is_llm
from orch23.store.history import StageStatistics, read_history, read_statistics, statistics_of
from orch23.text.secrets import secrets_from

# The provider whose responses are in a file of the project.
SCRIPTED = "scripted"

if TYPE_CHECKING:
    from orch23.decide.shared_results import SharedResults
    from orch23.model.digest import Json
    from orch23.providers.model_facts import ModelFacts
    from orch23.steps.llm.spec import LLMStep


def is_scripted(stage: Stage) -> bool:
    """Return whether the responses for a stage are in a file of the project."""
    return is_llm(stage.step) and stage.step.provider == SCRIPTED


def plan_view_of(seen: Preview, estimates: Mapping[str, Estimate] | None = None) -> PlanView:
    """Return the view of a preview, for reports."""
    # Stages that wait for others have no key yet. A fresh stage has the key of its result.
    keys = {name: decision.record.key for name, decision in seen.decisions.items() if isinstance(decision, Fresh)}
    keys |= {name: decided.resolved.key for name, decided in seen.decided_stages.items()}
    view = plan_view(seen.plan, seen.decisions, keys=keys, estimates=estimates, skipped=seen.skipped)
    view = replace(view, dead=seen.obsolete, uncertain=seen.uncertain, released=seen.released)
    if not seen.plan.gated:
        return view
    from orch23.model.features import APPROVAL, load_feature  # noqa: PLC0415 - few pipelines need approvals

    waiting: Mapping[str, str] = load_feature(APPROVAL["waiting"], "`approve: true` needs")(seen)
    return replace(view, lines=tuple(replace(one, approve=waiting.get(one.stage, "")) for one in view.lines))


def estimates_of(project: Project, seen: Preview, failing: Collection[str]) -> dict[str, Estimate]:
    """Return estimates of the stages that run or may run, from journals, transcripts and prices.

    `failing` are the stages that will certainly fail.
    """
    # A stage that depends on one that fails does not run, also with `--keep-going`.
    ended = closure(set(failing), seen.plan.downstream)
    running = [
        name
        for name, decision in seen.decisions.items()
        if isinstance(decision, Run | VerifyOnly | Maybe | Expand) and name not in ended
    ]
    past = _statistics(project, seen, running)
    tariff_of = cache(Prices(project.pipeline.prices, project.pipeline.plugins).tariff_of)
    bases = {name: _basis(project, seen, name, statistics_of(past, name)) for name in running}
    lacking = {name for name in bases if _lacking(project, seen.decided_stages.get(name), "E407")}
    found = {name: estimate(one, tariff_of) for name, one in bases.items() if one.recorded or name not in lacking}
    if seen.plan.groups:
        from orch23.engine.group_checks import refusable  # noqa: PLC0415 - few pipelines have groups

        checked = refusable(seen.plan, seen.decisions)
        made = ((node, VerifyOnly(record, ())) for node, record in checked)
        found |= {node.name: estimate(EstimateBasis(node=node, decision=one), tariff_of) for node, one in made}
    # A recorded response may have failed, and fail again: then nothing after its stage runs. Without `--keep-going`
    # nothing runs at all after a failure.
    replayed = {name for name, basis in bases.items() if basis.recorded}
    for name in found if replayed or ended else ():
        if found[name].calls.minimum and (ended or not replayed.isdisjoint(closure({name}, seen.plan.upstream))):
            found[name] = replace(found[name], calls=replace(found[name].calls, minimum=0), least_cost=Decimal(0))
    calls = {name: call for name, basis in bases.items() if (call := _planned_call(basis)) is not None}
    if len(calls) > 1:
        from orch23.providers.shared_beginnings import shared_beginnings  # noqa: PLC0415 - only for several calls

        shared = shared_beginnings((family_of(name), request) for name, (request, _) in calls.items())
        calls = {name: (shared.marked(request), facts) for name, (request, facts) in calls.items()}
        for name, saving in expected_savings(calls, tariff_of).items():
            request, _ = calls[name]
            lines = request.messages[0].content[: max(request.family, *request.beginnings, 0)].splitlines()
            end = next((line for line in reversed(lines) if line.strip()), "")
            found[name] = replace(found[name].with_cache(saving), shared_lines=len(lines), shared_end=end)
    return found


def _planned_call(basis: EstimateBasis) -> "tuple[Request, ModelFacts] | None":
    """Return the call that a stage is expected to make first; None if there is none, or no cache is known."""
    node, request = basis.node, basis.request
    is_certain = isinstance(basis.decision, Run) and not basis.recorded
    if request is None or not is_certain or not isinstance(node, Stage) or not is_llm(node.step):
        return None
    step = node.step.of_attempt(node.retry, 1)
    facts = adapter_for(step).facts
    return None if facts is None or request.fallback else (request, facts)


def _statistics(project: Project, seen: Preview, running: Sequence[str]) -> Mapping[str, StageStatistics]:
    """Return what the stages took before. Tokens come from transcripts if no journal has any, as in a fresh clone."""
    models = model_names(project.pipeline.stages)
    past = read_statistics(project.store.logs, project.pipeline.file, running, models=models) if running else {}
    nodes = [seen.plan.nodes[name] for name in running]
    folders = {node.step.transcripts or "" for node in nodes if isinstance(node, Stage) and is_llm(node.step)}
    if not folders or any(one.tokens for one in past.values()):
        return past
    tokens: dict[str, tuple[tuple[int, int], ...]] = {}
    for folder in sorted(folders):
        with suppress(Orch23Error):  # damaged transcripts: a build reports them
            for stage, usages in project.store.exchanges.usages(folder or None).items():
                tokens[stage] = tuple((one.input_tokens, one.output_tokens) for one in usages)
    return {name: replace(past.get(name, StageStatistics()), tokens=tokens.get(name, ())) for name in (*past, *tokens)}


def _basis(project: Project, seen: Preview, name: str, past: StageStatistics) -> EstimateBasis:
    node, decision = seen.plan.nodes[name], seen.decisions[name]
    call = first_call(project, seen, seen.decided_stages.get(name))
    if call is None:
        return EstimateBasis(node=node, decision=decision, past=past)
    # If its inputs may still change, and with them the request, no recorded response is certain to be used.
    recorded = call.found if isinstance(decision, Run) and call.missing is None else ()
    if recorded and (waiting := seen.unsettled(name)):
        decision, recorded = Maybe(tuple(waiting)), ()
    decided = seen.decided_stages.get(name)
    return EstimateBasis(
        node=node,
        decision=decision,
        request=call.request,
        recorded=recorded,
        past=past,
        explores=call.explores,
        verifies_base=decided is not None and bool(decided.resolved.base) and decided.resolved.stage.verifies_first,
    )


def first_call(project: Project, seen: Preview, decided: DecidedStage | None) -> FirstCall | None:
    """Return the first call of a stage, as a build would find it; None if it makes none, or it cannot be made."""
    if decided is None or not is_llm(step := decided.resolved.stage.step) or decided.resolved.broken:
        return None
    stage, exchanges, secrets = decided.resolved.stage, project.store.exchanges, secrets_from(project.settings.environ)
    resample = getattr(decided.decision, "resample", None)
    context = ProviderContext(
        environ=project.settings.environ,
        root=project.store.root,
        read_answers=lambda path: read_scripted_responses(project.tools.sources, path),
        notice=lambda _event: None,
        # A plan calls nothing, so it needs no consent.
        is_granted=lambda _grant: False,
        files=project.store.workspace,
    )

    def opened(step: "LLMStep") -> "tuple[LLMStep, RecordingProvider, Mapping[str, Json]]":
        refusing = ReplayOnlyProvider(
            store=exchanges, stage=stage.name, transcripts=step.transcripts, code="E403", hint="", redact=secrets.redact
        )
        # `record` calls again and ignores older recordings, except those of an interrupted run.
        own: Container[str] = resample or ()
        if resample is None and step.mode == "record":
            own = read_history(project.store.logs, project.pipeline.file).reusable
        recorded = RecordingProvider(
            inner=refusing,
            store=exchanges,
            stage=stage.name,
            mode=step.mode if resample is None else "record",
            transcripts=step.transcripts,
            unique_calls=UniqueCalls(own),
        )
        return step, recorded, request_parameters(context, CallContext(step, stage.name))

    requests = RequestBuilder(secrets, project.tools.sources, project.pipeline)
    tree, steps = StageTree(seen.state, stage.name), (step.of_attempt(stage.retry, 1), *step.fallbacks())
    try:
        return first_call_of(decided.resolved, tree, requests, lambda: map(opened, steps))
    except (Orch23Error, MissingBytesError):
        return None


def show_plan(
    console: Console,
    *,
    args: PipelineArguments,
    given: GivenOptions,
    verbose: bool,
    as_json: bool,
    exit_code: bool,
    out: str | None,
) -> int:
    """Show what a build would do, and why. With `out`, write it to this file, too, unless a build would find errors."""
    limit = parse_budget(given.budget)
    save: Callable[[], None] | None = None
    if out is None:
        view = _partial_view(console, args, estimated=True) or _whole_view(console, args, given, estimated=True)
    else:
        from orch23.model.features import PLAN_FILES, load_feature  # noqa: PLC0415 - most plans are only shown

        save_plan = load_feature(PLAN_FILES["save"])
        project, seen = _whole_preview(console, args, given)
        view = _view_of(project, seen, estimated=True)
        save = partial(save_plan, console, args, given, project, seen, out)
    if limit is not None:
        view = replace(view, max_cost=limit)  # replaces the pipeline's, as in a build
    console.write_out(plan_json(view) if as_json else plan_text(view, console.out_style, verbose=verbose))
    if view.warnings and not as_json:
        console.write_diagnostics(view.warnings, view.sources)
    if view.errors:
        if not as_json:
            console.write_diagnostics(view.errors, view.sources)
        return console.exit_number_of(InvalidInputError(*view.errors))
    if save is not None:
        save()
    return ExitCode.FAILED if exit_code and not view.is_up_to_date else ExitCode.OK


def _whole_view(console: Console, args: PipelineArguments, given: GivenOptions, *, estimated: bool) -> PlanView:
    """Return the plan of all selected stages. `estimated` reads the price table, journals and transcripts.

    Stages that nothing has affected since the last build are not decided.
    """
    of = replace(args, cache=None) if args.cache == NO_CACHE else args
    last = console.stale_snapshot or last_build_of(console, of)
    return _view_of(*_whole_preview(console, args, given, last), estimated=estimated)


def _whole_preview(
    console: Console, args: PipelineArguments, given: GivenOptions, stale_snapshot: StaleSnapshot | None = None
) -> tuple[Project, Preview]:
    project, stages = open_for_command(console, args, stale_snapshot=stale_snapshot)
    usual_executor(project.pipeline, args.executor)
    shared = shared_results(console, project, args)
    options = OpeningOptions(**given.demands, keeps_promises=not args.offline, shared=shared)
    opened = open_for_reading(project, options)
    if named := (*given.forced, *given.resample):
        Selection(targets=named).nodes(opened.state.plan)
    check_input_schemas(project.pipeline, project.store.workspace, project.tools.sources)
    selection = selection_of(args, stages)
    selected = [opened.state.plan.nodes[name] for name in selection.nodes(opened.state.plan)]
    if args.scheduler:
        from orch23.cli.placement import check_scheduler_of  # noqa: PLC0415 - few plans name a scheduler

        check_scheduler_of(project.pipeline, selected, args.executor, args.scheduler)
    check_tools(project.pipeline, selected, project.facts.facts_of)
    seen = preview(opened, selection)
    try:
        # Checked last: a build that ran meanwhile has changed what this plan was decided on.
        if project.last_build is not None:
            project.last_build.check_current(project.store)
    except OutdatedIndexError:
        project = replace(project, last_build=None, earlier=None)
        opened = open_for_reading(project, options)
        seen = preview(opened, selection)
    names = (*selection.targets, *selection.only, *selection.downstream)
    check_items(seen.plan, seen.decisions, names, opened.state.lock.records)
    return project, seen


def shared_results(console: Console, project: Project, args: PipelineArguments) -> "SharedResults | None":
    """Return the results in the shared cache, closed when the command ends; None if no cache is used."""
    used = used_cache(project, cache_address(console.here, args.cache), write=args.cache_write)
    if used is None:
        return None
    from orch23.model.features import SHARED_CACHE, load_feature  # noqa: PLC0415 - few plans use a shared cache

    results: SharedResults | None = load_feature(SHARED_CACHE["plan"])(console, project, used, args)
    return results


def _servers_of(stages: Iterable[Stage], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the environment that name a server which stages call, and the server of each."""
    from orch23.language.llm_steps import fallbacks_of, llm_steps_of  # noqa: PLC0415 - not for a status

    found: dict[str, str] = {}
    for step in (step for stage in stages for step in (*llm_steps_of(stage), *fallbacks_of(stage))):
        server, variable = adapter_for(step).server(environ)
        found |= {variable: server} if variable else {}
    return found


def _view_of(project: Project, seen: Preview, *, estimated: bool) -> PlanView:
    """Return the view of a preview with the errors and warnings that a build would have."""
    failures, sources = foreseen_failures(seen) if estimated else {}, project.tools.sources
    view = plan_view_of(seen, estimates_of(project, seen, failures) if estimated else None)
    warnings = (*foreseen_warnings(project, seen, failures), *_key_warnings(project, seen)) if estimated else ()
    acting = [one for one in seen.decided_stages.values() if isinstance(one.decision, Run | Maybe | VerifyOnly)]
    running = [one.resolved for one in acting if not isinstance(one.decision, VerifyOnly)]
    if (shared := seen.state.shared) is not None:
        faults = {one.stage.name: shared.faults_of(one) for one in running}
        stored = tuple(one.stage.name for one in running if shared.may_store(one))
        view = replace(view, would_store=stored, not_shared={name: found for name, found in faults.items() if found})
    errors = lasting_errors(seen.plan, running, sources, lambda up: isinstance(seen.decisions.get(up), Fresh))
    if any(one.unmatched for one in running):
        from orch23.decide.unmatched_inputs import unmatched_inputs  # noqa: PLC0415 - only for such patterns

        unmatched, more = unmatched_inputs(seen.plan, running, project.store.workspace)
        errors, warnings = (*errors, *unmatched), (*warnings, *more)
    warnings += stage_warnings(seen.plan, [one.resolved.stage for one in acting], project.store.workspace)
    errors = noted_errors(project, errors)
    return replace(
        view,
        tools=project.facts.tool_origins(),
        servers=_servers_of([one.stage for one in running], project.settings.environ) if estimated else {},
        errors=errors,
        warnings=(*view.warnings, *warnings),
        sources={**view.sources, **texts_of(project, (*warnings, *errors))},
        waiting=_waiting(project),
    )


def _lacking(project: Project, decided: DecidedStage | None, *codes: str) -> list[Diagnostic]:
    """Return what the first call of a stage that surely runs lacks, such as a key."""
    stage = None if decided is None or not isinstance(decided.decision, Run) else decided.resolved.stage
    if stage is None or not is_llm(stage.step) or stage.step.mode == "replay":
        return []
    ready = readiness_errors(stage.step.of_attempt(stage.retry, 1), project.settings.environ, project.store.root)
    return [one for one in ready if one.code in codes]


def _key_warnings(project: Project, seen: Preview) -> tuple[Diagnostic, ...]:
    """Return a warning for each key or program that a call of a build surely lacks, at the first such stage."""
    found: dict[str, Diagnostic] = {}
    for decided in seen.decided_stages.values():
        stage = decided.resolved.stage
        lacking = [one for one in _lacking(project, decided, "E412", "E407") if one.message not in found]
        call = first_call(project, seen, decided) if lacking else None
        if call is None or call.missing is None:
            continue
        place = project.pipeline.locate_written(f"stages/{stage.family}/llm/provider")
        for one in lacking:
            found[one.message] = replace(_foreseen(one, place), subject=stage.name)
    return tuple(found.values())


def foreseen_warnings(
    project: Project, seen: Preview, failures: Mapping[str, tuple[Diagnostic, ...]]
) -> tuple[Diagnostic, ...]:
    """Return a warning for each unmet condition and scripted response with which the build will fail (ADR 47)."""
    found = [_foreseen(error, error.location) for errors in failures.values() for error in errors]
    for decided in seen.decided_stages.values():
        found += _refused_response(project, seen, decided)
    return tuple(found)


def _refused_response(project: Project, seen: Preview, decided: DecidedStage) -> tuple[Diagnostic, ...]:
    """Return the errors of the build that are certain about the scripted response to a first request, as warnings."""
    stage = decided.resolved.stage
    # The request is certain only if no stage before this one can still change a file.
    if not isinstance(decided.decision, Run) or seen.unsettled(stage.name):
        return ()
    if not is_llm(stage.step) or not is_scripted(stage) or not stage.step.answers:
        return ()
    call = first_call(project, seen, decided)
    if call is None or call.missing is None:
        return ()
    from orch23.providers.scripted import ScriptedProvider  # noqa: PLC0415 - only for scripted responses

    try:
        answers = read_scripted_responses(project.tools.sources, stage.step.answers)
        ScriptedProvider(answers, stage.name, 1).complete(call.request, 0, lambda _text: None)
    except Orch23Error as refused:
        place = project.pipeline.locate("stages", stage.family)
        return tuple(_foreseen(one, place) for one in refused.diagnostics)
    return ()


def _foreseen(error: Diagnostic, place: Location | None) -> Diagnostic:
    message = f"{error.message} ({error.code})"
    return replace(error, code="W669", message=message, severity=Severity.WARNING, location=place)


def _waiting(project: Project) -> tuple[BatchWaiting, ...]:
    if not any(project.store.batches.glob("*.json")):
        return ()
    from orch23.model.features import BATCHES, PENDING, load_feature  # noqa: PLC0415 - most projects have none

    found: tuple[BatchWaiting, ...] = load_feature(BATCHES["waiting"], PENDING)(project.store, project.pipeline.file)
    return found


def _partial_view(console: Console, args: PipelineArguments, *, estimated: bool) -> PlanView | None:
    """Return the plan of the stages that an edit reaches; None if the whole pipeline has to be decided."""

    def show(project: Project) -> PlanView:
        opened = open_for_reading(project, OpeningOptions(shared=shared_results(console, project, args)))
        check_input_schemas(project.pipeline, project.store.workspace, project.tools.sources)
        view = _view_of(project, preview(opened, project.selection), estimated=estimated)
        if (part := project.part) is None or (last := project.last_build) is None:
            return view
        others, order = part.idle_counts, {name: number for number, name in enumerate(part.names)}
        return replace(
            view,
            lines=tuple(sorted(view.lines, key=lambda line: order.get(line.stage, len(order)))),
            models=tuple(last.stale_snapshot.snapshot.facts["models"].splitlines()),
            fresh_besides=others.get("fresh", 0),
            skipped_besides=others.get("skipped", 0),
        )

    view = of_part(console, args, console.stale_snapshot, (), show)
    return None if view is not None and view.is_up_to_date and view.skipped_besides else view


def show_status(console: Console, *, args: PipelineArguments, as_json: bool, exit_code: bool, list_all: bool) -> int:
    """List stale stages; with `list_all` every stage, with its description."""
    args = replace(args, cache=NO_CACHE, needs_tools=False)  # it shows what this machine has
    # The skipped stages are listed, and a part of the plan has only their number.
    view = None if list_all else _partial_view(console, args, estimated=as_json)
    if view is None or view.skipped_besides:
        view = _whole_view(console, args, GivenOptions(), estimated=as_json)
    console.write_out(plan_json(view) if as_json else status_text(view, console.out_style, verbose=list_all))
    return ExitCode.FAILED if exit_code and not view.is_up_to_date else ExitCode.OK
