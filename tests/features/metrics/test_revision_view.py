"""The manifests of a pipeline at one moment: its lists expanded from what was there, files of stages as recorded."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.features.metrics.revision_view import (
    ManifestReader,
    PlanManifests,
    RevisionArtifacts,
    RevisionView,
    artifact_paths,
    versioned_patterns,
)
from orch23.model.errors import ConfigurationError, InvalidInputError
from orch23.model.pipeline import ChainLink, GlobInput, ListInput, Pipeline, Stage, WriteScope
from orch23.model.plan import Plan
from orch23.model.record import LockFile, Record
from orch23.plan.planner import build_plan
from tests.unit.engine.rig import FACTS, MemoryWorkspace, Project, each, entry, stage


class Bench:
    """A pipeline at a moment: files, and what its records say that it had made."""

    def __init__(self, *nodes: Any, files: Mapping[str, str] | None = None, made: Mapping[str, str] | None = None):
        self.pipeline = Pipeline(name="p", file="p.yaml", stages=nodes)
        self.files = MemoryWorkspace(files or {})
        self.made = made or {}
        self.facts: Any = lambda _stage: FACTS
        self.plans: list[Plan] = []

    def moment(self, plan: Plan) -> RevisionView:
        self.plans.append(plan)
        records = {
            name: Record(stage=name, key="k", manifest={}, outputs={name: entry(text)})
            for name, text in self.made.items()
        }
        lock = LockFile(records)
        texts = {entry(text).digest.sha256: text.encode() for text in self.made.values()}
        return RevisionView(
            self.files,
            RevisionArtifacts(
                paths=artifact_paths([self.pipeline], [lock]),
                plan=plan,
                lock=lock,
                files=self.files,
                bytes_of=lambda _path, one: texts.get(one.digest.sha256),
            ),
        )

    def keying(self) -> ManifestReader:
        return ManifestReader(facts_of=self.facts, sources_of=lambda _moment: Project(), read_yaml=lambda text: text)

    def keyed(self) -> PlanManifests:
        return self.keying().manifests_of(self.pipeline, self.moment)


def inputs(keyed: PlanManifests, name: str) -> dict[str, Any]:
    return {aspect: value for aspect, value in keyed.manifests[name].items() if aspect.startswith(("input", "list"))}


def digest(text: str) -> str:
    return str(entry(text))


# ---- files --------------------------------------------------------------------------------------------


def test_sources_are_read_from_disk_and_outputs_from_records() -> None:
    bench = Bench(stage("a", "src"), stage("b", "a", "src"), files={"src": "1", "a": "edited"}, made={"a": "made"})
    keyed = bench.keyed()
    assert inputs(keyed, "a") == {"input:src": digest("1")}
    assert inputs(keyed, "b") == {"input:a": digest("made"), "input:src": digest("1")}


def test_a_made_file_without_a_record_is_as_it_is_on_the_disk() -> None:
    bench = Bench(stage("a"), stage("b", "a"), files={"a": "there"})
    assert inputs(bench.keyed(), "b") == {"input:a": digest("there")}


def test_a_listing_has_no_files_that_stages_make_and_a_pattern_has_them() -> None:
    listed = replace(stage("l"), inputs=(ListInput("d/*"),))
    bench = Bench(stage("m", writes=("d/made",)), listed, files={"d/mine": "1", "d/made": "x"}, made={"d/made": "x"})
    assert inputs(bench.keyed(), "l") == {"list:d/*": ["d/mine"]}
    moment = bench.moment(bench.keyed().plan)
    assert moment.listing("d/*") == ("d/made", "d/mine")
    assert moment.sources("d/*") == ("d/mine",)


def test_a_stage_does_not_see_its_own_outputs() -> None:
    one = replace(stage("a", writes=("d/a",)), inputs=(GlobInput("d/*"),))
    assert inputs(Bench(one, files={"d/a": "old", "d/b": "1"}).keyed(), "a") == {"input:d/b": digest("1")}


# ---- lists ------------------------------------------------------------------------------------------


def test_a_list_that_no_stage_makes_is_read_before_there_is_a_plan() -> None:
    bench = Bench(each("s", "x"), each("f", source="l.json"), files={"l.json": '["y"]'})
    keyed = bench.keyed()
    assert set(keyed.plan.nodes) == {"s@x", "f@y"}
    assert set(keyed.manifests) == {"s@x", "f@y"}
    assert [sorted(plan.expansions) for plan in bench.plans] == [[], ["f", "s"]]


def test_a_list_that_a_stage_made_is_read_as_it_was_recorded() -> None:
    nodes = (stage("l.json"), each("f", source="l.json"))
    bench = Bench(*nodes, files={"l.json": '["edited"]'}, made={"l.json": '["made"]'})
    assert set(bench.keyed().plan.nodes) == {"l.json", "f@made"}


def test_a_foreach_without_its_list_has_a_manifest_of_the_known_parts() -> None:
    node = each("f", source="l.json")
    keyed = Bench(node).keyed()
    assert set(keyed.plan.nodes) == {"f"}
    assert set(keyed.manifests["f"]) == {"command"}
    other = Bench(each("f", source="other.json")).keyed()
    assert keyed.manifests["f"] != other.manifests["f"]


def test_a_list_of_the_author_that_cannot_be_used_is_an_error_and_one_that_a_stage_made_is_not() -> None:
    with pytest.raises(InvalidInputError):
        Bench(each("f", source="l.json"), files={"l.json": "{}"}).keyed()
    made = Bench(stage("l.json"), each("f", source="l.json"), each("s", "x"), made={"l.json": "{}"})
    assert set(made.keyed().plan.nodes) == {"l.json", "f", "s@x"}


def test_a_pipeline_in_which_something_is_wrong_has_no_manifests() -> None:
    bench = Bench(each("f", source="l.json"), files={"l.json": "{}"})
    with pytest.raises(InvalidInputError):
        bench.keyed()
    bench = Bench(stage("a", needs=("gone",)))
    with pytest.raises(InvalidInputError):
        bench.keyed()

    def no_tool(_stage: Stage) -> Any:
        raise ConfigurationError

    bench = Bench(stage("a"))
    bench.facts = no_tool
    with pytest.raises(ConfigurationError):
        bench.keyed()


# ---- chains -------------------------------------------------------------------------------------------


def test_files_of_its_own_chain_and_of_those_that_it_comes_before_are_versions() -> None:
    link = {"chain": ChainLink(chain="c", index=0), "fence": WriteScope(("doc",))}
    plan, problems = build_plan(
        Pipeline(
            name="p",
            file="p.yaml",
            stages=(stage("before", "doc"), stage("c", "before", writes=("doc",), **link), stage("z", "doc")),
        )
    )
    assert plan is not None, problems
    patterns = {name: versioned_patterns(plan, node) for name, node in plan.nodes.items() if isinstance(node, Stage)}
    assert patterns == {"before": ("doc",), "c": ("doc",), "z": ()}
