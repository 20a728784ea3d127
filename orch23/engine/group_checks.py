"""Try stages of a promotion group again whose files a red check names, such as the tests of a whole app (ADR 69)."""

import re
from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.attempt import StageResult
from orch23.attempt.failures import Failure, relative_path
from orch23.engine.promotions import Promotions
from orch23.engine.result_writer import PassedStage
from orch23.model.digest import FileEntry
from orch23.model.llm import RetryFeedback
from orch23.model.paths import may_overlap
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import Decision, Fresh, Maybe, Plan, Restore, Run, VerifyOnly, resample_of
from orch23.model.record import Record, core_of, same_result
from orch23.model.text import join_first
from orch23.resolve.resolution import ResolvedStage

_MOST_WAYS = 3
_BETWEEN_WORDS = re.compile(r"[\s'\"`:,;()\[\]{}<>=|]+")
_WAY_ON = "it names no file of a model with an attempt left; {} requests another response, with this failure"


def may_refuse(stage: Stage, record: Record, used: int = 0) -> bool:
    """Return whether a red check may refuse a result after `used` attempts, and another one follows."""
    # The result of an earlier run does not count as an attempt of this one, and none follows it without `retry`.
    return stage.step.asks_model and not record.accepted and used < stage.retry.max + bool(used)


def refusable(plan: Plan, decisions: Mapping[str, Decision]) -> Iterator[tuple[Stage, Record]]:
    """Yield the stages whose models may be called again if a check of their group refuses the recorded result."""
    nodes = [(node, decisions.get(name)) for name, node in plan.nodes.items() if isinstance(node, Stage)]
    checks = (node for node, one in nodes if isinstance(one, Run | VerifyOnly | Maybe) and not node.step.asks_model)
    groups = {plan.group_of(check.name) for check in checks} - {None}
    for node, decision in nodes if groups else ():
        if plan.group_of(node.name) in groups and isinstance(decision, Fresh | Restore):
            yield from [(node, decision.record)] if may_refuse(node, decision.record) else ()


class GroupChecks(Struct, kw_only=True):
    """Ends the stages of promotion groups. A check is one without a model. Only the loop thread calls this.

    `refused` are results that a check or a user refused, with the records of those that this run made; `_made` is what
    models made in this run. `_rejected` are the outputs of this run that a user rejected, by stage.
    """

    results: Promotions
    refused: dict[str, tuple[Record | None, StageResult]] = field(default_factory=dict)
    _made: dict[str, StageResult] = field(default_factory=dict)
    _red: dict[str, tuple[ResolvedStage, StageResult, Failure]] = field(default_factory=dict)
    _rejected: dict[str, list[Mapping[str, FileEntry]]] = field(default_factory=dict)

    def finish(self, resolved: ResolvedStage, done: StageResult) -> None:
        """Keep the result of a stage that passed, and how it was made if a check may refuse it."""
        name, plan = resolved.stage.name, self.results.writer.opened.state.plan
        is_kept = done.verified and name in self._made  # with the attempts that made it
        if resolved.stage.step.asks_model and (plan.group_of(name) or name in plan.gated) and not is_kept:
            self._made[name] = done
        self.results.finish(resolved, done)

    def fail(self, resolved: ResolvedStage, done: StageResult, failure: Failure) -> None:
        """End a stage whose attempts failed; a red check is ended by `settle` or `end`."""
        if resolved.stage.step.asks_model or not self._models(resolved.stage):
            self.results.fail(resolved, done, failure)
        else:
            self._red[resolved.stage.name] = resolved, done, failure

    def settle(self) -> bool:
        """Decide the named and the rejected stages again, and all after them, or end the checks and the stages.

        Return whether there were any.
        """
        rejected = self.results.take_rejected()
        again = {name for name in self._of_models(rejected) if self._may_replay(name, *rejected[name])}
        red = self._red
        named = [(failure, self._named(resolved.stage, failure)) for resolved, _, failure in red.values()]
        if all(names for _, names in named):
            state, again_named = self.results.writer.opened.state, {name for _, names in named for name in names}
            self._forget([state.results[name] for name in again_named & self._made.keys()])
            for failure, names in named:
                for name in names:
                    self._refuse(name, failure)
        if not self.refused and not again:
            self.results.reopen(set())
            return self.end() or bool(rejected)
        self._red = {}
        self.results.reopen({*self.refused, *again, *red})
        return True

    def _of_models(self, rejected: Collection[str]) -> list[str]:
        """Return the rejected stages, without commands of a group in which a rejected model tries again."""
        plan, stage = self.results.writer.opened.state.plan, self.results.writer.opened.state.stage
        models = {name for name in rejected if stage(name).step.asks_model}
        return [name for name in rejected if name in models or models.isdisjoint(plan.promoted_with(name))]

    def _may_replay(self, name: str, passed: PassedStage, failure: Failure) -> bool:
        """Return whether the attempts of a rejected result are replayed first; else refuse it, or end its stage.

        A result of an earlier run has no attempts, whose conversation the next one continues.
        """
        record, is_first = passed.record, name not in self._rejected
        refused = self._rejected.setdefault(name, [])
        done = self._made.get(name) or _earlier(record)
        # The same response again would be rejected for ever, and each one is paid for.
        if not passed.resolved.stage.step.asks_model or record.outputs in refused:
            self.results.fail(passed.resolved, done, failure)
            return False
        self._forget([record])
        if is_first and name not in self._made:
            return True
        refused.append(record.outputs)
        # Whatever `retry` says: the user has asked for another result.
        done.history.granted = done.history.attempt
        self._set_refused(name, record, done, failure)
        return False

    def _forget(self, made: Collection[Record]) -> None:
        """Delete these results from the records of the store, but none that is promoted; attempts are replayed."""
        opened = self.results.writer.opened
        locked = opened.lock.records
        lost = [one for one in made if one.stage not in locked or not same_result(one, locked[one.stage])]
        if lost:
            records = opened.store.local.records
            known = [(one.digest, one.record) for one in records.survey()]
            same = ({mark for mark, one in known if one.key == each.key and same_result(one, each)} for each in lost)
            records.delete(set[str]().union(*same))

    def _refuse(self, name: str, failure: Failure) -> None:
        """Add a failure to the attempts of a stage, and refuse its result if another attempt may follow."""
        state = self.results.writer.opened.state
        record, stage = state.results[name], state.stage(name)
        done = self._made.get(name) or _earlier(record)
        if not done.history.stops(stage.retry, failure) and may_refuse(stage, record, done.history.attempt):
            self._set_refused(name, record, done, failure)

    def _set_refused(self, name: str, record: Record, done: StageResult, failure: Failure) -> None:
        self.refused[name] = record if name in self._made else None, replace(done, failure=failure)

    def end(self) -> bool:
        """End the red checks as failed; return whether there were any."""
        red, self._red = self._red, {}
        for resolved, done, failure in red.values():
            stages = self._named(resolved.stage, failure) or self._models(resolved.stage)
            ways = join_first([f"`--resample {name}`" for name in stages], _MOST_WAYS, " or ")
            self.results.fail(resolved, replace(done, note=_WAY_ON.format(ways) if failure.retryable else ""), failure)
        return bool(red)

    def take(self, resolved: ResolvedStage) -> StageResult | None:
        """Return a result that was refused, or that `--resample` replaces; None if its model sees other inputs now."""
        name = resolved.stage.name
        made, refused = self.refused.pop(name, (None, None))
        decider = self.results.writer.opened.decider
        if refused is None and name not in self._made and resample_of(decider.resample, name) is not None:
            return self._with_last_failure(resolved)
        # The record names the aspects that its run found: without it, the stage has none or those of another record.
        is_same = made is None or decider.as_of(resolved, [made]).core == core_of(made.manifest)
        return refused if is_same else None

    def _with_last_failure(self, resolved: ResolvedStage) -> StageResult | None:
        """Return the last result of a stage, if it is recorded, with the failure of a check; None if there was none."""
        opened = self.results.writer.opened
        plan, failures, name = opened.state.plan, opened.history.failures, resolved.stage.name
        records = opened.decider.todays(resolved)[:1]
        # Once its attempts are used up, a refused result has no record any more.
        if not records and opened.history.withheld.get(name) != resolved.key:
            return None
        last = _earlier(records[0]) if records else StageResult(outputs={}, deleted=(), exchanges=(), attempts=0)
        for check in plan.promoted_with(name):
            if check in failures and not (isinstance(one := plan.nodes[check], Stage) and one.step.asks_model):
                facts = {key: getattr(failures[check], key) for key in ("command", "exit_code", "failing", "excerpt")}
                feedback = RetryFeedback(kind=failures[check].failure_kind, **facts)
                return replace(last, failure=Failure(feedback=feedback))
        return None

    def _models(self, check: Stage) -> list[str]:
        state = self.results.writer.opened.state
        group = (name for name in state.plan.promoted_with(check.name) if name in state.results)
        return [name for name in group if state.stage(name).step.asks_model]

    def _named(self, check: Stage, failure: Failure) -> list[str]:
        """Return the stages that made a file which a failure names, unless that is the list of a foreach."""
        state, text = self.results.writer.opened.state, failure.feedback
        shown = (*(failure.parts or (failure.printed or "",)), text.excerpt, *text.failing, *text.diagnostics)
        words = {word.rstrip(".") for part in shown for word in _BETWEEN_WORDS.split(part)}
        lists = [one.foreach.source for one in state.plan.pipeline.stages if isinstance(one, ForeachStage)]
        made = {name: state.results[name].outputs for name in self._models(check)}
        return [
            name
            for name, paths in made.items()
            if not words.isdisjoint({*paths, *(relative_path(path, check.cwd) for path in paths)})
            and not any(may_overlap(path, source) for path in paths for source in lists if source)
        ]


def _earlier(record: Record) -> StageResult:
    """Return a result of an earlier run, as one that this run has made without an attempt."""
    return StageResult(outputs=record.outputs, deleted=record.deleted, exchanges=(), attempts=0)
