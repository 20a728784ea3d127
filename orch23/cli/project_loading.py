"""Load a project: its pipeline, its store, and the open pipeline, to read or to build."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.cli.parameters import EXECUTORS
from orch23.cli.partial_build import LastBuild, lock_file_of, partial_build, since_snapshot
from orch23.decide.machine_facts import FactFinder
from orch23.decide.open_pipeline import (
    NOTHING_ASKED,
    OpeningOptions,
    OpenPipeline,
    PartialPriorState,
    PlanningTools,
    PriorState,
    WholePriorState,
    check_items,
    check_plan,
    errors_of_sound_stages,
    open_pipeline,
)
from orch23.decide.ownership import OtherPipelines, check_left_out
from orch23.decide.partial_plan import Part
from orch23.decide.protected_files import declared_by_pipeline
from orch23.engine.worker_threads import executor_of
from orch23.execute.git_repository import GitRepository
from orch23.model.diagnostic import Diagnostic, Location, Severity
from orch23.model.digest import Json
from orch23.model.errors import CorruptStateError, InvalidInputError, Orch23Error, UsageError
from orch23.model.paths import match_any
from orch23.model.pipeline import Pipeline, Stage
from orch23.model.plan import CompileCache, InvalidPipelineError, LoadedPipeline, Plan
from orch23.model.plugins import LazyMapping
from orch23.plan.nodes import writes_of
from orch23.plan.planner import ALL_STAGES, Selection
from orch23.snapshot.fast_path import StaleSnapshot
from orch23.snapshot.store_registry import TRUST_VARIABLE
from orch23.store.file_copy import FileProgress, no_progress
from orch23.store.input_files import AuthorFiles
from orch23.store.lock_file import lock_path
from orch23.store.project_store import ProjectStore, open_store
from orch23.store.promotion import RefusePath

if TYPE_CHECKING:
    from orch23.decide.earlier_build import EarlierBuild
    from orch23.load.overrides import ModelOverride
    from orch23.load.stage_texts import StageTexts
    from orch23.steps.llm.spec import LLMStep


def unknown_exit_code_prefixes(pipeline: Pipeline) -> tuple[Diagnostic, ...]:
    """Return a warning for each prefix in `exit_codes` that no diagnostic code has."""
    if not pipeline.exit_codes:
        return ()
    from orch23.cli.pages import diagnostic_codes  # noqa: PLC0415 - only for this key

    known = diagnostic_codes()
    return tuple(
        Diagnostic(
            "W803",
            f"no diagnostic code begins with `{prefix}`",
            pipeline.locate("exit_codes", prefix),
            hint="`orch23 help diagnostics` lists them",
            severity=Severity.WARNING,
        )
        for prefix in pipeline.exit_codes
        if known and prefix[1].isdigit() and not any(code.startswith(prefix) for code in known)
    )


class ProjectSettings(Struct, frozen=True, kw_only=True):
    """The settings from command line and environment that all commands share."""

    root: Path
    pipeline_path: Path
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    sets: Mapping[str, str] = field(default_factory=dict)
    vars_file: Path | None = None
    provider: str | None = None
    model: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    meter: FileProgress = no_progress
    needs_tools: bool = True


class Project(Struct, frozen=True, kw_only=True):
    """A loaded pipeline with the store of its project: everything that reading commands need.

    `last_build` is that of the same command, if only what has changed since has to be decided: with `part`, the
    pipeline has only the stages that an edit reaches; with `earlier`, the stages that nothing has affected are not
    decided. `stale_snapshot` is that of the last build, if one is known. Close `git` after use: it may have started a
    process.
    """

    settings: ProjectSettings
    loaded: LoadedPipeline
    store: ProjectStore
    tools: PlanningTools
    facts: FactFinder
    git: GitRepository
    last_build: LastBuild | None = None
    part: Part | None = None
    earlier: "EarlierBuild | None" = None
    stale_snapshot: StaleSnapshot | None = None

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline."""
        return self.loaded.pipeline

    @property
    def selection(self) -> Selection:
        """The stages to decide: all of them, or those of the part."""
        return ALL_STAGES if self.part is None else Selection(only=(*self.part.names, *self.part.rows.head.empty))

    @property
    def refusal(self) -> RefusePath:
        """The check for protected paths that the pipeline does not declare."""
        return declared_by_pipeline(self.pipeline).write_error

    @property
    def memory(self) -> PriorState:
        """The lock file and the history of earlier builds."""
        root, file = self.settings.root, self.pipeline.file
        sha256, ctime_ns = ("", 0) if self.stale_snapshot is None else lock_file_of(self.stale_snapshot)
        if self.part is not None:
            return PartialPriorState(root, file, self.part.recorded, sha256, ctime_ns)
        return WholePriorState(root, self.store.logs, file, sha256)


def open_project(settings: ProjectSettings, stale_snapshot: StaleSnapshot | None = None) -> Project:
    """Return the project with its pipeline loaded. Writes nothing.

    `stale_snapshot` comes from the last build of the same command, if one is known.

    Raises:
        InvalidInputError: the pipeline has errors; with all of them.
        NotFoundError: the file does not exist.
    """
    store = open_store(settings.root, settings.meter)
    if stale_snapshot is not None:
        store.workspace.earlier.use_snapshot(stale_snapshot.snapshot)
    try:
        project = load_project(settings, store)
    except InvalidPipelineError as error:
        proven = _proven(error.diagnostics, settings, store, error.sources)
        raise InvalidPipelineError(*proven, sources=error.sources, parsed=error.parsed) from None
    if stale_snapshot is None:
        return project
    project = replace(project, stale_snapshot=stale_snapshot)
    from orch23.decide.earlier_build import earlier_build  # noqa: PLC0415 - an edit of few stages does not get here

    if (earlier := earlier_build(since_snapshot(stale_snapshot), store, project.pipeline)) is None:
        return project
    return replace(project, last_build=LastBuild(stale_snapshot, earlier.index), earlier=earlier)


def load_project(settings: ProjectSettings, store: ProjectStore, text: str | None = None) -> Project:
    """Return the project on a store with its pipeline loaded, with another text than its file has, if one is given.

    Raises:
        InvalidPipelineError: the pipeline has errors; with all of them.
    """
    # The index has loaded pipelines by the digest of their text: an unchanged one is not parsed again (ADR 31).
    try:
        loaded = _load(settings, text, store.pipelines if text is None else None)
    except InvalidPipelineError as error:
        raise _with_the_rest(error, store, _machinery(settings, store)[0]) from None
    loaded = replace(loaded, warnings=(*loaded.warnings, *unknown_exit_code_prefixes(loaded.pipeline)))
    return _project(settings, loaded, store)


def _proven(
    found: Sequence[Diagnostic], settings: ProjectSettings, store: ProjectStore, sources: Mapping[str, str]
) -> tuple[Diagnostic, ...]:
    if all(one.fix is None for one in found):
        return tuple(found)
    from orch23.cli.proposals import with_proven_fixes  # noqa: PLC0415 - only for errors

    view = store.for_one_moment()

    def check(text: str) -> Sequence[Diagnostic]:
        notes: list[Diagnostic] = []
        project = load_project(settings, view, text)
        check_stages(project, notes)
        return (*project.loaded.warnings, *notes)

    return with_proven_fixes(found, check, sources)


def open_partial(
    settings: ProjectSettings, stale_snapshot: StaleSnapshot, asked: Collection[str] = ()
) -> Project | None:
    """Return the part of a project that an edit, or an `asked` stage, reaches, by the last build. Writes nothing.

    None if the part is not known, or is nearly everything.
    """
    store = open_store(settings.root, settings.meter)
    store.workspace.earlier.use_snapshot(stale_snapshot.snapshot)
    part = partial_build(stale_snapshot, store, lambda text: _declared(settings, text), asked)
    if part is None:
        # The whole project opens its own store, and `watch` builds in one process for hours.
        store.index.close()
        return None
    # The index has no places: those of stages are found in the text if one is asked for.
    places = LazyMapping((f"stages/{one.name}" for one in part.plan.pipeline.stages), _place_finder(part))
    part = replace(part, plan=replace(part.plan, pipeline=replace(part.plan.pipeline, locations=places)))
    sources = {part.plan.pipeline.file: part.text} if part.text else {}
    loaded = LoadedPipeline(part.plan.pipeline, (), {}, sources, part.digests)
    last = LastBuild(stale_snapshot, part.rows)
    return replace(_project(settings, loaded, store), last_build=last, part=part, stale_snapshot=stale_snapshot)


def _place_finder(part: Part) -> Callable[[str], Location]:
    """Return a function that returns the place of a stage in the text, which is split when it is first called."""

    @cache
    def split() -> "StageTexts | None":
        from orch23.load.stage_texts import split_stages  # noqa: PLC0415 - loaded with the pipeline

        return split_stages(part.text or part.rows.text())

    def place_of(path: str) -> Location:
        if (text := split()) is None:  # only a text that can be split has an index
            raise KeyError(path)
        return text.place_of(path.removeprefix("stages/"), part.plan.pipeline.file)

    return place_of


def _project(settings: ProjectSettings, loaded: LoadedPipeline, store: ProjectStore) -> Project:
    tools, facts = _machinery(settings, store)
    pipeline = replace(loaded.pipeline, options=settings.options)
    loaded = replace(loaded, pipeline=pipeline)
    facts.plugins = pipeline.plugins
    facts.executor_of = partial(executor_of, pipeline=pipeline, usual=pipeline.executor)
    root, home = settings.root, settings.environ.get("HOME", "")
    git = GitRepository(root, home, lambda: lock_path(root, pipeline.file))
    store.workspace.as_committed = git.as_committed
    return Project(settings=settings, loaded=loaded, store=store, tools=tools, facts=facts, git=git)


def usual_executor(pipeline: Pipeline, named: str | None) -> str:
    """Return the executor of stages whose pools state none: from the command line, or from the pipeline.

    Raises:
        UsageError: the command line replaces the executor of a plugin, whose version is in the keys of stages.
    """
    if named is None or named == pipeline.executor:
        return pipeline.executor
    if pipeline.executor not in EXECUTORS:
        message = f"`--executor` cannot replace `{pipeline.executor}`, the executor of a plugin"
        raise UsageError(Diagnostic("E641", message, hint="remove `executor` from the pipeline, or the option"))
    return named


def _declared(settings: ProjectSettings, text: str) -> Mapping[str, Stage] | None:
    """Return the stages in a text of the pipeline, by name; None if there is an error or a warning."""
    try:
        loaded = _load(settings, text=text)
    except Orch23Error:
        return None
    # A foreach, a skipped stage or a warning needs the whole pipeline.
    stages = {stage.name: stage for stage in loaded.pipeline.stages if isinstance(stage, Stage)}
    sound = not (loaded.warnings or loaded.pipeline.skipped or unknown_exit_code_prefixes(loaded.pipeline))
    return stages if sound and len(stages) == len(loaded.pipeline.stages) else None


def _load(settings: ProjectSettings, text: str | None = None, compiled: CompileCache | None = None) -> LoadedPipeline:
    from orch23.load.pipeline import load_pipeline  # noqa: PLC0415 - loads PyYAML, which a stored plan does not need
    from orch23.load.project_file import project_patterns, withheld_patterns  # noqa: PLC0415 - as above

    of_project = project_patterns(settings.root)
    loaded = load_pipeline(
        settings.pipeline_path,
        settings.root,
        sets=settings.sets,
        vars_file=settings.vars_file,
        override=model_override_of(settings),
        text=text,
        cache=compiled,
    )
    never_send = (*loaded.pipeline.never_send, *of_project)
    return replace(loaded, pipeline=replace(loaded.pipeline, never_send=withheld_patterns(never_send)))


def _machinery(settings: ProjectSettings, store: ProjectStore) -> tuple[PlanningTools, FactFinder]:
    facts = FactFinder(settings.root, settings.environ, needs_tools=settings.needs_tools)
    files = AuthorFiles(store.workspace.read, lambda path: path in store.workspace.written_paths)

    def check_provider(step: "LLMStep") -> tuple[Diagnostic, ...]:
        from orch23.cli.author_data import check_schema_file  # noqa: PLC0415 - an edit without a model does not need it
        from orch23.providers.registry import step_errors  # noqa: PLC0415 - as above

        return (*step_errors(step, settings.root), *check_schema_file(files, step.schema))

    tools = PlanningTools(facts_of=facts.facts_of, sources=files, read_yaml=read_yaml, check_provider=check_provider)
    return tools, facts


def model_override_of(settings: ProjectSettings) -> "ModelOverride":
    """Return the provider and model of the command line, which replace those of the pipeline.

    Raises:
        InvalidInputError: the provider does not exist.
    """
    from orch23.load.overrides import ModelOverride  # noqa: PLC0415 - loaded with the pipeline
    from orch23.load.pipeline import plugins_of  # noqa: PLC0415 - loads PyYAML, which a stored plan does not need
    from orch23.providers.registry import unsupported_fields  # noqa: PLC0415 - only with another provider

    if settings.provider is None:
        return ModelOverride(model=settings.model)
    unfit = unsupported_fields(settings.provider, lambda: plugins_of(settings.pipeline_path, settings.root))
    return ModelOverride(settings.provider, settings.model, unfit)


def _with_the_rest(error: InvalidPipelineError, store: ProjectStore, tools: PlanningTools) -> InvalidPipelineError:
    """Return the error with further errors in the stages that could be read, in the order of the file."""
    parsed = error.parsed
    if parsed is None or parsed.partial is None:
        return error
    # One run should report every error of the file, not only the first kind of errors.
    names = {path.split("/")[1] for path in parsed.partial.locations if path.startswith("stages/")}
    more = errors_of_sound_stages(parsed.partial, store, tools, names=names, unread=parsed.unread)
    known = [*error.diagnostics, *more]
    known.sort(key=lambda d: (d.location is None, d.location or Location("", 0, 0)))
    from orch23.cli.error_report import with_var_notes  # noqa: PLC0415 - only for errors

    noted = with_var_notes(known, parsed.origins, error.sources, parsed.partial.file)
    return InvalidPipelineError(*noted, sources=error.sources, parsed=parsed)


def noted_errors(project: Project, diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return errors of the project's pipeline, with notes about vars that are set outside of it, and proven fixes."""
    from orch23.cli.error_report import with_var_notes  # noqa: PLC0415 - only for errors

    sources = project.loaded.sources
    noted = with_var_notes(diagnostics, project.loaded.origins, sources, project.pipeline.file)
    return _proven(noted, project.settings, project.store, sources)


def read_yaml(text: str) -> Json:
    """Return the value of a YAML text.

    Raises:
        ValueError: it is not valid; with place and reason.
    """
    from orch23.load.yaml_text import parse_yaml  # noqa: PLC0415 - loads PyYAML

    parsed = parse_yaml(text, "")
    if parsed.diagnostics:
        first = parsed.diagnostics[0]
        place = f"line {first.location.line}, column {first.location.column}: " if first.location else ""
        raise ValueError(f"{place}{first.message}" + (f" ({first.hint})" if first.hint else ""))
    return parsed.tree


def open_for_reading(project: Project, options: OpeningOptions = NOTHING_ASKED) -> OpenPipeline:
    """Return the open pipeline, which shows the project as it is at this moment. Takes no lock, writes nothing."""
    return open_for_build(replace(project, store=project.store.for_one_moment()), options)


def open_for_build(project: Project, options: OpeningOptions) -> OpenPipeline:
    """Return the open pipeline, which looks at the files of the project again for each decision. Writes nothing.

    `options` are the demands of the user; what is known of the project is added.
    """
    try:
        options = replace(
            options,
            git=project.git,
            claims=_claims_of(project),
            trusts_lock=project.settings.environ.get(TRUST_VARIABLE) == "1",
            part=project.part.plan if project.part is not None else None,
            earlier=project.earlier,
        )
        return open_pipeline(project.pipeline, project.store, project.tools, project.memory, options)
    except (InvalidInputError, CorruptStateError) as error:
        # What is missing, or damaged as the pointer of a lock file is, may be what git left out.
        check_left_out(project.git, project.pipeline, project.pipeline.stages)
        raise type(error)(*noted_errors(project, error.diagnostics)) from None


def _claims_of(project: Project) -> OtherPipelines:
    """Return the paths of the project's other pipelines. A pipeline is loaded only if its lock file claims a path."""
    settings = project.settings

    def declares(file: str, stage: str, path: str) -> bool:
        from orch23.load.pipeline import load_pipeline  # noqa: PLC0415 - loads PyYAML; rarely needed

        # A claim counts only while the other pipeline declares the path: ownership moves if it does not any more.
        try:
            other = load_pipeline(settings.root / file, settings.root).pipeline
        except Orch23Error:  # a pipeline that cannot be loaded keeps its claims
            return True
        nodes = (node for node in other.stages if node.name == stage.partition("@")[0])
        return any(match_any(writes_of(node), path) for node in nodes)

    own_lock = lock_path(settings.root, project.pipeline.file)
    return OtherPipelines(settings.root, own_lock, declares, project.store.records)


def check_stages(project: Project, notes: list[Diagnostic]) -> Plan:
    """Check the plan of a pipeline, then the items of its lists; add warnings, and return the plan with the items.

    Raises:
        InvalidInputError: with all errors of the plan, or of the items.
    """
    plan = check_plan(project.pipeline, project.store, project.tools)
    decider = check_items(plan, project.store, project.tools)
    from orch23.attempt.stage_errors import errors_of_all_stages, resolved_stages, stage_warnings  # noqa: PLC0415 - only `validate` and errors need it
    from orch23.decide.unmatched_inputs import has_patterns, unmatched_inputs  # noqa: PLC0415 - as above

    with_patterns = resolved_stages(decider, has_patterns)
    unmatched, warnings = unmatched_inputs(decider.state.plan, with_patterns, project.store.workspace)
    notes += warnings
    stages = [node for node in decider.state.plan.nodes.values() if isinstance(node, Stage)]
    notes += stage_warnings(decider.state.plan, stages, project.store.workspace)
    if errors := (*errors_of_all_stages(decider), *unmatched):
        raise InvalidInputError(*errors)
    return decider.state.plan


def hidden_paths(project: Project) -> tuple[Path, ...]:
    """Return what steps must not see even if their interpreter is inside of it: the user's home, and the project."""
    # A virtual environment is often below the home or in the project: its own folder is visible, these two are not.
    home = project.settings.environ.get("HOME")
    return (project.store.root, *((Path(home),) if home and Path(home).is_absolute() else ()))
