"""Errors in values: the place of a wrong name in an expression, its fix, and `{{ }}` without its `$`."""

import pytest

from orch23.load.pipeline import parse_pipeline

HEAD_OF_MODELS = "version: 1\nvars: {model: m, m: {a: 1}}\nstages:\n  s:\n"


@pytest.mark.parametrize(
    ("body", "line", "marked", "fixed"),
    [
        ("    shell: echo ${{ vars.modle }}", 5, "modle", "model"),
        ('    shell: [a, "x${{ vars.model }}-${{ vars.modle }}"]', 5, "modle", "model"),
        ("    shell: ['${{ vars[''modle''] }}']", 5, "modle", "model"),
        ("    shell: ['${{ vars [ \"modle\" ] }}']", 5, "modle", "model"),
        ("    shell: |\n      echo vars.modle\n\n      echo ${{ vars.modle }}", 8, "modle", "model"),
        ("    shell: echo ${{ vars.model ~ model }}", 5, "model", "vars.model"),
        ("    shell: echo ${{ vars.model ~ var.model }}", 5, "var", "vars"),
        ("    shell: echo ${{ vars.nothing_like_it }}", 5, "nothing_like_it", None),
    ],
)
def test_the_name_itself_is_underlined(body: str, line: int, marked: str, fixed: str | None) -> None:
    text = f"{HEAD_OF_MODELS}{body}\n    desc: vars.modle of ${{{{ vars.model }}}}\n"
    (error,) = parse_pipeline(text, "p.yaml").diagnostics
    place = error.location
    assert (error.code, place is not None) == ("E840", True)
    assert place is not None
    assert place.line == line
    shown = text.split("\n")[line - 1]
    assert shown[place.column - 1 :][: place.length] == marked
    assert "${{" in shown[: place.column]
    if marked == "model":
        assert not shown[: place.column - 1].endswith(".")
    assert error.fix == (None if fixed is None else (marked, fixed))


def test_a_name_that_the_text_does_not_have_keeps_the_place_of_the_value() -> None:
    (error,) = parse_pipeline(f"{HEAD_OF_MODELS}    shell: 'x ${{{{ vars.m.modle }}}}'\n", "p.yaml").diagnostics
    assert error.location is not None
    assert (error.location.column, error.location.length > 10, error.fix) == (12, True, None)


def test_the_hint_lists_what_exists_and_says_how_to_declare_more() -> None:
    def hint(expression: str, head: str = HEAD_OF_MODELS) -> str | None:
        (error,) = parse_pipeline(f"{head}    shell: echo ${{{{ {expression} }}}}\n", "p.yaml").diagnostics
        return error.hint

    assert hint("vars.modle") == "did you mean `model`? `vars` has `m`, `model`"
    assert hint("vars.x") == "`vars` has `m`, `model`: use one of these, or declare `x` there"
    assert hint("vars.x", "version: 1\nstages:\n  s:\n") == "declare it at the top of the file: `vars: {x: VALUE}`"
    assert hint("env.HOME") == (
        "an expression does not see the environment: declare `vars: {HOME: VALUE}`, write `vars.HOME`, and set it with "
        "`--set HOME=VALUE`"
    )


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
