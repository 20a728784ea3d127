"""Each code of the catalogue is provoked from outside, so none is unreachable and none is without a way out."""

import ast
import importlib
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from orch23.cli.pages import diagnostic_codes
from orch23.model.diagnostic import Severity
from tests.catalogue import commands, pipeline, proposals, providers, running, shared_cache, store, templates
from tests.catalogue.provoking import Triggers
from tests.project import Project

FAMILIES: tuple[Triggers, ...] = tuple(
    family.TRIGGERS for family in (proposals, running, providers, store, shared_cache, templates, pipeline, commands)
)
TRIGGERS = {code: trigger for family in FAMILIES for code, trigger in family.items()}
SOURCE = Path(__file__).parents[2] / "orch23"
SLOW = frozenset({"E411", *(f"E67{number}" for number in (0, 3, 4, 5, 8, 9))})
OF_VENDORS = frozenset(f"E{number}" for number in (219, 220, 225, *range(412, 426), 427, 502)) | {
    "W425",
    "W669",
}  # their triggers call a model with the provider `openai`
OF_LOCAL = frozenset({"E406", "E410", "W802"})  # likewise with `local`
OF_TEMPLATES = frozenset(f"E67{number}" for number in range(10))
_LEAST = 60
_NEEDS_NO_HINT = frozenset({"E301"})  # the test that failed says what is wrong
_POSITION_OF_HINT, _POSITION_OF_SEVERITY = 3, 4


def marks_of(code: str) -> list[pytest.MarkDecorator]:
    features = [family.needs[code] for family in FAMILIES if code in family.needs]
    features += ["vendors"] if code in OF_VENDORS else []
    features += ["local"] if code in OF_LOCAL else []
    features += ["templates"] if code in OF_TEMPLATES else []
    return [*map(pytest.mark.needs, features), *([pytest.mark.slow] if code in SLOW else [])]


@pytest.mark.slow
@pytest.mark.usefixtures("prepared_copier")
@pytest.mark.parametrize("code", [pytest.param(code, marks=marks_of(code)) for code in sorted(TRIGGERS)])
def test_every_code_can_be_provoked(code: str, project: Project) -> None:
    assert code in set(TRIGGERS[code](project))


def test_there_is_one_trigger_for_every_code_of_the_catalogue() -> None:
    assert set(TRIGGERS) == set(diagnostic_codes())
    assert len(TRIGGERS) == sum(map(len, FAMILIES))


@pytest.mark.parametrize("code", sorted(diagnostic_codes()))
def test_every_explanation_says_more_than_its_title(code: str) -> None:
    title, text = diagnostic_codes()[code]
    assert title
    assert len(text) > _LEAST
    assert len(re.findall(r"[.!?](?:\s|$)", text)) > 1 or ";" in text, "what it means, and then a way out"


@cache
def calls() -> tuple[tuple[str, ast.Call], ...]:
    """Return every place of the source that makes a diagnostic or a warning, and the call."""
    return tuple(
        (f"{path.relative_to(SOURCE.parent)}:{node.lineno}", node)
        for path in sorted(SOURCE.parent.glob("orch23*/**/*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"Diagnostic", "Warned"}
    )


def calls_of(name: str) -> list[tuple[str, ast.Call]]:
    return [(place, call) for place, call in calls() if ast.unparse(call.func) == name]


def value_of(place: str, node: ast.expr | None) -> object:
    """Return the value of an expression in a module, if it is a constant there; None otherwise."""
    module = importlib.import_module(place.partition(":")[0].removesuffix(".py").replace("/", "."))
    try:
        return None if node is None else eval(ast.unparse(node), dict(vars(module)))
    except NameError:
        return None


@pytest.mark.slow
def test_an_error_has_a_code_with_e_and_a_warning_or_a_note_one_with_w() -> None:
    wrong, found = [], Counter[str]()
    for place, call in calls_of("Diagnostic"):
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        code = value_of(place, call.args[0] if call.args else keywords.get("code"))
        positional = dict(enumerate(call.args))
        node = keywords.get("severity") or positional.get(_POSITION_OF_SEVERITY)
        severity = Severity.ERROR if node is None else value_of(place, node)
        if isinstance(code, str) and isinstance(severity, Severity):
            found[severity] += 1
            wrong += [] if (code[0] == "E") == (severity is Severity.ERROR) else [f"{place}: {code}, {severity}"]
    assert wrong == []
    assert (found[Severity.ERROR] > 200, found[Severity.WARNING] > 10, found[Severity.NOTE] > 2) == (True, True, True)


@pytest.mark.slow
def test_no_event_is_a_warning_with_the_code_of_an_error() -> None:
    given = [(place, one.value) for place, call in calls_of("Warned") for one in call.keywords if one.arg == "code"]
    codes = [(place, ast.unparse(one), value_of(place, one)) for place, one in given]
    # Those that are not constants are the codes of warnings: of a check, of a stage, of a file.
    variables = {text for _, text, value in codes if value is None}
    assert variables == {"code", "one.code", "warning.code"}
    assert [one for one in codes if isinstance(one[2], str) and not one[2].startswith("W")] == []
    assert len(codes) > 8


def test_no_page_and_no_golden_file_shows_a_warning_with_the_code_of_an_error() -> None:
    root = SOURCE.parent
    files = [*root.glob("docs/**/*.md"), *root.glob("tests/golden/**/*"), root / "README.md"]
    texts = [path.read_text(errors="replace") for path in files if path.is_file()]
    assert [found for text in texts for found in re.findall(r"(?:warning|note)\[E\d+|error\[W\d+", text)] == []


@pytest.mark.needs("authoring")
def test_help_of_a_code_that_was_renamed_shows_the_new_one(project: Project) -> None:
    assert project.run("help", "e731").out.startswith("W731: ")


@pytest.mark.slow
def test_every_error_is_made_with_a_way_out() -> None:
    found = calls_of("Diagnostic")
    assert len(found) > len(diagnostic_codes())
    without = [
        place
        for place, call in found
        if len(call.args) <= _POSITION_OF_HINT
        and not any(keyword.arg == "hint" for keyword in call.keywords)
        and not (isinstance(call.args[0], ast.Constant) and call.args[0].value in _NEEDS_NO_HINT)
    ]
    assert without == []
