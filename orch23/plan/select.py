"""Choose the part of a plan that a command line asks for."""

from collections.abc import Mapping

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import NotFoundError
from orch23.model.nearest import nearest
from orch23.model.pipeline import ForeachStage
from orch23.model.plan import Plan


class Selection(Struct, frozen=True, kw_only=True):
    """What is asked for. Nothing means everything.

    `targets` bring all that they need; `downstream` bring what follows and what that needs; `only` bring themselves.
    A name is a stage, an item `stage@key`, or a foreach for all of its items.
    """

    targets: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    downstream: tuple[str, ...] = ()

    @property
    def is_all(self) -> bool:
        """Say whether nothing was named, so that everything is wanted."""
        return not (self.targets or self.only or self.downstream)

    def nodes(self, plan: Plan) -> frozenset[str]:
        """Return the nodes of a plan that are wanted. An item of a foreach that is not expanded yet stands for it.

        Raises:
            NotFoundError: a name is no stage of the plan.

        """
        if self.is_all:
            return frozenset(plan.nodes)
        below = _closure(_named(plan, self.downstream), plan.downstream)
        wanted = _closure(_named(plan, self.targets) | below, plan.upstream)
        return frozenset(wanted | _named(plan, self.only))

    def skipped(self, plan: Plan) -> tuple[str, ...]:
        """Return the skipped stages that are to be told of: all of them, or those that are named."""
        named = {*self.targets, *self.only, *self.downstream}
        return tuple(n for n, one in plan.skipped.items() if self.is_all or n in named or one.family in named)


EVERYTHING = Selection()


def _named(plan: Plan, names: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    problems = []
    for name in names:
        meant = _meant(plan, name)
        if meant is None:
            known = sorted({stage.name for stage in plan.pipeline.stages} | set(plan.nodes) | set(plan.skipped))
            close = nearest(name, known)
            hint = f"did you mean `{close[0]}`?" if close else "`orch23 graph` shows the stages"
            problems.append(Diagnostic("E823", f"no stage is named `{name}`", hint=hint))
        else:
            found |= meant
    if problems:
        raise NotFoundError(*problems)
    return found


def _meant(plan: Plan, name: str) -> set[str] | None:
    """Return the nodes that a name stands for, or None where it is no stage."""
    if name in plan.nodes:
        return {name}
    if name in plan.expansions:
        return {stage.name for stage in plan.expansions[name]}
    family = name.partition("@")[0]
    if name in plan.skipped or family in plan.skipped:
        return set()
    return {family} if "@" in name and isinstance(plan.nodes.get(family), ForeachStage) else None


def _closure(start: set[str], edges: Mapping[str, tuple[str, ...]]) -> set[str]:
    found, todo = set(start), list(start)
    while todo:
        for name in edges.get(todo.pop(), ()):
            if name not in found:
                found.add(name)
                todo.append(name)
    return found
