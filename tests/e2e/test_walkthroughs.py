"""The pages whose commands are run print what they say."""

from pathlib import Path

import pytest

from tests.walkthrough import blocks, play

DOCS = Path(__file__).parents[2] / "docs"
# Page -> how many commands it has at least.
PAGES = {"tutorial.md": 15, "command-protocol.md": 3}


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_print_what_it_says(name: str, tmp_path: Path) -> None:
    assert sum(len(block.commands()) for block in blocks(DOCS / name)) >= PAGES[name]
    assert play(DOCS / name, tmp_path / "work") == []
