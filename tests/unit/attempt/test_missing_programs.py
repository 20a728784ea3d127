"""Which programs a command certainly needs, and which messages say that one could not be started."""

import pytest

from orch23.attempt.missing_programs import _SAID, _first, _programs, _started


@pytest.mark.parametrize(
    ("command", "programs", "certain"),
    [
        ("cargo test", ["cargo"], ["cargo"]),
        ("A=1 cargo test 2>&1 | tee > log", ["cargo", "tee"], ["cargo"]),
        ("a && b | c", ["a", "b", "c"], ["a"]),
        ("a && b; c", ["a", "b", "c"], []),
        ("a && b || c; d & e\nif f; then g; fi", ["c", "e", "g", "fi"], []),
        ("! a; b", ["b"], []),
        ("# it's\na # don't", ["a"], ["a"]),
        ("x=$(a b)", ["a"], []),
        ("(cd x && a)", ["cd", "a"], []),
        ("a() { b; }\na", ["b", "}", "a"], []),
        ("a; . ./e; b", ["a"], ["a"]),
        ("a; PATH=x:$PATH; b", ["a"], ["a"]),
        ("a; export PATH=x; b", ["a"], ["a"]),
        ("a <<E\nb c\nE\nd", ["a", "b", "E", "d"], ["a"]),
        ("a 'b; c'", ["a"], ["a"]),
        ("nohup a", ["nohup", "a"], ["nohup"]),
        (("a", "b"), ["a"], ["a"]),
        (("timeout", "5", "a"), ["timeout", "5", "a"], ["timeout"]),
        ("sh -c 'a | b'", ["sh", "sh", "-c", "a", "b"], ["sh"]),
        ("", [], []),
        ("'", [], []),
    ],
)
def test_programs_of_a_command(command: str | tuple[str, ...], programs: list[str], certain: list[str]) -> None:
    assert (list(_programs(command)), _started(_first(command))[:1]) == (programs, certain)


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("bash: line 1: cargo: command not found", "cargo"),
        ("sh: 1: cargo: not found", "cargo"),
        ("/bin/sh: 1: cargo: not found", "cargo"),
        ("cargo: not found", "cargo"),
        ("env: \u2018cargo\u2019: No such file or directory", "cargo"),
        ("timeout: failed to run command 'cargo': No such file or directory", "cargo"),
        ("bash: line 1: ./x: cannot execute: required file not found", "./x"),
        ("bash: line 1: ./d: Is a directory", "./d"),
        ("./gen.sh: line 2: cargo: command not found", None),
        ("gen.sh: line 2: cargo: command not found", None),
        ("bash: line 3: cargo: unbound variable", None),
        ("cat: a.md: No such file or directory", None),
    ],
)
def test_messages_of_shells_and_starters(line: str, program: str | None) -> None:
    found = _SAID.fullmatch(line)
    assert (found and found[1]) == program


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    assert 0 < len(list(_programs("a;" * 200_000))) < 50_000
    assert list(_programs("'" + "a" * 400_000)) == []
