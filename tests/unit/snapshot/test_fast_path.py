"""The identity of a command line, and of the program."""

import pytest

from orch23.cli.commands.building import build_command
from orch23.snapshot.fast_path import (
    KNOWN_FLAGS,
    KNOWN_VALUE_OPTIONS,
    SHARED_FLAGS,
    command_identity,
    program_identity,
)

DECIDED = {
    "--dry-run",
    "-n",
    "--json",
    "--resample",
    "--live",
    "--wait",
    "--ask",
    "--junit",
    "--trace",
    "--otel",
    "--plan",
}
"""The options with which a build is decided each time."""
WITHOUT_PART = {"--jobs", "-j", "--wait-lock", "--force", "-f", *SHARED_FLAGS}


def identity_of(line: str) -> str | None:
    return command_identity("/here", ["build", *line.split(" ")] if line else ["build"])


@pytest.mark.parametrize(
    "line",
    ["-j 4", "-j4", "--jobs=4", "--jobs 4", "-k -j 2 --jobs=3 -j1", "-j 007", "-k --replay", *sorted(SHARED_FLAGS)],
)
def test_jobs_and_options_that_share_a_snapshot_are_not_part_of_the_identity(line: str) -> None:
    assert identity_of(line) == identity_of("")
    assert identity_of(f"p.yaml {line} one") == identity_of("p.yaml one")


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("1", ""),
        ("1", "2"),
        ("1 2", "2 1"),
        ("-j 4 1", "-j 1 4"),
        ("-j 4 1", "2"),
        ("--output -j", "--output"),
        ("--model -k p.yaml", "--model p.yaml"),
        ("--vars -j4 p.yaml", "--vars p.yaml"),
        ("--set=a=b", "--set=a=c"),
        ("-q", ""),
        ("--budget 1", ""),
        ("--output --replay", "--output"),
        ("-- -k", "--"),
        ("one two", "one\ntwo"),
        ("one\\ntwo", "one\ntwo"),
        ("one\\\ntwo", "one\\ntwo"),
    ],
)
def test_every_other_argument_is_part_of_the_identity(line: str, other: str) -> None:
    """Case: each word that was a number was left out, so `build 2` was answered as `build 1` had been."""
    assert identity_of(line) != identity_of(other)


def test_a_number_that_is_a_stage_stays_beside_the_number_of_jobs() -> None:
    assert identity_of("-j 4 1") == identity_of("1") == identity_of("1 --jobs=2")


@pytest.mark.parametrize(
    "line",
    [
        *sorted(DECIDED),
        "--new",
        "--new=1",
        "-x",
        "-qv",
        "-j",
        "-jx",
        "-j0",
        "-j 0",
        "--jobs",
        "--jobs=",
        "--jobs 4x",
        "--set",
        "--quiet=1",
        "one --new two",
        "--set a=b --new",
        "--replay --offline",
        "--offline one -k --replay",
    ],
)
def test_an_unknown_option_and_a_contradiction_have_no_identity(line: str) -> None:
    assert identity_of(line) is None


def test_every_option_of_build_is_listed_as_known_or_not() -> None:
    """An option that is added has to be put into one of the lists: without thought it is in none, and is decided."""
    options = {name: one for one in build_command.params for name in one.opts if name.startswith("-")}
    groups = [KNOWN_FLAGS, KNOWN_VALUE_OPTIONS, DECIDED, WITHOUT_PART]
    assert set(options) == set().union(*groups)
    assert sum(map(len, groups)) == len(options)
    assert {name for name, one in options.items() if getattr(one, "is_flag", False)} >= KNOWN_FLAGS | SHARED_FLAGS
    assert not {name for name, one in options.items() if getattr(one, "is_flag", False)} & KNOWN_VALUE_OPTIONS


def test_another_search_path_is_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    before = program_identity()
    assert program_identity() == before
    monkeypatch.syspath_prepend("/elsewhere")
    assert program_identity() != before


def test_what_a_build_forces_does_not_matter_to_the_next_one() -> None:
    assert identity_of("--force one") == identity_of("-f one --force=two") == identity_of("")
    assert identity_of("--force one two") == identity_of("two")
    assert identity_of("--force") is None


def test_how_long_a_build_waits_for_the_lock_does_not_matter() -> None:
    assert identity_of("--wait-lock") == identity_of("--wait-lock=10m") == identity_of("")
    assert identity_of("--wait-lock a.yaml") == identity_of("a.yaml")
    assert identity_of("--wait-lock 10m") is None
