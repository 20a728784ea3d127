"""Expressions: typed values out of `${{ }}`, and nothing else out of Jinja."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.language.expressions import (
    has_expression,
    members_used,
    possible_patterns,
    render_watched,
    uses_name,
)
from orch23.model.paths import may_overlap
from orch23.resolve.expression_syntax import UNKNOWN, UNKNOWN_MARK
from orch23.resolve.templates import TemplateFileError, render_text
from tests.rendered_tree import render_tree

NAMES: dict[str, Any] = {
    "vars": {"package": "todo", "n": 3, "yes": True, "l": ["a", "b"], "items": [1], "none": None, "m": {"k": 1}}
}


def one(text, names=NAMES):
    tree, errors = render_tree(text, names, "s")
    assert errors == (), errors
    return tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("${{ vars.n }}", 3),
        ("${{ vars.yes }}", True),
        ("${{ vars.none }}", None),
        ("${{ vars.l }}", ["a", "b"]),
        ("${{ vars.m }}", {"k": 1}),
        ("${{ vars.items }}", [1]),
        ("${{vars.package}}/${{ vars.n }}/${{ vars.yes }}", "todo/3/true"),
        ("${{ vars.l | map('upper') }}", ["A", "B"]),
        ("${{ vars.l | under('w/') }}", ["w/a", "w/b"]),
        ("${{ 'x' | under('w') }}", "w/x"),
        ("${{ ['a', 'b/c'] | under('.') }}", ["a", "b/c"]),
        ("${{ 'x' | under('./') }}", "x"),
        ("${{ 'x' | under('./w//v/.') }}", "w/v/x"),
        ("${{ 'x' | under('/w/') }}", "/w/x"),
        ("${{ 'x' | under('/') }}", "/x"),
        ("${{ {'path': 'a'} | under('./w') }}", {"path": "w/a"}),
        (
            "${{ [{'kind': 'file_exists', 'path': 'a'}, 'b'] | under('w') }}",
            [{"kind": "file_exists", "path": "w/a"}, "w/b"],
        ),
        ("$${{ x }}", "${{ x }}"),
        ("$$${{", "$${{"),
        ("a $${{ x }} ${{ vars.n }}", "a ${{ x }} 3"),
        ("${{ {'a': {'b': 1}} }}", {"a": {"b": 1}}),
        ("${{ 'x}}' }}", "x}}"),
        ("${{ vars.gone | default('d') }}", "d"),
        ("${{ 2 * 3 + 7 % 4 + 2 ** 5 }}", 41),
        ("${{ 1.5 }}", 1.5),
        ("${{ vars['package'] }}", "todo"),
        ("${{ '{{ 1 }}' }}", "{{ 1 }}"),
        ("${{ '$' ~ '{{ vars.n }}' }}", "${{ vars.n }}"),
        (["x", "${{ vars.l }}", "y"], ["x", "a", "b", "y"]),
        (["x ${{ vars.n }}", ["${{ vars.l }}"]], ["x 3", ["a", "b"]]),
        ({"a": {"b": "${{ vars.n }}"}}, {"a": {"b": 3}}),
    ],
)
def test_a_value_keeps_its_type(text, value):
    found = one(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "code", "words", "hint"),
    [
        ("${{ vars.packge }}", "E840", "`vars` has no `packge`", "did you mean `package`?"),
        ("${{ package }}", "E840", "`package` is not defined", "did you mean `vars.package`?"),
        ("${{ var.x }}", "E840", "`var` is not defined", "did you mean `vars`?"),
        ("${{ lipsum() }}", "E840", "`lipsum` is not defined", "known here: `vars`"),
        ("${{", "E841", "without its `}}`", "$${{"),
        ("${{ }}", "E841", "empty", None),
        ("${{ 1 + }}", "E841", "not an expression", None),
        ("${{ 1 }}{{ 2 }} ${{ 3 3 }}", "E841", "not an expression", None),
        ("x ${{ vars.l }}", "E841", "is a list", "whole value"),
        ("x ${{ vars.none }}", "E841", "is null", "default"),
        ("${{ vars.package | uper }}", "E841", "uper", "did you mean `upper`?"),
        ("${{ 1 / 0 }}", "E841", "division", None),
        ("${{ 'a' * 9999999999 }}", "E841", "numbers only", None),
        ("${{ 9 ** 9999999 }}", "E841", "numbers only", None),
        ("${{ range(10 ** 9) }}", "E841", "Range too big", None),
        ("${{ ''.__class__ }}", "E841", "unsafe", None),
        ("${{ vars.l.append(1) }}", "E841", "unsafe", None),
        ("${{ 'a'.ljust(999999999) }}", "E841", "unsafe", None),
        ("${{ '{:>999999999}'.format(1) }}", "E841", "unsafe", None),
        ("${{ ''['ljust'](999999999) }}", "E841", "unsafe", None),
        ("${{ vars.package.upper }}", "E841", "not a plain value", None),
        ("${{ 3 | under('w') }}", "E841", "a path, a condition, or a list", None),
        ("${{ [{'kind': 'a'}] | under('w') }}", "E841", "a path, a condition, or a list", None),
        ("${{ {'path': 3} | under('w') }}", "E841", "a path, a condition, or a list", None),
        ("${{ 'a' | under(3) }}", "E841", "a prefix", None),
        ("${{ vars.gone | under('w') }}", "E840", "`vars` has no `gone`", "did you mean"),
        ("${{ vars.m.gone }}", "E840", "the mapping has no `gone`", None),
        ("${{ 1e308 * 10 }}", "E841", "not a plain value", None),
        ("${{ [1, 2] | random }}", "E841", "random", None),
        ("${{ vars" + ".a" * 2000 + " }}", "E841", "levels deep", None),
        ("${{ " + "(" * 2000 + "1" + ")" * 2000 + " }}", "E841", "deep", None),
        ("${{ " + "not " * 1000 + "1 }}", "E841", "deep", None),
        ("${{ " + "1 + " * 1000 + "1 }}", "E841", "deep", None),
        ("${{ " + "1" * 5000 + " }}", "E841", "over 4096", None),
        ("${{ '%999999999d' % 1 }}", "E841", "numbers only", None),
    ],
)
def test_what_has_no_value_is_an_error_with_a_way_out(text, code, words, hint):
    tree, errors = render_tree({"k": text}, NAMES, "stages/s")
    assert tree == {"k": UNKNOWN_MARK}
    assert [(e.path, e.code) for e in errors] == [("stages/s/k", code)]
    assert words in errors[0].message
    assert hint is None or hint in (errors[0].hint or "")


def test_the_first_20_of_many_members_are_listed():
    _, errors = render_tree("${{ item.zzzzzzzz }}", {"item": {f"k{n:02}": n for n in range(25)}}, "t")
    assert (errors[0].hint or "").endswith("`k18`, `k19` and 5 more")


def test_all_errors_of_a_tree_are_found_at_once():
    _, errors = render_tree(["${{ a }}", {"x": "${{ b }}"}, "ok"], NAMES, "t")
    assert [e.path for e in errors] == ["t/0", "t/1/x"]


def test_a_key_may_not_hold_an_expression():
    _, errors = render_tree({"${{ vars.n }}": 1}, NAMES, "t")
    assert errors[0].message == "a key cannot have an expression"


@pytest.mark.slow
def test_a_result_may_not_grow_without_end():
    _, errors = render_tree("${{ vars.big }}", {"vars": {"big": "x" * (5 << 20)}}, "t")
    assert "4194304" in errors[0].message
    _, errors = render_tree("${{ range(99999) | list | batch(1) }}", NAMES, "t")
    assert "too large" in errors[0].message


def test_spliced_lists_remember_where_they_were_written():
    rendered = render_watched(["x", "${{ vars.l }}", "y"], NAMES, "o")
    assert rendered.moved == {"o/1": "o/1", "o/2": "o/1", "o/3": "o/2"}


def test_watched_nodes_are_those_that_use_the_name():
    names = {**NAMES, "t": {"f": ["p", "q"], "n": "z"}}
    rendered = render_watched({"a": ["${{ t.f }}", "${{ vars.n }}"], "b": "x/${{ t.n }}"}, names, "s", watch="t")
    assert rendered.tree == {"a": ["p", "q", 3], "b": "x/z"}
    assert rendered.watched == {"s/a/0": "${{ t.f }}", "s/a/1": "${{ t.f }}", "s/b": "x/${{ t.n }}"}


@given(
    st.recursive(
        st.sampled_from(
            ["$", "{", "}", "${{", "$${{ x }}", "${{ vars.n }}", "${{ t }}", "a $${{ ${{ vars.l[0] }}", "${{ t }}$${{"]
        ),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        max_leaves=6,
    )
)
def test_rendering_in_two_passes_gives_what_one_pass_gives(tree):
    names = {**NAMES, "t": "item ${{ vars.n }}"}
    whole, errors = render_tree(tree, names, "s")
    first = render_watched(tree, names, "s", defer="t")
    if not errors:
        assert render_tree(first.tree, names, "s") == (whole, ())


def test_names_and_members_are_found_without_evaluating():
    tree = {"a": "${{ vars.x ~ vars['y'] }}", "b": ["${{ item.z }}", "$${{ nope }}"]}
    assert members_used(tree, "vars") == {"x", "y"}
    assert members_used("${{ vars | tojson }}", "vars") == {"*"}
    assert members_used("${{ vars[vars.k] }}", "vars") >= {"*", "k"}
    assert uses_name(tree, "item")
    assert not uses_name(tree, "nope")
    assert not has_expression("$${{ x }}")
    assert has_expression("a${{ x }}")
    assert has_expression("a ${{ x")
    assert not uses_name("${{ item", "item")


def test_what_a_first_pass_made_is_not_rendered_again():
    names: dict[str, Any] = {"vars": {"l": ["${{ t }}"], "m": {"k": ["${{ t }}"]}}, "t": 1}
    first = render_watched({"l": "${{ vars.l }}", "m": "${{ vars.m }}"}, names, "s", defer="t")
    assert first.tree == {"l": ["$${{ t }}"], "m": {"k": ["$${{ t }}"]}}
    assert render_tree(first.tree, names, "s")[0] == {"l": ["${{ t }}"], "m": {"k": ["${{ t }}"]}}


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ("workspace/${{ t.name }}.py", ("workspace/**/*.py",)),
        ("workspace/a_${{ t.name }}/x.py", ("workspace/a_*/x.py", "workspace/a_*/**/x.py")),
        ("${{ t.name }}/x.py", ("**/x.py",)),
        ("bin/a-${{ t.name }}", ("bin/a-*", "bin/a-*/**/*")),
        ("${{ t.name }}-${{ t.a }}.c", ("**/*.c",)),
        ("o/[${{ t.name }}]*.c", ("o/**/**.c",)),
        ("${{ (t.name ~ '.cpp')[:6] }}", ("**",)),
        ("${{ t.artifacts | under('workspace') }}", ("workspace/**",)),
        ("${{ t.artifacts | under(vars.package) }}", ("todo/**",)),
        ("${{ t.artifacts | under('./' ~ vars.package) }}", ("todo/**",)),
        ("${{ t.artifacts | under('.') }}", ("**",)),
        ("specs/todo.md#${{ t.section }}", ("specs/todo.md",)),
        ("${{ t.path }}", ("**",)),
        ("${{ t.name | lower }}", ("**",)),
        ("${{ t.name | length }}", ("**",)),
        ("${{ [t.a, 'b'] | join('/') }}", ("**",)),
        ("${{ 'x' if t.flag else 'y' }}", ("**",)),
        ("${{ t.f() }}", ("**",)),
        ("${{ vars.package ~ '/x/' ~ t.name }}", ("todo/x/**",)),
        ("${{ vars.package }}/plain", ("todo/plain",)),
    ],
)
def test_an_unknown_item_gives_a_pattern_that_holds_whatever_it_may_be(text, patterns):
    tree, errors = render_tree([text], {**NAMES, "t": UNKNOWN}, "s")
    assert errors == ()
    assert isinstance(tree, list)
    assert possible_patterns(tree) == patterns
    item: dict[str, Any] = {
        "name": "deep/er",
        "artifacts": ["q/r.py"],
        "section": "S",
        "path": "p.py",
        "a": "z",
        "flag": False,
    }
    known, errors = render_tree([text], {**NAMES, "t": item}, "s")
    assert isinstance(known, list)
    for path in known if not errors else ():
        if isinstance(path, str):
            assert any(may_overlap(pattern, path.partition("#")[0]) for pattern in patterns)


def test_listings_read_no_file_and_give_no_pattern():
    assert possible_patterns([{"list": "a/**"}, {"path": "b#c", "optional": True}, "b", 7]) == ("b",)


# ---- files ------------------------------------------------------------------------------------


def test_a_template_keeps_its_last_newline_and_sees_only_its_names():
    assert render_text("hi {{ vars.package }}\n", NAMES, "p.j2") == "hi todo\n"
    assert render_text("{% for x in vars.l %}{{ loop.index }}{{ x }}{% endfor %}", NAMES, "p.j2") == "1a2b"


def test_text_of_data_is_never_a_template():
    assert render_text("{{ vars.t }}", {"vars": {"t": "{{ 7*7 }} ${{ x }}"}}, "p.j2") == "{{ 7*7 }} ${{ x }}"


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("a\n{{ vars.packge }}\n", 2, "no `packge`"),
        ("a\n\n{% if %}", 3, "Expected"),
        ("\n\n{{ foo }}", 3, "`foo` is not defined"),
        ("\n{{ 1 / 0 }}", 2, "division"),
        ("{{ 1 | fooo }}", 1, "fooo"),
        ("\n{% include 'x' %}", 2, "no template `x`"),
        ("{{ ''.__class__.__mro__ }}", 1, "unsafe"),
        ("{{ 'x' * 10000000000 }}", 1, "numbers only"),
        ("{% for i in range(99999) %}" + "x" * 50 + "{% endfor %}", 1, "4194304"),
        ("{% for a in range(9) %}{{ boom }}", 1, "Unexpected end"),
    ],
)
def test_a_bad_template_names_its_line(source, line, words):
    with pytest.raises(TemplateFileError) as caught:
        render_text(source, NAMES, "p.j2")
    assert caught.value.line == line
    assert caught.value.name == "p.j2"
    assert words in caught.value.message


def test_a_template_names_the_nearest_member():
    with pytest.raises(TemplateFileError) as caught:
        render_text("{{ vars.packge }}", NAMES, "p.j2")
    assert caught.value.hint == "did you mean `package`?"


@pytest.mark.parametrize("tag", ["include 'p.j2'", "import 'p.j2' as p", "extends 'p.j2'", "from 'p.j2' import p"])
def test_a_template_cannot_load_another_one(tag):
    with pytest.raises(TemplateFileError, match=r"no template `p\.j2`"):
        render_text("{% " + tag + " %}", NAMES, "p.j2")


def test_a_mark_in_data_changes_no_template():
    assert render_text("{{ t | trim }}", {"t": " a\ufdd0b "}, "p.j2") == "a\ufdd0b"


@given(st.text(max_size=60))
def test_no_text_makes_rendering_raise(text):
    tree, errors = render_tree({"k": text, "e": "${{" + text + "}}"}, NAMES, "s")
    assert errors or json.dumps(tree)


def test_json_is_written_as_it_is_and_not_as_for_html():
    value = {"z": "<b> & 'c'", "a": ("é", 1, None)}
    names = {"vars": {"value": value}}
    assert render_text("{{ vars.value | tojson }}", names, "p.j2") == '{"z": "<b> & \'c\'", "a": ["é", 1, null]}'
    assert render_text("{{ vars.value | tojson(2) }}", names, "p.j2") == json.dumps(value, indent=2, ensure_ascii=False)
    with pytest.raises(TemplateFileError, match="has no `gone`"):
        render_text("{{ vars.gone | tojson }}", names, "p.j2")
    with pytest.raises(TemplateFileError, match="`tojson` needs texts, numbers"):
        render_text("{{ range(3).count | tojson }}", names, "p.j2")
