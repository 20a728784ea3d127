"""The aspects of keys of the shipped pipelines stay the same: a changed key builds everything again."""

from pathlib import Path

import pytest

from orch23.load.pipeline import load_pipeline
from orch23.model.digest import digest_json
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.record import Facts
from orch23.resolve.resolution import _declared
from tests.gold import Golden

ROOT = Path(__file__).parents[3]
PIPELINES = sorted(path for path in (ROOT / "pipelines").glob("*.yaml") if "." not in path.stem)


def of_stage(node: Stage | ForeachStage) -> str:
    if isinstance(node, ForeachStage):
        return f"{node.name} [{node.kind}] {digest_json([node.body, list(node.reads), list(node.writes)])}"
    inputs = [repr(one) for one in (*node.inputs, *node.verify.inputs, *node.requires)]
    aspects = {aspect: value for aspect, value in _declared(node, Facts()).items() if value is not None}
    return f"{node.name} {digest_json([aspects, inputs])}"  # as in a manifest, which has no aspects without a value


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_the_declared_part_of_each_key_is_as_it_was(path, golden: Golden) -> None:
    stages = load_pipeline(path, ROOT).pipeline.stages
    golden.check(f"keys/{path.stem}.txt", "".join(f"{of_stage(node)}\n" for node in stages))
