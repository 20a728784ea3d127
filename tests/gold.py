"""Texts that are compared with a file under tests/golden/; `make regold` writes them anew, for a person to read."""

import os
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


@dataclass(frozen=True, slots=True)
class Golden:
    """Compares; with `rewrite` it writes instead, and the difference is seen in the version control's diff."""

    folder: Path = FOLDER
    rewrite: bool = False

    def check(self, name: str, text: str) -> None:
        """Hold a text to the file of this name."""
        file = self.folder / name
        if self.rewrite:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            return
        assert file.exists(), f"there is no tests/golden/{name}: make regold, and read what it wrote"
        wanted = file.read_text(encoding="utf-8")
        reported = unified_diff(wanted.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="")
        assert text == wanted, "\n".join(["not as it was; if it is meant: make regold", *reported])


def golden_from_environment() -> Golden:
    """Give the comparer that REGOLD asks for."""
    return Golden(rewrite=os.environ.get("REGOLD") == "1")
