"""The action of `validate`."""

from collections.abc import Mapping, Sequence

from orch23.cli.command import Wanted
from orch23.cli.console import Console
from orch23.cli.validation import validated
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ExitCode, InvalidInputError
from orch23.report.diagnostics import Style, render
from orch23.report.figures import count

_FOR_PROGRAMS = frozenset({"json", "github", "sarif"})


def run(
    console: Console,
    *,
    wanted: Wanted,
    style: Style,
) -> int:
    """Say everything that is wrong with a pipeline."""
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
