"""The action of `doctor`."""

from orch23.cli.asked_models import model_findings
from orch23.cli.command import Wanted
from orch23.cli.console import Console
from orch23.cli.examination import Finding, examine
from orch23.cli.opening import found_project, open_wanted, project_root
from orch23.cli.project import required_pipeline
from orch23.cli.wiring import trust_command
from orch23.model.errors import ExitCode, InvalidInputError, NotFoundError
from orch23.model.plain import Json
from orch23.report.diagnostics import visible
from orch23.report.document import document

DOCTOR_VERSION = 1


def run(
    console: Console,
    *,
    wanted: Wanted,
    online: bool,
    as_json: bool,
) -> int:
    """Say what works here, and how to get the rest."""
    root = project_root(console, wanted.arguments)
    found = [*examine(root, console.environ), *_of_pipeline(console, wanted, online=online)]
    if as_json:
        rows: list[Json] = [{"name": one.name, "ok": one.ok, "value": one.value, "hint": one.hint} for one in found]
        console.answer(document({"orch23_doctor": DOCTOR_VERSION, "facts": rows}))
        return ExitCode.OK
    style = console.out_style
    width = max(len(one.name) for one in found)
    for one in found:
        mark = style.paint(style.marks.done, "good") if one.ok else style.paint(style.marks.edited, "notice")
        hint = f"  ({visible(one.hint)})" if one.hint else ""
        console.answer(f"{mark} {visible(one.name):<{width}}  {visible(one.value)}{hint}\n")
    return ExitCode.OK


def _of_pipeline(console: Console, wanted: Wanted, *, online: bool) -> list[Finding]:
    """Return what is found of a pipeline: whether it is valid, and the models that it may ask."""
    try:
        name = required_pipeline(found_project(console, wanted.arguments)).name
    except NotFoundError as missing:
        hint = f"name one: `orch23 doctor {'--online ' if online else ''}PIPELINE`"
        return [Finding("pipeline", missing.diagnostics[0].message, ok=not online, hint=hint if online else "")]
    try:
        project, _ = open_wanted(console, wanted, most_stages=0)
    except InvalidInputError as invalid:
        hint = "`orch23 validate` says all that is wrong"
        return [Finding("pipeline", f"{name} is not valid: {invalid.diagnostics[0].message}", ok=False, hint=hint)]
    command = trust_command(project.settings)
    findings = model_findings(project.pipeline, console.environ, project.settings.root, command, online=online)
    return [Finding("pipeline", name), *findings]
