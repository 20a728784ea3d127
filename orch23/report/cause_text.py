"""Describe the likely cause of a failure, with the line of the pipeline that would fix it."""

from orch23.decide.yaml_edit import LineEdit, yaml_edit, yaml_line
from orch23.model.event_data import LikelyCause
from orch23.model.pipeline import Pipeline, family_of
from orch23.report.diagnostics import visible
from orch23.report.marks import Style

_CERTAIN = ("time", "limit", "output")
_POSSIBLE = ("network_use",)


def cause_lines(
    pipeline: Pipeline, stage: str, cause: LikelyCause, source: str, style: Style, code: str = ""
) -> list[str]:
    """Return the lines of a cause. `source` is the text of the pipeline, or empty if it cannot be read.

    `code` is that of the error that the cause explains, or empty.
    """
    name = cause_name(cause)
    name += f"[{code}]" if code else ""
    lines = [f"  {style.paint(name, 'notice')}: {visible(cause.text)}"]
    if cause.key:
        edit = yaml_edit(source, family_of(stage), pipeline.locations, cause) if source else None
        lines += _change(pipeline, stage, cause, style) if edit is None else _edit(pipeline, edit, style)
    return [*lines, f"  = help: {visible(cause.hint)}"] if cause.hint else lines


def cause_name(cause: LikelyCause) -> str:
    """Return how certain a cause is: `cause`, `likely cause` or `possible cause`."""
    if cause.kind in _CERTAIN:
        return "cause"
    return "possible cause" if cause.kind in _POSSIBLE else "likely cause"


def cause_summary(cause: LikelyCause) -> str:
    """Return a cause with its key in one text, where there is no place for an excerpt."""
    key = f"; write `{yaml_line(cause)}`" if cause.key else ""
    hint = f" ({cause.hint})" if cause.hint else ""
    return f"{cause.text}{key}{hint}"


def _change(pipeline: Pipeline, stage: str, cause: LikelyCause, style: Style) -> list[str]:
    place = pipeline.locate("stages", stage)
    where = [f"   {style.paint('-->', 'frame')} {visible(str(place))}"] if place else []
    return [*where, f"   {style.paint('+', 'good')} {visible(yaml_line(cause))}"]


def _edit(pipeline: Pipeline, edit: LineEdit, style: Style) -> list[str]:
    after = edit.line + edit.inserts
    width = len(str(after))
    arrow = style.paint("-->", "frame")
    bar, minus, plus = style.paint("|", "frame"), style.paint("-", "bad"), style.paint("+", "good")
    return [
        f"   {' ' * width}{arrow} {visible(pipeline.file)}:{after}",
        f"   {edit.line:>{width}} {bar if edit.inserts else minus} {visible(edit.old)}",
        f"   {after:>{width}} {plus} {visible(edit.new)}",
    ]
