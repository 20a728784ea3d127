"""`metrics` of a stage: which files it may name, and what errors look like."""

from typing import Any

import pytest

from orch23.language.expand import expand
from orch23.language.stages import make_stage
from orch23.load.pipeline import parse_pipeline
from orch23.model.pipeline import Stage
from orch23.model.record import Facts
from orch23.report.diagnostics import render_diagnostics
from tests.gold import Golden, golden_from_environment

WRONG = """\
version: 1
stages:
  train:
    outputs: [m.json, out/]
    metrics: [m.json, ./out/more.yaml, scores.json, m.txt, "*.json", /etc/m.json]
    shell: [train]
  each:
    foreach: {in: [a, b]}
    outputs: ["m/${{ item }}.json"]
    metrics: ["m/${{ item }}.json", "n/${{ item }}.json"]
    shell: [train]
"""


@pytest.fixture
def golden() -> Golden:
    return golden_from_environment()


def test_errors_have_a_place_and_a_way_out(golden: Golden) -> None:
    found = parse_pipeline(WRONG, "pipeline.yaml").diagnostics
    golden.check("metrics/errors.txt", render_diagnostics(found, {"pipeline.yaml": WRONG}))


def _stage(**body: Any) -> Stage:
    built = make_stage("s", {"shell": "x", **body})
    assert built.problems == ()
    assert built.stage is not None
    return built.stage


def test_metrics_are_outputs_or_in_a_directory_that_is_one() -> None:
    stage = _stage(outputs=["m.json", "out/"], metrics=["./m.json", "out/deep/m.yml", "m.json"])
    assert stage.metrics == ("m.json", "out/deep/m.yml")


def test_the_report_of_a_pytest_stage_is_an_output() -> None:
    built = make_stage("s", {"pytest": {"paths": ["t"], "report": "r.json"}, "metrics": ["r.json"]})
    assert (built.problems, built.stage and built.stage.metrics) == ((), ("r.json",))


def test_metrics_are_not_part_of_the_key() -> None:
    one, other = (_stage(outputs=["m.json"], metrics=metrics) for metrics in ([], ["m.json"]))
    assert one != other
    assert one.step.aspects(Facts()) == other.step.aspects(Facts())


def test_items_of_a_list_in_a_file_have_their_own_files() -> None:
    text = """\
version: 1
stages:
  each:
    foreach: {from: list.json, as: t}
    outputs: ["m/${{ t }}.json"]
    metrics: ["m/${{ t }}.json"]
    shell: [train]
"""
    pipeline = parse_pipeline(text, "p.yaml").pipeline
    assert pipeline is not None
    foreach = pipeline.stages[0]
    assert not isinstance(foreach, Stage)

    def items(source: str) -> Any:
        return expand(foreach, source, variables={}, read_yaml=str, locate=lambda _path: None)

    assert [one.metrics for one in items('["a", "b"]').stages] == [("m/a.json",), ("m/b.json",)]


def test_an_item_of_a_file_cannot_name_a_file_outside() -> None:
    text = """\
version: 1
stages:
  each:
    foreach: {from: list.json, key: id, as: t}
    outputs: ["m/"]
    metrics: ["${{ t.path }}"]
    shell: [train]
"""
    pipeline = parse_pipeline(text, "p.yaml").pipeline
    assert pipeline is not None
    foreach = pipeline.stages[0]
    assert not isinstance(foreach, Stage)
    codes = {}
    for path in ("m/a.json", "../a.json", "other/a.json"):
        source = f'[{{"id": "a", "path": "{path}"}}]'
        found = expand(foreach, source, variables={}, read_yaml=str, locate=lambda _path: None)
        codes[path] = [one.code for one in found.problems]
    assert codes == {"m/a.json": [], "../a.json": ["E857"], "other/a.json": ["E863"]}
