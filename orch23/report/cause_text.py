"""Describe the likely cause of a failure, with the lines of the pipeline to change."""

from collections.abc import Sequence

from orch23.decide.yaml_edit import LineEdit, with_word, yaml_edit, yaml_line
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
    lines += [f"  = help: first {visible(cause.first)}"] if cause.first else []
    lines += _changes(pipeline, stage, cause, source, style)
    return [*lines, f"  = help: {visible(cause.hint)}"] if cause.hint else lines


def cause_name(cause: LikelyCause) -> str:
    """Return how certain a cause is: `cause`, `likely cause` or `possible cause`."""
    if cause.kind in _CERTAIN:
        return "cause"
    return "possible cause" if is_possible(cause) else "likely cause"


def is_possible(cause: LikelyCause) -> bool:
    """Return whether a cause only may explain the failure."""
    return cause.kind in _POSSIBLE


def cause_summary(cause: LikelyCause) -> str:
    """Return a cause with its changes in one text, where there is no place for an excerpt."""
    first = f"; first {cause.first}" if cause.first else ""
    key = f"; write `{yaml_line(cause)}`" if cause.key else ""
    word = f"; {_word(cause)}" if cause.old_word else ""
    hint = f" ({cause.hint})" if cause.hint else ""
    return f"{cause.text}{first}{key}{word}{hint}"


def _word(cause: LikelyCause) -> str:
    return f"write `{cause.new_word}` in place of `{cause.old_word}`"


def _changes(pipeline: Pipeline, stage: str, cause: LikelyCause, source: str, style: Style) -> list[str]:
    """Return the changes of the pipeline: as lines of its text where these can be found, else in words."""
    name, places = family_of(stage), pipeline.locations
    edit = yaml_edit(source, name, places, cause) if source and cause.key else None
    added = _added(pipeline, stage, cause, style) if cause.key and edit is None else []
    if source and cause.old_word and (edits := with_word(edit, source, name, places, cause)):
        return [*added, *_edits(pipeline, edits, style)]
    changed = [] if edit is None else _edits(pipeline, [edit], style)
    return [*added, *changed, *([f"  = help: {visible(_word(cause))}"] if cause.old_word else [])]


def _added(pipeline: Pipeline, stage: str, cause: LikelyCause, style: Style) -> list[str]:
    """Return the key with its value, where the lines of the text have another form than expected."""
    place = pipeline.locate("stages", stage)
    where = [f"   {style.paint('-->', 'frame')} {visible(str(place))}"] if place else []
    return [*where, f"   {style.paint('+', 'good')} {visible(yaml_line(cause))}"]


def _edits(pipeline: Pipeline, edits: Sequence[LineEdit], style: Style) -> list[str]:
    first, last = edits[0], edits[-1]
    width = len(str(last.line + 1))
    bar, minus, plus = style.paint("|", "frame"), style.paint("-", "bad"), style.paint("+", "good")
    where = f"{visible(pipeline.file)}:{first.line + first.inserts}"
    lines = [f"   {' ' * width}{style.paint('-->', 'frame')} {where}"]
    added = 0
    for edit in edits:
        added += edit.inserts
        lines += [
            f"   {edit.line:>{width}} {bar if edit.inserts else minus} {visible(edit.old)}",
            f"   {edit.line + added:>{width}} {plus} {visible(edit.new)}",
        ]
    return lines
