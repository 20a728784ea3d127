"""The commands `plan` and `status`: what a build would do, told without doing anything."""

from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from orch23.cli.console import Console
from orch23.cli.flags import option
from orch23.cli.options import (
    Wanted,
    budget_option,
    exit_code_option,
    hands_wanted,
    json_option,
    model_options,
    selection_options,
    stages_argument,
    variable_options,
)
from orch23.model.errors import ExitCode, Orch23Error

if TYPE_CHECKING:
    from decimal import Decimal

    from orch23.report.plan_view import PlanView


@click.command()
@stages_argument
@selection_options
@variable_options
@model_options
@budget_option
@option("-v", "--verbose", is_flag=True, help="Every reason, not only the first.")
@json_option
@exit_code_option
@click.pass_obj
@hands_wanted
def plan(
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
    """Say what a build would do, and why.

    Runs no step, calls no model, writes nothing.
    """
    from orch23.cli.opening import read_budget  # noqa: PLC0415 - heavy

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


@click.command()
@stages_argument
@variable_options
@model_options
@json_option
@exit_code_option
@click.pass_obj
@hands_wanted
def status(
    console: Console,
    *,
    wanted: Wanted,
    as_json: bool,
    exit_code: bool,
) -> int:
    """Name the stages that are not up to date."""
    from orch23.report.plan_json import plan_json  # noqa: PLC0415 - heavy
    from orch23.report.plan_text import status_text  # noqa: PLC0415 - heavy

    view = _view(console, wanted, estimated=as_json)
    console.answer(plan_json(view) if as_json else status_text(view, console.out_style))
    return _code(view, exit_code=exit_code)


def show_plan(
    console: Console,
    wanted: Wanted,
    *,
    forced: tuple[str, ...] = (),
    overwrite_edited: bool = False,
    budget: "Decimal | None" = None,
    as_json: bool = False,
    verbose: bool = False,
    exit_code: bool = False,
) -> int:
    """Write a plan; what `plan` and `build -n` share."""
    from orch23.report.plan_json import plan_json  # noqa: PLC0415 - heavy
    from orch23.report.plan_text import plan_text  # noqa: PLC0415 - heavy

    view = _view_of_part(console, wanted) or _view(console, wanted, forced=forced, overwrite_edited=overwrite_edited)
    if budget is not None:
        view = replace(view, max_cost=budget)  # in the place of the pipeline's, as in a build
    console.answer(plan_json(view) if as_json else plan_text(view, console.out_style, verbose=verbose))
    return _code(view, exit_code=exit_code)


def _view(
    console: Console,
    wanted: Wanted,
    *,
    forced: tuple[str, ...] = (),
    overwrite_edited: bool = False,
    estimated: bool = True,
) -> "PlanView":
    """Return what would be done; with an estimate, for which price table, journals and transcripts are read."""
    from orch23.cli.author_data import check_input_schemas  # noqa: PLC0415 - heavy
    from orch23.cli.opening import check_forced, open_wanted, selection_of  # noqa: PLC0415 - heavy
    from orch23.cli.outlooks import estimates_of, view_of  # noqa: PLC0415 - heavy
    from orch23.cli.wiring import open_reading  # noqa: PLC0415 - heavy
    from orch23.engine.preview import preview  # noqa: PLC0415 - heavy

    project, stages = open_wanted(console, wanted)
    session = open_reading(project, forced=forced, overwrite_edited=overwrite_edited)
    check_forced(session.world.plan, forced)
    check_input_schemas(project.pipeline, project.store.workspace, project.machinery.sources)
    seen = preview(session, selection_of(wanted, stages))
    return view_of(seen, estimates_of(project, seen) if estimated else None)


def _view_of_part(console: Console, wanted: Wanted) -> "PlanView | None":
    """Return what would be done, from what an edit reaches; None where all has to be decided for that."""
    from orch23.cli.author_data import check_input_schemas  # noqa: PLC0415 - heavy
    from orch23.cli.opening import open_wanted  # noqa: PLC0415 - heavy
    from orch23.cli.outlooks import estimates_of, view_of  # noqa: PLC0415 - heavy
    from orch23.cli.part import OutdatedError, part_of  # noqa: PLC0415 - heavy
    from orch23.cli.wiring import open_reading  # noqa: PLC0415 - heavy
    from orch23.engine.preview import preview  # noqa: PLC0415 - heavy
    from orch23.plan.select import Selection  # noqa: PLC0415 - heavy

    part = part_of(console.unrest) if console.unrest is not None else None
    if part is None:
        return None
    try:
        project, _ = open_wanted(console, wanted, part=part)
        session = open_reading(project)
        check_input_schemas(project.pipeline, project.store.workspace, project.machinery.sources)
        seen = preview(session, Selection(only=part.reach.names))
        view = view_of(seen, estimates_of(project, seen))
        part.check_age(project.settings.root)
    except (OutdatedError, Orch23Error):  # what is wrong is told of the whole
        return None
    rest, order = part.at_rest, {name: number for number, name in enumerate(part.reach.names)}
    view = replace(
        view,
        lines=tuple(sorted(view.lines, key=lambda line: order[line.stage])),
        models=part.models,
        fresh_besides=rest.get("fresh", 0),
        skipped_besides=rest.get("skipped", 0),
    )
    return None if view.is_quiet and view.skipped_besides else view


def _code(view: "PlanView", *, exit_code: bool) -> int:
    return ExitCode.FAILED if exit_code and not view.is_quiet else ExitCode.OK
