"""Errors of prompts: what is wrong, where in its line, and what to write."""

import pytest

from orch23.resolve.template_errors import template_error
from orch23.resolve.templates import TemplateFileError, render_text

NAMES = {"inputs": ["a"], "vars": {"model": "m"}, "attempt": 1}

CASES = [
    ("Write {{ inputs }\n", "`{{` is not closed by `}}`", "1:7", "write `}}` at the end of the expression"),
    ("a\nWrite {{ inputs\n\nEnd.\n", "`{{` is not closed by `}}`", "2:7", "write `}}` at the end of the expression"),
    ("a\n{% if inputs %}\nb\n", "`{% if %}` is not closed", "2:1", "write `{% endif %}` after its text"),
    ("{% for x in inputs %}b", "`{% for %}` is not closed", "1:1", "write `{% endfor %}` after its text"),
    ("{% if attempt %}\n{% fi %}", "`fi` is not a tag here", "2:4", "did you mean `endif`?"),
    ("{% endif %}", "`endif` is not a tag here", "1:4", "remove it, or write `{% if ... %}` before it"),
    ("{% iff attempt %}{% endif %}", "`iff` is not a tag here", "1:4", "did you mean `if`?"),
    ("x {# y", "`{#` is not closed", "1:3", "write `#}` at the end of the comment"),
    ("{{ inputs | blocs }}", "`blocs` is not a filter", "1:13", "did you mean `blocks`?"),
    ("{{ vars.modle }}", "`vars` has no `modle`", "1:9", "did you mean `model`?"),
    ("{{ vars['modle'] }}", "`vars` has no `modle`", "1:10", "did you mean `model`?"),
    ("{{ inptus }}", "`inptus` is not defined", "1:4", "did you mean `inputs`?"),
]


def found(text: str) -> tuple[str, str, str | None]:
    with pytest.raises(TemplateFileError) as caught:
        render_text(text, NAMES, "p.j2")
    problem = template_error(caught.value, "p.j2", text)
    assert problem.code == "E832"
    assert problem.location is not None
    return problem.message, f"{problem.location.line}:{problem.location.column}", problem.hint


@pytest.mark.parametrize(("text", "message", "place", "hint"), CASES)
def test_an_error_has_its_place_and_a_way_out(text: str, message: str, place: str, hint: str) -> None:
    assert found(text) == (message, place, hint)


def test_a_second_word_is_named_with_the_form_of_filters() -> None:
    message, place, hint = found("{{ inputs blocks }}")
    assert (message, place) == ("`blocks` is not expected here", "1:11")
    assert "`{{ inputs | blocks }}`" in (hint or "")


def test_a_member_of_inputs_is_answered_with_what_inputs_has() -> None:
    message, place, hint = found("a {{ inputs.app }}")
    assert (message, place) == ("`inputs` has no `app`", "1:13")
    assert "`inputs | blocks`" in (hint or "")


def test_other_errors_keep_their_message_and_get_the_place_of_the_expression() -> None:
    message, place, _ = found("a\n  {{ 1 / 0 }}")
    assert message == "division by zero"
    assert place == "2:3"


def test_a_line_that_the_error_does_not_have_is_no_error_of_its_own() -> None:
    problem = template_error(TemplateFileError(9, "`x` is not defined"), "p.j2", "")
    assert problem.location is not None
    assert (problem.location.line, problem.location.column) == (1, 1)
