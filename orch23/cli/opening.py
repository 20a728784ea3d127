"""Open the project that a command line names, and read its stage selection."""

import gc
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from orch23.cli.console import Console, working_directory
from orch23.cli.discovery import FoundProject, find_project, required_pipeline
from orch23.cli.parameters import PipelineArguments
from orch23.cli.project_loading import Project, ProjectSettings, open_partial, open_project
from orch23.decide.dependency_index import OutdatedIndexError
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import NotFoundError, Orch23Error, UsageError
from orch23.model.pipeline import CACHE_VARIABLE, NO_CACHE
from orch23.model.plan import InvalidPipelineError
from orch23.model.text import visible
from orch23.plan.planner import ALL_STAGES, Selection
from orch23.snapshot.fast_path import StaleSnapshot, last_snapshot
from orch23.store.access import foreign_store_warning
from orch23.store.run_logs import journal_pipeline

if TYPE_CHECKING:
    from orch23.cli.consent import Consent
    from orch23.model.shared_cache import CacheSettings
    from orch23.model.step import Grant

_Shown = TypeVar("_Shown")


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector, and exempt what was loaded from later collections.

    A big pipeline makes so many objects that the collector took half of the time to read it, and found nothing.
    """
    was_enabled = gc.isenabled()
    # A process that reads several pipelines must be able to collect the earlier ones.
    gc.unfreeze()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def project_root(console: Console, arguments: tuple[str, ...] = ()) -> Path:
    """Return the project root for a command line."""
    found = found_project(console, arguments)
    _report_root(console, found)
    return found.root


def found_project(console: Console, arguments: tuple[str, ...]) -> FoundProject:
    """Return the project of `[PIPELINE] [STAGE...]`. It is searched for once, and kept on the console."""
    if not console.found:
        console.found.append(find_project(console.here, arguments))
    return console.found[0]


def _report_root(console: Console, found: FoundProject) -> None:
    """Write the project root once, if it is not the working directory, and which files of others were ignored."""
    if console.notes:
        return
    note = ""
    if found.warnings:
        from orch23.report.diagnostics import render_diagnostics  # noqa: PLC0415 - few projects have warnings

        note = render_diagnostics(found.warnings, {}, color=console.err_style.color)
    if found.root != found.start and not console.progress.is_quiet:
        note += f"project: {visible(str(found.root))} (paths are relative to it)\n"
    console.notes.append(note)
    if note:
        console.write_err(note)


def settings_of(console: Console, args: PipelineArguments) -> ProjectSettings:
    """Return the settings of a command on one pipeline file.

    Raises:
        NotFoundError: no pipeline was found.
        UsageError: a `--set` without `=`, an empty `--provider` or `--model`.
    """
    found = found_project(console, args.arguments)
    path = required_pipeline(found)
    _report_root(console, found)
    for flag, name in (("--provider", args.provider), ("--model", args.model)):
        if name is not None and not name.strip():
            hint = f"write `{flag} NAME`, or leave it out"
            raise UsageError(Diagnostic("E641", f"`{flag}` must not be empty", hint=hint))
    file = args.vars_file and (args.vars_file if console.here == found.root else str(console.here / args.vars_file))
    named = (("--vars", file), ("--provider", args.provider), ("--model", args.model))
    options = (*(("--set", one) for one in args.sets), *((flag, value) for flag, value in named if value))
    return ProjectSettings(
        root=found.root,
        pipeline_path=path,
        environ=console.environ,
        sets=parse_sets(args.sets),
        vars_file=None if args.vars_file is None else console.here / args.vars_file,
        provider=args.provider,
        model=args.model,
        options=tuple((flag, value) for flag, value in options if console.redact(value) == value),
        meter=console.progress,
        needs_tools=args.needs_tools,
    )


def open_partial_project(
    console: Console, args: PipelineArguments, stale_snapshot: StaleSnapshot, asked: Collection[str] = ()
) -> Project | None:
    """Return the part of the project that an edit, or an `asked` stage, reaches; None if the whole must be loaded."""
    try:
        project = open_partial(settings_of(console, args), stale_snapshot, asked)
    except Orch23Error:  # the whole project is loaded then, and reports all errors
        return None
    if project is not None:
        _register(console, project)
    return project


def open_for_command(
    console: Console,
    args: PipelineArguments,
    *,
    most_stages: int | None = None,
    stale_snapshot: StaleSnapshot | None = None,
) -> tuple[Project, tuple[str, ...]]:
    """Return what `open_quietly` does. Warnings of the pipeline go to stderr."""
    project, stages = open_quietly(console, args, most_stages, stale_snapshot)
    foreign = (foreign_store_warning(project.store.folder),) if project.store.is_foreign else ()
    console.write_diagnostics((*foreign, *project.loaded.warnings), project.loaded.sources)
    return project, stages


def check_stage_count(stages: Sequence[str], most: int | None) -> None:
    """Check the number of stages on a command line.

    Raises:
        UsageError: there are more than `most`.
    """
    if most is None or len(stages) <= most:
        return
    takes = "no stage" if most == 0 else "one stage"
    names = ", ".join(f"`{name}`" for name in stages)
    hint = "the name of a pipeline file ends in .yaml or .yml"
    raise UsageError(Diagnostic("E641", f"the command takes {takes}, not {names}", hint=hint))


def open_quietly(
    console: Console, args: PipelineArguments, most_stages: int | None, stale_snapshot: StaleSnapshot | None = None
) -> tuple[Project, tuple[str, ...]]:
    """Return the project and the named stages. Writes nothing.

    The exit codes of the pipeline are set on the console, even if the pipeline is invalid. `stale_snapshot` is that of
    the last build of the same command, if only the stages that changed are to be decided.

    Raises:
        UsageError: as `settings_of`, or there are more names than the command takes.
        NotFoundError: the pipeline does not exist.
        InvalidInputError: the pipeline has errors.
    """
    settings = settings_of(console, args)
    stages = found_project(console, args.arguments).stages
    # The number of names is checked before the pipeline is loaded: loading may take seconds and report other errors.
    check_stage_count(stages, most_stages)
    try:
        with collector_paused():
            project = open_project(settings, stale_snapshot)
    except InvalidPipelineError as invalid:
        if invalid.parsed is not None and invalid.parsed.partial is not None:
            console.exit_codes.update(invalid.parsed.partial.exit_codes)
        raise
    _register(console, project)
    return project, stages


def _register(console: Console, project: Project) -> None:
    console.exit_codes.update(project.pipeline.exit_codes)
    console.resources.callback(project.git.close)
    console.resources.callback(project.store.index.close)


def of_part(
    console: Console,
    args: PipelineArguments,
    snapshot: StaleSnapshot | None,
    asked: Collection[str],
    show: Callable[[Project], _Shown],
) -> _Shown | None:
    """Return what `show` makes of the part of `open_partial_project`; None if the whole pipeline has to be decided."""
    project = None if snapshot is None else open_partial_project(console, args, snapshot, asked)
    if project is not None and project.last_build is not None:
        with suppress(OutdatedIndexError, Orch23Error):  # the whole pipeline reports all errors
            shown = show(project)
            # Checked last: a build that ran meanwhile has changed what was decided on.
            project.last_build.check_current(project.store)
            return shown
    return None


def of_stage(
    console: Console, args: PipelineArguments, show: Callable[[Project, str], _Shown], *, whole: bool = False
) -> _Shown:
    """Return what `show` makes of the stage on the command line, and of the `whole` project or what decides the stage.

    Raises:
        UsageError: no stage is named, or several.
    """
    args = replace(args, needs_tools=False)
    names = found_project(console, args.arguments).stages
    snapshot = None if whole or len(names) != 1 else last_build_of(console, args, names)
    shown = of_part(console, args, snapshot, names, lambda project: show(project, names[0]))
    if shown is not None:
        return shown
    project, (name,) = open_stages(console, args, 1)
    return show(project, name)


def last_build_of(console: Console, args: PipelineArguments, stages: Sequence[str] = ()) -> StaleSnapshot | None:
    """Return the last build of a whole pipeline without options, if it had nothing to do, and what changed since.

    `args` may have these stages and no other.
    """
    names = found_project(console, args.arguments).stages
    others = replace(args, arguments=(), needs_tools=True)
    has_more = others != PipelineArguments() or console.here != working_directory()
    if has_more or names != stages or any(name.startswith("ORCH23_BUILD_") for name in console.environ):
        return None
    found = last_snapshot(["build", *(one for one in args.arguments if one not in names)])
    # Only the whole pipeline has its warnings.
    return None if found is None or "warning" in found.snapshot.facts["warnings"] else found


def open_stages(console: Console, args: PipelineArguments, most: int | None = None) -> tuple[Project, tuple[str, ...]]:
    """Return the project and the stages on the command line, `most` at most.

    Raises:
        UsageError: no stage is named, or too many.
    """
    project, stages = open_for_command(console, args, most_stages=most)
    if not stages:
        hint = f"`{project.pipeline.command_line('status', '--all')}` lists the stages"
        raise UsageError(Diagnostic("E641", "name a stage", hint=hint))
    return project, stages


def select_run(known: list[str], run: str | None) -> str:
    """Return the run id that `run` is, or is the beginning of; without `run` the newest. `known` are newest first.

    Raises:
        NotFoundError: no id begins with `run`, or several do.
    """
    found = [one for one in known if run is None or one.startswith(run)]
    # A whole id wins over longer ids that begin with it.
    if run in found:
        return str(run)
    if not found:
        message = "there are no runs" if run is None else f"there is no run {run}"
        raise NotFoundError(Diagnostic("E709", message, hint="`orch23 runs` lists the runs"))
    if run is not None and len(found) > 1:
        message = f"{len(found)} runs begin with {run}"
        raise NotFoundError(Diagnostic("E709", message, hint=f"name one: {', '.join(found[:3])}"))
    return found[0]


def select_pipeline_run(project: Project, known: list[str], run: str, command: str) -> str:
    """Return the id of a run of the pipeline, as `select_run` does; `command` shows a run of another pipeline.

    Raises:
        NotFoundError: as for `select_run`, or the run is of another pipeline.
    """
    found = select_run(known, run)
    pipeline = journal_pipeline(project.store.logs / f"{found}.jsonl")
    if pipeline != project.pipeline.file:
        message = f"run {found} is of {pipeline or 'an unknown pipeline'}, not of {project.pipeline.file}"
        hint = f"`orch23 {command.format(pipeline=visible(pipeline or 'PIPELINE'), run=found)}`"
        raise NotFoundError(Diagnostic("E709", message, hint=hint))
    return found


def parse_sets(sets: Sequence[str]) -> dict[str, str]:
    """Return the vars of `--set`: name -> text.

    Raises:
        UsageError: one has no `=`.
    """
    hint = "write `--set NAME=VALUE`"
    wrong = [one for one in sets if "=" not in one or one.startswith("=")]
    if wrong:
        raise UsageError(*(Diagnostic("E641", f"`--set {one}` has no value", hint=hint) for one in wrong))
    return {name: value for name, _, value in (one.partition("=") for one in sets)}


def parse_budget(text: str | None) -> Decimal | None:
    """Return the US dollars of `--budget`, exact.

    Raises:
        UsageError: it is not a number greater than 0.
    """
    if text is None:
        return None
    from orch23.model.fields import parse_decimal  # noqa: PLC0415 - only with a budget

    # Decimal, not float: a budget is compared exactly with sums of prices.
    amount = parse_decimal(text.strip())
    if amount is None or not amount:
        hint = "write US dollars, as in `--budget 2.50`"
        raise UsageError(Diagnostic("E641", f"`--budget` must be greater than 0, not `{text}`", hint=hint))
    return amount


def cache_address(here: Path, named: str | None) -> str | None:
    """Return a shared cache of the command line: the path of a directory as an absolute one."""
    if not named or named == NO_CACHE or ":" in named.partition("/")[0]:
        return named
    return os.path.abspath(here / named)  # noqa: PTH100 - `resolve` would follow links


def used_cache(
    project: Project, url: str | None, *, write: bool, consent: "Consent | None" = None
) -> "tuple[CacheSettings, Grant | None] | None":
    """Return what `Consent.cache_settings` does for `--cache` and `--cache-write`; None if no shared cache is named."""
    declared, environ = project.pipeline.cache, project.settings.environ
    if not (url or write or declared or environ.get(CACHE_VARIABLE)):
        return None
    from orch23.cli.consent import Consent  # noqa: PLC0415 - few plans use a shared cache
    from orch23.model.shared_cache import CacheOptions  # noqa: PLC0415 - likewise

    consent = consent or Consent.of(project.settings.root, environ)
    settings, grant = consent.cache_settings(declared, environ, CacheOptions(url=url, write=write))
    return None if grant is None and not settings.reads else (settings, grant)


def texts_of(project: Project, diagnostics: Sequence[Diagnostic]) -> dict[str, str]:
    """Return the texts by path that excerpts of diagnostics need: of the pipeline, and of prompts and templates."""
    files = {one.location.file for one in diagnostics if one.location is not None}
    found = {path: text for path in files if (text := project.tools.sources.text(path)[0]) is not None}
    return {**found, **project.loaded.sources}


def selection_of(args: PipelineArguments, stages: tuple[str, ...]) -> Selection:
    """Return the selection of stages and options.

    Raises:
        UsageError: two options contradict each other, or an option needs a stage.
    """
    flags = [name for name in ("only", "until", "downstream") if getattr(args, name)]
    if len(flags) > 1:
        names = " and ".join(f"`--{name}`" for name in flags)
        raise UsageError(Diagnostic("E641", f"{names} contradict each other", hint="give one of them"))
    if flags and not stages:
        raise UsageError(Diagnostic("E641", f"`--{flags[0]}` needs a stage", hint="name one or more stages"))
    if not stages:
        return ALL_STAGES
    if args.only:
        return Selection(only=stages)
    return Selection(downstream=stages) if args.downstream else Selection(targets=stages)
