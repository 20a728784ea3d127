"""Which test ran when a program was killed: texts as the runners print them (versions as in golden/reports)."""

import json
from typing import Any

import pytest

from orch23.verdict.unfinished_test import last_started, stack_at_the_end, unfinished_of_pytest

TAPE = "TAP version 13\n# a\nok 1 should be strictly equal\n# hangs here\nok 2 should be strictly equal\n"
NODE = """TAP version 13
# Subtest: a
ok 1 - a
  ---
  duration_ms: 1.5
  ...
# Subtest: outer
    # Subtest: one
    ok 1 - one
"""
GTEST = "[----------] 2 tests from Sub\n[ RUN      ] Sub.Zero\n[       OK ] Sub.Zero (0 ms)\n[ RUN      ] Sub.Hang\n"
CTEST = "    Start 1: zero\n1/2 Test #1: zero ......   Passed    0.01 sec\n    Start 2: hang\n"
GO_TEXT = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestHang\n=== RUN   TestHang/y\n"
UNITTEST = "test_a (test_u.T.test_a) ... ok\ntest_b (test_u.T.test_b) ... "
PYTEST = "tests/test_a.py::test_x PASSED    [ 50%]\ntests/test_a.py::test_y[a b] "


def go(*events: tuple[str, str]) -> str:
    lines = ({"Action": action, "Package": "p", **({"Test": test} if test else {})} for action, test in events)
    return "".join(f"{json.dumps(one)}\n" for one in lines)


@pytest.mark.parametrize(
    ("form", "output", "expected"),
    [
        ("tap", TAPE, "hangs here"),
        ("tap", f"{TAPE}1..2\n# tests 2\n# pass  2\n", ""),
        ("tap", NODE, "outer"),
        ("tap", f"{NODE}    # Subtest: two\n", "outer > two"),
        ("tap", "TAP version 13\n1..2\nok 1 one\n", ""),
        ("", GTEST, "Sub.Hang"),
        ("", f"{GTEST}[  FAILED  ] Sub.Hang (0 ms)\n", ""),
        ("", CTEST, "hang"),
        ("", GO_TEXT, "TestHang/y"),
        ("", UNITTEST, "test_b (test_u.T.test_b)"),
        ("", PYTEST, "tests/test_a.py::test_y[a b]"),
        ("", "test tests::zero ... ok\ntest tests::hang ... ", "tests::hang"),
        ("", "compiling ...\nlinking\n", ""),
        ("", "# comment of a shell script\n", ""),
        ("go", go(("run", "A"), ("pass", "A"), ("run", "B"), ("run", "B/x"), ("output", "B/x")), "p > B/x"),
        ("go", go(("run", "A"), ("pause", "A"), ("run", "B"), ("pause", "B"), ("cont", "A")), "p > A"),
        ("go", go(("start", ""), ("run", "A"), ("pass", "A")), ""),
    ],
)
def test_the_test_that_began_last_is_named(form: str, output: str, expected: str) -> None:
    assert last_started(form, output) == expected


def report(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in ({"event": "start"}, *events))


def ended(name: str) -> dict[str, Any]:
    return {"event": "test", "id": name, "when": "teardown", "outcome": "passed", "made": "passed"}


COLLECTED = {"event": "collected", "ids": ["a::x", "a::y", "a::z"]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ""),
        (report(), "the collection of the tests"),
        (report(COLLECTED), "a::x"),
        (report(COLLECTED, ended("a::x")), "a::y"),
        (report(COLLECTED, *map(ended, ("a::x", "a::y", "a::z"))), ""),
    ],
)
def test_pytest_ran_the_first_test_that_did_not_end(given: bytes | None, expected: str) -> None:
    assert unfinished_of_pytest(given) == expected


def dump(*frames: str) -> str:
    return "".join(("Stack (most recent call first):\n", *(f"  File {one}\n" for one in frames)))


def test_of_a_stack_only_the_innermost_frames_of_the_project_are_shown() -> None:
    frames = (f'"/room/work/sub/a.py", line {n} in f{n}' for n in range(7, 0, -1))
    outside = '"/usr/lib/python3.12/threading.py", line 9 in wait'
    first = dump('"/room/work/sub/b.py", line 1 in g')
    printed = f"t/test_a.py .{first}{dump(outside, *frames, outside)}and more\n"
    kept, shown = stack_at_the_end(printed, "sub")
    assert kept == "t/test_a.py .and more\n"
    assert shown == ("a.py:3: in f3", "a.py:4: in f4", "a.py:5: in f5", "a.py:6: in f6", "a.py:7: in f7")


def test_an_output_without_a_stack_stays_as_it_is() -> None:
    text = 'Stack (most recent call first):\n  File "a", line\nTraceback (most recent call last):\n'
    assert stack_at_the_end(text, ".") == (text, ())
