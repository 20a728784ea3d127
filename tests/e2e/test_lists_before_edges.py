"""Items of lists that no stage makes are known before stages are ordered; of others, fixed parts of a path decide."""

import json
import re

import pytest

from tests.e2e.pipelines import green
from tests.project import Project


def stages(**bodies: object) -> str:
    return json.dumps({"version": 1, "vars": {"names": ["x"]}, "stages": bodies})


def each(items: object, reads: str, writes: str) -> dict[str, object]:
    foreach = {"from": items} if isinstance(items, str) and ".json" in items else {"in": items}
    return {"foreach": foreach, "inputs": [reads], "outputs": [writes], "shell": ["cp", reads, writes]}


def of_c(items: object, written: str = "bin/hiredis-${{ item }}") -> str:
    return stages(
        obj=each(items, "${{ item }}.c", "o/${{ item }}.o"),
        bin=each(items, "o/${{ item }}.o", written),
    )


@pytest.mark.needs("metrics")
@pytest.mark.parametrize("items", [["x"], "${{ vars.names }}", "${{ ['x'] }}", ["x", "y"], "l.json", "d/m.json#/a/0"])
def test_items_of_a_list_that_no_stage_makes_make_no_cycle(project: Project, items: object) -> None:
    project.write({"pipeline.yaml": of_c(items), "x.c": "x\n", "y.c": "y\n"})
    project.write({"l.json": '["x"]', "d/m.json": '{"a": [["x"]]}'})
    assert project.run("validate").code == 0
    assert set(project.plan("bin")) == set(project.plan()) >= {"obj@x", "bin@x"}
    assert project.run("affected", "--since", "HEAD").code in (0, 1, 66, 74)
    assert project.run("metrics").code != 70


def test_values_of_the_command_line_are_items_too(project: Project) -> None:
    project.write({"pipeline.yaml": of_c("${{ vars.names }}"), "z.c": "z\n"})
    project.write({"v.yaml": "names: [z]\n"})
    assert set(project.plan("--vars", "v.yaml")) == {"obj@z", "bin@z"}


@pytest.mark.slow
def test_a_list_is_a_source_once_the_items_that_might_make_it_are_known(project: Project) -> None:
    """Of `first`, the pattern of its items is known before their names: `o/*.json` may be the list of the others."""
    first = {"foreach": {"from": "l.json"}, "outputs": ["o/${{ item }}.json"]}
    first["shell"] = ["touch", "o/${{ item }}.json"]
    others = json.loads(of_c("o/list.json"))["stages"]
    project.write({"pipeline.yaml": stages(first=first, **others), "l.json": '["a"]', "x.c": "x\n"})
    project.write({"o/list.json": '["x"]'})
    green(project.build())
    assert project.plan() == dict.fromkeys(("first@a", "obj@x", "bin@x"), "fresh")
    project.write({"o/list.json": "[]"})
    assert project.plan() == {"first@a": "fresh", "obj": "skipped", "bin": "skipped"}
    project.write({"l.json": '["a", "list"]'})
    assert "error[E820]: cycle: bin -> obj -> bin" in project.run("validate").err


@pytest.mark.parametrize(
    ("text", "code"),
    [(None, "E822"), ("{", "E824"), ("{}", "E824"), ('["a b"]', "E825"), ('["x", "x"]', "E826")],
)
def test_errors_of_a_list_replace_the_cycle_that_its_patterns_would_make(
    project: Project, text: str | None, code: str
) -> None:
    alone = {"foreach": {"from": "l.json"}, "outputs": ["a/${{ item }}"], "shell": "true"}
    project.write({"pipeline.yaml": stages(alone=alone), **({} if text is None else {"l.json": text})})
    for command in ("validate", "build", "plan"):
        outcome = project.run(command)
        assert (outcome.code, re.findall(r"error.(E\d+)", outcome.err)) == (65, [code])
    project.write({"pipeline.yaml": of_c("l.json"), "x.c": "x\n"})
    if text is not None:
        outcome = project.run("validate")
        assert (outcome.code, set(re.findall(r"error.(E\d+)", outcome.err))) == (65, {code})


@pytest.mark.slow
def test_a_list_whose_maker_is_switched_off_is_missing(project: Project) -> None:
    text = stages(list={**MADE, "if": "${{ vars.on }}"}, **json.loads(of_c("l.json", "bin/${{ item }}.exe"))["stages"])
    text = text.replace('"vars": {', '"vars": {"on": true, ')
    project.write({"pipeline.yaml": text, "x.c": "x\n"})
    green(project.build())
    off = project.build("--set", "on=false")
    assert (off.code, off.err.count("`l.json` does not exist, and no stage makes it")) == (65, 2)


@pytest.mark.slow
def test_two_lists_may_read_each_other_by_turns(project: Project) -> None:
    """Each foreach reads what the other one writes, but no item waits for itself."""
    one = [{"id": "a", "of": "src"}, {"id": "b", "of": "two-a"}]
    two = [{"id": "a", "of": "one-a"}, {"id": "b", "of": "one-b"}]
    bodies = {
        name: {
            "foreach": {"in": items, "key": "id"},
            "inputs": ["${{ item.of }}"],
            "outputs": [f"{name}-${{{{ item.id }}}}"],
            "shell": ["cp", "${{ item.of }}", f"{name}-${{{{ item.id }}}}"],
        }
        for name, items in (("one", one), ("two", two))
    }
    project.write({"pipeline.yaml": stages(**bodies), "src": "s\n"})
    green(project.build())
    assert project.read("two-b") == "s\n"


@pytest.mark.parametrize("items", [["x"], ["x", "y", "z"], "l.json"])
def test_a_cycle_of_items_is_one_error(project: Project, items: object) -> None:
    text = stages(one=each(items, "b/${{ item }}", "a/${{ item }}"), two=each(items, "a/${{ item }}", "b/${{ item }}"))
    project.write({"pipeline.yaml": text, "l.json": '["x"]'})
    outcome = project.run("validate")
    assert (outcome.code, outcome.err.count("error[")) == (65, 1)
    assert "error[E820]: cycle: one" in outcome.err


def test_an_input_that_no_item_makes_is_found_with_the_cycle(project: Project) -> None:
    project.write({"pipeline.yaml": of_c(["x"])})
    outcome = project.run("validate")
    assert "error[E822]: input `x.c` of stage `obj@x` does not exist" in outcome.err
    project.write({"pipeline.yaml": of_c(["x", "x"])})
    assert "error[E826]" in project.run("validate").err


MADE = {"shell": "echo '[\"x\"]' > l.json", "outputs": ["l.json"]}


@pytest.mark.parametrize(
    ("reads", "writes"),
    [
        ("${{ item }}.c", "bin/hiredis-${{ item }}.exe"),  # the ends differ
        ("src/${{ item }}.c", "bin/hiredis-${{ item }}"),  # the folders
        ("in-${{ item }}", "out-${{ item }}"),  # the beginnings
        ("${{ item }}/main.c", "${{ item }}/main.exe"),  # what is below the folder of an item
    ],
)
def test_of_a_list_that_a_stage_makes_the_fixed_parts_of_a_path_decide(
    project: Project, reads: str, writes: str
) -> None:
    obj, built = each("l.json", reads, "o/${{ item }}.o"), each("l.json", "o/${{ item }}.o", writes)
    project.write({"pipeline.yaml": stages(list=MADE, obj=obj, bin=built)})
    assert set(project.plan()) == {"list", "obj", "bin"}


@pytest.mark.slow
def test_the_help_of_a_cycle_that_only_may_be_one_is_true(project: Project) -> None:
    text = stages(list=MADE, **json.loads(of_c("l.json"))["stages"])
    project.write({"pipeline.yaml": text})
    outcome = project.run("validate")
    assert outcome.code == 65
    assert "help: `${{ item }}.c` may be many paths: put a folder of its own in front of it" in outcome.err
    project.write({"pipeline.yaml": text.replace('"${{ item }}.c"', '"src/${{ item }}.c"'), "src/x.c": "x\n"})
    assert project.run("validate").code == 0
    green(project.build())
    assert project.read("bin/hiredis-x") == "x\n"


def test_two_stages_of_one_list_that_each_name_themselves_are_two_errors(project: Project) -> None:
    body = {"foreach": {"in": ["x", "y"]}, "outputs": ["o/${{ item }}"], "needs": ["one"], "shell": "true"}
    project.write({"pipeline.yaml": stages(one=body)})
    outcome = project.run("validate")
    assert re.findall(r"error\[.*", outcome.err) == ["error[E820]: cycle: one -> one"]
