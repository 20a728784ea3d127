"""Repeat how stages with many inputs were resolved, in the decisions after a build."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from orch23.decide.project_state import ProjectState
from orch23.model.paths import match_any
from orch23.model.pipeline import GlobInput, PathInput
from orch23.model.record import Facts
from orch23.resolve.resolution import ResolvedStage


class KeptStages(Struct):
    """Stages as a build resolved them, what it looked at for each, and the paths that it owned before or has written.

    A stage is not resolved again for an edit of the user since then: the snapshot of the build shows it.
    """

    resolved: dict[str, ResolvedStage]
    reads: Mapping[str, Collection[str]]
    changed: Collection[str]

    def take(self, state: ProjectState, name: str, facts: Facts) -> ResolvedStage | None:
        """Return a stage if it would be resolved to the same in a state; once, since a decision may change the state.

        It must only read files that no stage may write: versions of a chain, prompts and listings depend on more.
        """
        kept = self.resolved.pop(name, None)
        if kept is None or kept.facts != facts or kept.base or kept.broken or state.plan.upstream_of_chains.get(name):
            return None
        stage, reads = kept.stage, {*self.reads.get(name, ())}
        if stage.chain or stage.requires or stage.depfile or stage.step.asks_model or stage.step.renders:
            return None
        if not all(isinstance(one, PathInput | GlobInput) for one in (*stage.inputs, *stage.verify.inputs)):
            return None
        touched = reads.intersection(self.changed) | reads.intersection(state.locked.paths())
        # A stage does not see its own outputs.
        if not all(match_any(stage.outputs, path) for path in touched):
            return None
        state.note(*reads)
        return kept
