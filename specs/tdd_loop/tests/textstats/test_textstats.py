"""Tests by hand, in the place of those that a model writes: `--set write_tests=false`."""

from textstats.cli import main
from textstats.stats import mean_length, most_common
from textstats.words import words


def test_words():
    assert words("'Tis the dogs' don't") == ["tis", "the", "dogs", "don't"]


def test_mean_length():
    assert mean_length(["a", "bb", "bb"]) == 1.67
    assert mean_length([]) == 0.0


def test_most_common():
    assert most_common(["pear", "fig", "pear", "fig", "apple"], 2) == [("fig", 2), ("pear", 2)]


def test_a_file_that_is_not_there(capsys):
    assert main(["nowhere.txt"]) == 1
    assert capsys.readouterr().err == "textstats: nowhere.txt: no such file\n"
