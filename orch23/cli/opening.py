"""Open the project that a command line names, and read its stage selection."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import click

from orch23.cli.console import Console
from orch23.cli.declaration import PipelineArguments
from orch23.cli.discovery import find_project, required_pipeline
from orch23.cli.found_project import FoundProject
from orch23.cli.project_loading import Project, ProjectSettings, open_partial, open_project
from orch23.load.loaded import InvalidPipelineError
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import NotFoundError, Orch23Error, UsageError
from orch23.model.fields import parse_decimal
from orch23.model.plan import Plan
from orch23.plan.planner import ALL_STAGES, Selection
from orch23.report.diagnostics import render_diagnostics, visible
from orch23.snapshot.fast_path import StaleSnapshot
from orch23.store.access import foreign_store_warning


@contextmanager
def collector_paused() -> Iterator[None]:
    """Look for no cycles within, and never among what is there at the end: a big pipeline is read in half the time."""
    was_enabled = gc.isenabled()
    gc.unfreeze()  # in a process that reads several, one after the other
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def project_root(console: Console, arguments: tuple[str, ...] = ()) -> Path:
    """Return the root of the project that a command line is about."""
    found = found_project(console, arguments)
    _tell_place(console, found)
    return found.root


def found_project(console: Console, arguments: tuple[str, ...]) -> FoundProject:
    """Return the project of `[PIPELINE] [STAGE...]`; it is found once, and noted on the console."""
    if not console.found:
        console.found.append(find_project(console.here, arguments))
    return console.found[0]


def _tell_place(console: Console, found: FoundProject) -> None:
    """Write once which directory paths are relative to, if it is not the user's, and what was passed over."""
    if console.notes:
        return
    note = render_diagnostics(found.warnings, {}, color=console.err_style.color)
    if found.root != found.start and not console.progress.is_quiet:
        note += f"project: {visible(str(found.root))} (paths are relative to it)\n"
    console.notes.append(note)
    if note:
        console.write_err(note)


def settings_of(console: Console, args: PipelineArguments) -> ProjectSettings:
    """Return the settings of a command on one pipeline file.

    Raises:
        NotFoundError: there is no pipeline.

    """
    found = found_project(console, args.arguments)
    path = required_pipeline(found)
    _tell_place(console, found)
    return ProjectSettings(
        root=found.root,
        pipeline_path=path,
        environ=console.environ,
        sets=parse_sets(args.sets),
        vars_file=None if args.vars_file is None else console.here / args.vars_file,
        provider=_named("--provider", args.provider),
        model=_named("--model", args.model),
        meter=console.progress,
    )


def open_partial_project(
    console: Console, args: PipelineArguments, stale_snapshot: StaleSnapshot
) -> tuple[Project, Selection] | None:
    """Return the part of the project that an edit reaches, and a selection of it; None where all is to be decided."""
    try:
        project = open_partial(settings_of(console, args), stale_snapshot)
    except Orch23Error:  # what is wrong is reported of the whole
        return None
    if project is None or project.part is None:
        return None
    _register(console, project)
    return project, Selection(only=project.part.names)


def open_for_command(
    console: Console, args: PipelineArguments, *, most_stages: int | None = None
) -> tuple[Project, tuple[str, ...]]:
    """Return the project and the stages that are named. Warnings of the pipeline go to stderr. Writes nothing.

    Raises:
        UsageError: more names than the command takes, a `--set` without `=`, a flag that names nobody.
        NotFoundError: there is no such pipeline.
        InvalidInputError: the pipeline has complaints.

    """
    settings = settings_of(console, args)
    stages = found_project(console, args.arguments).stages
    check_stage_count(stages, most_stages)
    project = open_with_exit_codes(console, settings)
    strange = (foreign_store_warning(project.store.folder),) if project.store.is_foreign else ()
    told = render_diagnostics(
        (*strange, *project.loaded.warnings), project.loaded.sources, color=console.err_style.color
    )
    if told:
        console.write_err(told)
    return project, stages


def check_stage_count(stages: Sequence[str], most: int | None) -> None:
    """Do nothing if a command takes so many stages.

    Raises:
        UsageError: it takes `most` at most.

    """
    if most is None or len(stages) <= most:
        return
    takes = "no stage" if most == 0 else f"{most} stage"
    names = ", ".join(f"`{name}`" for name in stages)
    hint = "a pipeline's name ends in .yaml or .yml and comes first"
    raise UsageError(Diagnostic("E641", f"the command takes {takes}; {names} is too much", hint=hint))


def open_with_exit_codes(console: Console, settings: ProjectSettings) -> Project:
    """Return the project, and let the console know the exit codes of its pipeline, also where that is not valid.

    Raises:
        NotFoundError: there is no such pipeline.
        InvalidInputError: the pipeline has complaints.

    """
    try:
        with collector_paused():
            project = open_project(settings)
    except InvalidPipelineError as invalid:
        if invalid.parsed is not None and invalid.parsed.partial is not None:
            console.exit_codes.update(invalid.parsed.partial.exit_codes)
        raise
    _register(console, project)
    return project


def _register(console: Console, project: Project) -> None:
    """Let the console know the exit codes of a pipeline, and close what the project has opened at the end."""
    console.exit_codes.update(project.pipeline.exit_codes)
    if (context := click.get_current_context(silent=True)) is not None:
        context.call_on_close(project.git.close)
        context.call_on_close(project.store.index.close)


def named_plugins(console: Console, arguments: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the plugins of the pipeline that is meant; none where there is no pipeline and none is named.

    Raises:
        InvalidInputError: a plugin is not installed.

    """
    from orch23.load.pipeline import plugins_of  # noqa: PLC0415 - it loads PyYAML, which a stored plan needs not

    found = found_project(console, arguments)
    if found.pipeline is None:
        return ()
    check_stage_count(found.stages, 0)
    return plugins_of(found.pipeline, project_root(console, arguments))


def open_one_stage(console: Console, args: PipelineArguments) -> tuple[Project, str]:
    """Return the project and the one stage that is named.

    Raises:
        UsageError: not exactly one is named.

    """
    project, stages = open_for_command(console, args, most_stages=1)
    if not stages:
        raise UsageError(Diagnostic("E641", "name a stage", hint="`orch23 status` lists the stages"))
    return project, stages[0]


def select_run(known: list[str], run: str | None) -> str:
    """Return the run that is meant: of these ids, newest first, the one named, else the newest.

    Raises:
        NotFoundError: there is none, or the beginning of an id fits several.

    """
    found = [one for one in known if run is None or one.startswith(run)]
    if run in found:
        return str(run)
    if not found:
        message = "there are no runs" if run is None else f"there is no run {run}"
        raise NotFoundError(Diagnostic("E709", message, hint="`orch23 runs` lists the runs"))
    if run is not None and len(found) > 1:
        message = f"{len(found)} runs begin with {run}"
        raise NotFoundError(Diagnostic("E709", message, hint=f"name one: {', '.join(found[:3])}"))
    return found[0]


def parse_sets(sets: Sequence[str]) -> dict[str, str]:
    """Return the vars that `--set` gives.

    Raises:
        UsageError: one has no `=`.

    """
    found: dict[str, str] = {}
    problems = []
    for one in sets:
        name, sign, value = one.partition("=")
        if not sign or not name:
            problems.append(Diagnostic("E641", f"`--set {one}` gives no value", hint="write `--set NAME=VALUE`"))
        found[name] = value
    if problems:
        raise UsageError(*problems)
    return found


def parse_budget(text: str | None) -> Decimal | None:
    """Return what `--budget` gives: US dollars, exactly as they are written.

    Raises:
        UsageError: it is no amount, or nothing at all.

    """
    if text is None:
        return None
    amount = parse_decimal(text.strip())
    if amount is None or not amount:
        hint = "write US dollars, more than 0, as in `--budget 2.50`"
        raise UsageError(Diagnostic("E641", f"`--budget {text}` is no limit", hint=hint))
    return amount


def _named(flag: str, name: str | None) -> str | None:
    if name is not None and not name.strip():
        raise UsageError(Diagnostic("E641", f"`{flag}` names nobody", hint=f"write `{flag} NAME`, or leave it out"))
    return name


def selection_of(args: PipelineArguments, stages: tuple[str, ...]) -> Selection:
    """Return the selection that stages and options stand for.

    Raises:
        UsageError: two options contradict each other, or one of them has no stage to speak of.

    """
    chosen = [name for name in ("only", "until", "downstream") if getattr(args, name)]
    if len(chosen) > 1:
        flags = " and ".join(f"`--{name}`" for name in chosen)
        raise UsageError(Diagnostic("E641", f"{flags} contradict each other", hint="give one of them"))
    if chosen and not stages:
        raise UsageError(Diagnostic("E641", f"`--{chosen[0]}` needs a stage", hint="name one or more stages"))
    if not stages:
        return ALL_STAGES
    match chosen:
        case ["only"]:
            return Selection(only=stages)
        case ["downstream"]:
            return Selection(downstream=stages)
        case _:
            return Selection(targets=stages)


def check_forced(plan: Plan, forced: tuple[str, ...]) -> None:
    """Complain of a `--force` or `--resample` that names no stage.

    Raises:
        NotFoundError: with every such name.

    """
    if forced:
        Selection(targets=forced).nodes(plan)
