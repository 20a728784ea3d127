"""Names of prompts that nothing defines are found without a rendering."""

import pytest

from orch23.model.pipeline import Stage
from orch23.resolve.prompt_files import PROMPT_NAMES, prompt_names
from orch23.resolve.template_errors import undefined_names
from orch23.steps.shell.spec import ShellStep

NAMES = ("inputs", "item", "brief", "vars")


def found(text: str) -> list[str]:
    return [f"{one.location}: {one.message}; {one.hint}" for one in undefined_names("p.j2", text, NAMES)]


def test_the_first_use_of_each_name_is_reported_with_the_nearest_known_one() -> None:
    assert found("Write.\n{{ inptus | blocks }} {{ inptus }}\n{% for one in bref %}{{ one }}{% endfor %}\n") == [
        "p.j2:2:4: `inptus` is not defined; did you mean `inputs`?",
        "p.j2:3:15: `bref` is not defined; did you mean `brief`?",
    ]


def test_a_name_like_no_other_gets_the_known_ones() -> None:
    assert found("{{ zzz }}") == ["p.j2:1:4: `zzz` is not defined; known here: `brief`, `inputs`, `item`, `vars`"]


@pytest.mark.parametrize(
    "text",
    [
        "{{ inputs | blocks }}{{ vars.nothing }}",
        "{% set mine = 1 %}{{ mine }}",
        "{% for one in inputs %}{{ one.path }}{{ loop.index }}{% endfor %}",
        "{% macro named(a, b=1) %}{{ a }}{{ b }}{{ caller() if caller }}{% endmacro %}{{ named(1) }}",
        "{% for n in range(3) %}{{ n }}{% endfor %}",
        "{% if extra is defined %}{{ extra }}{% endif %}",
        "{{ nowhere is undefined }}",
        "{{ unclosed",
        "{# {{ comment }} #}{% raw %}{{ raw }}{% endraw %}",
    ],
)
def test_names_that_a_template_sets_or_asks_for_are_no_errors(text: str) -> None:
    assert found(text) == []


def test_the_known_names_are_those_that_a_prompt_gets() -> None:
    stage = Stage(name="a", step=ShellStep("x"))
    assert tuple(sorted(prompt_names(stage, (), {}, schema=None))) == tuple(sorted(PROMPT_NAMES))
