"""Templates do a bounded work, and honest ones do not notice it."""

import pytest

from orch23.resolve.template_limits import MAX_TEMPLATE_STEPS, MAX_TEMPLATE_VALUES, TemplateLimitError, check_size
from orch23.resolve.templates import TemplateFileError, render_text
from tests.rendered_tree import render_tree

HONEST = {
    "{% for a in l %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %}": "1/2,2/2",
    "{% for k, v in m.items() %}{{ k ~ '=' ~ v }};{% endfor %}": "a=1;b=2;",
    "{% for a in l recursive %}{{ a }}{% if a == 1 %}{{ loop([3]) }}{% endif %}{% endfor %}": "132",
    "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(1) }}{{ f('a') }}": "<1><a>",
    "{% set a %}x{{ 1 }}{% endset %}{{ a ~ a }}": "x1x1",
    "{% set a, b = (1, 2) %}{{ a + b }}{{ [a, b] + [3] }}{{ {'k': a}.k }}": "3[1, 2, 3]1",
    "{{ l | map('string') | join('-') }}{{ 'a,b'.replace(',', ';') }}{{ '-'.join(['a', 'b']) }}": "1-2a;ba-b",
    "{{ l | batch(3, 'x') | list }}{{ 2.345 | round(1) }}{{ 'a\nb' | indent(2) }}": "[[1, 2, 'x']]2.3a\n  b",
    "{{ missing is defined }}{{ [missing, 1] | select('defined') | list }}": "False[1]",
    "{% for a in nothing | default([]) %}{{ a }}{% else %}none{% endfor %}": "none",
}


@pytest.mark.parametrize("source", HONEST)
def test_honest_templates_render_as_ever(source: str) -> None:
    assert render_text(source, {"l": [1, 2], "m": {"a": 1, "b": 2}}, "t") == HONEST[source]


def test_a_long_template_stays_within_the_limits() -> None:
    lines = "{% for a in l %}{{ loop.index ~ ': ' ~ (a | upper) }}\n{% endfor %}"
    assert render_text(lines, {"l": ["text"] * 10_000}, "t").count("TEXT") == 10_000


def test_each_rendering_has_a_budget_of_its_own() -> None:
    source = "{% for a in range(" + str(MAX_TEMPLATE_STEPS // 4) + ") %}{% endfor %}done"
    assert [render_text(source, {}, "t") for _ in range(8)] == ["done"] * 8


@pytest.mark.slow
def test_a_loop_over_what_a_filter_gives_is_counted() -> None:
    inner = "{% for b in l | map('int') %}{% endfor %}"
    with pytest.raises(TemplateFileError, match="steps"):
        render_text("{% for a in l %}" + inner + "{% endfor %}", {"l": [1] * 5_000}, "t")


def test_a_block_that_is_kept_is_capped() -> None:
    source = "{% set a %}{% for b in range(10) %}{{ l }}{% endfor %}{% endset %}done"
    with pytest.raises(TemplateFileError, match="characters"):
        render_text(source, {"l": "a" * (1 << 20)}, "t")


def test_what_is_not_defined_inside_of_a_list_is_not_written() -> None:
    with pytest.raises(TemplateFileError):
        render_text("{{ [1, missing] }}", {}, "t")


def test_an_expression_keeps_what_is_in_its_lists() -> None:
    tree, errors = render_tree({"a": "${{ [vars.x, 'b'] }}"}, {"vars": {"x": 1}}, "")
    assert (tree, errors) == ({"a": [1, "b"]}, ())


def test_a_value_is_weighed_as_often_as_it_is_there() -> None:
    value: list[object] = [1]
    for _ in range(40):
        value = [value, value]
    with pytest.raises(TemplateLimitError, match=f"{MAX_TEMPLATE_VALUES:,}"):
        check_size(value)
