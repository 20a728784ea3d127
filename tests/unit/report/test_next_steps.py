"""What to do after a stage failed, and how to see more of a command that printed nothing."""

from typing import Any

import pytest

from orch23.model.event import StageFinished
from orch23.model.parsing import to_struct
from orch23.report.next_steps import next_step, trace_hint

KEY = {"kind": "limit", "text": "t", "key": "timeout", "value": "9s"}


def step_of(kind: str = "shell", start: str = "python -m pytest ", *, is_whole: bool = True, **data: Any) -> str:
    ended = to_struct({"status": "failed", "attempts": 1, "command": "x", "failure": "red", **data}, StageFinished)
    return next_step("a", ended, kind, lambda *words: " ".join(("orch23", *words)), start, is_whole=is_whole)


@pytest.mark.parametrize(
    ("cause", "step"),
    [
        (KEY, "make this change"),
        ({**KEY, "kind": "network_use"}, "if that is the cause, make this change"),
        ({"kind": "package", "text": "t", "hint": "install it"}, "correct that"),
    ],
)
def test_after_a_cause_comes_its_change_and_a_build(cause: dict[str, Any], step: str) -> None:
    assert step_of(cause=cause) == f"{step}, then `orch23 build`"
    assert step_of(cause=cause, is_whole=False).endswith("`orch23 build`; `orch23 show a` shows its output")
    assert step_of("llm", cause=cause).endswith("`orch23 build`; `orch23 show a --response`, `orch23 show a --prompt`")


def test_a_command_that_printed_nothing_is_run_alone_and_by_hand() -> None:
    alone = "`orch23 build a` runs this stage alone; without the sandbox: "
    assert step_of(command="bash -euo pipefail -c 'exit 3'", failure="") == (f"{alone}`bash -euo pipefail -c 'exit 3'`")
    assert step_of(command="grep -q x y", failure="") == f"{alone}`grep -q x y`"
    long = "`bash -euo pipefail -c TEXT`, with the text of `shell`"
    assert step_of(command="bash -euo pipefail -c 'a\nb'", failure="") == f"{alone}{long}"
    assert step_of(command=f"grep {'x' * 300}", failure="") == f"{alone}the command above"
    assert step_of() == "`orch23 show a` shows its output"


def test_after_failed_tests_comes_the_place_and_the_test_that_the_excerpt_shows_first() -> None:
    place = {"file": "t.py", "line": 8, "column": 1}
    problems = [
        {"code": "E301", "subject": "t.py::test_a"},
        {"code": "E301", "subject": "t.py::test_b[x y]", "location": place},
    ]
    facts: dict[str, Any] = {
        "failure": "2 tests with this cause: t.py::test_b[x y] (call): KeyError\n\nt.py::test_a (call): E",
        "command": "python -m pytest t.py",
        "problems": problems,
    }
    alone = "`python -m pytest 't.py::test_b[x y]'` runs this test alone"
    assert step_of("pytest", **facts) == f"start at t.py:8, then `orch23 build`; {alone}"
    assert step_of("pytest", "cd a && pytest ", **facts).endswith(
        "; `cd a && pytest 't.py::test_b[x y]'` runs this test alone"
    )
    assert step_of("pytest", "", **facts) == "start at t.py:8, then `orch23 build`"
    assert step_of("pytest", **{**facts, "command": "tox"}) == "start at t.py:8, then `orch23 build`"
    assert step_of("pytest", **{**facts, "failure": "t.py::test_a (call): E"}) == (
        "correct the test or the code, then `orch23 build`; `python -m pytest t.py::test_a` runs this test alone"
    )
    assert step_of("pytest", **{**facts, "problems": []}) == "`orch23 show a` shows its output"
    assert step_of("llm", **facts) == "`orch23 show a --response`, `orch23 show a --prompt`"


@pytest.mark.parametrize(
    ("command", "script"),
    [("./check.sh", "./check.sh"), ("bash check.sh x", "check.sh"), ("/bin/sh run", "run"), ("bash -x a.sh", "")],
)
def test_a_script_is_traced_in_its_own_file(command: str, script: str) -> None:
    hint = f"to see each command before it runs, write `set -x` in `{script}`, after its first line" if script else ""
    assert trace_hint(command, "p.yaml:3:4") == hint
    assert trace_hint(f"bash -euo pipefail -c '{command}'", "p.yaml:3:4") == hint


def test_only_a_text_that_bash_runs_can_be_traced() -> None:
    hint = "to see each command before it runs, write `set -x` at the beginning of `shell`"
    for several in ("a; b", "exit 3", "a | b", "x=$(a)", "a\nb", "! a", "a > b"):
        assert trace_hint(f"bash -euo pipefail -c '{several}'", "p.yaml:3:4") == f"{hint} (p.yaml:3:4)"
    assert trace_hint("bash -euo pipefail -c 'a; b'", "") == hint
    assert trace_hint("grep -q x y", "p.yaml:3:4") == ""
    assert trace_hint("bash -euo pipefail -c 'python t.py'", "p.yaml:3:4") == "", "bash would show its name alone"
