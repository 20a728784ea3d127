"""The action of `plan`: what a build would do, told without doing anything."""

from decimal import Decimal

from msgspec.structs import replace

from orch23.cli.author_data import check_input_schemas
from orch23.cli.command import Wanted
from orch23.cli.console import Console
from orch23.cli.opening import check_forced, open_edited, open_wanted, read_budget, selection_of
from orch23.cli.outlooks import estimates_of, view_of
from orch23.cli.wiring import open_reading
from orch23.engine.dependency_index import OutdatedIndexError
from orch23.engine.preview import preview
from orch23.model.errors import ExitCode, Orch23Error
from orch23.report.plan_json import plan_json
from orch23.report.plan_text import plan_text
from orch23.report.plan_view import PlanView


def run(
    console: Console,
    *,
    wanted: Wanted,
    forced: tuple[str, ...],
    overwrite_edited: bool,
    budget: str | None,
    verbose: bool,
    as_json: bool,
    exit_code: bool,
) -> int:
    """Say what a build would do, and why."""
    return show_plan(
        console,
        wanted,
        forced=forced,
        overwrite_edited=overwrite_edited,
        budget=read_budget(budget),
        as_json=as_json,
        verbose=verbose,
        exit_code=exit_code,
    )


def show_plan(
    console: Console,
    wanted: Wanted,
    *,
    forced: tuple[str, ...] = (),
    overwrite_edited: bool = False,
    budget: Decimal | None = None,
    as_json: bool = False,
    verbose: bool = False,
    exit_code: bool = False,
) -> int:
    """Write a plan; what `plan` and `build -n` share."""
    view = _view_of_part(console, wanted) or whole_view(
        console, wanted, forced=forced, overwrite_edited=overwrite_edited
    )
    if budget is not None:
        view = replace(view, max_cost=budget)  # in the place of the pipeline's, as in a build
    console.answer(plan_json(view) if as_json else plan_text(view, console.out_style, verbose=verbose))
    return code_of(view, exit_code=exit_code)


def whole_view(
    console: Console,
    wanted: Wanted,
    *,
    forced: tuple[str, ...] = (),
    overwrite_edited: bool = False,
    estimated: bool = True,
) -> PlanView:
    """Return what would be done; with an estimate, for which price table, journals and transcripts are read."""
    project, stages = open_wanted(console, wanted)
    session = open_reading(project, forced=forced, overwrite_edited=overwrite_edited)
    check_forced(session.world.plan, forced)
    check_input_schemas(project.pipeline, project.store.workspace, project.machinery.sources)
    seen = preview(session, selection_of(wanted, stages))
    return view_of(seen, estimates_of(project, seen) if estimated else None)


def _view_of_part(console: Console, wanted: Wanted) -> PlanView | None:
    """Return what would be done, from what an edit reaches; None where all has to be decided for that."""
    found = open_edited(console, wanted, console.unrest) if console.unrest is not None else None
    if found is None or (part := found[0].partial) is None:
        return None
    project, selection = found
    try:
        session = open_reading(project)
        check_input_schemas(project.pipeline, project.store.workspace, project.machinery.sources)
        seen = preview(session, selection)
        view = view_of(seen, estimates_of(project, seen))
        part.check_age(project.store)
    except (OutdatedIndexError, Orch23Error):  # what is wrong is reported of the whole
        return None
    rest, order = part.part.at_rest, {name: number for number, name in enumerate(part.part.names)}
    view = replace(
        view,
        lines=tuple(sorted(view.lines, key=lambda line: order[line.stage])),
        models=part.models,
        fresh_besides=rest.get("fresh", 0),
        skipped_besides=rest.get("skipped", 0),
    )
    return None if view.is_quiet and view.skipped_besides else view


def code_of(view: PlanView, *, exit_code: bool) -> int:
    """Return the exit code of a command that says what a build would do."""
    return ExitCode.FAILED if exit_code and not view.is_quiet else ExitCode.OK
