"""Offer the results of a build to a shared cache."""

from orch23.attempt.attempt import StageResult
from orch23.decide.shared_results import ResultOrigin, SharedResults
from orch23.model.record import Record
from orch23.resolve.resolution import ResolvedStage


def offer(shared: SharedResults, resolved: ResolvedStage, record: Record, done: StageResult, took_s: float) -> None:
    """Offer a result that passed, with what it took to make it. `took_s` is how long its stage took, in seconds."""
    usage = done.usage
    about = ResultOrigin(
        seconds=round(took_s, 3),
        calls=usage.calls + usage.recorded,
        tokens=usage.input_tokens + usage.output_tokens,
        cost="" if usage.unpriced else format(usage.cost + usage.saved, "f"),
    )
    shared.share(resolved, record, about, done.sandboxes, is_verified=done.verified)
