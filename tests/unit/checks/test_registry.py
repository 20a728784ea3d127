"""The registry, and the codes that the checks raise."""

import re
from collections import Counter
from pathlib import Path

import pytest

from orch23.checks.check import CheckInput
from orch23.checks.registry import CHECKS

ROOT = Path(__file__).parents[3]
CODE = re.compile(r'"([EW]\d{3})"')
SHARED = {"E310", "E313", "E314", "E315"}


def test_a_check_is_found_by_the_name_it_gives_itself() -> None:
    assert all(check.name == name for name, check in CHECKS.items())


def test_revisions_are_pinned_since_they_are_part_of_keys() -> None:
    changed = {"json_schema": 2}
    assert {name: check.revision for name, check in CHECKS.items()} == {**dict.fromkeys(CHECKS, 1), **changed}


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_every_check_refuses_an_option_it_does_not_know_and_runs_on_nothing(name: str) -> None:
    found = CHECKS[name].run(CheckInput(outputs={}, options={"no_such_option": 1}))
    assert any(d.code == "E315" and "no_such_option" in d.message for d in found)


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_a_check_names_exactly_the_codes_that_only_it_raises(name: str) -> None:
    module = ROOT / f"{CHECKS[name].run.__module__.replace('.', '/')}.py"
    own = set(CODE.findall(module.read_text())) - SHARED
    assert own == set(CHECKS[name].codes) != set()


def test_every_code_of_a_check_is_raised_and_every_code_that_is_raised_is_of_a_check() -> None:
    modules = (path for package in ("orch23/checks", "orch23_checks") for path in (ROOT / package).glob("*.py"))
    used = Counter(code for module in modules for code in CODE.findall(module.read_text()))
    named = [code for check in CHECKS.values() for code in check.codes]
    assert len(named) == len(set(named))
    assert used.keys() == {*named, *SHARED}
    assert [code for code in named if used[code] < 2] == [], "it is named, and never raised"
