"""Find the metrics files that a pipeline declares."""

from collections.abc import Callable, Mapping

from orch23.decide.list_expansion import expand_each, first_plan
from orch23.model.errors import InvalidInputError
from orch23.model.pipeline import ForeachStage, Pipeline, Stage, family_of
from orch23.resolve.slices import YamlReader


def declared_metrics(
    pipeline: Pipeline, read: Callable[[str], bytes | None], read_yaml: YamlReader
) -> Mapping[str, str]:
    """Return the stage of each metrics file, by path, in the order of the pipeline. `read` returns a file's bytes.

    A foreach whose list does not exist, or has errors, has no metrics files.

    Raises:
        InvalidInputError: the graph has errors.
    """
    if not any("metrics" in one.body if isinstance(one, ForeachStage) else one.metrics for one in pipeline.stages):
        return {}
    plan, problems = first_plan(pipeline, lambda *where: read(where[-1]), read_yaml)
    if plan is None:
        raise InvalidInputError(*problems)
    for one in expand_each(plan, lambda *where: read(where[-1]), read_yaml):
        plan = one.plan
    place = {stage.name: number for number, stage in enumerate(pipeline.stages)}
    nodes = (plan.nodes[name] for name in sorted(plan.order, key=lambda name: place[family_of(name)]))
    return {path: node.name for node in nodes if isinstance(node, Stage) for path in node.metrics}
