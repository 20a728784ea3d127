"""The place of a wrong name in an expression, and the fix."""

import pytest

from orch23.load.pipeline import parse_pipeline

HEAD = "version: 1\nvars: {model: m, m: {a: 1}}\nstages:\n  s:\n"


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
    text = f"{HEAD}{body}\n    desc: vars.modle of ${{{{ vars.model }}}}\n"
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
    (error,) = parse_pipeline(f"{HEAD}    shell: 'x ${{{{ vars.m.modle }}}}'\n", "p.yaml").diagnostics
    assert error.location is not None
    assert (error.location.column, error.location.length > 10, error.fix) == (12, True, None)


def test_the_hint_lists_what_exists_and_says_how_to_declare_more() -> None:
    def hint(expression: str, head: str = HEAD) -> str | None:
        (error,) = parse_pipeline(f"{head}    shell: echo ${{{{ {expression} }}}}\n", "p.yaml").diagnostics
        return error.hint

    assert hint("vars.modle") == "did you mean `model`? `vars` has `m`, `model`"
    assert hint("vars.x") == "`vars` has `m`, `model`: use one of these, or declare `x` there"
    assert hint("vars.x", "version: 1\nstages:\n  s:\n") == "declare it at the top of the file: `vars: {x: VALUE}`"
    assert hint("env.HOME") == (
        "an expression does not see the environment: declare `vars: {HOME: VALUE}`, write `vars.HOME`, and set it with "
        "`--set HOME=VALUE`"
    )
