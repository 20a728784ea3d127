"""Write commands that a person is to type, with the pipeline that they are about."""

from orch23.model.pipeline import DEFAULT_FILE
from orch23.report.diagnostics import visible
from orch23.report.plan_view import PlanLine


def pipeline_words(file: str) -> list[str]:
    """Return how a command names a pipeline: not at all, if it is the one that every command takes by itself."""
    return [] if file == DEFAULT_FILE else [visible(file)]


def keep_or_give_up(line: PlanLine) -> str:
    """Return the two ways out for a stage whose outputs a person has edited."""
    accept = " ".join(["orch23 accept", *(pipeline_words(line.place.file) if line.place else ()), visible(line.stage)])
    return f"`{accept}` keeps the edit, `--overwrite-edited` gives it up"
