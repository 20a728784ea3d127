"""Refuse a build, before it starts, whose models or servers could not be called: keys, consent, prices.

Looks at the machine and the recordings; calls no model, imports no client library, writes nothing.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from orch23.attempt.attempt import StepRequirements, step_runner, unmet_conditions
from orch23.attempt.conversation import Conversations, RequestBuilder
from orch23.attempt.first_call import first_call_of
from orch23.decide.decisions import DecidedStage
from orch23.decide.dry_run import Preview
from orch23.decide.stage_view import StageTree
from orch23.engine.preflight import grouped_errors
from orch23.language.llm_steps import fallbacks_of, llm_steps_of
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import ConfigurationError, ConsentError, MissingBytesError, Orch23Error, ProviderError
from orch23.model.event import Event, Warned
from orch23.model.llm import Request
from orch23.model.parsing import json_at
from orch23.model.pipeline import ForeachStage, Pipeline, Stage
from orch23.model.plan import Expand, Maybe, Plan, Run
from orch23.model.ports import ContentStore
from orch23.model.step import Grant
from orch23.providers.prices import unpriced_error
from orch23.providers.recordings import RecordingProvider
from orch23.providers.registry import (
    adapter_for,
    adapter_named,
    adapter_of,
    grant_for,
    is_remote,
    not_granted_error,
    readiness_errors,
)
from orch23.resolve.prompt_inputs import AuthorTexts
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep

_ANOTHER = "call another model with --provider and --model"
_LOCAL = (
    "call a model on this machine: `orch23 model install smollm2`, then `orch23 build --provider local --model smollm2`"
)


# Prompts that are compared before a build, and items of a foreach among them: what all items share is known.
_MOST_COMPARED, _MOST_ITEMS = 100, 2


class CallPreflight(Struct, frozen=True, kw_only=True):
    """Checks that the models and servers of a build can be called. `budget` is from the command line.

    `ask_consent` asks the user on the terminal for consent to grants; False if the user refuses or no terminal is
    there.
    """

    pipeline: Pipeline
    conversations: Conversations
    sources: AuthorTexts
    contents: ContentStore
    budget: Decimal | None = None
    ask_consent: Callable[[Sequence[Grant]], bool] = lambda _grants: False

    def check(self, plan: Plan, look: Callable[[], Preview]) -> None:
        """Refuse a build that would surely call a provider that cannot be called.

        `look` returns the preview of the build. It takes time, so it is called only if some stage could be refused: on
        a machine that has what it needs, this check is free.

        Raises:
            ConfigurationError: with everything that is missing.
            ConsentError: with every grant that is missing.
            ProviderError: with every stage that would call beyond this machine, offline.
        """
        others = [node for node in plan.nodes.values() if isinstance(node, Stage) and self._may_be_refused(node)]
        of_others = self._not_granted(grant for node in plan.nodes.values() for grant in node.grants)
        # With `--replay` no model is called, so nothing can be missing.
        steps = () if self.conversations.replay else tuple(llm_steps(plan))
        wanted = dict.fromkeys((*self._ungranted(steps), *of_others))
        sharing = self._sharing(plan)
        is_suspect = bool(wanted or others) or any(map(self._is_suspect, dict.fromkeys(steps)))
        if not is_suspect and not sharing:
            return
        seen = look()
        # A prompt is rendered once, for both questions.
        first_of = cache(lambda name: self._first_missing(seen.decided_stages[name], seen))
        if sharing:
            self.conversations.expect(_first_requests(seen, sharing, first_of))
        if not is_suspect:
            return
        # Only calls that will certainly be made are checked: a clone with recorded responses needs no key (ADR 11).
        deciding = seen.decided_stages.values() if steps else ()
        certain = [one.resolved for one in deciding if not (one.resolved.broken or unmet_conditions(one.resolved))]
        calling = [(one, missing) for one in certain if (missing := first_of(one.stage.name)) is not None]
        running = [stage for stage in others if isinstance(seen.decisions.get(stage.name), Run)]
        needs = [(stage, step_runner(stage.step).needs(stage.step, self.contents)) for stage in running]
        # The user is not asked for consent to a build that cannot run.
        self._refuse_impossible(calling, needs)
        lacking = [(one.stage, grant) for one, _ in calling for grant in self._ungranted(llm_steps_of(one.stage))]
        for stage, need in needs:
            # What a step would download may be in the store.
            own = self._not_granted(one for one in stage.grants if one.kind == "tool" or one in need.grants)
            lacking += [(stage, grant) for grant in own]
        fallbacks = [(one.stage, step) for one, _ in calling for step in fallbacks_of(one.stage)]
        self._check_consent(seen, wanted, lacking, may_ask=bool(self._ungranted(step for _, step in fallbacks)))
        self._warn(fallbacks)

    def _sharing(self, plan: Plan) -> frozenset[str]:
        """Return the declared stages whose model another one calls too, if the vendor caches what prompts share."""
        families: dict[tuple[str, str, str | None], set[str]] = {}
        for node in () if self.conversations.replay else plan.nodes.values():
            step = node.step.of_attempt(node.retry, 1) if isinstance(node, Stage) and is_llm(node.step) else None
            if step is not None and step.cache is not None and step.cache.share and adapter_for(step).streams:
                families.setdefault((step.provider, step.model, step.base_url), set()).add(node.family)
        return frozenset(name for names in families.values() if len(names) > 1 for name in names)

    def _warn(self, fallbacks: "Sequence[tuple[Stage, LLMStep]]") -> None:
        """Warn of each fallback that cannot be called. The build can do without, as long as its provider works."""
        setting, warned = self.conversations.setting, set[Diagnostic]()
        for stage, step in fallbacks:
            missing = list(readiness_errors(step, setting.environ, setting.root))
            missing += [not_granted_error(grant, setting.trust_command) for grant in self._ungranted((step,))]
            for one in missing:
                if one not in warned:
                    warned.add(one)
                    text = f"the fallback {step.provider} {step.model} cannot be called: {one.message}; {one.hint}"
                    setting.notice(Event(Warned(code="W425"), text, stage.name, "warning"))

    def _refuse_impossible(
        self,
        calling: Sequence[tuple[ResolvedStage, Request]],
        needs: Sequence[tuple[Stage, StepRequirements]],
    ) -> None:
        """Raise the errors of stages that could not call their model, or would reach beyond this machine, offline."""
        found = [(resolved.stage, one) for resolved, missing in calling for one in self._errors(resolved, missing)]
        is_offline = all(one.code == "E423" for _, one in found)
        if self.conversations.offline:
            found += [(stage, one.offline_error) for stage, one in needs if one.offline_error]
        if found:
            kind = ProviderError if is_offline else ConfigurationError
            raise kind(*self._by_stage(found))

    def _by_stage(self, found: Sequence[tuple[Stage, Diagnostic]]) -> Iterator[Diagnostic]:
        keys = {stage.family: "llm/provider" if stage.step.asks_model else stage.kind for stage, _ in found}
        keys |= {stage.family: "tools" for stage, _ in found if any(one.grant for one in stage.tools)}
        places = {name: self.pipeline.locate_written(f"stages/{name}/{key}") for name, key in keys.items()}
        named = [(stage.family, one) for stage, one in found]
        return grouped_errors(self.pipeline, named, lambda name, _: places[name], "`{}` needs it too")

    def _may_be_refused(self, stage: Stage) -> bool:
        """Return whether a step without a model could be refused, whatever the store has."""
        return bool((self.conversations.offline and stage.step.grants) or self._not_granted(stage.grants))

    def _not_granted(self, grants: Iterable[Grant]) -> list[Grant]:
        return [grant for grant in grants if not self.conversations.setting.is_granted(grant)]

    def _check_consent(
        self, seen: Preview, wanted: Collection[Grant], lacking: Sequence[tuple[Stage, Grant]], *, may_ask: bool
    ) -> None:
        """Refuse a build whose stages would surely run without consent, unless the user consents now.

        The user is asked once for all grants, also for those of stages that only may run: refusing these stops nothing.
        """
        may_ask = may_ask or any(
            isinstance(decision, Maybe | Expand) and self._lacks(seen.plan.nodes[name])
            for name, decision in seen.decisions.items()
        )
        if (lacking or may_ask) and not self.ask_consent(tuple(wanted)) and lacking:
            command = self.conversations.setting.trust_command
            found = [(stage, not_granted_error(grant, command)) for stage, grant in lacking]
            raise ConsentError(*self._by_stage(found))

    def _lacks(self, node: Stage | ForeachStage) -> bool:
        return bool(self._not_granted(node.grants) or self._ungranted(llm_steps_of(node)))

    def _ungranted(self, steps: "Iterable[LLMStep]") -> Collection[Grant]:
        """Return the grants that these steps lack. A program that does not exist needs none."""
        setting = self.conversations.setting
        found: dict[Grant, None] = {}
        calling = (step for step in steps if adapter_of(step) is not None and step.mode != "replay")
        for step in {_grant_fields(step): step for step in calling}.values():
            with contextlib.suppress(ProviderError):
                grant = grant_for(step, setting)
                if grant is not None and not setting.is_granted(grant):
                    found[grant] = None
        return found

    def _is_suspect(self, step: "LLMStep") -> bool:
        """Return whether a call could be refused, without reading recordings or prices."""
        adapter = adapter_of(step)
        if adapter is None:
            return False
        setting = self.conversations.setting
        # Under a cost limit, a model without a known price is not called (ADR 8).
        capped = self._is_capped() and adapter.pricing != "free"
        unready = self._is_barred(step) or readiness_errors(step, setting.environ, setting.root)
        return bool(capped or unready or self._no_sandbox(step))

    def _first_missing(self, decided: DecidedStage, seen: Preview) -> Request | None:
        """Return the first request of a stage that will run and call a model, if it is not recorded."""
        resolved = decided.resolved
        if not isinstance(decided.decision, Run) or not is_llm(resolved.stage.step):
            return None
        requests = RequestBuilder(self.conversations.secrets, self.sources, self.pipeline)
        try:
            first = self.conversations.open(resolved, 1, set())
            if first.recorded.mode == "replay":
                return None

            def opened() -> "Iterator[tuple[LLMStep, RecordingProvider, Mapping[str, Json]]]":
                yield first.call.step, first.recorded, first.params
                for one in self.conversations.open_fallbacks(resolved, 1, set()):
                    yield one.call.step, one.recorded, one.params

            call = first_call_of(resolved, StageTree(seen.state, resolved.stage.name), requests, opened)
        except (Orch23Error, MissingBytesError):  # the stage fails with this error and calls no model
            return None
        # A request with a secret is refused when the stage runs, without a call.
        return None if call is None or call.problems else call.missing

    def _errors(self, resolved: ResolvedStage, missing: Request) -> Iterator[Diagnostic]:
        """Yield why a stage could not call one of the models that its attempts can use."""
        # Also the later ones: a build must not pay for attempts and then lack a key for the next one.
        yield from dict.fromkeys(
            one for step in llm_steps_of(resolved.stage) for one in self._errors_of(step, resolved, missing)
        )
        for step in fallbacks_of(resolved.stage) if self._is_capped(resolved.stage) else ():
            if (unknown := unpriced_error(step, self.pipeline)) is not None:
                yield unknown

    def _errors_of(self, step: "LLMStep", resolved: ResolvedStage, missing: Request) -> Iterator[Diagnostic]:
        if self._is_barred(step):
            hint = "build without --offline, undo the change, or name a provider on this machine with --provider"
            message = f"no response is recorded, and {step.provider} {step.model} is not on this machine"
            how = self.conversations.difference_from_nearest(resolved, missing)
            message += f"; compared to the nearest recording, {how}" if how else ""
            yield Diagnostic("E423", message, hint=hint)
            return
        setting = self.conversations.setting
        for one in readiness_errors(step, setting.environ, setting.root):
            another = _LOCAL if step.provider != "local" and adapter_named("local", ()) else _ANOTHER
            hint = ", or ".join(filter(None, (one.hint, another)))
            yield one if "--provider" in str(one.hint) else replace(one, hint=hint)
        if (unconfined := self._no_sandbox(step)) is not None:
            yield unconfined
        if self._is_capped(resolved.stage) and (unknown := unpriced_error(step, self.pipeline)) is not None:
            yield unknown

    def _no_sandbox(self, step: "LLMStep") -> Diagnostic | None:
        runner = self.conversations.setting.runner
        return runner.missing() if runner is not None and step.command and step.provider == "command" else None

    def _is_barred(self, step: "LLMStep") -> bool:
        return self.conversations.offline and is_remote(step)

    def _is_capped(self, stage: Stage | None = None) -> bool:
        """Return whether cost is limited: for a stage, or for the run or any stage."""
        nodes = self.pipeline.stages if stage is None else (stage,)
        limits = (self.budget, self.pipeline.stop.max_cost_usd, *map(_cost_limit, nodes))
        return any(one is not None for one in limits)


def _first_requests(
    seen: Preview, families: Collection[str], first_of: Callable[[str], Request | None]
) -> Iterator[tuple[str, Request]]:
    """Yield the first requests of these stages that are not recorded; of a foreach those of few items.

    Of inputs that other stages will make, they have what is there today.
    """
    left, compared = dict.fromkeys(families, _MOST_ITEMS), 0
    for name, decided in seen.decided_stages.items():
        family = decided.resolved.stage.family
        if compared < _MOST_COMPARED and left.get(family, 0) and (request := first_of(name)) is not None:
            left[family] -= 1
            compared += 1
            yield family, request


def llm_steps(plan: Plan) -> "Iterator[LLMStep]":
    """Yield the llm steps that a plan can call, with fallbacks; of a foreach without items yet, those of its body."""
    for node in plan.nodes.values():
        yield from (*llm_steps_of(node), *fallbacks_of(node))


_grant_fields = attrgetter("provider", "base_url", "command", "read", "pass_env", "network")
"""The fields of an llm step that decide which grant it needs."""


def _cost_limit(node: Stage | ForeachStage) -> "Json | Decimal":
    return node.stop.max_cost_usd if isinstance(node, Stage) else json_at(node.body, "stop_conditions", "max_cost_usd")
