"""Each code of the catalogue is provoked from outside, so none is unreachable and none is without a way out."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch23.cli.catalogue import diagnostic_codes
from tests.catalogue import commands, pipeline, proposals, providers, running, shared_cache, store, templates
from tests.catalogue.provoking import Triggers
from tests.project import Project

FAMILIES: tuple[Triggers, ...] = tuple(
    family.TRIGGERS for family in (proposals, running, providers, store, shared_cache, templates, pipeline, commands)
)
TRIGGERS = {code: trigger for family in FAMILIES for code, trigger in family.items()}
SOURCE = Path(__file__).parents[2] / "orch23"
SLOW = frozenset({"E411", *(f"E67{number}" for number in (0, 3, 4, 5, 8, 9))})
_LEAST = 60
_NEEDS_NO_HINT = frozenset({"E301"})  # the test that failed says what is wrong
_POSITION_OF_HINT = 3


@pytest.mark.parametrize(
    "code", [pytest.param(code, marks=pytest.mark.slow) if code in SLOW else code for code in sorted(TRIGGERS)]
)
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


def problems() -> Iterator[tuple[str, ast.Call]]:
    """Give every place of the source that makes a diagnostic."""
    for path in sorted(SOURCE.parent.glob("orch23*/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Diagnostic":
                yield f"{path.relative_to(SOURCE.parent)}:{node.lineno}", node


def test_every_error_is_made_with_a_way_out() -> None:
    found = list(problems())
    assert len(found) > len(diagnostic_codes())
    without = [
        place
        for place, call in found
        if len(call.args) <= _POSITION_OF_HINT
        and not any(keyword.arg == "hint" for keyword in call.keywords)
        and not (isinstance(call.args[0], ast.Constant) and call.args[0].value in _NEEDS_NO_HINT)
    ]
    assert without == []
