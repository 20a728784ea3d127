"""Try stages of a promotion group again whose files a red check names, such as the tests of a whole app (ADR 69)."""

import re

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.engine.attempt import StageResult
from orch23.engine.outcomes import Failure, relative_path
from orch23.engine.results import StageResults
from orch23.model.paths import may_overlap
from orch23.model.pipeline import ForeachStage, Stage
from orch23.resolve.resolution import ResolvedStage

_BETWEEN_WORDS = re.compile(r"[\s'\"`:,;()\[\]{}<>=|]+")
_WAY_ON = "it names no file of a model that has an attempt left; `--resample STAGE` requests another response"


class GroupChecks(Struct, kw_only=True):
    """Ends the stages of promotion groups. A check is one without a model. Only the loop thread calls this.

    `refused` are results that a check refused, and `_made` what models made in this run; with the core of their keys.
    """

    results: StageResults
    refused: dict[str, tuple[str, StageResult]] = field(default_factory=dict)
    _made: dict[str, tuple[str, StageResult]] = field(default_factory=dict)
    _red: dict[str, tuple[ResolvedStage, StageResult, Failure]] = field(default_factory=dict)

    def finish(self, resolved: ResolvedStage, done: StageResult) -> None:
        """Keep the result of a stage that passed, and how it was made if a check may refuse it."""
        name, plan = resolved.stage.name, self.results.committer.session.state.plan
        if resolved.stage.step.asks_model and plan.group_of(name) is not None:
            self._made[name] = resolved.core, done
        self.results.finish(resolved, done)

    def fail(self, resolved: ResolvedStage, done: StageResult, failure: Failure) -> None:
        """End a stage whose attempts failed; a red check is ended by `settle` or `end`."""
        if resolved.stage.step.asks_model or not self._models(resolved.stage):
            self.results.fail(resolved, done, failure)
        else:
            self._red[resolved.stage.name] = resolved, done, failure

    def settle(self) -> bool:
        """Decide the named stages again, and all after them, or end the checks; return whether there was a red one."""
        red = self._red
        named = [(failure, self._named(resolved.stage, failure)) for resolved, _, failure in red.values()]
        if all(names for _, names in named):
            self._forget({name for _, names in named for name in names})
            for failure, names in named:
                for name in names:
                    self._refuse(name, failure)
        if not self.refused:
            return self.end()
        self._red = {}
        self.results.reopen({*self.refused, *red})
        return True

    def _forget(self, names: set[str]) -> None:
        """Delete the records of what models made in this run: the next build replays their attempts."""
        session = self.results.committer.session
        made = [session.state.results[name] for name in names if name in self._made]
        if made:
            records = session.store.local.records
            records.delete({one.digest for one in records.survey() if one.record in made})

    def _refuse(self, name: str, failure: Failure) -> None:
        """Add a failure to the attempts of a stage, and refuse its result if another attempt may follow."""
        state = self.results.committer.session.state
        record, retry = state.results[name], state.stage(name).retry
        earlier = StageResult(outputs=record.outputs, deleted=record.deleted, exchanges=(), attempts=0)
        core, done = self._made.get(name, ("", earlier))
        stops, used = done.history.stops(retry, failure), done.history.attempt
        # The result of an earlier run does not count as an attempt of this one, and none follows it without `retry`.
        if not stops and used < retry.max + bool(used) and not record.accepted:
            self.refused[name] = core, replace(done, failure=failure)

    def end(self) -> bool:
        """End the red checks as failed; return whether there were any."""
        red, self._red = self._red, {}
        for resolved, done, failure in red.values():
            self.results.fail(resolved, replace(done, note=_WAY_ON), failure)
        return bool(red)

    def take(self, resolved: ResolvedStage) -> StageResult | None:
        """Return the result of a stage that was refused, once; None if its model sees other inputs now."""
        core, refused = self.refused.pop(resolved.stage.name, ("", None))
        return refused if core in ("", resolved.core) else None

    def _models(self, check: Stage) -> list[str]:
        state = self.results.committer.session.state
        group = (name for name in state.plan.promoted_with(check.name) if name in state.results)
        return [name for name in group if state.stage(name).step.asks_model]

    def _named(self, check: Stage, failure: Failure) -> list[str]:
        """Return the stages that made a file which a failure names, unless that is the list of a foreach."""
        state, text = self.results.committer.session.state, failure.feedback
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
