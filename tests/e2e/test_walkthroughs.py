"""The tutorial prints what it says."""

from pathlib import Path

from tests.walkthrough import blocks, play

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    page = DOCS / "tutorial.md"
    assert sum(len(block.commands()) for block in blocks(page)) > 15
    assert play(page, tmp_path / "work") == []
