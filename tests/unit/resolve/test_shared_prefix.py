"""The line of a prompt at which its renderings begin to differ, and what comes after it."""

import pytest

from orch23.resolve.shared_prefix import INPUTS, find_volatile_line

RETRIES = frozenset({"brief", "previous", "attempt"})


def found(*texts: str, names: frozenset[str] = RETRIES) -> tuple[str, int, str] | None:
    files = [(f"{place}.j2", text) for place, text in enumerate(texts)]
    line = find_volatile_line(files, names)
    return (line.path, line.line, line.name) if line else None


@pytest.mark.parametrize(
    ("text", "line", "name"),
    [
        ("Do it.\n{{ brief.excerpt }}\n", 2, "brief"),
        ("Do it.\n{% if brief %}\nIt failed.\n{% endif %}\n", 2, "brief"),
        ("{% if vars.x %}\n{% elif previous %}{% endif %}\n", 2, "previous"),
        ("{% for one in inputs %}\n{{ one.text }}{{ attempt }}\n{% endfor %}\n", 2, "attempt"),
        ("{% for one in brief.failing %}{{ one }}{% endfor %}\n", 1, "brief"),
        ("{% set what = brief %}\nDo it.\n{{ what.kind }}\n", 3, "brief"),
        ("{% set what %}{{ previous }}{% endset %}\n{{ what }}\n", 2, "previous"),
        ("{% macro tell() %}{{ brief.kind }}{% endmacro %}\n\n{{ tell() }}\n", 3, "brief"),
        ("{% with what = attempt %}\n{{ what }}{% endwith %}\n", 2, "attempt"),
        ("{% filter upper %}\n\n{{ attempt }}{% endfilter %}\n", 3, "attempt"),
        ("{{ inputs | blocks }}\n{{ previous | block('x') if previous }}\n{{ attempt }}", 2, "previous"),
    ],
)
def test_it_is_the_first_line_that_depends_on_such_a_name(text: str, line: int, name: str) -> None:
    assert found(text) == ("0.j2", line, name)


@pytest.mark.parametrize(
    "text", ["Do it.\n", "{{ inputs | blocks }}", "{% set brief = vars.x %}{{ brief }}", "{% if %}", "{{ item }}"]
)
def test_a_prompt_without_one_has_none(text: str) -> None:
    assert found(text) is None


def test_a_system_prompt_comes_first() -> None:
    assert found("Be brief.", "{{ attempt }}") == ("1.j2", 1, "attempt")
    assert found("\n{{ attempt }}", "{{ brief }}") == ("0.j2", 2, "attempt")


def after(text: str, names: frozenset[str] = RETRIES) -> tuple[int, bool, set[str]]:
    line = find_volatile_line([("p.j2", text)], names)
    assert line is not None
    return line.literal, line.shows_all, line.keys


def test_what_comes_after_it_is_counted_without_what_differs() -> None:
    assert after("12345{{ attempt }}123{{ inputs | blocks }}4") == (4, True, set())
    assert after("{{ inputs | blocks }}{{ attempt }}12") == (2, False, set())
    assert after("{{ attempt }}{{ inputs['a.md'] | block }}{{ inputs['b.md#H'].text }}") == (
        0,
        False,
        {"a.md", "b.md#H"},
    )
    assert after("{{ attempt }}{% for one in inputs %}{{ one.text }},{% endfor %}") == (1, True, set())
    assert after("{{ attempt }}{% if brief %}1234{{ inputs | blocks }}{% endif %}12") == (2, False, set())
    assert after("{{ attempt }}{% set all = inputs | blocks %}{{ all }}") == (0, True, set())


BOTH = frozenset({"attempt", INPUTS})


def test_a_list_of_inputs_that_differs_in_part_is_a_line_too() -> None:
    text = "{% if inputs %}{{ inputs['a.md'] | block }}\n{{ inputs | blocks }}{% endif %}\n{{ attempt }}\n"
    assert found(text, names=BOTH) == ("0.j2", 2, INPUTS)
    assert found("{{ attempt }}{{ inputs | blocks }}", names=BOTH) == ("0.j2", 1, "attempt")
    assert found("{% for one in inputs %}\n{{ one.path }}{% endfor %}", names=BOTH) == ("0.j2", 1, INPUTS)


def test_of_such_a_list_only_what_comes_after_it_is_counted() -> None:
    assert after("{{ inputs | blocks }}123", BOTH) == (3, False, set())
    assert after("{% for one in inputs %}- {{ one.path }}{% endfor %}123", BOTH) == (3, False, set())
    assert after("{% for one in inputs %}- {{ one.path }}{% endfor %}{{ inputs | blocks }}", BOTH) == (0, True, set())
    assert after("{{ inputs | length }}{% for one in inputs %}{{ one.text }}{% endfor %}", BOTH) == (0, True, set())
