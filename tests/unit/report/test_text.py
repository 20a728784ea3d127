"""The screen of a build: one line a stage, a summary, what failed last, nothing twice."""

from collections.abc import Iterator
from typing import Any

from orch23.model.diagnostic import Location
from orch23.model.event import Event
from orch23.model.pipeline import LLMStep, Pipeline, ShellStep, Stage
from orch23.report.marks import ASCII, PLAIN, Style
from orch23.report.text import TextScreen

PIPELINE = Pipeline(
    name="demo",
    file="p.yaml",
    stages=(
        Stage(name="a", step=ShellStep("x")),
        Stage(name="code", step=LLMStep(provider="scripted", model="m", prompt="p")),
    ),
    locations={"stages/a": Location("p.yaml", 4, 3), "stages/code": Location("p.yaml", 9, 3)},
)
STARTED = Event(
    "run_started",
    "building",
    data={"run_id": "r1", "stages": 2, "provider": ["scripted"], "model": ["m"], "sandbox": "none"},
)


def finished(role: str, status: str, message: str = "", **data: Any) -> Event:
    return Event("stage_finished", message or status, role=role, data={"status": status, **data})


def over(code: int, status: str) -> Event:
    return Event("run_finished", status, data={"status": status, "exit_code": code})


def screen(*events: Event, style: Style = PLAIN, **options: Any) -> str:
    written: list[str] = []
    ticks: Iterator[float] = iter((10.0, 12.5))
    shown = TextScreen(pipeline=PIPELINE, write=written.append, clock=lambda: next(ticks), style=style, **options)
    for event in (STARTED, *events):
        shown.notice(event)
    return "".join(written)


def test_a_build_with_nothing_to_do_is_one_line() -> None:
    assert screen(finished("a", "fresh"), finished("code", "fresh"), over(0, "ok")) == "demo: up to date (2 stages)\n"


def test_a_build_has_a_line_a_stage_and_a_summary() -> None:
    answered = Event("llm_response", "", role="code", data={"replayed": True})
    told = screen(
        finished("a", "fresh"),
        answered,
        finished(
            "code",
            "built",
            duration_s=1.25,
            calls=2,
            input_tokens=1200,
            output_tokens=80,
            attempts=3,
            outputs=["x.py", "y.py", "z.py", "w.py"],
            unchanged=True,
        ),
        over(0, "ok"),
    )
    assert told == (
        "demo: 2 stages   provider scripted model m   sandbox: none\n"
        " = a     fresh\n"
        " ✔ code  llm         1.2s   2 calls   1 recorded answer   1,200+80 tok   x.py y.py z.py +1"
        "   passed at attempt 3   same bytes as before\n"
        " 2 stages: 1 built, 1 fresh   2.5s   2 calls, 1,200+80 tokens   saved 1 call\n"
    )


def test_failures_come_last_with_place_excerpt_and_way_on() -> None:
    failed = finished(
        "code",
        "failed",
        "verify_failed: retries exhausted",
        duration_s=2,
        attempts=3,
        failure="E   assert 2 == 1",
        command="pytest -q",
    )
    told = screen(finished("a", "built", duration_s=0.1, outputs=["a.txt"]), failed, over(1, "failed"))
    lines, _, block = told.partition("\n\n")
    assert lines.endswith("2 stages: 1 built, 1 failed   2.5s")
    assert block == (
        "✘ code  p.yaml:9:3\n"
        "  $ pytest -q (attempt 3)\n"
        "  | E   assert 2 == 1\n"
        "  next: `orch23 show p.yaml code --response`, `orch23 show p.yaml code --prompt`\n"
        "\nfailed: the log is logs/r1.jsonl; `orch23 log` shows it\n"
    )
    assert told.count("assert 2 == 1") == 1


def test_an_edited_stage_says_what_a_person_can_do() -> None:
    edited = finished("a", "edited", "edited by hand: a.txt", paths=["a.txt"])
    told = screen(edited, finished("code", "blocked", "blocked by a"), over(6, "decision"))
    assert "! a  p.yaml:4:3\n  edited by hand: a.txt\n  next: `orch23 accept p.yaml a`" in told
    assert " - code  blocked            blocked by a\n" in told
    assert told.endswith("decision: the log is logs/r1.jsonl; `orch23 log` shows it\n")


def test_a_long_failure_is_cut_in_its_middle() -> None:
    text = "\n".join(f"line {n}" for n in range(100))
    told = screen(finished("a", "failed", "verify_failed", failure=text, attempts=1), over(1, "failed"))
    assert "| line 5\n  | ... 76 lines ...\n  | line 82\n" in told
    assert "| line 99\n" in told


def test_quiet_leaves_warnings_and_failures() -> None:
    warning = Event("warning", "inputs changed", role="a", level="warning")
    done = (finished("a", "built", outputs=["a.txt"]), over(0, "ok"))
    assert screen(*done, quiet=True) == ""
    assert screen(warning, *done, quiet=True) == "warning: a: inputs changed\n"
    told = screen(finished("a", "failed", "timeout", failure="late"), over(1, "failed"), quiet=True)
    assert told.startswith("\n✘ a  p.yaml:4:3\n  | late\n")


def test_verbose_says_why_and_shows_attempts_and_fresh_stages() -> None:
    decided = Event(
        "stage_decided",
        "run",
        role="a",
        data={"decision": "run", "reasons": [{"code": "input_changed", "subject": "in.txt"}]},
    )
    attempt = Event("attempt_started", "attempt 1 of 3", role="a")
    told = screen(decided, attempt, finished("code", "fresh"), over(0, "ok"), verbose=True)
    assert "   a     run: in.txt changed\n" in told
    assert "   a     attempt 1 of 3\n" in told
    assert " = code  fresh\n" in told


def test_restored_files_and_files_taken_away_are_named() -> None:
    told = screen(
        Event("stage_restored", "restored", role="a", data={"files": ["a.txt"]}),
        finished("a", "restored"),
        Event("promoted", "gone", role="orch23", data={"files": [], "removed": ["old.txt"]}),
        over(0, "ok"),
    )
    assert " ✔ a     restored           a.txt\n" in told
    assert " - taken away, since no stage makes it now: old.txt\n" in told


def test_what_others_wrote_cannot_steer_the_terminal() -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\u202e"
    told = screen(
        Event("warning", hostile, role="a"),
        finished("a", "failed", hostile, failure=hostile, command=hostile, attempts=2),
        over(1, "failed"),
    )
    assert "\x1b" not in told
    assert "\u202e" not in told


def test_an_ascii_stream_gets_ascii_marks() -> None:
    told = screen(finished("a", "built", outputs=["a"]), over(0, "ok"), style=Style(marks=ASCII))
    told.encode("ascii")
    assert " + a " in told
