"""Values that look like an expression and lack its `$`."""

import pytest

from orch23.load.pipeline import parse_pipeline

HEAD = "version: 1\nvars: {a: x}\nstages:\n"


def warned(stages: str) -> list[str]:
    found = parse_pipeline(HEAD + stages, "p.yaml").diagnostics
    return [f"{one.location} {one.hint}" for one in found if one.code == "W805"]


def test_an_expression_without_its_dollar_is_found_wherever_it_is() -> None:
    assert warned("  s: {shell: 'echo {{ vars.a }}'}\n") == ["p.yaml:4:14 write `${{ vars.a }}`"]
    assert warned("  s:\n    shell: a\n    outputs: ['{{vars.a}}.md']\n") == ["p.yaml:6:15 write `${{vars.a}}`"]
    each = "  s: {foreach: {in: [1]}, shell: 'echo {{ item }}'}\n"
    assert warned(each) == ["p.yaml:4:34 write `${{ item }}`"]
    named = "  s: {foreach: {in: [1], as: one}, shell: 'echo {{ one }} {{ item }}'}\n"
    assert warned(named) == ["p.yaml:4:43 write `${{ one }}`"]


@pytest.mark.parametrize(
    "value",
    [
        "${{ vars.a }}",
        "docker ps --format {{.Names}}",
        "echo {{ item }}",
        "echo {{ inputs.x }}",
        "{{{ vars.a }}}",
        "echo { vars.a }",
        "${{ '{{ vars.a }}' }}",
    ],
)
def test_other_texts_in_braces_are_not_reported(value: str) -> None:
    assert warned(f'  s: {{shell: "{value}"}}\n') == []


def test_a_pipeline_with_many_of_them_has_a_limited_number_of_warnings() -> None:
    assert len(warned("".join(f"  s{n}: {{shell: 'echo {{{{ vars.a }}}}'}}\n" for n in range(50)))) == 10
