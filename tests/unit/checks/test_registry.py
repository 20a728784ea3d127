"""The registry, and the catalogue of codes that the checks raise."""

import re
from collections import Counter
from pathlib import Path

import pytest

from orch23.checks.check import CheckInput
from orch23.checks.registry import CHECKS, check_codes

CODES = check_codes()
ROOT = Path(__file__).parents[3]
SANDBOX_DIRS = (ROOT / "orch23" / "checks", ROOT / "orch23_checks")


def test_a_check_is_found_by_the_name_it_gives_itself() -> None:
    assert all(check.name == name for name, check in CHECKS.items())


def test_revisions_are_pinned_since_they_are_part_of_keys() -> None:
    changed = {"json_schema": 2}
    assert {name: check.revision for name, check in CHECKS.items()} == {**dict.fromkeys(CHECKS, 1), **changed}


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_every_check_refuses_an_option_it_does_not_know_and_runs_on_nothing(name: str) -> None:
    found = CHECKS[name].run(CheckInput(outputs={}, options={"no_such_option": 1}))
    assert any(d.code == "E315" and "no_such_option" in d.message for d in found)


def test_every_code_that_is_raised_is_explained_and_every_explanation_is_of_a_code_that_is_raised() -> None:
    used = Counter(
        code
        for room in SANDBOX_DIRS
        for module in room.glob("*.py")
        for code in re.findall(r'"([EW]\d{3})"', module.read_text())
    )
    assert {code for code in CODES if used[code] < 2} == set(), "it is explained, and never raised"
    assert used.keys() == CODES.keys()


@pytest.mark.parametrize("code", sorted(CODES))
def test_an_explanation_is_a_short_title_and_a_paragraph(code: str) -> None:
    title, paragraph = CODES[code]
    assert title
    assert not title.endswith(".")
    assert len(title) < 60
    assert paragraph.endswith(".")
    assert len(paragraph) > 80
