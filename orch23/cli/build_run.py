"""Assemble a build under the build lock, run it, and stop it on a signal."""

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from orch23 import __version__
from orch23.cli.author_data import check_input_schemas, read_scripted_responses, validate_by_schema
from orch23.cli.consent import Consent, trust_command
from orch23.cli.project_loading import (
    Project,
    open_read_session,
)
from orch23.cli.store_size import warn_about_size
from orch23.decide.secrets import secrets_from
from orch23.engine.attempt import Models, Safeguards
from orch23.engine.build import Build, BuildOptions
from orch23.engine.commit import Committer
from orch23.engine.conversation import Conversations, RequestBuilder
from orch23.engine.dry_run import Preview, check_ownership, preview
from orch23.engine.egress import NetworkAccess
from orch23.engine.idle_build import spec_hash
from orch23.engine.ledger import Ledger
from orch23.engine.preflight import CallPreflight, SandboxPreflight, may_use_sandbox
from orch23.engine.protected_files import own_file_patterns
from orch23.engine.run_events import Reporter
from orch23.engine.session import (
    Session,
    lock_path,
)
from orch23.engine.worker import Worker
from orch23.execute.launch import Launcher, PlainLauncher, RefusingLauncher
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.program_runner import LocalProgramRunner
from orch23.execute.registry import executors_of
from orch23.execute.sandbox.restricted import LandlockLauncher
from orch23.execute.sandbox.tier_selection import SandboxLauncher, best_tier_once, no_sandbox_error, not_allowed_error
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.model.diagnostic import Diagnostic
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
from orch23.model.pipeline import LOCAL_EXECUTOR, PathInput, Pipeline, SliceInput, Stage, StopConditions
from orch23.model.ports import Executor, Surroundings
from orch23.model.step import Grant
from orch23.plan.planner import ALL_STAGES, Selection
from orch23.providers.adapter import ProviderContext
from orch23.providers.prices import Prices, decimal_text
from orch23.providers.recordings import UniqueCalls
from orch23.report.observers import Fanout, RedactingObserver
from orch23.steps.registry import is_llm
from orch23.store.input_files import InputFiles
from orch23.store.lock_file import lock_digest
from orch23.store.run_logs import AttemptFiles, Journal, new_run_id
from orch23.store.run_state import StateFile
from orch23.store.safe_files import sweep_temps
from orch23.store.workspace import Workspace

if TYPE_CHECKING:
    pass


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_ONCE = 64


@contextlib.contextmanager
def interrupt_on_signal(interrupt: Callable[[int], None]) -> Iterator[None]:
    """Call `interrupt` with the first signal, from a thread; a second one raises KeyboardInterrupt in the main thread.

    The first must not wait for Python code of the main thread: a signal that comes just before it blocks on a lock
    would be seen only when that is released, which may be never. So the C handler's wakeup pipe is what is listened to.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may take signals
        return
    listening, waking = os.pipe()
    os.set_blocking(waking, False)
    seen = 0

    def take(_signum: int, _frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            raise KeyboardInterrupt

    watcher = threading.Thread(target=_watch, args=(listening, interrupt), name="orch23-signals", daemon=True)
    watcher.start()
    hears_no_hangup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # below nohup
    taken = [number for number in SIGNALS if number != signal.SIGHUP or not hears_no_hangup]
    before = {number: signal.signal(number, take) for number in taken}
    former = signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(former)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(waking)
        watcher.join()
        os.close(listening)


def _watch(listening: int, interrupt: Callable[[int], None]) -> None:
    """Hand on the first signal; end when the pipe does."""
    asked = False
    while numbers := os.read(listening, _AT_ONCE):
        wanted = [number for number in numbers if number in SIGNALS]
        if wanted and not asked:
            asked = True
            interrupt(wanted[0])


class BuildRequest(Struct, frozen=True, kw_only=True):
    """What `orch23 build` was asked for. `ask` asks the user on the terminal to consent to some grants.

    `live` says that what steps print and models write is told while it comes.
    """

    selection: Selection = ALL_STAGES
    jobs: int | None = None
    keep_going: bool = False
    forced: tuple[str, ...] = ()
    overwrite_edited: bool = False
    replay: bool = False
    offline: bool = False
    resample: tuple[str, ...] = ()
    budget: Decimal | None = None
    allow_unsandboxed: bool = False
    live: bool = False
    ask: Callable[[Sequence[Grant]], bool] = lambda _: False


@contextmanager
def prepared_build(  # noqa: PLR0915 - what a build needs, put together in its order
    project: Project, request: BuildRequest, screen: Observer
) -> Iterator[Build]:
    """Hold the build lock, recover what a crash left, and give a build that is ready to run.

    Raises:
        BusyError: another build holds the lock.
        InvalidInputError: the plan has complaints.
        CorruptStateError: the lock file, the journal or the store is damaged.
        ConsentError: the user has not consented to what would surely be run or sent.
        ConfigurationError, ProviderError: a model would surely be asked that cannot be, or may not; a process would
            surely run that cannot be confined.

    """
    store, pipeline, sources = project.store, project.pipeline, project.machinery.sources
    with ExitStack() as stack:
        stack.enter_context(store.build_lock())
        if project.partial is not None:
            project.partial.check_age(store)
        sandbox = SandboxLauncher(best_tier_once, closed=hidden_paths(project), allowed=request.allow_unsandboxed)
        if any(map(may_use_sandbox, pipeline.stages)):
            sandbox.choose_in_background()  # it takes a while, and so does what follows
        store.sweep(whole=project.partial is None)
        sandbox_dirs = SandboxDirs(store.rooms, store.sources, meter=project.settings.meter)
        store.mended.extend(sandbox_dirs.sweep())
        remove_temporary_files(project)
        recovered = store.promoter.recover(project.refusal)
        open_again = partial(
            open_read_session,
            project,
            forced=(*request.forced, *request.resample),
            overwrite_edited=request.overwrite_edited,
        )
        session = open_again()
        check_ownership(session)
        check_input_schemas(pipeline, store.workspace, sources)
        run_id = new_run_id(project.settings.clock(), project.loaded.digests[pipeline.file].sha256[:8])
        journal = Journal(store.logs, run_id, project.settings.clock)
        stack.callback(journal.close)
        folder = store.logs / journal.run_id
        secrets = secrets_from(project.settings.environ)
        fanout = Fanout(journal, StateFile(folder / "state.json", project.settings.clock), screen)
        observer = RedactingObserver(fanout, secrets.redact, secrets.suspects)
        jobs = request.jobs or pipeline.jobs or os.cpu_count() or 1
        local = LocalExecutor(
            sandbox_dirs=sandbox_dirs,
            contents=store.contents,
            workers=jobs,
            interpreters=project.facts.path_of,
            redact=secrets.redact,
            launcher=sandbox,
            unconfined=PlainLauncher() if request.allow_unsandboxed else RefusingLauncher(not_allowed_error()),
        )
        stack.callback(local.close)
        executor: Executor = local
        if pipeline.executor != LOCAL_EXECUTOR:
            own = Surroundings(
                contents=store.contents, workers=jobs, environ=project.settings.environ, redact=secrets.redact
            )
            executor = executors_of(pipeline.plugins)[pipeline.executor](own)
        stack.callback(executor.close)
        consent = Consent.of(project.settings.root, project.settings.environ)
        setting = ProviderContext(
            environ=project.settings.environ,
            root=store.root,
            read_answers=lambda path: read_scripted_responses(sources, path),
            notice=observer.notice,
            is_granted=consent.is_granted,
            files=consent.files,
            runner=programs_of(project, sandbox, request),
            trust_command=trust_command(project.settings),
            submitted=session.history.submitted,
        )
        stack.callback(setting.close)
        outside = NetworkAccess(
            partial=store.partial,
            environ=project.settings.environ,
            offline=request.offline,
            is_granted=consent.is_granted,
            trust_command=trust_command(project.settings),
        )
        ledger = Ledger(
            limits=run_limits(pipeline, request.budget),
            limits_of=lambda name: stage_limits(session, name),
            prices=Prices(pipeline.prices, pipeline.plugins),
            notice=observer.notice,
            clock=monotonic,
            before=session.history.spent,
        )
        stack.callback(ledger.close)
        conversations = Conversations(
            setting=setting,
            exchanges=store.exchanges,
            meter=ledger,
            secrets=secrets,
            once=UniqueCalls(session.history.reusable),
            replay=request.replay,
            offline=request.offline,
            resample=frozenset(request.resample),
        )
        worker = Worker(
            session=session,
            executor=executor,
            models=Models(
                questions=RequestBuilder(secrets, sources, pipeline.vars),
                conversations=conversations,
                validate=lambda path, value: validate_by_schema(sources, path, value),
            ),
            safeguards=Safeguards(
                secrets=secrets, protected=own_file_patterns(pipeline), pace=ledger.pace, outside=outside
            ),
            reporter=Reporter(
                observer=observer, artifacts=AttemptFiles(folder), redact=secrets.redact, live=request.live
            ),
        )
        build = Build(
            session=session,
            worker=worker,
            committer=Committer(session),
            executor=executor,
            ledger=ledger,
            observer=observer,
            clock=monotonic,
            options=BuildOptions(selection=request.selection, jobs=jobs, keep_going=request.keep_going),
            break_off=partial(_close, setting, outside),
        )

        def look() -> Preview:
            return preview(open_again(), request.selection)

        CallPreflight(
            pipeline=pipeline,
            conversations=conversations,
            sources=sources,
            contents=store.contents,
            budget=request.budget,
            ask=lambda grants: consent.grants.path is not None and request.ask(grants) and consent.give(grants),
        ).check(session.world.plan, look)
        SandboxPreflight(
            pipeline=pipeline,
            is_elsewhere=pipeline.executor != LOCAL_EXECUTOR,
            allowed=request.allow_unsandboxed,
            missing=lambda: no_sandbox_error(sandbox.choice) if sandbox.choice.launcher is None else None,
            refused=not_allowed_error(),
        ).check(session.world.plan, look)
        tier = sandbox.tier if any(map(may_use_sandbox, session.world.plan.nodes.values())) else "unused"
        observer.notice(run_started(_began(project, session, journal.run_id, jobs, tier)))
        plan = session.world.plan
        wanted = request.selection.nodes(plan)
        stages: dict[str, str] = {name: plan.nodes[name].kind for name in plan.order if name in wanted}
        needs = {name: plan.upstream[name] for name in stages if plan.upstream[name]}
        observer.notice(Event(Planned(stages=stages, needs=needs), f"stages to decide: {len(stages)}"))
        warning = sandbox_warning(tier)
        if warning is not None and store.tier_shown() != tier:
            observer.notice(Event(Warned(of_steps=True), warning, level="warning"))
            if tier == LandlockLauncher.tier:  # without any sandbox it is shown by each build
                stack.callback(lambda: store.note_tier(tier) if local.has_started else None)
        for fingerprint, response_id in session.history.submitted.items():  # or it would be forgotten with that run
            known = CallSubmitted(fingerprint=fingerprint, response_id=response_id)
            observer.notice(Event(known, f"still to be collected: {response_id}"))
        left = recovered.foreign if recovered else ()
        for line in (*store.healed(), *(f"{path}: left as it is, since it was edited after a crash" for path in left)):
            observer.notice(Event(StoreRepaired(), line, level="warning"))
        stack.callback(partial(store.save_index, suspects=secrets.suspects))
        yield build


def program_launcher(sandbox: SandboxLauncher) -> Launcher:
    """Return what starts the programs that answer in the place of a model: what starts steps."""
    return sandbox


def programs_of(project: Project, sandbox: SandboxLauncher, request: BuildRequest) -> LocalProgramRunner:
    """Return what runs the programs that answer. They see files by themselves: what is read for them ties no stage."""
    store, pipeline, launcher = project.store, project.pipeline, program_launcher(sandbox)
    lock = lock_path(store.root, pipeline.file).relative_to(store.root).as_posix()

    def missing() -> Diagnostic | None:
        is_refused = launcher is sandbox and not request.allow_unsandboxed and sandbox.choice.launcher is None
        return no_sandbox_error(sandbox.choice) if is_refused else None

    return LocalProgramRunner(
        root=store.root,
        sandbox_dirs=SandboxDirs(store.rooms, InputFiles(store.contents, Workspace(store.root, None))),
        launcher=launcher,
        no_sandbox=missing,
        written=lambda: store.workspace.written_paths,
        ignored=(lock, *pipeline.transcript_folders),
    )


def hidden_paths(project: Project) -> tuple[Path, ...]:
    """Return what no step may see although an interpreter lies in it: the user's home, and the project."""
    home = project.settings.environ.get("HOME")
    return (project.store.root, *((Path(home),) if home and Path(home).is_absolute() else ()))


def sandbox_warning(tier: str) -> str | None:
    """Return the warning about a sandbox that is not the best one, or about none."""
    if tier == LandlockLauncher.tier:
        return "the sandbox is Landlock, which isolates less than bubblewrap: `orch23 doctor` says how to get that"
    return "steps run without a sandbox: they may do what this user may" if tier == PlainLauncher.tier else None


def run_limits(pipeline: Pipeline, budget: Decimal | None) -> StopConditions:
    """Return the limits of a run. A budget of the command line stands in the place of the pipeline's."""
    return pipeline.stop if budget is None else replace(pipeline.stop, max_cost_usd=budget)


def stage_limits(session: Session, name: str) -> StopConditions:
    """Return the limits of a stage, which may have come with the expansion of a foreach stage since the run began."""
    node = session.world.plan.nodes[name]
    return node.stop if isinstance(node, Stage) else StopConditions()


def remove_temporary_files(project: Project) -> None:
    """Remove what a killed build left beside the files that are committed: the lock file and the transcripts."""
    root, pipeline = project.store.root, project.pipeline
    folders = {lock_path(root, pipeline.file).parent}
    for place in pipeline.transcript_folders:
        folders |= {root / place, root / place / "originals"}
    for folder in sorted(folders):
        sweep_temps(folder)


def run_build(
    project: Project,
    request: BuildRequest,
    screen: Observer,
    on_ready: Callable[[Build], None],
    on_end: Callable[[Build], None] = lambda _build: None,
) -> int:
    """Build, and return the exit code.

    `on_ready` gets the build before it runs, to be able to interrupt it, `on_end` after its last event; both while the
    build lock is held.
    """
    with prepared_build(project, request, screen) as build:
        on_ready(build)
        result = build.run()
        warn_about_size(project.store, build, project.settings.environ, int(project.settings.clock().timestamp()))
        part = project.part
        counts = Counter(end.status.value for end in result.stages.values())
        counts.update(part.at_rest if part is not None else {})
        ended = RunFinished(
            status=result.status, exit_code=result.exit_number, stages=dict(counts), saved=decimal_text(result.saved)
        )
        build.observer.notice(run_finished(build.ledger.finished(ended)))
        on_end(build)
        return result.exit_number


def _close(setting: ProviderContext, outside: NetworkAccess) -> None:
    """Break off what is asked and fetched."""
    setting.close()
    outside.close()


def _began(project: Project, session: Session, run_id: str, jobs: int, sandbox: str) -> RunStarted:
    pipeline, plan = project.pipeline, session.world.plan
    key = run_id.split("-")[1]
    if (found := project.partial) is not None:
        part, (lock, _) = found.part, found.lock_file
        spec = spec_hash(project.store, part.began.spec_file)
        own = {"run_id": run_id, "key": key, "jobs": jobs, "lock": lock, "spec_hash": spec}
        return replace(part.began, **own, at_rest=part.at_rest)
    stages = [stage for name in plan.order if isinstance(stage := plan.nodes[name], Stage)]
    steps = [stage.step for stage in stages if is_llm(stage.step)]
    spec_file = _spec_file(stages) or ""
    return RunStarted(
        pipeline=pipeline.file,
        name=pipeline.name,
        run_id=run_id,
        key=key,
        lock=lock_digest(session.lock_path),
        spec_file=spec_file,
        spec_hash=spec_hash(project.store, spec_file),
        stages=len(plan.order),
        max_retries=max((stage.retry.max for stage in stages), default=0),
        jobs=jobs,
        provider=tuple(sorted({step.provider for step in steps})),
        model=tuple(sorted({step.model for step in steps})),
        sandbox=sandbox,
        version=__version__,
    )


def _spec_file(stages: Sequence[Stage]) -> str | None:
    """Return the first literal input of the plan: what seeds 000 and 001 call the spec."""
    for stage in stages:
        for one in stage.inputs:
            if isinstance(one, PathInput | SliceInput):
                return one.path
    return None
