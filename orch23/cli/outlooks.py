"""Look at what a build would do, as the values that reports are written from."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from orch23.cli.author_data import read_answers
from orch23.cli.wiring import Project
from orch23.decide.secrets import secrets_of
from orch23.engine.appraise import Appraised
from orch23.engine.conversation import Way, walk
from orch23.engine.estimate import Ground, estimate
from orch23.engine.preview import Preview
from orch23.engine.question import Questions, model_of
from orch23.model.decision import Expand, Maybe, Run, VerifyOnly
from orch23.model.errors import MissingBytesError, Orch23Error
from orch23.model.estimate import Estimate
from orch23.model.llm import Request
from orch23.model.pipeline import Stage
from orch23.providers.adapter import Asking, Setting
from orch23.providers.codes import UNRECORDED
from orch23.providers.prices import Prices
from orch23.providers.recorded import Once, Recorded
from orch23.providers.registry import request_parameters
from orch23.providers.unasked import Unasked
from orch23.report.plan_view import PlanView, plan_view
from orch23.resolve.prompts import Round
from orch23.steps.registry import is_llm
from orch23.store.history import read_history
from orch23.store.past import Past, past_of, read_past

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep

_RUNNING = (Run, VerifyOnly, Maybe, Expand)


def view_of(seen: Preview, estimates: Mapping[str, Estimate] | None = None) -> PlanView:
    """Return a preview as the values of a report."""
    keys = {name: appraised.resolved.key for name, appraised in seen.appraised.items()}
    return plan_view(
        seen.plan,
        seen.decisions,
        keys=keys,
        estimates=estimates,
        dead=seen.dead,
        released=seen.released,
        skipped=seen.skipped,
    )


def estimates_of(project: Project, seen: Preview) -> dict[str, Estimate]:
    """Return what the stages that would or may run may take. Reads journals and transcripts, and nothing else."""
    running = [name for name, decision in seen.decisions.items() if isinstance(decision, _RUNNING)]
    past = _past(project, seen, running)
    tariff_of = cache(Prices(project.pipeline.prices, project.pipeline.plugins).of)
    return {name: estimate(_ground(project, seen, name, past_of(past, name)), tariff_of) for name in running}


def _past(project: Project, seen: Preview, running: Sequence[str]) -> Mapping[str, Past]:
    """Return what the stages took before; by the transcripts where no journal knows: a fresh clone has no journals."""
    past = read_past(project.store.logs, project.pipeline.file, running) if running else {}
    nodes = [seen.plan.nodes[name] for name in running]
    steps = [node.step for node in nodes if isinstance(node, Stage) and is_llm(node.step)]
    if not steps or any(one.answers for one in past.values()):
        return past
    found: dict[str, Past] = {}
    for place in sorted({step.transcripts or "" for step in steps}):
        with suppress(Orch23Error):  # a build says what is wrong with them
            for stage, usages in project.store.exchanges.usages(place or None).items():
                found[stage] = Past(answers=tuple((one.input_tokens, one.output_tokens) for one in usages))
    return {name: replace(past.get(name, Past()), answers=found.get(name, Past()).answers) for name in (*past, *found)}


def _ground(project: Project, seen: Preview, name: str, past: Past) -> Ground:
    node, decision = seen.plan.nodes[name], seen.decisions[name]
    appraised = seen.appraised.get(name)
    request = first_request(project, appraised) if appraised is not None else None
    if request is None or not isinstance(node, Stage) or not is_llm(node.step):
        return Ground(node=node, decision=decision, past=past)
    if not isinstance(decision, Run):  # its request will be another one
        return Ground(node=node, decision=decision, request=request, past=past)
    way = way_of(project, node.step, name, request)
    recorded = way.found if way.missing is None else ()
    return Ground(node=node, decision=decision, request=request, recorded=recorded, past=past)


def first_request(project: Project, appraised: Appraised) -> Request | None:
    """Return the request that the first attempt of a stage would make; None where it cannot be made."""
    resolved = appraised.resolved
    stage, step = resolved.stage, resolved.stage.step
    if not is_llm(step) or resolved.broken:
        return None
    this = Round(given=resolved.given, model=model_of(resolved, step, 1))
    setting = Setting(
        environ=project.settings.environ,
        root=project.store.root,
        read_answers=lambda path: read_answers(project.machinery.sources, path),
        notice=lambda _event: None,
        is_granted=lambda _grant: False,
        files=project.store.workspace,
    )
    try:
        params = request_parameters(setting, Asking(step, stage.name))
        secrets = secrets_of(project.settings.environ)
        questions = Questions(secrets, project.machinery.sources, project.pipeline.vars)
        request, _ = questions.request(resolved, step, this, params)  # what forbids it is told when it is built
    except (Orch23Error, MissingBytesError):
        return None
    return request


def way_of(project: Project, step: "LLMStep", stage: str, request: Request) -> Way:
    """Return what the transcripts answer to a first request, as a build would find it; nobody is asked."""
    exchanges = project.store.exchanges
    refusing = Unasked(
        store=exchanges, stage=stage, transcripts=step.transcripts, code=UNRECORDED, hint="", redact=lambda text: text
    )
    own = read_history(project.store.logs, project.pipeline.file).reusable if step.mode == "record" else ()
    recorded = Recorded(
        inner=refusing, store=exchanges, stage=stage, mode=step.mode, transcripts=step.transcripts, once=Once(own)
    )
    return walk(recorded, step, request)
