"""Put the parts together: what varies between a real run and a test is chosen here, and only here."""

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from orch23 import __version__
from orch23.cli.author_data import check_input_schemas, check_schema, read_answers, validate_answer
from orch23.cli.consent import Consent
from orch23.cli.families import strange_families
from orch23.cli.partial_build import PartialBuild, partial_build
from orch23.cli.project import find_project
from orch23.cli.store_size import tell_of_growth
from orch23.decide.secrets import secrets_of
from orch23.engine.at_rest import spec_hash
from orch23.engine.attempt import Models, Safeguards
from orch23.engine.build import Build, BuildOptions
from orch23.engine.claims import Claims
from orch23.engine.commit import Committer
from orch23.engine.confinement import Confinement, may_use_sandbox
from orch23.engine.conversation import Conversations
from orch23.engine.declared import declared_by_pipeline, own_files
from orch23.engine.facts import FactFinder
from orch23.engine.ledger import Ledger
from orch23.engine.memory import Memory, PartialMemory, WholeMemory, lock_path
from orch23.engine.outside import Outside
from orch23.engine.preview import Preview, check_claims, preview
from orch23.engine.question import Questions
from orch23.engine.reach import Part
from orch23.engine.readiness import Readiness, llm_steps
from orch23.engine.reporting import Reporter
from orch23.engine.session import Machinery, Session, open_session, sound_part
from orch23.engine.work import Worker
from orch23.execute.launch import Launcher, PlainLauncher, RefusingLauncher
from orch23.execute.local import LocalExecutor
from orch23.execute.programs import Programs
from orch23.execute.registry import executors_of
from orch23.execute.repository import Repository
from orch23.execute.rooms import Rooms
from orch23.execute.sandbox.choice import Sandbox, choose_once, no_sandbox, not_allowed
from orch23.execute.sandbox.restricted import Restricted
from orch23.load.loaded import InvalidPipelineError, Loaded
from orch23.model.consent import Grant
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.digest import Json
from orch23.model.errors import Orch23Error
from orch23.model.event import (
    CallSubmitted,
    Event,
    Healed,
    Observer,
    Planned,
    RunFinished,
    RunStarted,
    Warned,
    run_finished,
    run_started,
)
from orch23.model.paths import match_any
from orch23.model.pipeline import LOCAL, PathInput, Pipeline, SliceInput, Stage, StopConditions
from orch23.model.plan import Compiled
from orch23.model.ports import Executor, Surroundings
from orch23.plan.select import EVERYTHING, Selection
from orch23.plan.writers import writes_of
from orch23.providers.adapter import Setting
from orch23.providers.prices import Prices, plain
from orch23.providers.recorded import Once
from orch23.providers.registry import check, unfit_fields
from orch23.report.fanout import Fanout
from orch23.report.redacted import Redacted
from orch23.snapshot.registry import TRUST
from orch23.snapshot.reply import Unrest
from orch23.steps.registry import is_llm
from orch23.store.artifacts import Artifacts
from orch23.store.author_files import AuthorFiles
from orch23.store.durable import sweep_temps
from orch23.store.journal import Journal, new_run_id
from orch23.store.lock_file import lock_digest
from orch23.store.meter import Meter, silent
from orch23.store.opening import Store, open_store
from orch23.store.promote import Refusal
from orch23.store.run_state import StateFile
from orch23.store.sources import Sources
from orch23.store.user_state import Grants
from orch23.store.workspace import Workspace

if TYPE_CHECKING:
    from orch23.load.swap import Swap
    from orch23.steps.llm.spec import LLMStep


def wall_clock() -> datetime:
    """Return the time now, in UTC."""
    return datetime.now(UTC)


class Settings(Struct, frozen=True, kw_only=True):
    """What the command line and the environment say that is not about one command alone."""

    root: Path
    pipeline_path: Path
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    sets: Mapping[str, str] = field(default_factory=dict)
    vars_file: Path | None = None
    provider: str | None = None
    model: str | None = None
    clock: Callable[[], datetime] = wall_clock
    meter: Meter = silent


class Project(Struct, frozen=True, kw_only=True):
    """A loaded pipeline with the store of its project: all that reading commands need.

    If it is `partial`, the pipeline is the part that an edit reaches. `git` may have started a process: close it after
    use.
    """

    settings: Settings
    loaded: Loaded
    store: Store
    machinery: Machinery
    facts: FactFinder
    git: Repository
    partial: PartialBuild | None = None

    @property
    def part(self) -> Part | None:
        """Give the part that an edit reaches, or None if this is the whole project."""
        return self.partial.part if self.partial is not None else None

    @property
    def pipeline(self) -> Pipeline:
        """Give the pipeline."""
        return self.loaded.pipeline

    @property
    def refusal(self) -> Refusal:
        """Give what knows the protected paths that the pipeline does not declare."""
        return declared_by_pipeline(self.pipeline).refusal

    @property
    def memory(self) -> Memory:
        """Give what earlier builds left."""
        root, file = self.settings.root, self.pipeline.file
        if self.partial is not None:
            return PartialMemory(root, file, self.partial.part.recorded, *self.partial.lock_file)
        return WholeMemory(root, self.store.logs, file)


def open_project(settings: Settings) -> Project:
    """Return the project with its pipeline loaded. Writes nothing.

    Raises:
        InvalidInputError: the pipeline has complaints; all of them are in it.
        NotFoundError: there is no such file.

    """
    store = open_store(settings.root, settings.meter)
    machinery, facts = _machinery(settings, store)
    try:
        loaded = _load(settings, compiled=store.pipelines)
    except InvalidPipelineError as error:
        raise _with_the_rest(error, store, machinery) from None
    facts.plugins, facts.executor = loaded.pipeline.plugins, loaded.pipeline.executor
    loaded = replace(loaded, warnings=(*loaded.warnings, *strange_families(loaded.pipeline)))
    git = Repository(root=settings.root)
    return Project(settings=settings, loaded=loaded, store=store, machinery=machinery, facts=facts, git=git)


def open_part(settings: Settings, unrest: Unrest) -> Project | None:
    """Return the part of a project that an edit reaches, given what the last build left and what has changed.

    None where that is not known, or is nearly everything. Writes nothing.
    """
    store = open_store(settings.root, settings.meter)
    found = partial_build(unrest, store, lambda text: _declared(settings, text)) if not store.is_strange else None
    if found is None:
        return None
    machinery, facts = _machinery(settings, store)
    part = found.part
    sources = {part.plan.pipeline.file: part.text} if part.text else {}
    loaded = Loaded(part.plan.pipeline, (), {}, sources, part.digests)
    facts.plugins, facts.executor = loaded.pipeline.plugins, loaded.pipeline.executor
    git = Repository(root=settings.root)
    return Project(
        settings=settings, loaded=loaded, store=store, machinery=machinery, facts=facts, git=git, partial=found
    )


def _declared(settings: Settings, text: str) -> Mapping[str, Stage] | None:
    """Return the stages of a text of the pipeline, by name; None where there is an error or a warning."""
    try:
        loaded = _load(settings, text=text)
    except Orch23Error:
        return None
    stages = {stage.name: stage for stage in loaded.pipeline.stages if isinstance(stage, Stage)}
    sound = not (loaded.warnings or loaded.pipeline.skipped or strange_families(loaded.pipeline))
    return stages if sound and len(stages) == len(loaded.pipeline.stages) else None


def _load(settings: Settings, text: str | None = None, compiled: Compiled | None = None) -> Loaded:
    from orch23.load.pipeline import load_pipeline  # noqa: PLC0415 - it loads PyYAML, which a stored plan needs not

    return load_pipeline(
        settings.pipeline_path,
        settings.root,
        sets=settings.sets,
        vars_file=settings.vars_file,
        swap=swap_of(settings),
        text=text,
        compiled=compiled,
    )


def _machinery(settings: Settings, store: Store) -> tuple[Machinery, FactFinder]:
    facts = FactFinder(settings.root, settings.environ)
    files = AuthorFiles(settings.root, store.workspace, lambda path: path in store.workspace.written_paths)

    def check_provider(step: "LLMStep") -> tuple[Diagnostic, ...]:
        return (*check(step, settings.environ, settings.root), *check_schema(files, step.schema))

    machinery = Machinery(facts_of=facts.facts_of, sources=files, read_yaml=read_yaml, check_provider=check_provider)
    return machinery, facts


def swap_of(settings: Settings) -> "Swap":
    """Return who is asked in place of what the pipeline says.

    Raises:
        InvalidInputError: the command line names a provider that there is not.

    """
    from orch23.load.pipeline import plugins_of  # noqa: PLC0415 - it loads PyYAML, which a stored plan needs not
    from orch23.load.swap import Swap  # noqa: PLC0415 - loaded with the pipeline

    if settings.provider is None:
        return Swap(model=settings.model)
    unfit = unfit_fields(settings.provider, lambda: plugins_of(settings.pipeline_path, settings.root))
    return Swap(settings.provider, settings.model, unfit)


def _with_the_rest(error: InvalidPipelineError, store: Store, machinery: Machinery) -> InvalidPipelineError:
    """Return the error with what is wrong besides in the stages that could be read, in the order of the file."""
    parsed = error.parsed
    if parsed is None or parsed.partial is None:
        return error
    names = {path.split("/")[1] for path in parsed.partial.locations if path.startswith("stages/")}
    more = sound_part(parsed.partial, store, machinery, names=names, unread=parsed.unread)
    known = [*error.diagnostics, *more]
    known.sort(key=lambda d: (d.location is None, d.location or Location("", 0, 0)))
    return InvalidPipelineError(*known, sources=error.sources, parsed=parsed)


def read_yaml(text: str) -> Json:
    """Return the value of a YAML text.

    Raises:
        ValueError: it is not valid, with the reason.

    """
    from orch23.load.data import parse_yaml_data  # noqa: PLC0415 - it loads PyYAML

    value, problems = parse_yaml_data(text, "")
    if problems:
        first = problems[0]
        place = f"line {first.location.line}, column {first.location.column}: " if first.location else ""
        raise ValueError(f"{place}{first.message}" + (f" ({first.hint})" if first.hint else ""))
    return value


def open_reading(project: Project, *, forced: Sequence[str] = (), overwrite_edited: bool = False) -> Session:
    """Return a session for commands that only look. Takes no lock, writes nothing."""
    return open_session(
        project.pipeline,
        project.store,
        project.machinery,
        project.memory,
        forced=forced,
        overwrite_edited=overwrite_edited,
        git=project.git,
        claims=claims_of(project),
        trusts_lock=project.settings.environ.get(TRUST) == "1",
        plan=project.part.plan if project.part is not None else None,
    )


def claims_of(project: Project) -> Claims:
    """Return what the other pipelines of the project own; one of them is loaded where its lock file claims a path."""
    settings = project.settings

    def declares(file: str, stage: str, path: str) -> bool:
        from orch23.load.pipeline import load_pipeline  # noqa: PLC0415 - it loads PyYAML, and is hardly ever asked

        try:
            other = load_pipeline(settings.root / file, settings.root).pipeline
        except Orch23Error:  # a pipeline that cannot be loaded keeps its claims
            return True
        nodes = (node for node in other.stages if node.name == stage.partition("@")[0])
        return any(match_any(writes_of(node), path) for node in nodes)

    return Claims(settings.root, project.memory.lock_path, declares)


class BuildRequest(Struct, frozen=True, kw_only=True):
    """What `orch23 build` was asked for. `ask` asks the user on the terminal to consent to some grants.

    `live` says that what steps print and models write is told while it comes.
    """

    selection: Selection = EVERYTHING
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
def building(  # noqa: PLR0915 - what a build needs, put together in its order
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
        sandbox = Sandbox(choose_once, closed=closed_places(project), allowed=request.allow_unsandboxed)
        if any(map(may_use_sandbox, pipeline.stages)):
            sandbox.begin()  # it takes a while, and so does what follows
        store.sweep(whole=project.partial is None)
        rooms = Rooms(store.rooms, store.sources, meter=project.settings.meter)
        store.mended.extend(rooms.sweep())
        sweep_committed(project)
        recovered = store.promoter.recover(project.refusal)
        open_again = partial(
            open_reading,
            project,
            forced=(*request.forced, *request.resample),
            overwrite_edited=request.overwrite_edited,
        )
        session = open_again()
        check_claims(session)
        check_input_schemas(pipeline, store.workspace, sources)
        run_id = new_run_id(project.settings.clock(), project.loaded.digests[pipeline.file].sha256[:8])
        journal = Journal(store.logs, run_id, project.settings.clock)
        stack.callback(journal.close)
        folder = store.logs / journal.run_id
        secrets = secrets_of(project.settings.environ)
        fanout = Fanout(journal, StateFile(folder / "state.json", project.settings.clock), screen)
        observer = Redacted(fanout, secrets.redact, secrets.suspects)
        jobs = request.jobs or pipeline.jobs or os.cpu_count() or 1
        local = LocalExecutor(
            rooms=rooms,
            contents=store.contents,
            workers=jobs,
            interpreters=project.facts.path_of,
            redact=secrets.redact,
            launcher=sandbox,
            unconfined=PlainLauncher() if request.allow_unsandboxed else RefusingLauncher(not_allowed()),
        )
        stack.callback(local.close)
        executor: Executor = local
        if pipeline.executor != LOCAL:
            own = Surroundings(
                contents=store.contents, workers=jobs, environ=project.settings.environ, redact=secrets.redact
            )
            executor = executors_of(pipeline.plugins)[pipeline.executor](own)
        stack.callback(executor.close)
        consent = Consent.of(project.settings.root, project.settings.environ)
        setting = Setting(
            environ=project.settings.environ,
            root=store.root,
            read_answers=lambda path: read_answers(sources, path),
            notice=observer.notice,
            is_granted=consent.is_granted,
            files=consent.files,
            runner=programs_of(project, sandbox, request),
            trust_command=trust_command(project.settings),
            submitted=session.history.submitted,
        )
        stack.callback(setting.close)
        outside = Outside(
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
            once=Once(session.history.reusable),
            replay=request.replay,
            offline=request.offline,
            resample=frozenset(request.resample),
        )
        worker = Worker(
            session=session,
            executor=executor,
            models=Models(
                questions=Questions(secrets, sources, pipeline.vars),
                conversations=conversations,
                validate=lambda path, value: validate_answer(sources, path, value),
            ),
            safeguards=Safeguards(secrets=secrets, protected=own_files(pipeline), pace=ledger.pace, outside=outside),
            reporter=Reporter(observer=observer, artifacts=Artifacts(folder), redact=secrets.redact, live=request.live),
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

        Readiness(
            pipeline=pipeline,
            conversations=conversations,
            sources=sources,
            contents=store.contents,
            budget=request.budget,
            ask=lambda grants: consent.grants.path is not None and request.ask(grants) and consent.give(grants),
        ).check(session.world.plan, look)
        Confinement(
            pipeline=pipeline,
            is_elsewhere=pipeline.executor != LOCAL,
            allowed=request.allow_unsandboxed,
            missing=lambda: no_sandbox(sandbox.choice) if sandbox.choice.launcher is None else None,
            refused=not_allowed(),
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
            if tier == Restricted.tier:  # without any sandbox it is shown by each build
                stack.callback(lambda: store.note_tier(tier) if local.has_started else None)
        for fingerprint, response_id in session.history.submitted.items():  # or it would be forgotten with that run
            known = CallSubmitted(fingerprint=fingerprint, response_id=response_id)
            observer.notice(Event(known, f"still to be collected: {response_id}"))
        left = recovered.foreign if recovered else ()
        for line in (*store.healed(), *(f"{path}: left as it is, since it was edited after a crash" for path in left)):
            observer.notice(Event(Healed(), line, level="warning"))
        stack.callback(partial(store.save_index, suspects=secrets.suspects))
        yield build


def trust_command(settings: Settings) -> str:
    """Return the command that grants what a pipeline needs, as it can be run where the user is."""
    root = settings.root
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed
        here = Path("/")
    pipeline = os.path.relpath(settings.pipeline_path, here)
    inside = here.is_relative_to(root) and find_project(here, (pipeline,)).root == root
    pipeline = pipeline if inside else os.path.relpath(settings.pipeline_path, root)
    options = [
        *(part for name, value in settings.sets.items() for part in ("--set", f"{name}={value}")),
        *(("--vars", str(settings.vars_file)) if settings.vars_file is not None else ()),
        *(("--provider", settings.provider) if settings.provider is not None else ()),
    ]
    return shlex.join(["orch23", *(() if inside else ("-C", str(root))), "trust", pipeline, *options])


def needed_grants(project: Project) -> tuple[Grant, ...]:
    """Return all that the steps of a pipeline need the user's consent for, as its plan is now."""
    settings = project.settings
    nothing_yet = Consent(settings.root, Grants(None), Workspace(settings.root, None))
    plan = open_reading(project).world.plan
    steps = llm_steps(plan)
    found = dict.fromkeys(nothing_yet.lacking(step, settings.environ) for step in steps)
    nodes = plan.nodes.values()
    of_others = dict.fromkeys(grant for node in nodes if isinstance(node, Stage) for grant in node.step.grants)
    return (*(grant for grant in found if grant is not None), *of_others)


def program_launcher(sandbox: Sandbox) -> Launcher:
    """Return what starts the programs that answer in the place of a model: what starts steps."""
    return sandbox


def programs_of(project: Project, sandbox: Sandbox, request: BuildRequest) -> Programs:
    """Return what runs the programs that answer. They see files by themselves: what is read for them ties no stage."""
    store, pipeline, launcher = project.store, project.pipeline, program_launcher(sandbox)
    lock = lock_path(store.root, pipeline.file).relative_to(store.root).as_posix()

    def missing() -> Diagnostic | None:
        is_refused = launcher is sandbox and not request.allow_unsandboxed and sandbox.choice.launcher is None
        return no_sandbox(sandbox.choice) if is_refused else None

    return Programs(
        root=store.root,
        rooms=Rooms(store.rooms, Sources(store.contents, Workspace(store.root, None))),
        launcher=launcher,
        no_sandbox=missing,
        written=lambda: store.workspace.written_paths,
        ignored=(lock, *pipeline.transcript_folders),
    )


def closed_places(project: Project) -> tuple[Path, ...]:
    """Return what no step may see although an interpreter lies in it: the user's home, and the project."""
    home = project.settings.environ.get("HOME")
    return (project.store.root, *((Path(home),) if home and Path(home).is_absolute() else ()))


def sandbox_warning(tier: str) -> str | None:
    """Return the warning about a sandbox that is not the best one, or about none."""
    if tier == Restricted.tier:
        return "the sandbox is Landlock, which isolates less than bubblewrap: `orch23 doctor` says how to get that"
    return "steps run without a sandbox: they may do what this user may" if tier == PlainLauncher.tier else None


def run_limits(pipeline: Pipeline, budget: Decimal | None) -> StopConditions:
    """Return the limits of a run. A budget of the command line stands in the place of the pipeline's."""
    return pipeline.stop if budget is None else replace(pipeline.stop, max_cost_usd=budget)


def stage_limits(session: Session, name: str) -> StopConditions:
    """Return the limits of a stage, which may have come with the expansion of a foreach stage since the run began."""
    node = session.world.plan.nodes[name]
    return node.stop if isinstance(node, Stage) else StopConditions()


def sweep_committed(project: Project) -> None:
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
    with building(project, request, screen) as build:
        on_ready(build)
        result = build.run()
        tell_of_growth(project.store, build, project.settings.environ, int(project.settings.clock().timestamp()))
        part = project.part
        counts = Counter(end.status.value for end in result.stages.values())
        counts.update(part.at_rest if part is not None else {})
        ended = RunFinished(
            status=result.status, exit_code=result.exit_number, stages=dict(counts), saved=plain(result.saved)
        )
        build.observer.notice(run_finished(build.ledger.finished(ended)))
        on_end(build)
        return result.exit_number


def _close(setting: Setting, outside: Outside) -> None:
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
