"""The comparer of golden files has teeth."""

from pathlib import Path

import pytest

from tests.gold import Golden


def test_a_text_is_held_to_its_file(tmp_path: Path) -> None:
    Golden(tmp_path, rewrite=True).check("a/b.txt", "one\ntwo\n")
    Golden(tmp_path).check("a/b.txt", "one\ntwo\n")
    with pytest.raises(AssertionError, match=r"-two\n\+three"):
        Golden(tmp_path).check("a/b.txt", "one\nthree\n")
    with pytest.raises(AssertionError, match="make regold"):
        Golden(tmp_path).check("a/b.txt", "one\ntwo")


def test_a_missing_file_is_not_made_in_passing(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"there is no tests/golden/c\.txt"):
        Golden(tmp_path).check("c.txt", "")
    assert list(tmp_path.iterdir()) == []
