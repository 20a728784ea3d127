"""Every tool is given the same graph, of the shape and with the contents that the bench says it has."""

import ast
import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping

import pytest
import yaml

from bench.graph import BLOCK, CAT_WIDTH, WIDTH, Graph, make_graph
from bench.scenarios import BUILT, EDITED_STAGE, FIRST, FIRST_PLAN, FIRST_TWO
from bench.tool import Tool
from bench.tools.doit import DOIT
from bench.tools.dvc import DVC
from bench.tools.floor import FLOOR
from bench.tools.go_task import GO_TASK
from bench.tools.make import BARE, STOCK
from bench.tools.ninja import N2, NINJA, RESTAT
from bench.tools.orch23 import CONFINED, FILE, TRUSTED, with_one_stage_edited
from bench.tools.registry import TOOLS
from bench.tools.scons import SCONS
from bench.tools.snakemake import SNAKEMAKE
from bench.tools.turborepo import TURBOREPO
from bench.tools.wireit import WIREIT
from orch23.load.pipeline import load_pipeline

Edges = set[tuple[tuple[str, ...], str]]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return make_graph(2 * BLOCK)


def edges_of(graph: Graph) -> Edges:
    return {(tuple(sorted(stage.inputs)), stage.output) for stage in graph.stages}


def by_pattern(pattern: str) -> Callable[[str], Edges]:
    def read(text: str) -> Edges:
        found = (match.groupdict() for match in re.finditer(pattern, text, re.MULTILINE))
        return {(tuple(sorted(one["inputs"].split())), one["output"]) for one in found}

    return read


def from_stages_of_yaml(inputs: str, outputs: str, under: str) -> Callable[[str], Edges]:
    def read(text: str) -> Edges:
        stages = [one for one in yaml.safe_load(text)[under].values() if outputs in one]
        return {(tuple(sorted(one[inputs])), one[outputs][0]) for one in stages}

    return read


def from_python(text: str) -> Edges:
    (table,) = (
        node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STAGES"
    )
    return {(tuple(sorted(row[-2])), row[-1]) for row in ast.literal_eval(table)}


def from_package(text: str) -> Edges:
    scripts: Mapping[str, dict[str, list[str]]] = json.loads(text)["wireit"]
    return {
        (
            tuple(sorted([*one["files"], *(scripts[name]["output"][0] for name in one["dependencies"])])),
            one["output"][0],
        )
        for one in scripts.values()
        if "output" in one
    }


def from_workspace(text: str) -> Edges:
    found = [json.loads(part) for part in text.split("\0")]
    packages = [one for one in found if "scripts" in one]
    tasks = [one["tasks"]["build"] for one in found if "extends" in one]
    outputs = {package["name"]: task["outputs"][0] for package, task in zip(packages, tasks, strict=True)}
    edges = set()
    for package, task in zip(packages, tasks, strict=True):
        inputs = [path for path in task["inputs"] if path != "package.json"]
        inputs += [outputs[name] for name in package["dependencies"]]
        edges.add((tuple(sorted(path.removeprefix("$TURBO_ROOT$/") for path in inputs)), task["outputs"][0]))
    return {(inputs, output.removeprefix("$TURBO_ROOT$/")) for inputs, output in edges}


def from_snakefile(text: str) -> Edges:
    found = re.findall(r"input: '(.*)', '(.*)'\n +output: '(.*)'", text)
    return {(tuple(sorted((first, second))), output) for first, second, output in found}


def from_lines(text: str) -> Edges:
    rows = [line.split("\t") for line in text.splitlines()]
    return {(tuple(sorted(row[2:])), row[1]) for row in rows}


MAKE = by_pattern(r"^(?P<output>out/\S+): (?P<inputs>.*)$")
NINJA_FILE = by_pattern(r"^build (?P<output>\S+): merge (?P<inputs>.*)$")
PIPELINE = from_stages_of_yaml("inputs", "outputs", "stages")
READERS: Mapping[str, Callable[[str], Edges]] = {
    TRUSTED.name: PIPELINE,
    CONFINED.name: PIPELINE,
    FLOOR.name: from_lines,
    NINJA.name: NINJA_FILE,
    RESTAT.name: NINJA_FILE,
    N2.name: NINJA_FILE,
    BARE.name: MAKE,
    STOCK.name: MAKE,
    DOIT.name: from_python,
    SCONS.name: from_python,
    GO_TASK.name: from_stages_of_yaml("sources", "generates", "tasks"),
    WIREIT.name: from_package,
    TURBOREPO.name: from_workspace,
    SNAKEMAKE.name: from_snakefile,
    DVC.name: from_stages_of_yaml("deps", "outs", "stages"),
}


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_is_given_the_same_graph(tool: Tool, graph: Graph) -> None:
    text = "\0".join(tool.describe(graph).values())
    assert READERS[tool.name](text) == edges_of(graph)


@pytest.mark.parametrize(
    "tool", [tool for tool in TOOLS if tool.name not in {"doit", "SCons"}], ids=lambda tool: tool.name
)
def test_every_tool_is_reported_of_commands_that_are_the_same(tool: Tool, graph: Graph) -> None:
    text = "\0".join(tool.describe(graph).values())
    plain = text.replace("[", "").replace("]", "").replace(",", "").replace("../../", "").replace("\x1f", " ")
    if "build.ninja" in tool.describe(graph):
        assert "command = sort -u -o $out" in text
    else:
        assert all(" ".join(stage.argv) in plain for stage in graph.stages)


def test_go_task_waits_for_the_stages_whose_outputs_it_reads(graph: Graph) -> None:
    tasks = yaml.safe_load(GO_TASK.describe(graph)["Taskfile.yml"])["tasks"]
    makers = {stage.output: stage.name for stage in graph.stages}
    for stage in graph.stages:
        assert tasks[stage.name]["deps"] == [makers[path] for path in stage.inputs if path in makers]


def test_a_scenario_that_a_tool_takes_part_in_alone_exists() -> None:
    names = {scenario.name for scenario in (FIRST, FIRST_TWO, FIRST_PLAN, EDITED_STAGE, *BUILT)}
    assert all(set(tool.only) <= names for tool in TOOLS)


def test_a_block_has_layers_ten_wide_a_chain_and_diamonds() -> None:
    graph = make_graph(BLOCK)
    depth: dict[str, int] = {}
    for stage in graph.stages:
        depth[stage.output] = 1 + max(depth.get(path, 0) for path in stage.inputs)
    assert len(graph.stages) == BLOCK
    assert len({stage.name for stage in graph.stages}) == BLOCK
    for number in range(WIDTH, 6 * WIDTH):
        above = [stage.output for stage in graph.stages[number // WIDTH * WIDTH - WIDTH : number // WIDTH * WIDTH]]
        assert graph.stages[number].inputs == (above[number % WIDTH], above[(number + 1) % WIDTH])
    layers = Counter(depth[stage.output] for stage in graph.stages[: 6 * WIDTH])
    assert layers == dict.fromkeys(range(1, 7), WIDTH)
    assert [depth[stage.output] for stage in graph.stages[60:80]] == list(range(1, 21))
    for at in range(80, BLOCK, 4):
        top, left, right, bottom = graph.stages[at : at + 4]
        assert top.output in left.inputs
        assert top.output in right.inputs
        assert set(bottom.inputs) == {left.output, right.output}


CAT_TOOLS = [tool for tool in TOOLS if tool.cat]


def test_cat_is_given_to_orch23_and_to_tools_to_compare_it_with() -> None:
    assert {TRUSTED.name, NINJA.name, BARE.name} <= {tool.name for tool in CAT_TOOLS}
    assert not {CONFINED.name, RESTAT.name} & {tool.name for tool in CAT_TOOLS}


@pytest.mark.parametrize("tool", CAT_TOOLS, ids=lambda tool: tool.name)
def test_the_graph_of_cat_is_the_same_for_its_tools(tool: Tool) -> None:
    graph = make_graph(BLOCK, cat=True)
    text = "\0".join(tool.describe(graph).values())
    assert READERS[tool.name](text) == edges_of(graph)
    if "build.ninja" in tool.describe(graph):
        assert "command = cat $in > $out\n" in text
    else:
        assert all(f"{stage.text}\n" in text.replace("\t", "\n") for stage in graph.stages)


def test_the_graph_of_cat_has_layers_25_wide_and_holds_what_cat_writes(tmp_path) -> None:
    graph = make_graph(2 * BLOCK, cat=True)
    depth: dict[str, int] = {}
    for stage in graph.stages:
        depth[stage.output] = 1 + max(depth.get(path, 0) for path in stage.inputs)
    assert Counter(depth.values()) == dict.fromkeys(range(1, 5), 2 * CAT_WIDTH)
    for folder in graph.folders:
        (tmp_path / folder).mkdir(parents=True)
    for path, text in graph.sources.items():
        (tmp_path / path).write_text(text)
    expected = graph.expected(graph.sources)
    for stage in graph.stages[: 2 * CAT_WIDTH]:
        subprocess.run(["/bin/sh", "-c", stage.text], cwd=tmp_path, check=True)
        assert (tmp_path / stage.output).read_text() == expected[stage.output]


def test_a_stage_reads_only_sources_and_what_was_made_before_it(graph: Graph) -> None:
    there = set(graph.sources)
    for stage in graph.stages:
        assert set(stage.inputs) <= there
        there.add(stage.output)


def test_outputs_hold_what_the_command_writes(graph: Graph, tmp_path) -> None:
    for folder in graph.folders:
        (tmp_path / folder).mkdir(parents=True)
    for path, text in graph.sources.items():
        (tmp_path / path).write_text(text)
    expected = graph.expected(graph.sources)
    for stage in graph.stages[60:75]:
        subprocess.run(stage.argv, cwd=tmp_path, check=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"})
        assert (tmp_path / stage.output).read_text() == expected[stage.output]


def test_an_edit_of_the_leaf_reaches_one_output(graph: Graph) -> None:
    edited = {**graph.sources, graph.leaf_source: "another line\n"}
    before, after = graph.expected(graph.sources), graph.expected(edited)
    assert sum(before[path] != after[path] for path in before) == 1


def test_a_line_said_twice_changes_no_output_of_a_stage_that_others_read(graph: Graph) -> None:
    text = graph.sources[graph.root_source]
    edited = {**graph.sources, graph.root_source: text * 2}
    assert graph.expected(edited) == graph.expected(graph.sources)
    (reader,) = (stage for stage in graph.stages if graph.root_source in stage.inputs)
    assert reader.output in graph.read_outputs


def test_sizes_are_hundreds() -> None:
    with pytest.raises(ValueError, match="not 150"):
        make_graph(150)


def test_orch23_takes_the_pipeline_and_the_edit_of_one_stage(tmp_path) -> None:
    graph = make_graph(BLOCK)
    text = TRUSTED.describe(graph)[FILE]
    once = with_one_stage_edited(text, graph, 1)
    twice = with_one_stage_edited(once, graph, 2)
    assert len({text, once, twice}) == 3
    assert len(once) == len(twice)
    (tmp_path / FILE).write_text(twice)
    loaded = load_pipeline(tmp_path / FILE, tmp_path)
    assert len(loaded.pipeline.stages) == BLOCK
    assert loaded.warnings == ()
