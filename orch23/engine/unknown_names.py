"""Complain of names in a pipeline that nobody has: of checks, and of executors."""

from orch23.checks.registry import checks_of
from orch23.execute.registry import executors_of
from orch23.model.diagnostic import Diagnostic
from orch23.model.nearest import nearest
from orch23.model.pipeline import LOCAL, Pipeline


def unknown_check(pipeline: Pipeline, stage: str, place: tuple[str | int, ...], name: str) -> Diagnostic:
    """Return the complaint that a step of `verify`, at a place below a stage, names a check that there is not."""
    known = checks_of(pipeline.plugins)
    close = nearest(name, list(known))
    hint = f"did you mean `{close[0]}`?" if close else f"the checks are: {', '.join(sorted(known))}"
    where = pipeline.locate("stages", stage, *place, "check") or pipeline.locate("stages", stage, *place)
    return Diagnostic("E828", f"no check is named `{name}`", where, hint)


def unknown_executor(pipeline: Pipeline) -> list[Diagnostic]:
    """Return the complaint that nobody has the executor of a pipeline, if it is so."""
    if pipeline.executor == LOCAL or pipeline.executor in executors_of(pipeline.plugins):
        return []
    known = ", ".join((LOCAL, *executors_of(pipeline.plugins)))
    hint = f"there are: {known}; another is of a plugin that `plugins` names"
    message = f"no executor is named `{pipeline.executor}`"
    return [Diagnostic("E846", message, pipeline.locate("executor"), hint)]
