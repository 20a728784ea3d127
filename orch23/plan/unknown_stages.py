"""Errors about names that are not stages: in `needs`, and on the command line."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from orch23.model.diagnostic import Diagnostic, Suggestions, nearest_names, quoted_names
from orch23.model.errors import NotFoundError
from orch23.model.pipeline import ForeachStage, Pipeline, Stage, family_of
from orch23.model.plan import Decision, Plan
from orch23.plan.nodes import Node

_MOST_LISTED = 12
_LIKE_A_PATH = re.compile(r"[./]")


def unknown_need_error(pipeline: Pipeline, node: Node, position: int, need: str, known: Suggestions) -> Diagnostic:
    """Return the error about an entry of `needs` that is not the name of a stage."""
    name, wanted = node.name, need.removesuffix("[*]")
    stages = [one for one in pipeline.stages if isinstance(one, Stage)] if _LIKE_A_PATH.search(wanted) else []
    maker = next((one.name for one in stages if wanted.removeprefix("./") in one.outputs), None)
    near = [maker] if maker else known.nearest(wanted)
    hint = f"did you mean `{near[0]}`?" if near else _listed([one.name for one in pipeline.stages if one.name != name])
    return Diagnostic(
        "E827" if "@" in wanted else "E823",
        f"stage `{name}` needs `{wanted}`, which is not a stage of this pipeline",
        pipeline.place_in(node, "needs", position),
        f"`{wanted}` is made by `{maker}`: write `{maker}`" if maker else hint,
        fix=(wanted, near[0]) if near else None,
    )


def unknown_target_error(plan: Plan, name: str, known: Sequence[str]) -> Diagnostic:
    """Return the error about a name on the command line, with the stage or the file that is probably meant."""
    message = f"no stage is named `{name}`"
    stages = (node for node in plan.nodes.values() if isinstance(node, Stage))
    maker = next((stage.name for stage in stages if name.removeprefix("./") in stage.outputs), None)
    near = nearest_names(name, known) or ([] if maker else nearest_names(name, [plan.pipeline.file]))
    if near:
        return Diagnostic("E823", message, hint=f"did you mean `{near[0]}`?", fix=(name, near[0]))
    if maker:
        hint = f"`{name}` is an output of the stage `{maker}`: name that stage"
        return Diagnostic("E823", message, hint=hint, fix=(name, maker))
    return Diagnostic("E823", message, hint=_listed([one.name for one in plan.pipeline.stages]))


def check_items(plan: Plan, decisions: Mapping[str, Decision], names: Iterable[str], last: Collection[str]) -> None:
    """Check names of items of lists that are not known yet: until then, only the `last` items count.

    Raises:
        NotFoundError: some are not among these.
    """
    found = []
    for name, family in ((one, family_of(one)) for one in names if "@" in one and one not in last):
        if isinstance(plan.nodes.get(family), ForeachStage):
            decision, before = decisions.get(family), [one for one in last if family_of(one) == family][:_MOST_LISTED]
            makers = getattr(decision, "waiting_on", ()) or getattr(decision, "by", ())
            hint = f"the items of `{family}` are known after {quoted_names(makers)} has run"
            more = f"the last ones are {quoted_names(before)}" if before else f"plan `{family}`, or build these first"
            found.append(Diagnostic("E823", f"no stage is named `{name}`", hint=f"{hint}; {more}"))
    if found:
        raise NotFoundError(*found)


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "the pipeline has no other stage"
    more = len(names) - _MOST_LISTED
    listed = quoted_names(names[:_MOST_LISTED]) + (f" and {more:,} more; `orch23 graph` lists all" if more > 0 else "")
    return f"{'the stages are' if len(names) > 1 else 'there is the stage'} {listed}"
