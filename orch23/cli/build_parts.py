"""Make the parts of a build: executor, providers, ledger, conversations, worker."""

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from orch23.attempt.attempt import Models
from orch23.attempt.ledger import Ledger
from orch23.attempt.run_events import OutputWatcher, Reporter
from orch23.attempt.safeguards import NetworkAccess, Safeguards
from orch23.attempt.stage_work import Worker
from orch23.cli.consent import Consent, trust_command_line
from orch23.cli.parameters import EXECUTORS, GivenOptions, PipelineArguments
from orch23.cli.project_loading import Project
from orch23.decide.decisions import DecidedStage
from orch23.decide.dry_run import Preview
from orch23.decide.open_pipeline import OpenPipeline
from orch23.decide.protected_files import own_file_patterns
from orch23.engine.build import Build, BuildOptions
from orch23.engine.preflight import SandboxPreflight, certain_failures, check_tools
from orch23.engine.result_writer import ResultWriter
from orch23.execute.launch import SandboxLauncher, no_sandbox_error, not_allowed_error, weak_sandbox_error
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.model.diagnostic import Diagnostic
from orch23.model.event import BATCH_MARK, Event, Observer, Warned
from orch23.model.parsing import json_at
from orch23.model.pipeline import LOCAL_EXECUTOR, ForeachStage, Stage, StopConditions
from orch23.model.step import Grant
from orch23.plan.planner import ALL_STAGES, Selection, calls_model
from orch23.steps.registry import is_llm
from orch23.store.input_files import InputFiles
from orch23.store.lock_file import lock_path
from orch23.store.run_logs import AttemptFiles
from orch23.store.workspace import Workspace
from orch23.text.secrets import Secrets

if TYPE_CHECKING:
    from orch23.attempt.conversation import Conversations
    from orch23.attempt.later_batches import LaterBatches
    from orch23.cli.placement import Placement
    from orch23.cli.watched_build import SharedBudget
    from orch23.execute.program_runner import LocalProgramRunner
    from orch23.model.ports import RunningActions, SharedCache
    from orch23.providers.adapter import ProviderContext
    from orch23.providers.prices import Prices


class BuildRequest(Struct, frozen=True, kw_only=True):
    """The options of `orch23 build`. `ask_consent` asks the user on the terminal to consent to some grants.

    With `live`, what steps print and models write is reported while it arrives; `watcher` only shows it. With `wait`,
    the build waits for its batches. With `cancels`, it only cancels them. With `holds` and `replay`, a
    stage whose response is not recorded waits. `shared_budget` is the limit of several builds together. `approve`
    raises an error if the preview of the build is not the plan that was approved, and returns what limits a decision
    to that plan. `args.cache` is the shared cache that the user names, as an absolute path or a URL, or `off`.
    """

    args: PipelineArguments = PipelineArguments()
    given: GivenOptions = GivenOptions()
    selection: Selection = ALL_STAGES
    jobs: int | None = None
    keep_going: bool = False
    replay: bool = False
    budget: Decimal | None = None
    shared_budget: "SharedBudget | None" = None
    allow_unsandboxed: bool = False
    live: bool = False
    watcher: OutputWatcher | None = None
    wait: bool = False
    cancels: bool = False
    holds: bool = False
    ask_consent: Callable[[Sequence[Grant]], bool] = lambda _: False
    approve: Callable[[Project, Preview], Callable[[DecidedStage], DecidedStage]] | None = None


class BuildParts(Struct, frozen=True, kw_only=True):
    """Makes the parts of one build. Those that need closing are closed by `stack`, the last one first.

    `approval` limits a decision to the plan that the user has approved, if any.
    `sync` makes the events of `observer` durable; `folder` gets the texts of attempts. `jobs` is the maximum of stages
    that run at once, None without one. `name_of` returns the executor of a stage, `elsewhere` are those in use other
    than the local one.
    """

    project: Project
    request: BuildRequest
    opened: OpenPipeline
    approval: Callable[[DecidedStage], DecidedStage] | None
    sandbox: SandboxLauncher
    jobs: int | None
    name_of: Callable[[Stage | ForeachStage], str]
    elsewhere: Collection[str]
    secrets: Secrets
    consent: Consent
    observer: Observer
    sync: Callable[[], None]
    folder: Path
    stack: ExitStack

    def checked_build(self, local: LocalExecutor, look: Callable[[], Preview]) -> Build:
        """Return the build, after a check that its calls and processes are possible and allowed.

        Raises:
            ConsentError, ConfigurationError, ProviderError: one of them is not.
        """
        request, opened = self.request, self.opened
        pipeline = self.project.pipeline
        if pipeline.run_log is not None:
            from orch23.cli.documents import write_run_log  # noqa: PLC0415 - few pipelines have one

            # First without any event: an error of the template must not be found after the build.
            write_run_log(self.project, pipeline.run_log, self.folder)
            self.stack.callback(write_run_log, self.project, pipeline.run_log, self.folder)
        placement = self._placement(local, look) if self.elsewhere else None
        ledger = self._ledger()
        models = self._models(ledger)
        calls = None if models is None else models.conversations
        self._check_ready(calls, look)
        if placement is not None:
            from orch23.cli.placement import check_connections  # noqa: PLC0415 - few builds run elsewhere

            check_connections(opened.state.plan, placement, look)
        network = NetworkAccess(
            partial_dir=opened.store.partial_downloads,
            environ=self.project.settings.environ,
            offline=request.args.offline,
            is_granted=self.consent.is_granted,
            trust_command=partial(trust_command_line, self.project.settings),
        )
        safeguards = Safeguards(
            secrets=self.secrets,
            protected=own_file_patterns(pipeline),
            begin_attempt=ledger.begin_attempt,
            network=network,
        )

        def cancel_calls() -> None:
            if calls is not None:
                calls.setting.close()
            network.close()

        return Build(
            opened=opened,
            worker=Worker(
                opened=opened,
                executor_of=(lambda _: local) if placement is None else placement.executors.of,
                models=models,
                safeguards=safeguards,
                reporter=Reporter(
                    observer=self.observer,
                    artifacts=AttemptFiles(self.folder),
                    redact=self.secrets.redact,
                    live=request.live,
                    watcher=request.watcher,
                ),
                selection=request.selection,
                is_isolated=lambda stage: not self._is_here(stage) or self.sandbox.choice.launcher is not None,
            ),
            writer=ResultWriter(opened),
            cancel_steps=local.cancel if placement is None else placement.executors.cancel,
            ledger=ledger,
            observer=self.observer,
            clock=monotonic,
            options=BuildOptions(
                selection=request.selection,
                jobs=self.jobs,
                keep_going=request.keep_going,
                waits=request.wait,
                places={} if placement is None else placement.places,
                place_of=(lambda _: "") if placement is None else placement.place_of,
            ),
            cancel_calls=cancel_calls,
            stop_waiting=(lambda: None) if calls is None else calls.setting.stop,
            later=None if calls is None else calls.batches,
            failures=certain_failures(opened.state, look),
            approval=self.approval,
        )

    def _models(self, ledger: Ledger) -> Models | None:
        """Return how stages call models; None if none may, none needs consent, and no request is left in a batch."""
        nodes = self.opened.state.plan.nodes.values()
        may_call = any(calls_model(node) or node.grants for node in nodes)
        if not may_call and not any(self.project.store.batches.glob("*.json")):
            return None
        from orch23.attempt.conversation import Conversations, RequestBuilder, shared_systems  # noqa: PLC0415 - few edits call a model
        from orch23.cli.author_data import validate_by_schema  # noqa: PLC0415 - as above
        from orch23.providers.recordings import UniqueCalls  # noqa: PLC0415 - as above

        request, opened = self.request, self.opened
        pipeline, sources = self.project.pipeline, self.project.tools.sources
        context, is_barred = self._provider_context(), request.replay or request.args.offline
        is_live = request.live or (request.watcher is not None and request.watcher.paints)
        conversations = Conversations(
            setting=context,
            exchanges=opened.store.exchanges,
            meter=ledger,
            secrets=self.secrets,
            once=UniqueCalls(opened.history.reusable),
            rates=pipeline.rates,
            max_wall_s=math.inf if pipeline.stop.max_wall_s is None else pipeline.stop.max_wall_s,
            replay=request.replay,
            offline=request.args.offline,
            holds=request.holds,
            resample=opened.decider.resample,
            built=opened.lock.records,
            # `--replay` and `--offline` neither submit nor collect.
            batches=None if is_barred and not request.cancels else self._batches(context, ledger),
        )
        return Models(
            requests=RequestBuilder(self.secrets, sources, pipeline, shared_systems(pipeline), is_live=is_live),
            conversations=conversations,
            validate=partial(validate_by_schema, sources),
        )

    def _batches(self, context: "ProviderContext", ledger: Ledger) -> "LaterBatches | None":
        """Return the requests in batches; None if no stage sends any and no earlier run left some.

        Raises:
            ConfigurationError: an earlier run left some, and the feature that collects them is not there.
        """
        has_files = any(self.project.store.batches.glob("*.json"))
        if not has_files and not any(map(_may_batch, self.project.pipeline.stages)):
            return None
        from orch23.model.features import BATCHES, PENDING, is_installed, load_feature  # noqa: PLC0415 - most builds have no batch

        if not has_files and not is_installed(BATCHES["run"]):
            return None  # `step_errors` reports a stage with such a pace
        make: Callable[..., LaterBatches] = load_feature(BATCHES["run"], PENDING)
        return make(
            project=self.project, setting=context, ledger=ledger, redact=self.secrets.redact, has_files=has_files
        )

    def _check_ready(self, calls: "Conversations | None", look: Callable[[], Preview]) -> None:
        consent, sandbox, plan = self.consent, self.sandbox, self.opened.state.plan
        selected = (plan.nodes[name] for name in self.request.selection.nodes(plan))
        check_tools(self.project.pipeline, selected, self.project.facts.facts_of)

        def ask_consent(grants: Sequence[Grant]) -> bool:
            # Without a place to store the answer, the next build would ask the same question.
            can_store = consent.grants.path is not None
            return can_store and self.request.ask_consent(grants) and consent.store_grants(grants)

        if calls is not None:
            from orch23.engine.call_preflight import CallPreflight  # noqa: PLC0415 - as in `_models`

            # Only calls that will certainly be made are checked: CI and a clone with recorded responses need no key.
            CallPreflight(
                pipeline=self.project.pipeline,
                conversations=calls,
                sources=self.project.tools.sources,
                contents=self.opened.store.contents,
                budget=self.request.budget,
                ask_consent=ask_consent,
            ).check(plan, look)
        SandboxPreflight(
            pipeline=self.project.pipeline,
            is_checked=lambda node: self.name_of(node) in EXECUTORS,
            is_here=self._is_here,
            allowed=self.request.allow_unsandboxed,
            missing=lambda: no_sandbox_error(sandbox.choice) if sandbox.choice.launcher is None else None,
            refused=not_allowed_error(),
            weak=lambda: weak_sandbox_error(sandbox.tier),
        ).check(plan, look)

    def _is_here(self, node: Stage | ForeachStage) -> bool:
        return self.name_of(node) == LOCAL_EXECUTOR

    def _placement(self, local: LocalExecutor, look: Callable[[], Preview]) -> "Placement":
        from orch23.cli.placement import check_offline, nodes_to_run, place_stages  # noqa: PLC0415 - few builds run elsewhere
        from orch23.model.features import RUNNING_ACTIONS, SHARED_CACHE, is_installed, load_feature  # noqa: PLC0415 - as above
        from orch23.model.ports import Surroundings  # noqa: PLC0415 - as above
        from orch23.model.shared_cache import CacheOptions  # noqa: PLC0415 - as above

        pipeline, request, environ = self.project.pipeline, self.request, self.project.settings.environ
        settings, _ = self.consent.cache_settings(pipeline.cache, environ, CacheOptions(url=request.args.cache))
        cache = settings.url
        if request.args.offline:
            check_offline(pipeline, self.name_of, request.args.scheduler, cache, look)
        running: RunningActions | None = None
        if is_installed(RUNNING_ACTIONS):
            store = self.project.store
            running = load_feature(RUNNING_ACTIONS)(store.folder / "running-actions", store_key=store.key)

        def open_server(url: str) -> "SharedCache":
            opener = load_feature(SHARED_CACHE["servers"])(self.project.settings.root, environ, settings.stranger)
            opened: SharedCache = opener(url)
            return opened

        def surroundings(workers: int) -> Surroundings:
            return Surroundings(
                contents=self.project.store.contents,
                workers=workers,
                environ=environ,
                redact=self.secrets.redact,
                open_cache=open_server,
                scheduler=request.args.scheduler,
                cache=cache,
                running=running,
                warn=lambda text: self.observer.notice(Event(Warned(of_steps=True), text, level="warning")),
            )

        nodes = nodes_to_run(look(), request.selection.nodes(self.opened.state.plan))
        return place_stages(pipeline, nodes, self.name_of, local, self.jobs, surroundings, self.stack.callback)

    def _provider_context(self) -> "ProviderContext":
        from orch23.cli.author_data import read_scripted_responses  # noqa: PLC0415 - as in `_models`
        from orch23.providers.adapter import ProviderContext  # noqa: PLC0415 - as above

        project = self.project
        context = ProviderContext(
            environ=project.settings.environ,
            root=project.store.root,
            read_answers=lambda path: read_scripted_responses(project.tools.sources, path),
            notice=self.observer.notice,
            is_granted=self.consent.is_granted,
            files=self.consent.files,
            runner=_program_runner(project, self.sandbox, self.request),
            trust_command=trust_command_line(project.settings),
            # Requests in batches are not background responses.
            submitted={
                name: place for name, place in self.opened.history.submitted.items() if not place.startswith(BATCH_MARK)
            },
        )
        self.stack.callback(context.close)
        return context

    def _ledger(self) -> Ledger:
        """Return the ledger of the run. `--budget` replaces `max_cost_usd` of the pipeline, and `watch` both."""
        pipeline, budget, state = self.project.pipeline, self.request.budget, self.opened.state
        before, shared = self.opened.history.spent, self.request.shared_budget
        if shared is not None:
            budget = shared.of_build(before.values())

        def prices() -> "Prices":
            from orch23.providers.prices import Prices  # noqa: PLC0415 - as in `_models`

            return Prices(pipeline.prices, pipeline.plugins)

        def limits_of(name: str) -> StopConditions:
            # Looked up for each request: a foreach adds its items while the build runs.
            # A response of a batch may be of a stage that is gone.
            node = state.plan.nodes.get(name)
            return node.stop if isinstance(node, Stage) else StopConditions()

        ledger = Ledger(
            limits=pipeline.stop if budget is None else replace(pipeline.stop, max_cost_usd=budget),
            limits_of=limits_of,
            prices=prices,
            notice=self.observer.notice,
            sync=self.sync,
            clock=monotonic,
            before=before,
            uncollected=self.opened.history.uncollected,
            over_budget=None if shared is None else shared.refusal,
        )
        self.stack.callback(ledger.close)
        return ledger


def _may_batch(node: Stage | ForeachStage) -> bool:
    if isinstance(node, Stage):
        return is_llm(node.step) and node.step.pace == "batch"
    # An expression has a value only for an item.
    return json_at(node.body, "llm", "pace") not in (None, "standard", "flex")


def _program_runner(project: Project, sandbox: SandboxLauncher, request: BuildRequest) -> "LocalProgramRunner":
    """Return the runner of programs that respond in place of a model.

    Its sandbox directories read files through a `Workspace` of their own: what a program reads must not become an
    input of the stage.
    """
    from orch23.execute.program_runner import LocalProgramRunner  # noqa: PLC0415 - as in `_models`

    store, pipeline = project.store, project.pipeline
    # These files change while the build runs, by the build itself: they are not an edit during a call.
    lock = lock_path(store.root, pipeline.file).relative_to(store.root).as_posix()

    def missing() -> Diagnostic | None:
        is_refused = not request.allow_unsandboxed and sandbox.choice.launcher is None
        return no_sandbox_error(sandbox.choice) if is_refused else None

    return LocalProgramRunner(
        root=store.root,
        sandbox_dirs=SandboxDirs(store.sandbox_dirs, InputFiles(store.contents, Workspace(store.root, None))),
        launcher=sandbox,
        no_sandbox=missing,
        written=lambda: store.workspace.written_paths,
        ignored=(lock, *pipeline.transcript_folders),
    )
