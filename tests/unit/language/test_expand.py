"""Expansion of a foreach: its items in order, and every complaint about the list."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.language.expand import expand
from orch23.model.diagnostic import Location
from orch23.model.pipeline import ChainLink, Foreach, ForeachStage, Item, PathInput, SliceInput

PLACE = Location("p.yaml", 3, 5)


def locate(path):
    return PLACE if path == "stages/code/foreach" else Location(path, 1, 1)


def no_yaml(text):
    raise ValueError(text)


def foreach(body=None, **how):
    how = {"source": "plan.json", "pointer": "/tasks", "key": "id", "name": "task", **how}
    body = body or {"inputs": ["in.txt"], "outputs": ["out/${{ task.id }}"], "shell": ["make", "${{ task.id }}"]}
    return ForeachStage(name="code", foreach=Foreach(**how), body=body, kind="shell")


def expanded(items, stage=None):
    return expand(stage or foreach(), json.dumps({"tasks": items}), variables={}, read_yaml=no_yaml, locate=locate)


def codes(expansion):
    assert expansion.stages == ()
    return [d.code for d in expansion.problems]


def test_items_become_stages_in_the_order_of_the_list():
    found = expanded([{"id": "b"}, {"id": "a"}])
    assert not found.problems
    assert [s.name for s in found.stages] == ["code@b", "code@a"]
    assert [s.outputs for s in found.stages] == [("out/b",), ("out/a",)]
    assert found.stages[0].item == Item(key="b", name="task", value={"id": "b"})
    assert found.stages[0].chain is None
    assert found.stages[0].inputs == (PathInput("in.txt"),)


def test_items_of_a_sequential_foreach_are_links_of_one_chain():
    found = expanded([{"id": "b"}, {"id": "a"}], foreach(sequential=True))
    assert [s.chain for s in found.stages] == [ChainLink(chain="code", index=0), ChainLink(chain="code", index=1)]


def test_an_empty_list_has_no_items_and_nothing_is_wrong_with_it():
    found = expanded([])
    assert found.stages == ()
    assert found.problems == ()


def test_plain_strings_are_their_own_keys():
    body = {"outputs": ["out/${{ it }}"], "shell": ["x"]}
    stage = foreach(body, source=None, key=None, name="it", values=("x", "y"))
    found = expand(stage, None, variables={}, read_yaml=no_yaml, locate=locate)
    assert [s.name for s in found.stages] == ["code@x", "code@y"]


@pytest.mark.parametrize("key", ["a", "A-1_.z", "0", 7, "x" * 64, "a.b"])
def test_good_keys(key):
    assert [s.name for s in expanded([{"id": key}]).stages] == [f"code@{key}"]


@pytest.mark.parametrize("key", ["", "a b", "a/b", "a@b", "x" * 65, ".", "..", "ä", "a\n", None, True, 1e30, ["a"], {}])
def test_each_bad_key_is_reported(key):
    assert codes(expanded([{"id": key}, {"id": "good"}, {"id": key}])) == ["E825", "E825"]


@pytest.mark.parametrize("item", ["text", {"name": "no id"}, None])
def test_an_item_without_the_field_has_no_key(item):
    assert codes(expanded([item])) == ["E825"]


def test_two_items_of_one_key_are_both_named_by_their_place():
    found = expanded([{"id": "a"}, {"id": "b"}, {"id": "a"}])
    assert codes(found) == ["E826"]
    assert "items 0 and 2" in found.problems[0].message
    assert found.problems[0].location == PLACE


def test_a_number_and_a_text_that_read_alike_are_one_key():
    assert codes(expanded([{"id": 1}, {"id": "1"}])) == ["E826"]


def test_all_bad_keys_are_reported_in_one_run():
    assert codes(expanded([{"id": "a"}, {"id": "a"}, {"id": "/"}])) == ["E826", "E825"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"tasks": {"a": 1}}', "is a mapping, not a list"),
        ('{"tasks": "abc"}', "is the string `abc`, not a list"),
        ('{"tasks": null}', "is empty (null), not a list"),
        ('{"tasks": true}', "is `true`, not a list"),
        ('{"tasks": 3}', "is `3`, not a list"),
        ('{"task": []}', "nothing is at `/tasks`"),
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
    ],
)
def test_only_a_list_can_be_expanded(text, words):
    found = expand(foreach(), text, variables={}, read_yaml=no_yaml, locate=locate)
    assert codes(found) == ["E824"]
    assert words in found.problems[0].message
    assert found.problems[0].hint
    assert found.problems[0].subject == "code"


def test_needs_of_items_become_needs_of_stages():
    stage = foreach(needs_field="depends_on")
    found = expanded([{"id": "a"}, {"id": "b", "depends_on": ["a"]}, {"id": "c", "depends_on": "b"}], stage)
    assert [s.needs for s in found.stages] == [(), ("code@a",), ("code@b",)]


def test_needs_of_items_are_added_to_those_of_the_stage():
    body = {"needs": ["plan"], "outputs": ["out/${{ task.id }}"], "shell": ["x"]}
    found = expanded([{"id": "a"}, {"id": "b", "depends_on": ["a"]}], foreach(body, needs_field="depends_on"))
    assert [s.needs for s in found.stages] == [("plan",), ("plan", "code@a")]


def test_a_need_that_is_not_an_item_is_reported():
    found = expanded([{"id": "a", "depends_on": ["zz", "a", "yy"]}], foreach(needs_field="depends_on"))
    assert codes(found) == ["E827", "E827"]
    assert "`zz`" in found.problems[0].message


def test_a_value_that_items_may_not_decide_is_reported_for_each_item():
    body = {"outputs": ["out/${{ task.id }}"], "shell": ["${{ task.program }}", "x"]}
    found = expanded([{"id": "a", "program": "rm"}, {"id": "b", "program": "sh"}], foreach(body))
    assert [(d.code, d.subject) for d in found.problems] == [("E857", "code@a"), ("E857", "code@b")]


@pytest.mark.parametrize("path", ["../up", "/abs", "a/../b", "*.py", "a\x00b", "", "-x"])
def test_an_unsafe_path_of_an_item_is_refused(path):
    body = {"inputs": ["${{ task.file }}"], "outputs": ["out/${{ task.id }}"], "shell": ["x"]}
    assert set(codes(expanded([{"id": "a", "file": path}], foreach(body)))) <= {"E857", "E858"}


def test_a_missing_field_is_an_error_and_not_an_empty_text():
    body = {"outputs": ["out/${{ task.nothing }}"], "shell": ["x"]}
    found = expanded([{"id": "a"}], foreach(body))
    assert found.stages == ()
    assert found.problems


def test_a_slice_named_by_an_item_is_resolved_by_its_section():
    body = {"inputs": ["spec.md#${{ task.section }}"], "outputs": ["out/${{ task.id }}"], "shell": ["x"]}
    found = expanded([{"id": "a", "section": "Storage and files"}], foreach(body))
    assert found.stages[0].inputs == (SliceInput("spec.md", "Storage and files"),)


@pytest.mark.parametrize(
    ("items", "keys"),
    [([0.1, 0.5], ["0.1", "0.5"]), ([1, 2.5, "x"], ["1", "2.5", "x"]), ([1e-7, -3, 100.0], ["1e-07", "-3", "100.0"])],
)
def test_a_number_is_its_own_key_and_the_text_that_an_expression_gives(items, keys):
    found = expanded(items, foreach({"outputs": ["out/x${{ task }}"], "shell": ["x"]}, key=None))
    assert found.problems == ()
    assert [s.name for s in found.stages] == [f"code@{key}" for key in keys]
    assert [s.outputs for s in found.stages] == [(f"out/x{key}",) for key in keys]


@pytest.mark.parametrize(
    ("item", "key", "hint", "followed", "followed_key"),
    [
        (True, None, 'write it as a text: "true"', "true", None),
        ("a b", None, "`{id: NAME, value: ...}` and `key: id`", {"id": "NAME", "value": "a b"}, "id"),
        ([1], None, "`{id: NAME, value: ...}` and `key: id`", {"id": "NAME", "value": [1]}, "id"),
        (1e30, None, "`{id: NAME, value: ...}` and `key: id`", {"id": "NAME", "value": 1e30}, "id"),
        ({"a": "b c", "x": "ok"}, None, "`key: x`", {"a": "b c", "x": "ok"}, "x"),
        ("a", "id", "remove `key: id`", "a", None),
        ({"id": None}, "id", "give every item a field `id`", {"id": 0.5}, "id"),
    ],
)
def test_an_item_without_a_usable_key_gets_advice_that_helps_when_it_is_followed(
    item, key, hint, followed, followed_key
):
    body = {"outputs": ["out/x"], "shell": ["x"]}
    (problem,) = expanded([item], foreach(body, key=key)).problems
    assert problem.code == "E825"
    assert hint in problem.hint
    assert expanded([followed], foreach(body, key=followed_key)).problems == ()


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_an_infinite_number_cannot_be_a_key(value):
    assert codes(expanded([], foreach(source=None, key=None, values=(value,)))) == ["E825"]


def test_what_an_item_breaks_is_placed_where_it_is_written():
    body = {
        "shell": ["x"],
        "timeout": "${{ task.t }}",
        "outputs": ["a", "b", "../${{ task.id }}"],
        "retry": {"max": "${{ task.gone }}"},
        "cwd": "/${{ task.id }}",
        "env": {"PATH": "x"},
    }
    stage = replace(foreach(body), moved={"stages/code/outputs/2": "stages/code/outputs/1"})
    found = expanded([{"id": "k", "t": "soon"}, {"id": "/"}], stage)
    assert [(d.code, str(d.location), d.subject) for d in found.problems] == [
        ("E825", "p.yaml:3:5", "code"),
        ("E840", "stages/code/retry/max:1:1", "code@k"),
        ("E857", "stages/code/timeout:1:1", "code@k"),
        ("E857", "stages/code/outputs/1:1:1", "code@k"),
        ("E857", "stages/code/cwd:1:1", "code@k"),
        ("E859", "stages/code/env/PATH:1:1", "code@k"),
    ]


VALUES: tuple[Any, ...] = (
    "1",
    1,
    1.0,
    True,
    None,
    "",
    "x",
    "../x",
    [],
    [1],
    {"p": 1, "q": 2},
    {"q": 2, "p": 1},
    2**64,
    "\ud800",
)
ITEMS = st.lists(st.tuples(st.sampled_from("abc."), st.sampled_from(VALUES)), max_size=4)
BODIES = st.sampled_from(
    [
        {"outputs": ["out/${{ task.id }}"], "shell": ["make", "${{ task.v }}"]},
        {"outputs": ["out/${{ task.id }}/${{ task.v }}"], "shell": ["make"]},
        {"outputs": ["out/${{ task.id }}"], "shell": ["make"], "if": "${{ task.v == 1 }}"},
        {"outputs": ["out/${{ task.id }}"], "render": {"template": "t.j2"}, "desc": "${{ task.v | tojson }}"},
    ]
)
KINDS = st.sampled_from([{}, {"sequential": True}, {"needs_field": "v"}])


def items_of(stage, values, former=()):
    text = json.dumps([{"id": key, "v": value} for key, value in values])
    known = {one.name: one for one in former}
    return expand(stage, text, variables={}, read_yaml=no_yaml, locate=locate, former=known)


@given(BODIES, KINDS, ITEMS, ITEMS)
def test_with_former_items_the_result_is_the_same_as_without(body, kind, before, after):
    stage = foreach(body, pointer="", **kind)
    found = items_of(stage, after, items_of(stage, before).stages)
    assert repr(found) == repr(items_of(stage, after))  # not `==`: 1 and True are equal, but make different texts


def test_only_items_that_differ_are_rendered_again():
    stage = foreach({"outputs": ["out/${{ task.id }}"], "shell": ["make"], "desc": "v ${{ task.v }}"}, pointer="")
    known = items_of(stage, [("a", 1), ("b", 1)]).stages
    found = items_of(stage, [("b", True), ("a", 1)], known).stages
    assert [one.desc for one in found] == ["v true", "v 1"]
    assert found[1] is known[0]


def test_an_item_knows_which_of_its_inputs_not_all_items_have():
    inputs = ["rules.md", "notes/${{ task.id }}.md", "src/*.py", "app.md#${{ task.id }}"]
    llm = {"provider": "p", "model": "m", "prompt": "p.j2", "returns": "text"}
    body: dict[str, Any] = {"inputs": inputs, "outputs": ["out/${{ task.id }}"], "llm": llm}
    stage = ForeachStage(
        name="code", foreach=Foreach(source="plan.json", pointer="/tasks", key="id", name="task"), body=body, kind="llm"
    )
    assert [one.own_inputs for one in expanded([{"id": "b"}, {"id": "a"}], stage).stages] == [(1, 3), (1, 3)]
    assert [one.own_inputs for one in expanded([{"id": "a"}], stage).stages] == [()]
    assert expanded([{"id": "b"}, {"id": "a"}]).stages[0].own_inputs == (), "it calls no model"
