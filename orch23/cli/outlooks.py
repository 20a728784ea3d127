"""Look at what a build would do, as the values that reports are written from."""

from dataclasses import replace

from orch23.cli.wiring import Project, read_answers
from orch23.engine.appraise import Appraised
from orch23.engine.preview import Preview, preview
from orch23.engine.question import ask, model_of
from orch23.engine.session import Session
from orch23.model.decision import Run
from orch23.model.errors import MissingBytesError, Orch23Error
from orch23.model.llm import Request
from orch23.model.pipeline import LLMStep
from orch23.plan.select import EVERYTHING, Selection
from orch23.providers.adapter import Asking, Setting
from orch23.providers.registry import request_parameters
from orch23.report.plan_view import PlanView, plan_view
from orch23.resolve.prompts import Round


def view_of(project: Project, session: Session, selection: Selection = EVERYTHING) -> PlanView:
    """Return what a build of a selection would do.

    Raises:
        NotFoundError: a name is no stage.
        InvalidInputError: a foreach over a file as it is cannot be expanded.

    """
    return view_of_preview(project, preview(session, selection))


def view_of_preview(project: Project, seen: Preview) -> PlanView:
    """Return a preview as the values of a report."""
    keys = {name: appraised.resolved.key for name, appraised in seen.appraised.items()}
    return plan_view(seen.plan, seen.decisions, keys=keys, recorded=recorded_stages(project, seen), dead=seen.dead)


def recorded_stages(project: Project, seen: Preview) -> tuple[str, ...]:
    """Return the stages that would run and whose first request has an answer that would be used again."""
    return tuple(
        name
        for name, appraised in seen.appraised.items()
        if isinstance(appraised.decision, Run) and _is_recorded(project, appraised)
    )


def first_request(project: Project, appraised: Appraised) -> Request | None:
    """Return the request that the first attempt of a stage would make; None where it cannot be made."""
    resolved = appraised.resolved
    stage, step = resolved.stage, resolved.stage.step
    if not isinstance(step, LLMStep) or resolved.broken:
        return None
    this = Round(given=resolved.given, model=model_of(resolved, step, 1))
    setting = Setting(
        environ=project.settings.environ,
        root=project.store.root,
        read_answers=lambda path: read_answers(project, path),
        notice=lambda _event: None,
    )
    try:
        params = request_parameters(setting, Asking(step, stage.name))
        request, _ = ask(
            resolved, step, this, project.machinery.sources, variables=project.pipeline.vars, params=params
        )
    except (Orch23Error, MissingBytesError):
        return None
    return request


def _is_recorded(project: Project, appraised: Appraised) -> bool:
    step = appraised.resolved.stage.step
    request = first_request(project, appraised)
    if not isinstance(step, LLMStep) or step.mode == "record" or request is None:
        return False
    found = project.store.exchanges.get(request.fingerprint(), step.transcripts)
    while found is not None and found.superseded:
        request = replace(request, sample=request.sample + 1)
        found = project.store.exchanges.get(request.fingerprint(), step.transcripts)
    return found is not None
