"""What an edit costs in calls of models: each is built here, and the page says what came of it."""

import importlib
import os
from pathlib import Path

import pytest

from tests.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # whole builds: some forty in `make thorough`

ROOT = Path(__file__).parents[2]
_STRIDE = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 4


def test_the_page_says_what_each_edit_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    economy = importlib.import_module("bench.model_economy")

    def build(root: Path, words: tuple[str, ...]) -> int:
        return Project(root).run(*words).code

    edits = economy.EDITS
    monkeypatch.setattr(economy, "EDITS", edits[::_STRIDE])
    whole, rows = economy.measure(tmp_path, build)
    shown = (ROOT / "docs" / "economy.md").read_text()
    if _STRIDE == 1:
        assert economy.page(whole, rows) == shown, "`make economy`, and read what differs"
    written = _rows(shown)
    assert [line.split(" | ")[0] for line in written] == [f"| {edit.name}" for edit in edits]
    assert _rows(economy.page(whole, rows)) == written[::_STRIDE], "`make economy`, and read what differs"
    assert len(edits) >= 20
    assert 4 * sum(row.calls for row in rows) < sum(row.whole for row in rows)


def _rows(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("| ")][1:]
