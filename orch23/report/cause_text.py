"""Describe the likely cause of a failure, with the key of the pipeline to write."""

from orch23.model.event_data import LikelyCause
from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import Pipeline
from orch23.report.diagnostics import visible
from orch23.report.marks import Style

_PLAIN = lazy_pattern(r"[\w./@+-]+")


def cause_lines(pipeline: Pipeline, stage: str, cause: LikelyCause, style: Style, code: str = "") -> list[str]:
    """Return the lines of a cause; `code` is the code of the error that it explains, or empty."""
    name = f"{cause_name(cause)}[{code}]" if code else cause_name(cause)
    lines = [f"  {style.paint(name, 'notice')}: {visible(cause.text)}"]
    if cause.key:
        # The place of the key, or else of the stage.
        place = pipeline.locate("stages", stage, *cause.key.split("/"))
        lines += [f"   {style.paint('-->', 'frame')} {visible(str(place))}"] if place else []
        lines.append(f"   {style.paint('+', 'good')} {visible(yaml_line(cause))}")
    return [*lines, f"  = help: {visible(cause.hint)}"] if cause.hint else lines


def cause_name(cause: LikelyCause) -> str:
    """Return how certain a cause is."""
    return "possible cause" if is_possible(cause) else "likely cause"


def is_possible(cause: LikelyCause) -> bool:
    """Return whether a cause only may explain the failure."""
    return cause.kind == "network_use"


def cause_summary(cause: LikelyCause) -> str:
    """Return a cause with its change in one text, where there is no place for an excerpt."""
    key = f"; write `{yaml_line(cause)}`" if cause.key else ""
    return f"{cause.text}{key}{f' ({cause.hint})' if cause.hint else ''}"


def yaml_line(cause: LikelyCause) -> str:
    """Return the key with its value in one line: `limits: {memory: 2GiB}`, `inputs: [..., a.md]`."""
    escaped = cause.value.replace("\\", "\\\\").replace('"', '\\"')
    value = cause.value if _PLAIN.fullmatch(cause.value) else f'"{escaped}"'
    first, *others = cause.key.split("/")
    text = f"[..., {value}]" if cause.appends else value
    for name in reversed(others):
        text = f"{{{name}: {text}}}"
    return f"{first}: {text}"
