"""The command `doctor`."""

import click

from orch23.cli.console import Console
from orch23.cli.options import json_option
from orch23.model.digest import Json
from orch23.model.errors import ExitCode
from orch23.report.plan_json import document

DOCTOR_VERSION = 1


@click.command()
@json_option
@click.pass_obj
def doctor(console: Console, *, as_json: bool) -> int:
    """Say what works here, and how to get the rest.

    Looks at interpreter, pytest, providers, models and store. Starts nothing, writes nothing.
    """
    from orch23.cli.examination import examine  # noqa: PLC0415 - heavy

    found = examine(console.here, console.environ)
    if as_json:
        rows: list[Json] = [{"name": one.name, "ok": one.ok, "value": one.value, "hint": one.hint} for one in found]
        console.answer(document({"orch23_doctor": DOCTOR_VERSION, "facts": rows}))
        return ExitCode.OK
    style = console.out_style
    width = max(len(one.name) for one in found)
    for one in found:
        mark = style.paint(style.marks.done, "good") if one.ok else style.paint(style.marks.edited, "notice")
        hint = f"  ({one.hint})" if one.hint else ""
        console.answer(f"{mark} {one.name:<{width}}  {one.value}{hint}\n")
    return ExitCode.OK
