"""Literal inputs that nobody has and nobody makes, with and without a plan."""

from orch23.model.diagnostic import Location
from orch23.model.pipeline import (
    ChainLink,
    Foreach,
    ForeachStage,
    GlobInput,
    Item,
    ListInput,
    PathInput,
    Pipeline,
    SkippedStage,
    SliceInput,
    Stage,
    Verify,
    WriteScope,
)
from orch23.plan.diagnostics import missing_inputs_errors, unmade_inputs_errors
from orch23.plan.planner import build_plan
from orch23.steps.shell.spec import ShellStep
from tests.calls import counted_calls

STEP = ShellStep(("x",))


def no_file(_path: str) -> bool:
    return False


def stage(name, inputs=(), writes=(), **more):
    facts = {"step": STEP, "outputs": writes, "fence": WriteScope(writes), **more}
    return Stage(name=name, inputs=tuple(PathInput(i) if isinstance(i, str) else i for i in inputs), **facts)


def missing(*stages, exists=(), skipped=(), neighbours=()):
    pipeline = Pipeline(name="p", file="p.yaml", stages=stages, skipped=skipped)
    plan, problems = build_plan(pipeline)
    assert plan is not None, problems
    return missing_inputs_errors(plan, exists.__contains__, neighbours=lambda _path: neighbours)


def test_only_literal_inputs_that_are_not_optional_are_required() -> None:
    inputs = ("a", GlobInput("b/*"), ListInput("c/**"), SliceInput("d.md", "H"), PathInput("e", optional=True))
    verify = Verify(inputs=(PathInput("f"), SliceInput("g.md", "H", optional=True)))
    found = missing(stage("s", inputs, verify=verify))
    assert [one.message.split("`")[1] for one in found] == ["a", "d.md", "f"]
    (problem,) = missing(stage("s", inputs, verify=verify), exists=("a", "f", "d.md#H"))
    assert "for the file of this name, write `d.md[#]H`" in (problem.hint or "")


def draft_after(*needs, inputs=("spec",), **more):
    return stage("draft", inputs, ("out",), needs=needs, chain=ChainLink(chain="draft", index=0), **more)


def test_a_file_that_a_later_stage_of_a_model_makes_is_a_cycle() -> None:
    (problem,) = missing(draft_after("check"), stage("check", ("out",)), exists=("spec",))
    assert (problem.code, problem.message) == ("E820", "cycle: check -> draft -> check")
    assert [one.message for one in problem.related] == [
        "`draft` comes after `check`: it needs `check`",
        "`check` comes after `draft`: it reads `out`, an output of `draft`",
    ]


def test_a_cycle_over_other_stages_has_all_of_its_edges() -> None:
    middle = stage("between", ("notes",), ("more",))
    (problem,) = missing(
        draft_after(inputs=("more",)), stage("notes", ("out",), ("notes",)), middle, stage("last", ("out",))
    )
    assert problem.message == "cycle: between -> draft -> notes -> between"
    assert len(problem.related) == 3


def test_a_file_that_only_the_later_stage_made_is_a_cycle_also_if_it_exists() -> None:
    pipeline = Pipeline(name="p", file="p.yaml", stages=(draft_after("check"), stage("check", ("out",))))
    plan, _ = build_plan(pipeline)
    assert plan is not None
    exists = {"spec", "out"}.__contains__
    (problem,) = missing_inputs_errors(plan, exists, is_result=lambda path: path == "out")
    assert problem.message == "cycle: check -> draft -> check"
    assert missing_inputs_errors(plan, exists, is_result=lambda _path: False) == (), "it sees the user's file"


def test_only_inputs_of_stages_before_their_makers_may_be_results() -> None:
    optional = stage("check", (PathInput("out", optional=True), GlobInput("out/", folder=True)))
    for second in (optional, stage("check", ("spec",)), stage("check", ("spec",), verify=Verify())):
        plan, _ = build_plan(Pipeline(name="p", file="p.yaml", stages=(draft_after("check"), second)))
        assert plan is not None
        assert missing_inputs_errors(plan, lambda _path: True, lambda _path: True, is_result=lambda _path: True) == ()
    ordered = Pipeline(name="p", file="p.yaml", stages=(draft_after(), stage("check", ("out",))))
    plan, _ = build_plan(ordered)
    assert plan is not None
    assert missing_inputs_errors(plan, {"spec"}.__contains__, is_result=lambda _path: True) == ()


def test_inputs_of_known_stages_are_not_looked_up() -> None:
    plan, _ = build_plan(Pipeline(name="p", file="p.yaml", stages=(stage("a", ("x",)), stage("b", ("y",)))))
    assert plan is not None
    (problem,) = missing_inputs_errors(plan, no_file, known={"a"})
    assert "`y`" in problem.message


def test_only_inputs_that_no_stage_upstream_makes_are_looked_up() -> None:
    looked: list[str] = []
    stages = (stage("a", ("src",), ("made",)), stage("b", ("made", "out/x"), ("c",)), stage("g", (), ("out/*",)))
    plan, _ = build_plan(Pipeline(name="p", file="p.yaml", stages=stages))
    assert plan is not None

    def exists(path: str) -> bool:
        looked.append(path)
        return path == "src"

    assert missing_inputs_errors(plan, exists) == ()
    assert looked == ["src", "out/x"], "another maker of a pattern may not make it"


def test_a_missing_input_is_reported_with_the_nearest_name() -> None:
    (problem,) = missing(stage("s", ("specs/appp.md", "specs/app.md")), exists=("specs/app.md",))
    assert problem.code == "E822"
    assert problem.message == "input `specs/appp.md` of stage `s` does not exist, and no stage makes it"
    assert problem.hint == "did you mean `specs/app.md`?"
    assert problem.fix == ("specs/appp.md", "specs/app.md")
    (problem,) = missing(stage("s", ("far/away",)), exists=("specs/app.md",))
    assert problem.hint == (
        "create it, or add it to `outputs` of the stage that makes it; if it may be missing, write "
        "`{path: far/away, optional: true}`"
    )
    assert problem.fix is None


def test_the_stages_own_output_is_not_suggested_and_a_file_of_the_directory_is_preferred() -> None:
    wrong, own, other = "specs/test_words.py", "spec/test_words.py", "specs/test_word.py"
    (problem,) = missing(stage("s", (wrong,), (own,)), neighbours=(own,))
    assert "did you mean" not in (problem.hint or "")
    (problem,) = missing(stage("s", (wrong,), (own,)), neighbours=(own, other))
    assert problem.hint == f"did you mean `{other}`?"
    (problem,) = missing(stage("s", (wrong,)), stage("b", (), ("spec/test_word.py",)), neighbours=(other,))
    assert problem.hint == f"did you mean `{other}`?"


def test_what_is_there_or_made_before_is_fine() -> None:
    assert missing(stage("s", ("a",)), exists=("a",)) == ()
    assert missing(stage("maker", (), ("a",)), stage("s", ("a",))) == ()
    assert missing(stage("maker", (), ("out/*",)), stage("s", ("out/a",))) == ()


def test_a_stage_that_is_switched_off_and_makes_it_is_named() -> None:
    off = SkippedStage(name="maker", kind="shell", writes=("out/*",))
    other = SkippedStage(name="other", kind="shell", writes=("z",))
    (problem,) = missing(stage("s", ("out/a",)), skipped=(other, off))
    assert problem.hint == "`maker`, which makes it, is skipped: give this stage the same `if`"


def chained(key, index, inputs=(), writes=()):
    link, item = ChainLink(chain="each", index=index), Item(key=key, name="item", value=key)
    return stage(f"each@{key}", inputs, writes, chain=link, item=item)


def test_an_input_that_a_later_item_of_the_chain_makes_is_reported() -> None:
    (problem,) = missing(chained("a", 0, ("out/b",), ("out/a",)), chained("b", 1, (), ("out/b",)))
    assert problem.message == (
        "input `out/b` of stage `each@a` does not exist: `each@b`, which makes it, comes later in its chain"
    )
    assert (problem.code, problem.hint) == ("E822", "put `each@b` before `each@a` in the list, or remove the input")
    items = [
        chained(key, number, ("out/c",) if key == "a" else (), (f"out/{key}",)) for number, key in enumerate("abc")
    ]
    (problem,) = missing(*items)
    assert "`each@c`, which makes it" in problem.message


def test_an_earlier_item_of_the_chain_makes_it_and_an_own_output_may_come_from_one() -> None:
    assert missing(chained("a", 0, (), ("out/a",)), chained("b", 1, ("out/a",), ("out/b",))) == ()
    assert missing(chained("a", 0, ("out/a",), ("out/a",))) == ()


def test_an_item_that_is_not_known_yet_may_make_it() -> None:
    how = Foreach(source="list.json")
    family = ForeachStage(name="each", foreach=how, body={}, kind="shell", writes=("w/**",))
    assert missing(stage("lister", (), ("list.json",)), family, stage("s", ("w/a",))) == ()
    assert [one.code for one in missing(stage("lister", (), ("list.json",)), family, stage("s", ("v/a",)))] == ["E822"]


def test_a_stage_upstream_of_a_foreach_gets_no_files_of_it() -> None:
    how = Foreach(source="list.json")
    family = ForeachStage(name="each", foreach=how, body={}, kind="shell", writes=("w/**",))
    (problem,) = missing(stage("lister", ("w/a",), ("list.json",)), family)
    assert problem.message == "input `w/a` of stage `lister` does not exist, and no stage makes it"


def test_a_file_that_exists_is_meant_and_one_that_does_not_is_not() -> None:
    pipeline = Pipeline(name="p", file="p.yaml", stages=(stage("s", ("specs/aps.md", "specs/ap.md", "specs/app.md")),))
    plan, _ = build_plan(pipeline)
    assert plan is not None
    found = missing_inputs_errors(plan, {"specs/app.md"}.__contains__)
    assert [one.hint for one in found] == ["did you mean `specs/app.md`?"] * 2


def test_without_a_plan_only_inputs_that_no_stage_makes_are_reported() -> None:
    how = Foreach(source="list.json")
    family = ForeachStage(name="each", foreach=how, body={}, kind="shell", writes=("w/**",))
    reader = stage("s", ("there", "gone", "made", "w/x", PathInput("may", optional=True)))
    pipeline = Pipeline(name="p", file="p.yaml", stages=(reader, stage("maker", ("lost",), ("made",)), family))
    found = unmade_inputs_errors(pipeline, lambda path: path == "there")
    assert [one.message for one in found] == [
        "input `gone` of stage `s` does not exist, and no stage makes it",
        "input `lost` of stage `maker` does not exist, and no stage makes it",
    ]


def test_a_folder_that_is_named_as_a_file_is_reported_as_a_folder() -> None:
    inputs = ("src", SliceInput("src", "Head"), PathInput("src", optional=True), ListInput("src"), GlobInput("src/**"))
    reader = stage("s", inputs, verify=Verify(inputs=(PathInput("src"),)))
    one = Pipeline(name="p", file="p.yaml", stages=(reader,), locations={"stages/s/inputs/3": Location("p.yaml", 8, 5)})
    plan, _ = build_plan(one)
    assert plan is not None
    for found in (
        missing_inputs_errors(plan, no_file, lambda path: path == "src"),
        unmade_inputs_errors(one, lambda _path: False, lambda path: path == "src"),
    ):
        assert {(d.code, d.message) for d in found} == {("E822", "input `src` of stage `s` is a folder")}
        whole, part = (
            "write `src/` for all files below it, or name a file",
            "a slice is a part of one file: name a file below `src/`",
        )
        assert [d.hint for d in found] == [whole, part, whole, whole, whole]
        assert found[3].location == Location("p.yaml", 8, 5)


def test_a_folder_on_disk_is_ignored_if_a_stage_makes_the_file() -> None:
    plan, _ = build_plan(Pipeline(name="p", file="p.yaml", stages=(stage("s", ("x",)), stage("m", (), ("x",)))))
    assert plan is not None
    assert missing_inputs_errors(plan, no_file, lambda _path: True) == ()


def test_each_missing_input_is_looked_up_in_an_index() -> None:
    def calls_of(count: int) -> int:
        stages = [stage(f"s{i}", (f"in/{i}", f"skipped/{i}"), (f"out/{i} more/{i}",)) for i in range(count)]
        skipped = tuple(SkippedStage(name=f"x{i}", kind="shell", writes=(f"skipped/{i}",)) for i in range(count))
        with counted_calls() as calls:
            assert len(missing(*stages, skipped=skipped)) == 2 * count
        return calls[0]

    few, more, many = (calls_of(count) for count in (50, 100, 200))
    assert many - more < 2.1 * (more - few)
