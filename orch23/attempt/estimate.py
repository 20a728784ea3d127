"""Estimate calls, tokens, cost and duration of the stages of a plan; what is not known is None."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.digest import Json
from orch23.model.llm import Exchange, Message, Pace, Request, Usage
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import (
    EMPTY_ESTIMATE,
    Blocked,
    CallRange,
    Decision,
    Edited,
    Estimate,
    Expand,
    Fresh,
    Maybe,
    Restore,
    Run,
    Skipped,
    VerifyOnly,
)
from orch23.providers.prices import Tariff, most_media_tokens, sent_texts, worst_case
from orch23.providers.registry import (
    adapter_for,
    adapter_named,
    truncation_policy,
    with_token_limit,
)
from orch23.resolve.prompt_inputs import MAX_PREVIOUS_LENGTH
from orch23.steps.registry import is_llm
from orch23.store.history import StageStatistics

if TYPE_CHECKING:
    from orch23.providers.model_facts import ModelFacts
    from orch23.steps.llm.spec import LLMStep


CHARACTERS_PER_TOKEN = 4
_PACES: Mapping[str, Pace] = {"flex": "flex", "batch": "batch"}


TariffOf: TypeAlias = Callable[[str, str, Pace], Tariff | None]
"""Return the tariff of a provider and model at a pace; None if it is unknown."""


class EstimateBasis(Struct, frozen=True, kw_only=True):
    """The facts that the estimate of one stage is based on.

    `request` is its first request, as far as it can be rendered today; `recorded` the exchanges that it will reuse for
    sure; `past` its earlier durations and responses. `explores` says what its model may look at before.
    `verifies_base`: before a call, the verification runs on what the stage starts from.
    """

    node: Stage | ForeachStage
    decision: Decision
    request: Request | None = None
    recorded: tuple[Exchange, ...] = ()
    past: StageStatistics = field(default_factory=StageStatistics)
    explores: str = ""
    verifies_base: bool = False


def estimate(basis: EstimateBasis, tariff_of: TariffOf) -> Estimate:
    """Estimate a stage. Tariffs are looked up only if a provider may be called."""
    decision = basis.decision
    if isinstance(decision, Maybe) and not decision.may_run:
        return EMPTY_ESTIMATE
    times = decision.last_count if isinstance(decision, Expand) else 1
    found = EMPTY_ESTIMATE
    if isinstance(decision, Run | Maybe | Expand) and times and basis.past.durations_s:
        past = basis.past.durations_s
        from statistics import median  # noqa: PLC0415 - only if there is something to estimate

        found = replace(found, duration_s=median(past) * times, runs=len(past))
    calls = possible_calls(basis.node, decision, recorded=len(basis.recorded))
    if basis.explores and not basis.recorded and calls.minimum:
        # It is asked once what it needs to see.
        calls = replace(calls, minimum=min(2, 2 if calls.maximum is None else calls.maximum))
        times *= 2
    if calls.maximum == 0 and not basis.recorded:
        return found
    tariff = tariff_of(*_first_model(basis.node))
    found = replace(
        found,
        calls=calls,
        price="unknown" if tariff is None else "known" if tariff.cost(Usage(1000, 1000)) else "free",
        most_cost=_most(basis, tariff_of),
        stored_at=_stored_at(basis.node),
        explores=basis.explores,
        verifies_base=basis.verifies_base and not basis.recorded and isinstance(decision, Run),
    )
    # A model is called only if the verification fails, so nothing is expected but the upper bound.
    if isinstance(decision, VerifyOnly):
        return found
    if basis.recorded:
        return replace(found, saved_calls=len(basis.recorded), saved_cost=_sum(one.cost for one in basis.recorded))
    found = _with_tokens(found, basis, tariff, times)
    # A stage that may turn out not to run costs nothing then.
    return replace(found, least_cost=Decimal(0) if calls.minimum == 0 else found.likely_cost)


def _with_tokens(found: Estimate, basis: EstimateBasis, tariff: Tariff | None, times: int) -> Estimate:
    """Add tokens and cost: of the request as it is rendered today, else of the median of earlier requests."""
    from statistics import median_low  # noqa: PLC0415 - only if there is something to estimate

    past = basis.past.tokens
    given = median_low([one[0] for one in past]) if past else None
    # Only earlier responses show how much a model will write.
    written = median_low([one[1] for one in past]) if past else None
    if basis.request is not None:
        given = -(-_characters(basis.request) // CHARACTERS_PER_TOKEN)
    if given is None or not times:
        return replace(found, input_tokens=None, output_tokens=None, likely_cost=None)
    return replace(
        found,
        input_tokens=given * times,
        output_tokens=None if written is None else written * times,
        responses=len(past),
        likely_cost=None if written is None or tariff is None else tariff.cost(Usage(given, written)) * times,
    )


def possible_calls(node: Stage | ForeachStage, decision: Decision, *, recorded: int = 0) -> CallRange:
    """Return how many requests a stage may send beside those with a recorded response: at least, if all goes well."""
    if not (is_llm(node.step) if isinstance(node, Stage) else node.kind == "llm"):
        return CallRange()
    limit = node.stop.max_llm_calls if isinstance(node, Stage) else None
    most = max(0, _calls_of_attempts(node) - recorded)
    most = most if limit is None else min(most, limit)
    match decision:
        case Run():
            return CallRange(0 if recorded else 1, most)
        case VerifyOnly(is_final=True):
            return CallRange()
        case VerifyOnly() | Maybe():
            return CallRange(0, most)
        case Expand(last_count=last):
            return CallRange(0, most * last if last else None, has_new_items=True)
        case Fresh() | Restore() | Blocked() | Edited() | Skipped():
            return CallRange()
        case _ as never:
            assert_never(never)


def _calls_of_attempts(node: Stage | ForeachStage) -> int:
    if isinstance(node, Stage):
        cut = sum(truncation_policy(step).retries for step in _fallbacks(node))
        calls = [1 + truncation_policy(step).retries + cut for step in _attempts(node)]
        return sum(calls) + max(calls, default=0) * (node.explore_turns if node.explore else 0)
    retry: Json = node.body.get("retry")
    attempts = _whole(retry.get("max") if isinstance(retry, Mapping) else retry) + 1
    if explore := node.body.get("explore"):
        attempts += _whole(explore.get("turns", 1)) if isinstance(explore, Mapping) else 1
    llm = _llm(node)
    on_truncated = llm.get("on_truncated")
    if isinstance(on_truncated, Mapping):
        return attempts * (1 + _whole(on_truncated.get("retries")))
    adapter = adapter_named(str(llm.get("provider")), node.plugins)
    return attempts * (1 + (adapter.on_truncated.retries if adapter else 0))


def _llm(node: ForeachStage) -> Mapping[str, Json]:
    llm = node.body.get("llm")
    return llm if isinstance(llm, Mapping) else {}


def _whole(value: Json) -> int:
    # An expression has a value only for an item: it counts as 0.
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _characters(request: Request) -> int:
    return sum(map(len, sent_texts(request))) + CHARACTERS_PER_TOKEN * most_media_tokens(request)


def _attempts(node: Stage) -> "list[LLMStep]":
    step = node.step
    return [step.of_attempt(node.retry, number + 1) for number in range(node.retry.max + 1)] if is_llm(step) else []


def _fallbacks(node: Stage) -> "Sequence[LLMStep]":
    return node.step.fallbacks() if is_llm(node.step) else ()


def _first_model(node: Stage | ForeachStage) -> tuple[str, str, Pace]:
    if isinstance(node, Stage):
        first = node.step.of_attempt(node.retry, 1) if is_llm(node.step) else None
        return (first.provider, first.model, first.pace) if first else ("", "", "standard")
    llm = _llm(node)
    pace = _PACES.get(str(llm.get("pace")), "standard")
    return str(llm.get("provider", "")), str(llm.get("model", "")), pace


def _stored_at(node: Stage | ForeachStage) -> str:
    """Return the server that stores the responses of a stage; of a foreach, if it does not depend on the item."""
    if isinstance(node, Stage):
        servers = {adapter_for(step).stored_at for step in (*_attempts(node), *_fallbacks(node))}
        return ", ".join(sorted(servers - {""}))
    llm = _llm(node)
    adapter = adapter_named(str(llm.get("provider")), node.plugins)
    if adapter is None:
        return ""
    from orch23.steps.llm.spec import LLMStep  # noqa: PLC0415 - only the plan of a list of model stages needs it

    known: dict[str, Any] = {name: llm[name] for name in ("base_url", "api", "background") if name in llm}
    return adapter(LLMStep(provider=str(llm.get("provider")), model="", prompt="", **known)).stored_at


def _most(basis: EstimateBasis, tariff_of: TariffOf) -> Decimal | None:
    """Return an upper bound of the cost: each attempt sends the largest request, truncated as often as is allowed.

    A later attempt may also send the response before it and the retry feedback.
    """
    node, request = basis.node, basis.request
    if not isinstance(node, Stage) or not is_llm(node.step) or request is None:
        return None
    attempts = _attempts(node)
    # The most tokens of a response, also after truncated ones.
    limits = ((with_token_limit(step).max_tokens, truncation_policy(step)) for step in attempts)
    most_tokens = max(int(tokens * more.factor**more.retries) for tokens, more in limits)
    if node.explore:
        # What was shown is in all further requests, and a token may have only one character.
        shown = Message("user", "." * node.explore_tokens * CHARACTERS_PER_TOKEN)
        request, attempts = (
            replace(request, messages=(*request.messages, shown)),
            [*attempts[:1] * node.explore_turns, *attempts],
        )
    costs = [
        _attempt_cost((step, *_fallbacks(node)), _with_feedback(request, node, step, number, most_tokens), tariff_of)
        for number, step in enumerate(attempts, 1)
    ]
    most, limit = _sum(costs), node.stop.max_cost_usd
    return most if most is None or limit is None else min(most, limit)


def _attempt_cost(steps: "Sequence[LLMStep]", request: Request, tariff_of: TariffOf) -> Decimal | None:
    """Return the maximum cost of an attempt. Before each fallback, truncated responses may have been paid for."""
    costs = [_costs(step, request, tariff_of) for step in steps]
    last = [one[-1] for one in costs]
    known = [cost for cost in last if cost is not None]
    cut = _sum(cost for one in costs for cost in one[:-1])
    return None if cut is None or len(known) < len(last) else cut + max(known)


def _costs(step: "LLMStep", request: Request, tariff_of: TariffOf) -> list[Decimal | None]:
    """Return the maximum cost of each request of an attempt that has the text of a request."""
    more, tokens = truncation_policy(step), with_token_limit(step).max_tokens
    # A truncated response is called again with a higher limit, and each of these calls is paid for.
    limits = [tokens * more.factor**cut for cut in range(more.retries + 1)] if "max_tokens" in request.params else []
    sent = [replace(request, params={**request.params, "max_tokens": limit}) for limit in limits] or [request]
    tariff = tariff_of(step.provider, step.model, step.pace)
    return [worst_case(one, tariff).cost for one in sent]


def _with_feedback(request: Request, stage: Stage, step: "LLMStep", attempt: int, most_tokens: int) -> Request:
    """Return the largest request of an attempt. A token is counted as one character, as `worst_case` counts it."""
    if attempt == 1:
        return request
    if not stage.retry.is_conversation:
        feedback = Message("user", "." * (MAX_PREVIOUS_LENGTH + step.brief.limit))
        return replace(request, messages=(*request.messages, feedback))
    shown = step.max_bytes if step.returns == "edits" else 0
    turn = (Message("assistant", "." * most_tokens), Message("user", "." * (step.brief.limit + shown)))
    return replace(request, messages=(*request.messages, *turn * (attempt - 1)))


def _sum(costs: Iterable[str | Decimal | None]) -> Decimal | None:
    total = Decimal(0)
    for cost in costs:
        if cost is None:
            return None
        total += Decimal(cost)
    return total


def expected_savings(calls: "Mapping[str, tuple[Request, ModelFacts]]", tariff_of: TariffOf) -> dict[str, Decimal]:
    """Return by stage, in US dollars, how much cheaper its first request should be because stages share a prefix.

    `calls` has the first request of each stage that no recorded response answers, with the facts of its model.
    The first of them, in the order given, writes the prefix to the cache and costs more than without: its amount is
    negative. Further attempts are not counted, nor batches, whose requests find a cache by chance. A stage is left out
    if nothing is cached, or the price is unknown.
    """
    from orch23.providers.cache_marks import shared_prefixes  # noqa: PLC0415 - only for plans with several calls

    prefixes = {name: shared_prefixes(*call) for name, call in calls.items() if call[0].pace != "batch"}
    users = Counter(one for found in prefixes.values() for one in found)
    found: dict[str, Decimal] = {}
    written: set[str] = set()
    for name, lengths in prefixes.items():
        shared = {one: length for one, length in lengths.items() if users[one] > 1}
        request, _ = calls[name]
        tariff = tariff_of(request.provider, request.model, request.pace) if shared else None
        if tariff is not None:
            usage = _usage(
                request, max(shared.values()), max((shared[one] for one in shared if one in written), default=0)
            )
            found[name] = tariff.uncached_cost(usage) - tariff.cost(usage)
        written.update(shared)
    return found


def _usage(request: Request, cached: int, read: int) -> Usage:
    """Return the tokens of the prefix alone, of `cached` characters, of which `read` are in the cache."""
    tokens, reads = (-(-count // CHARACTERS_PER_TOKEN) for count in (cached, read))
    writes = tokens - reads
    hourly = writes if request.writes_for_an_hour else 0
    return Usage(tokens, cache_read_tokens=reads, cache_write_tokens=writes, cache_write_1h_tokens=hourly)
