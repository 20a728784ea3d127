"""The rows that an edit of inputs amends are those of a whole plan of the edited pipeline, or nothing is amended."""

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orch23.decide.dependency_index import DependencyIndex, IndexHead, OutdatedIndexError, StageRow, all_rows, head_of
from orch23.decide.partial_plan import amend
from orch23.language.stages import render_foreach
from orch23.load.pipeline import parse_pipeline
from orch23.model.event import RunStarted
from orch23.model.pipeline import ForeachStage, Stage
from orch23.model.plan import Plan
from orch23.model.record import Record
from orch23.plan.nodes import reads_of
from orch23.plan.planner import build_plan
from orch23.store.index import StoreIndex
from tests.property import test_snapshot_agrees
from tests.property.test_snapshot_agrees import AHEAD_NS, Play, playing, put, wait_for_the_clock_of_the_files

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
NAMES = "abcdef"
# Each stage NAME makes NAME.out; others are files of the user.
PATHS = (*(f"{name}.out" for name in NAMES), "x.in", "y.in", "made/one.txt", "./a.out", "many/one.txt")
INPUTS = st.lists(
    st.sampled_from((*PATHS, "'*.out'", "many/", "{list: '*.out'}", "{path: b.out, order: true}")), max_size=3
)
MORE = {
    "nothing": "",
    "a pattern": "  w: {inputs: [y.in], outputs: [made/], shell: x}\n",
    "a chain": "  w: {foreach: {in: [1, 2], order: sequential}, outputs: [w.out], inputs: [f.out], shell: x}\n",
    "a list": "  w: {foreach: {in: [1, 2]}, outputs: ['made/${{ item }}.txt'], inputs: [f.out], shell: x}\n",
    "a group": "  w: {inputs: [y.in], outputs: [w.out], shell: x, promote: g}\n",
}


def text_of(inputs: Mapping[str, list[str]], needs: Mapping[str, list[str]], more: str) -> str:
    stages = (
        f"  {name}: {{inputs: [{', '.join(inputs[name])}], outputs: [{name}.out], shell: x"
        f"{f', needs: [{chr(44).join(needs[name])}]' if needs[name] else ''}}}\n"
        for name in inputs
    )
    return f"version: 1\nname: p\nstages:\n{''.join(stages)}{MORE[more]}"


def plan_of(text: str) -> Plan | None:
    parsed = parse_pipeline(text, "p.yaml").pipeline
    if parsed is None:
        return None
    lists = [stage for stage in parsed.stages if isinstance(stage, ForeachStage)]
    built = {one.name: render_foreach(one, [("1", 1), ("2", 2)], {}) for one in lists}
    items = {name: tuple(one.stage for one in some if one.stage is not None) for name, some in built.items()}
    return build_plan(parsed, items)[0]


def table_of(plan: Plan) -> Mapping[bytes, bytes] | None:
    stages = {name: node for name, node in plan.nodes.items() if isinstance(node, Stage)}
    reads = {
        name: {*(one.removeprefix("./") for one in reads_of(node)), *node.outputs} for name, node in stages.items()
    }
    head = IndexHead("token", head_of(plan.pipeline), RunStarted(name="p"), {"fresh": len(stages)}, ("p.yaml",))
    records = {name: Record(stage=name, key="key", manifest={}) for name in stages}
    return all_rows(head, "", plan, frozenset(stages), reads, records, stages)


def rows_of(plan: Plan, folder: str) -> DependencyIndex:
    index = StoreIndex(Path(folder, "index.sqlite"))
    table = table_of(plan)
    assert table is not None
    index.write({"t": table})
    return DependencyIndex(index, "t")


def place_of(row: StageRow) -> StageRow:
    """Return a row without the paths that its stage looks at when it is decided again."""
    return msgspec.structs.replace(row, looked=(), beside=())


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the inputs and the needs of each stage, mostly of stages before it, in the order of the file."""
    order = list(NAMES) if draw(st.integers(0, 4)) else draw(st.permutations(NAMES))
    inputs: dict[str, list[str]] = {}
    needs: dict[str, list[str]] = {}
    for number, name in enumerate(order):
        above = [
            *(f"{one}.out" for one in NAMES[:number]),
            "x.in",
            "y.in",
            "made/one.txt",
            "./a.out"[: 7 * (name != "a")],
        ]
        inputs[name] = draw(st.lists(st.sampled_from([one for one in above if one]), max_size=3))
        needs[name] = draw(st.lists(st.sampled_from(NAMES[:number]), max_size=1)) if number and name != "a" else []
    return inputs, needs


@given(pipelines(), st.sampled_from(("nothing", "nothing", *MORE)), st.sampled_from(NAMES), INPUTS)
def test_amended_rows_are_those_of_the_whole_plan(
    drawn: tuple[dict[str, list[str]], dict[str, list[str]]], more: str, name: str, new: list[str]
) -> None:
    inputs, needs = drawn
    before, after = plan_of(text_of(inputs, needs, more)), plan_of(text_of(inputs | {name: new}, needs, more))
    edited = parse_pipeline(text_of({name: new}, {name: needs[name]}, "nothing"), "p.yaml").pipeline
    if before is None or edited is None or not isinstance(stage := edited.stages[0], Stage):
        return
    with TemporaryDirectory() as folder:
        rows = rows_of(before, folder)
        try:
            amend(rows, name, stage, lambda _path: True)
        except OutdatedIndexError:
            assert rows.amended == {}
            return
        assert after is not None, "an edit that has errors is found by the whole plan"
        with TemporaryDirectory() as other:
            wanted = rows_of(after, other)
            assert {one: place_of(rows.row(one)) for one in after.nodes} == {
                one: place_of(wanted.row(one)) for one in after.nodes
            }
            assert rows.graph() == wanted.graph()
            assert rows.head.patterns == wanted.head.patterns


PLAIN = text_of({name: ["x.in"] for name in NAMES}, {name: [] for name in NAMES}, "nothing")


@pytest.mark.parametrize(
    ("text", "new", "is_amended"),
    [
        (PLAIN, ["a.out"], True),
        (PLAIN, ["y.in"], True),
        (PLAIN, ["d.out"], False),  # made by a later stage
        (PLAIN, ["gone.in"], False),
        (PLAIN, ["'*.in'"], False),
        (PLAIN, ["{list: '*.in'}"], False),
        (PLAIN + MORE["a pattern"], ["made/one.txt"], False),
        (PLAIN + MORE["a pattern"], ["a.out"], True),
        (PLAIN + MORE["a group"], ["a.out"], False),
        (PLAIN + MORE["a chain"], ["a.out"], False),
        (
            PLAIN.replace("  a: {inputs: [x.in]", "  a: {inputs: [b.out]"),
            ["y.in"],
            False,
        ),  # ordered otherwise than the file
    ],
)
def test_only_edges_along_the_file_with_no_other_reason_are_amended(
    tmp_path: Path, text: str, new: list[str], is_amended: bool
) -> None:
    before, edited = plan_of(text), parse_pipeline(text_of({"c": new}, {"c": []}, "nothing"), "p.yaml").pipeline
    assert before is not None
    assert edited is not None
    stage = edited.stages[0]
    assert isinstance(stage, Stage)
    rows = rows_of(before, str(tmp_path))
    is_known = False
    with suppress(OutdatedIndexError):
        amend(rows, "c", stage, lambda path: path in ("x.in", "y.in", "made/one.txt"))
        is_known = True
    assert is_known == is_amended
    assert ("c" in rows.amended) == is_amended


def test_other_folders_of_transcripts_are_known_only_from_the_whole_pipeline(tmp_path: Path) -> None:
    texts = [
        f"version: 1\nname: p\nstages:\n  a: {{outputs: [a.out], llm: {{prompt: p.j2, provider: echo, {more}}}}}\n"
        for more in (
            "model: m, transcripts: one/",
            "model: m, transcripts: one/, max_tokens: 9",
            "model: m, transcripts: two/",
        )
    ]
    before, *edited = map(plan_of, texts)
    assert before is not None
    rows = rows_of(before, str(tmp_path))
    stages = [plan.nodes["a"] for plan in edited if plan is not None]
    assert isinstance(stages[0], Stage)
    assert isinstance(stages[1], Stage)
    amend(rows, "a", stages[0], lambda _path: True)
    with pytest.raises(OutdatedIndexError):  # the head of the index has those of all stages
        amend(rows, "a", stages[1], lambda _path: True)


SOURCES = tuple(f"{number}.in" for number in range(4))
MADE = tuple(f"{number}.out" for number in range(16))


def render_text(inputs: Mapping[int, list[str]]) -> str:
    stages = "".join(
        f"  s{number}: {{inputs: [{', '.join(some)}], outputs: [{number}.out], render: {{template: t.j2}}}}\n"
        for number, some in inputs.items()
    )
    return f"version: 1\nname: p\nstages:\n{stages}"


def inputs_of(chance: random.Random, number: int, *, any_order: bool) -> list[str]:
    made = MADE if any_order else MADE[:number]
    return [*dict.fromkeys(chance.choice((*SOURCES, *made)) for _ in range(chance.choice([1, 2, 3])))]


@contextmanager
def plain(inputs: Mapping[int, list[str]]) -> Iterator[Play]:
    files = {
        "t.j2": "{% for one in inputs %}{{ one.path }} {{ one.text }}{% endfor %}",
        "pipeline.yaml": render_text(inputs),
    }
    with (
        patch.object(test_snapshot_agrees, "FILES", files | {name: f"{name}\n" for name in SOURCES}),
        playing() as play,
    ):
        yield play


@pytest.mark.slow
@given(st.integers(0, 2**32))
@settings(max_examples=200 if THOROUGH else 1, deadline=None)
def test_histories_of_edited_inputs_are_built_as_by_deciding_everything(seed: int) -> None:
    chance = random.Random(seed)
    inputs = {number: inputs_of(chance, number, any_order=False) for number in range(len(MADE))}
    with plain(inputs) as play:
        play.build()
        for _ in range(4):
            wait_for_the_clock_of_the_files()
            match chance.choice(["inputs", "inputs", "inputs", "source", "by hand", "removed"]):
                case "inputs":
                    for number in chance.sample(range(len(MADE)), chance.choice([1, 1, 2])):
                        inputs[number] = inputs_of(chance, number, any_order=chance.random() < 0.1)
                    put("pipeline.yaml", render_text(inputs))
                case "source":
                    put(chance.choice(SOURCES), f"{chance.random()}\n")
                case "by hand":
                    put(chance.choice(MADE), "by hand\n")
                case _:
                    Path(chance.choice(MADE)).unlink(missing_ok=True)
            play.ahead_ns += chance.choice([0, AHEAD_NS])
            play.compare()
            play.build()
            play.build()


@pytest.mark.slow
def test_an_edit_of_inputs_is_built_by_what_it_reaches_and_the_next_edits_too() -> None:
    inputs = {number: [f"{number - 1}.out" if number in (2, 9) else "0.in"] for number in range(len(MADE))}
    with plain(inputs) as play:
        play.build()
        edits = {"pipeline.yaml": render_text(inputs | {9: ["3.out", "1.in"]}), "1.in": "read now\n"}
        for count, (path, text) in enumerate(edits.items(), 1):
            wait_for_the_clock_of_the_files()
            put(path, text)
            play.ahead_ns += AHEAD_NS
            play.compare()
            play.build()
            assert play.parts == count
        assert Path("9.out").read_text() == "3.out 0.in 0.in\n1.in read now\n"


def test_an_edited_command_of_a_stage_in_a_chain_of_editors_keeps_its_place_in_the_chain(tmp_path: Path) -> None:
    text = (
        "version: 1\nname: p\nstages:\n  a: {edits: ['d/**'], shell: x}\n  b: {needs: [a], edits: ['d/**'], shell: x}\n"
    )
    before, edited = plan_of(text), parse_pipeline(text.replace("shell: x}\n", "shell: y}\n"), "p.yaml").pipeline
    assert before is not None
    assert edited is not None
    rows = rows_of(before, str(tmp_path))
    stage = edited.stages[1]
    assert isinstance(stage, Stage)
    amend(rows, "b", stage, lambda _path: True)
    after = plan_of(text.replace("shell: x}\n", "shell: y}\n"))
    assert after is not None
    assert rows.row("b").node == after.nodes["b"]
    with pytest.raises(OutdatedIndexError):
        amend(rows, "b", msgspec.structs.replace(stage, edits=("e/**",), outputs=("e/**",)), lambda _path: True)
