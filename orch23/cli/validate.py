"""The command `validate`."""

from collections.abc import Mapping, Sequence

import click

from orch23.cli.console import Console
from orch23.cli.flags import option
from orch23.cli.options import Wanted, hands_wanted, model_options, pipeline_argument, variable_options
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, InvalidInputError
from orch23.report.diagnostics import Style, render
from orch23.report.figures import count

_FORMATS = ("full", "concise", "json", "github", "sarif")
_FOR_PROGRAMS = frozenset({"json", "github", "sarif"})


@click.command()
@pipeline_argument
@variable_options
@model_options
@option("--output-format", "style", type=click.Choice(_FORMATS), default="full", help="How complaints are written.")
@click.pass_obj
@hands_wanted
def validate(
    console: Console,
    *,
    wanted: Wanted,
    style: Style,
) -> int:
    """Say everything that is wrong with a pipeline.

    Complaints for people go to stderr; json, github and sarif go to stdout.
    """
    from orch23.cli.validation import validated  # noqa: PLC0415 - heavy

    try:
        stages, warnings, sources = validated(console, wanted)
    except InvalidInputError as invalid:
        sources = getattr(invalid, "sources", {})
        _write(console, invalid.diagnostics, sources, style)
        return console.number_of(invalid)
    _write(console, warnings, sources, style)
    if style not in _FOR_PROGRAMS:
        console.answer(f"ok: {count(stages, 'stage')}\n")
    return ExitCode.OK


def _write(console: Console, diagnostics: Sequence[Diagnostic], sources: Mapping[str, str], style: Style) -> None:
    if style in _FOR_PROGRAMS:
        console.answer(render(diagnostics, sources, style=style))
    else:
        console.tell(render(diagnostics, sources, style=style, color=console.err_style.color))
