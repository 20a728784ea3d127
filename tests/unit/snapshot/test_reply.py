"""What of a command line matters to a build with nothing to do."""

import pytest

from orch23.snapshot.reply import question


def asked(line: str) -> str:
    return question("/here", ["build", *line.split(" ")] if line else ["build"])


@pytest.mark.parametrize(
    "line", ["-j 4", "-j4", "--jobs=4", "--jobs 4", "-k", "--keep-going", "-k -j 2 --jobs=3 -j1", "-j 007"]
)
def test_the_number_of_jobs_and_going_on_do_not_matter(line: str) -> None:
    assert asked(line) == asked("")
    assert asked(f"p.yaml {line} one") == asked("p.yaml one")


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("1", ""),
        ("1", "2"),
        ("1 2", "2 1"),
        ("-j 4 1", "-j 1 4"),
        ("-j 4 1", "2"),
        ("-j", ""),
        ("-jx", ""),
        ("-j0", ""),
        ("-j 0", ""),
        ("--jobs", ""),
        ("--jobs=", ""),
        ("--jobs 4x", ""),
        ("--set -j 4", "--set"),
        ("--model -k p.yaml", "--model p.yaml"),
        ("--vars -j4 p.yaml", "--vars p.yaml"),
        ("-- -k", "--"),
        ("one two", "one\ntwo"),
        ("one\\ntwo", "one\ntwo"),
        ("one\\\ntwo", "one\\ntwo"),
    ],
)
def test_everything_else_matters(line: str, other: str) -> None:
    """Case: each word that was a number was left out, so `build 2` was answered as `build 1` had been."""
    assert asked(line) != asked(other)


def test_a_number_that_is_a_stage_is_kept_beside_the_number_of_jobs() -> None:
    assert asked("-j 4 1") == asked("1") == asked("1 --jobs=2")
