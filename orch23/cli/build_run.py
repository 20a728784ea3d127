"""Prepare a build under the build lock, run it until it ends or a signal stops it, and report its start and end."""

import _signal as signal  # type: ignore[import-not-found]  # `signal` builds enumerations on import, which is slow
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache, partial
from types import FrameType
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from orch23 import __version__
from orch23.attempt.ledger import run_limits
from orch23.cli.build_parts import BuildParts, BuildRequest
from orch23.cli.consent import Consent
from orch23.cli.opening import used_cache
from orch23.cli.partial_build import lock_file_of
from orch23.cli.project_loading import Project, hidden_paths, open_for_build, open_for_reading, usual_executor
from orch23.cli.store_size import warn_about_size
from orch23.decide.dry_run import check_ownership, preview
from orch23.decide.open_pipeline import OpeningOptions, OpenPipeline
from orch23.decide.ownership import check_left_out
from orch23.engine.build import Build
from orch23.engine.idle_build import spec_hash
from orch23.engine.preflight import may_call_program, may_have_process, may_use_sandbox
from orch23.engine.worker_threads import executor_of
from orch23.execute.launch import PlainLauncher, SandboxLauncher, TierChoice, not_allowed_error
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.model.action import LANDLOCK_TIER
from orch23.model.errors import ExitCode, NotFoundError, UsageError, custom_exit_code
from orch23.model.event import (
    CallSubmitted,
    Event,
    Observer,
    Planned,
    RunFinished,
    RunStarted,
    StoreRepaired,
    Warned,
    run_finished,
    run_started,
)
from orch23.model.parsing import json_at
from orch23.model.pipeline import LOCAL_EXECUTOR, ForeachStage, PathInput, SliceInput, Stage
from orch23.model.plan import Plan
from orch23.model.text import decimal_text
from orch23.plan.planner import Selection
from orch23.report.formats import Fanout, RedactingObserver
from orch23.steps.registry import is_llm
from orch23.store.access import check_kept
from orch23.store.lock_file import lock_digest, lock_path
from orch23.store.project_store import SWEPT_FOLDERS
from orch23.store.run_logs import Journal, new_run_id
from orch23.store.run_state import StateFile
from orch23.store.safe_files import sweep_temps
from orch23.text.secrets import Secrets, secrets_from

if TYPE_CHECKING:
    from orch23.cli.placement import NameOf
    from orch23.decide.shared_results import OpenedCache
    from orch23.execute.shared_trees import SharedTrees

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_READ_BYTES = 64


@contextmanager
def interrupt_on_signal(interrupt: Callable[[int], None]) -> Iterator[None]:
    """Call `interrupt` with the first signal, from a thread; a second one raises KeyboardInterrupt in the main thread.

    Python handlers run only in the main thread, between two of its instructions. A signal that arrives just before the
    main thread blocks on a lock would wait until the lock is released, which may be never. Therefore a thread reads
    the wakeup pipe, which the C handler writes to.
    """
    # Python lets only the main thread set signal handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    count = 0

    def handle(_signum: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise KeyboardInterrupt

    watcher = threading.Thread(target=_watch, args=(read_end, interrupt), name="orch23-signals", daemon=True)
    watcher.start()
    # nohup ignores SIGHUP, and it must stay ignored.
    handled = [one for one in SIGNALS if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN]
    handlers = {number: signal.signal(number, handle) for number in handled}
    wakeup = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        # Closing the pipe ends the thread that reads it.
        os.close(write_end)
        watcher.join()
        os.close(read_end)


def _watch(read_end: int, interrupt: Callable[[int], None]) -> None:
    interrupted = False
    while data := os.read(read_end, _READ_BYTES):
        numbers = [number for number in data if number in SIGNALS]
        if numbers and not interrupted:
            interrupted = True
            interrupt(numbers[0])


def run_build(
    project: Project,
    request: BuildRequest,
    screen: Observer,
    on_ready: Callable[[], None] = lambda: None,
    on_end: Callable[[Build], None] = lambda _build: None,
    on_signal: Callable[[int], None] = lambda _number: None,
) -> int:
    """Build, and return the exit code. A signal interrupts the build.

    `on_ready` is called before the build starts, `on_end` after its last event; both while the build lock is held.
    `on_signal` gets the number of a signal, in a thread: the build may end before it can stop at it.
    """
    with ExitStack() as signals, prepared_build(project, request, screen) as build:
        on_ready()
        shared = build.opened.state.shared

        def interrupt(signum: int) -> None:
            on_signal(signum)
            build.interrupt(signum)
            if shared is not None:
                # The build may wait for the cache.
                shared.close()

        # On a stack of its own, which is left last: a signal must not kill the build while it is being closed.
        signals.enter_context(interrupt_on_signal(interrupt))
        result = build.run()
        if shared is not None:
            shared.finish()
        warn_about_size(project.store, build, project.settings.environ, int(project.settings.clock().timestamp()))
        counts = Counter(end.status.value for end in result.stages.values())
        if project.part is not None:
            counts.update(project.part.idle_counts)
        ended = RunFinished(
            status=result.status,
            exit_code=result.exit_number,
            stages=dict(counts),
            saved=decimal_text(result.saved_cost),
        )
        build.observer.notice(run_finished(build.ledger.with_totals(ended)))
        on_end(build)
        if result.exit_number:
            check_kept(project.store.folder, *SWEPT_FOLDERS)
        return result.exit_number


def _best_tier() -> TierChoice:
    from orch23.execute.sandbox.tier_selection import best_tier_once  # noqa: PLC0415 - for steps with a sandbox

    return best_tier_once()


@contextmanager
def prepared_build(project: Project, request: BuildRequest, screen: Observer) -> Iterator[Build]:
    """Hold the build lock, recover what a crash left, and give a build that is ready to run.

    Raises:
        BusyError: another build holds the lock.
        InvalidInputError: the plan has errors.
        OutdatedIndexError: another build ran since the one that the project was opened with.
        CorruptStateError: the lock file, the journal or the store is damaged.
        OutdatedPlanError: the build would not do what its plan file says.
        ConsentError: the user has not consented to something that will certainly run or be sent.
        ConfigurationError, ProviderError: a model that will certainly be called cannot be, or a process that will
            certainly run cannot be sandboxed.
    """
    store, settings, pipeline = project.store, project.settings, project.pipeline
    with ExitStack() as stack:
        stack.enter_context(store.build_lock())
        # The last build was found before the lock was taken: another one may have run since.
        if project.last_build is not None:
            project.last_build.check_current(store)
        sandbox = SandboxLauncher(_best_tier, closed=hidden_paths(project), allowed=request.allow_unsandboxed)
        name_of = partial(executor_of, pipeline=pipeline, usual=usual_executor(pipeline, request.args.executor))
        needs_sandbox = partial(_needs_sandbox, name_of)
        # The self-test of the sandbox starts processes: it runs in parallel with the steps below.
        if any(map(needs_sandbox, pipeline.stages)):
            sandbox.choose_in_background()
        sandbox_dirs, left_edited = _recover(project)
        secrets, consent = secrets_from(settings.environ), Consent.of(settings.root, settings.environ)
        opened_cache = _open_cache(project, request, consent, secrets, stack)
        shared = None if opened_cache is None else opened_cache.results
        keeps_promises = not (request.replay or request.args.offline)
        options = OpeningOptions(**request.given.demands, keeps_promises=keeps_promises, shared=shared)
        open_again = partial(open_for_reading, project, options)
        # Read under the lock: no other build changes the lock file, the journal or the store from here on.
        opened = open_for_build(project, options)
        selected = _selected(project, opened, request.selection)
        check_ownership(opened)
        if any(isinstance(one, Stage) and one.schema_files for one in pipeline.stages):
            from orch23.cli.author_data import check_input_schemas  # noqa: PLC0415 - few stages have a schema

            check_input_schemas(pipeline, store.workspace, project.tools.sources)
        # A build that is refused has no journal.
        approve = request.approve
        approval = None if approve is None else approve(project, preview(open_again(), request.selection))
        run_id = new_run_id(settings.clock(), project.loaded.digests[pipeline.file].sha256[:8])
        journal = stack.enter_context(closing(Journal(store.logs, run_id, settings.clock)))
        folder = store.logs / journal.run_id
        nodes = opened.state.plan.nodes
        elsewhere = {name_of(nodes[one]) for one in selected if may_have_process(nodes[one])} - {LOCAL_EXECUTOR}
        jobs, workers = _limits(request.jobs or pipeline.jobs, is_mixed=bool(elsewhere))
        parts = BuildParts(
            project=project,
            request=request,
            opened=opened,
            approval=approval,
            sandbox=sandbox,
            jobs=jobs,
            name_of=name_of,
            elsewhere=elsewhere,
            secrets=secrets,
            consent=consent,
            observer=RedactingObserver(
                Fanout(journal, StateFile(folder / "state.json", settings.clock), screen),
                secrets.redact,
                secrets.may_contain,
            ),
            sync=journal.sync,
            folder=folder,
            stack=stack,
        )
        if opened_cache is not None:
            opened_cache.pass_to(parts.observer)
        local = LocalExecutor(
            sandbox_dirs=sandbox_dirs,
            contents=store.contents,
            workers=workers,
            interpreters=project.facts.path_of,
            tools=partial(consent.tools_of, project),
            redact=secrets.redact,
            launcher=sandbox,
            unconfined=PlainLauncher(None if request.allow_unsandboxed else not_allowed_error()),
        )
        stack.callback(local.close)
        # Before the first event: a missing key, price, sandbox or consent must not stop the build half-way, and a
        # question to the user must not wait for hours.
        # Several checks may look, and each preview decides all stages.
        build = parts.checked_build(local, cache(lambda: preview(open_again(), request.selection)))
        tier = sandbox.tier if any(map(needs_sandbox, nodes.values())) else "of the workers" if elsewhere else "unused"
        at_rest = build.unaffected.intersection(selected)
        began = _run_started(project, opened, journal.run_id, jobs or 0, tier, at_rest)
        build.observer.notice(run_started(replace(began, limits=run_limits(build.ledger.limits), **_machine())))
        _report_plan(opened.state.plan, selected - at_rest, build.observer)
        _warn_about_scheduler(build, request, settings.environ, is_used=bool(elsewhere))
        if _warn_about_sandbox(build, tier) and tier == LANDLOCK_TIER:
            # The warning about Landlock is shown once. Without any sandbox, each build warns again.
            stack.callback(lambda: store.save_shown_tier(tier) if local.has_started else None)
        _report_recovery(build, left_edited)
        # Last entered, first left: the index is saved while the journal and the executor are still open.
        stack.callback(partial(store.save_index, suspects=secrets.may_contain))
        stack.enter_context(_recorded_end(build))
        yield build


@contextmanager
def _recorded_end(build: Build) -> Iterator[None]:
    """Record the end of a run that an error stops. The next run continues it."""
    try:
        yield
    except Exception as error:
        code = getattr(error, "exit_code", ExitCode.MACHINE if isinstance(error, OSError) else ExitCode.BUG)
        number = custom_exit_code(code, getattr(error, "diagnostics", ()), build.opened.pipeline.exit_codes)
        # A wrong name, which `accept` finds here, interrupts nothing.
        is_refused = isinstance(error, UsageError | NotFoundError)
        last = RunFinished(status="failed" if is_refused else "interrupted", exit_code=number)
        ended = build.ledger.with_totals(last)
        with suppress(OSError):
            build.observer.notice(Event(ended, str(error), level="error"))
        raise


def _selected(project: Project, opened: OpenPipeline, selection: Selection) -> frozenset[str]:
    """Return the selected nodes, once git has checked out what they need."""
    plan, last = opened.state.plan, project.last_build
    changed = () if last is None else last.stale_snapshot.difference.changed
    selected, there = selection.nodes(plan), (os.path.lexists(project.store.root / path) for path in changed)
    # After an edit of files that are still there, git has left out nothing else: it need not be started.
    if project.part is None or project.pipeline.file in changed or not all(there):
        check_left_out(project.git, project.pipeline, (plan.nodes[name] for name in selected))
    return selected


def _needs_sandbox(name_of: "NameOf", node: Stage | ForeachStage) -> bool:
    """Return whether a stage may use the sandbox of this machine."""
    return (may_use_sandbox if name_of(node) == LOCAL_EXECUTOR else may_call_program)(node)


def _limits(jobs: int | None, *, is_mixed: bool) -> tuple[int | None, int]:
    """Return how many stages run at once, None for as many as there are places, and how many processes on this machine.

    Beside a cluster, `jobs` is the number of its slots.
    """
    cores = os.cpu_count() or 1
    return (jobs, min(jobs or cores, cores)) if is_mixed else (jobs or cores, jobs or cores)


def _open_cache(
    project: Project, request: BuildRequest, consent: Consent, secrets: Secrets, stack: ExitStack
) -> "OpenedCache | None":
    """Return the shared cache, closed by `stack`; None if neither the user nor the pipeline names one."""
    used = used_cache(project, request.args.cache, write=request.args.cache_write, consent=consent)
    if used is None:
        return None
    from orch23.model.features import SHARED_CACHE, load_feature  # noqa: PLC0415 - few builds use a shared cache

    opened: OpenedCache = load_feature(SHARED_CACHE["build"])(project, used, secrets, request.args)
    if opened.results is not None:
        stack.callback(opened.results.close)
    return opened


def _recover(project: Project) -> tuple[SandboxDirs, Sequence[str]]:
    """Clean up after a build that was killed, and finish its promotion.

    Return the sandbox directories, and the paths that were edited after the crash and were therefore left as they are.
    """
    store, stale = project.store, project.stale_snapshot
    if stale is not None and stale.is_current(str(store.root)):  # what is written from here on ends that
        store.workspace.earlier.use_comparison(stale.difference)
    store.sweep(whole=stale is None)
    made, lock = list["SharedTrees"](), threading.Lock()

    def shared_trees() -> "SharedTrees":
        from orch23.execute.shared_trees import SharedTrees  # noqa: PLC0415 - for steps with many inputs

        # Steps that start at once must not get two, each of which would remove the copies of the other.
        with lock:
            made[:] = made or [SharedTrees(store.shared_trees, store.sources, store.key)]
            return made[0]

    sandbox_dirs = SandboxDirs(store.sandbox_dirs, store.sources, meter=project.settings.meter, shared=shared_trees)
    sandbox_dirs.tool_caches = store.tool_caches
    store.repaired.extend(sandbox_dirs.sweep())
    # A kill between write and rename leaves temporary files beside the lock file and the transcripts.
    folders = {lock_path(store.root, project.pipeline.file).parent}
    # All other files of the workspace are written by promotions, which have their own recovery.
    for place in project.pipeline.transcript_folders:
        folders |= {store.root / place, store.root / place / "originals"}
    for folder in sorted(folders):
        sweep_temps(folder)
    recovered = store.promoter.recover(project.refusal)
    return sandbox_dirs, recovered.edited if recovered else ()


def _report_plan(plan: Plan, to_decide: Collection[str], observer: Observer) -> None:
    stages: dict[str, str] = {name: plan.nodes[name].kind for name in plan.order if name in to_decide}
    needs = {name: plan.upstream[name] for name in stages if plan.upstream[name]}
    observer.notice(Event(Planned(stages=stages, needs=needs), f"stages to decide: {len(stages)}"))


_NO_EXECUTOR = (
    "`--scheduler` has no effect: all steps run on this machine; add `--executor dask` or `--executor reapi`, or name "
    "the executor in the pipeline"
)


def _warn_about_scheduler(build: Build, request: BuildRequest, environ: Mapping[str, str], *, is_used: bool) -> None:
    # Who sets the variable for all builds knows that some run here.
    if request.args.scheduler and not is_used and not environ.get("ORCH23_BUILD_SCHEDULER"):
        build.observer.notice(Event(Warned(), _NO_EXECUTOR, level="warning"))


def _warn_about_sandbox(build: Build, tier: str) -> bool:
    """Warn if the sandbox is not the best one, or if there is none; return whether a warning was shown."""
    if tier not in _SANDBOX_WARNINGS or build.opened.store.shown_tier() == tier:
        return False
    build.observer.notice(Event(Warned(of_steps=True), _SANDBOX_WARNINGS[tier], level="warning"))
    return True


_SANDBOX_WARNINGS = {
    LANDLOCK_TIER: "the sandbox is Landlock, which isolates less than bubblewrap: `orch23 doctor` says how to get that",
    PlainLauncher.tier: "steps run without a sandbox: they may do what this user may",
}


def _report_recovery(build: Build, left_edited: Sequence[str]) -> None:
    for fingerprint, response_id in build.opened.history.submitted.items():
        # Copied into this run's journal: the next build reads no older one, and would not know of the call.
        submitted = CallSubmitted(fingerprint=fingerprint, response_id=response_id)
        build.observer.notice(Event(submitted, f"still to be collected: {response_id}"))
    edited = (f"{path}: left as it is, since it was edited after a crash" for path in left_edited)
    for line in (*build.opened.store.repairs(), *edited):
        build.observer.notice(Event(StoreRepaired(), line, level="warning"))


def _machine() -> dict[str, str]:
    # Not by the module `platform`: to load it takes longer than to decide an edit.
    system = os.uname()
    version = ".".join(map(str, sys.version_info[:3]))
    return {"python": version, "platform": f"{system.sysname} {system.release} {system.machine}"}


def _run_started(
    project: Project, opened: OpenPipeline, run_id: str, jobs: int, sandbox: str, at_rest: Collection[str]
) -> RunStarted:
    pipeline, plan = project.pipeline, opened.state.plan
    key = run_id.split("-")[1]
    if (part := project.part) is not None and project.last_build is not None:
        began, (lock, _) = part.rows.head.began, lock_file_of(project.last_build.stale_snapshot)
        spec = spec_hash(project.store, began.spec_file)
        own = {"run_id": run_id, "key": key, "jobs": jobs, "lock": lock, "spec_hash": spec}
        return replace(began, **own, at_rest=part.idle_counts)  # the other fields are of the whole pipeline
    nodes = [plan.nodes[name] for name in plan.order]
    stages = [node for node in nodes if isinstance(node, Stage)]
    # Those of the loop: the last node with a model.
    loop = next((node for node in reversed(nodes) if node.kind == "llm"), nodes[-1] if nodes else None)
    body = loop.body if isinstance(loop, ForeachStage) else {}
    retries = loop.retry.max if isinstance(loop, Stage) else json_at(body, "retry", "max") or body.get("retry")
    calling = [(stage.step, stage.retry) for stage in stages if is_llm(stage.step)]
    steps = [one for step, retry in calling for one in (*step.of_attempts(retry), *step.fallbacks())]
    # The first literal input of the plan, which the events call the spec.
    inputs = (one for stage in stages for one in stage.inputs)
    spec_file = next((one.path for one in inputs if isinstance(one, PathInput | SliceInput)), "")
    return RunStarted(
        pipeline=pipeline.file,
        name=pipeline.name,
        run_id=run_id,
        key=key,
        lock=lock_digest(opened.lock_path),
        spec_file=spec_file,
        spec_hash=spec_hash(project.store, spec_file),
        stages=len(plan.order),
        max_retries=retries if isinstance(retries, int) else 0,
        jobs=jobs,
        at_rest={"fresh": len(at_rest)} if at_rest else UNSET,
        resample=dict(opened.history.resample) or UNSET,
        provider=tuple(sorted({step.provider for step in steps})),
        model=tuple(sorted({step.model for step in steps})),
        sandbox=sandbox,
        version=__version__,
    )
