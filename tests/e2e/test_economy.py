"""What an edit costs in calls of models: each is built here, and the page says what came of it."""

import importlib
from pathlib import Path

import pytest

from tests.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # some forty whole builds

ROOT = Path(__file__).parents[2]


def test_the_page_says_what_each_edit_costs(tmp_path: Path) -> None:
    economy = importlib.import_module("bench.model_economy")

    def build(root: Path, words: tuple[str, ...]) -> int:
        return Project(root).run(*words).code

    whole, rows = economy.measure(tmp_path, build)
    assert economy.page(whole, rows) == (ROOT / "docs" / "economy.md").read_text(), (
        "`make economy`, and read what differs"
    )
    assert len(rows) >= 20
    assert 4 * sum(row.calls for row in rows) < sum(row.whole for row in rows)
