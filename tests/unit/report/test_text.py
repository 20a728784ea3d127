"""The screen of a build: one line a stage, a summary, what failed last, nothing twice."""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.model.diagnostic import Location
from orch23.model.event import Event, parse_event
from orch23.model.pipeline import Foreach, ForeachStage, Pipeline, Stage
from orch23.report.formats import View
from orch23.report.text import TextScreen
from orch23.report.values import ASCII, MAX_ITEM_LINES, Style
from orch23.steps.llm.spec import LLMStep
from orch23.steps.shell.spec import ShellStep

PLAIN = Style()

PIPELINE = Pipeline(
    name="demo",
    file="p.yaml",
    stages=(
        Stage(name="a", step=ShellStep("x")),
        Stage(name="code", step=LLMStep(provider="scripted", model="m", prompt="p")),
    ),
    locations={"stages/a": Location("p.yaml", 4, 3), "stages/code": Location("p.yaml", 9, 3)},
)
STARTED = parse_event(
    "run_started",
    "building",
    data={"run_id": "r1", "stages": 2, "provider": ["scripted"], "model": ["m"], "sandbox": "none"},
)


def finished(role: str, status: str, message: str = "", **data: Any) -> Event:
    return parse_event("stage_finished", message or status, role=role, data={"status": status, **data})


def over(code: int, status: str, *, limit: str | None = None, before: str = "0") -> Event:
    data: dict[str, Any] = {"limits": {"max_cost_usd": limit}, "before": {"calls": 0, "tokens": 0, "cost": before}}
    return parse_event("run_finished", status, data={"status": status, "exit_code": code, **data})


def screen(*events: Event, style: Style = PLAIN, pipeline: Pipeline = PIPELINE, **options: Any) -> str:
    written: list[str] = []
    ticks: Iterator[float] = chain((10.0,), repeat(12.5))
    given = {name: options.pop(name) for name in [*options] if name in ("verbose", "read_source")}
    columns = options.pop("columns", 200)
    tell, clock = written.append, lambda: next(ticks)
    of_view: dict[str, Any] = {**given, "columns": lambda: columns}
    view = View(pipeline=pipeline, tell=tell, answer=tell, logs=Path(), style=style, clock=clock, **of_view)
    shown = TextScreen(view=view, **options)
    for event in (STARTED, *events):
        shown.notice(event)
    return "".join(written)


def test_a_build_with_nothing_to_do_is_one_line() -> None:
    assert screen(finished("a", "fresh"), finished("code", "fresh"), over(0, "ok")) == "demo: up to date (2 stages)\n"


def test_a_build_has_a_line_a_stage_and_a_summary() -> None:
    reported = screen(
        finished("a", "fresh"),
        finished(
            "code",
            "built",
            duration_s=1.25,
            calls=2,
            recorded=1,
            input_tokens=1200,
            output_tokens=80,
            attempts=3,
            outputs=["x.py", "y.py", "z.py", "w.py"],
            unchanged=True,
        ),
        over(0, "ok"),
    )
    assert reported == (
        "demo: 2 stages   provider scripted model m   sandbox: none\n"
        " = a     fresh\n"
        " ✔ code  llm         1.2s   2 calls   1 recorded response   1,200+80 tok   x.py y.py z.py +1"
        "   passed at attempt 3   same bytes as before\n"
        " 2 stages: 1 built, 1 fresh   2.5s   2 calls, 1,200+80 tokens   saved 1 call\n"
    )


def test_failures_come_last_with_place_excerpt_and_next_step() -> None:
    failed = finished(
        "code",
        "failed",
        "exited with 1; retries exhausted",
        duration_s=2,
        attempts=3,
        failure="E   assert 2 == 1",
        command="pytest -q",
    )
    reported = screen(finished("a", "built", duration_s=0.1, outputs=["a.txt"]), failed, over(1, "failed"))
    lines, _, block = reported.partition("\n\n")
    assert lines.endswith("2 stages: 1 built, 1 failed   2.5s")
    assert block == (
        "✘ code  p.yaml:9:3\n"
        "  $ pytest -q (attempt 3)\n"
        "  exited with 1; retries exhausted\n"
        "  | E   assert 2 == 1\n"
        "  next: `orch23 show p.yaml code --response`, `orch23 show p.yaml code --prompt`\n"
        "\nthe log is logs/r1.jsonl; `orch23 log` shows it\n"
        "failed: code (p.yaml:9:3), retries exhausted after 3 attempts: exited with 1\n"
    )
    assert reported.count("assert 2 == 1") == 1


def test_failures_are_in_the_order_of_the_file_with_items_in_the_place_of_their_foreach() -> None:
    names = ("z", "made@b", "made@a", "c")
    shown = screen(
        parse_event("plan", "", data={"stages": {"z": "shell", "made": "shell", "c": "shell"}}),
        parse_event("stages_added", "", role="made", data={"items": ["made@b", "made@a"]}),
        *(finished(name, "failed") for name in reversed(names)),
        over(1, "failed"),
    )
    assert [line.split()[1] for line in shown.splitlines() if line.startswith(PLAIN.marks.failed)] == [*names]


def test_a_stage_that_ended_twice_is_shown_as_it_ended_last() -> None:
    reported = screen(finished("code", "failed", failure="red"), finished("code", "built"), over(0, "ok"))
    assert "| red" not in reported
    assert "code" in reported.splitlines()[2]
    reported = screen(finished("code", "built"), finished("code", "failed", failure="red"), over(1, "failed"))
    assert reported.count("| red") == 1


def test_an_edited_stage_says_what_the_user_can_do() -> None:
    edited = finished("a", "edited", "edited by hand: a.txt", paths=["a.txt"])
    reported = screen(edited, *blocked(["code"]), over(6, "decision"))
    assert "! a  p.yaml:4:3\n  edited by hand: a.txt\n  next: `orch23 accept p.yaml a`" in reported
    assert "\n - 1 blocked by `a`: code\n 2 stages: " in reported
    assert reported.endswith(
        "the log is logs/r1.jsonl; `orch23 log` shows it\n"
        "your decision is needed: a (p.yaml:4:3): edited by hand: a.txt\n"
    )


def test_a_long_failure_is_cut_in_its_middle() -> None:
    text = "\n".join(f"line {n}" for n in range(100))
    reported = screen(finished("a", "failed", "verify_failed", failure=text, attempts=1), over(1, "failed"))
    assert "| line 5\n  | ... 76 lines ...\n  | line 82\n" in reported
    assert "| line 99\n" in reported


def test_the_end_of_a_cut_failure_begins_with_a_whole_paragraph() -> None:
    blocks = "\n\n".join(f"test {n}\n  frame\n  frame\n  error {n}" for n in range(10))
    reported = screen(finished("a", "failed", "verify_failed", failure=blocks, attempts=1), over(1, "failed"))
    assert "| test 1\n  | ... 24 lines ...\n  | test 6\n  |   frame\n  |   frame\n  |   error 6\n" in reported
    assert "|   error 9\n" in reported


def test_quiet_leaves_warnings_and_failures() -> None:
    warning = parse_event("warning", "inputs changed", role="a", level="warning")
    done = (finished("a", "built", outputs=["a.txt"]), over(0, "ok"))
    assert screen(*done, quiet=True) == ""
    assert screen(warning, *done, quiet=True) == "warning: a: inputs changed\n"
    reported = screen(finished("a", "failed", "timeout", failure="late"), over(1, "failed"), quiet=True)
    assert reported.startswith("\n✘ a  p.yaml:4:3\n  timeout\n  | late\n")


def test_verbose_says_why_and_shows_attempts_and_fresh_stages() -> None:
    decided = parse_event(
        "stage_decided",
        "run",
        role="a",
        data={"decision": "run", "reasons": [{"code": "input_changed", "subject": "in.txt"}]},
    )
    attempt = parse_event("attempt_started", "attempt 1 of 3", role="a")
    reported = screen(decided, attempt, finished("code", "fresh"), over(0, "ok"), verbose=True)
    assert "   a     run: in.txt changed\n" in reported
    assert "   a     attempt 1 of 3\n" in reported
    assert " = code  fresh\n" in reported


def attempts(role: str) -> tuple[Event, ...]:
    return (
        parse_event("attempt_started", "attempt 1 of 3", role=role, data={"attempt": 1}),
        parse_event(
            "attempt_finished", "attempt 1 failed: verify: 2 tests failed\n...", role=role, data={"attempt": 1}
        ),
        parse_event("attempt_started", "attempt 2 of 3", role=role, data={"attempt": 2}),
    )


def test_a_cancelled_stage_says_so_once() -> None:
    (line,) = (one for one in screen(finished("code", "cancelled", calls=1)).splitlines() if "code" in one)
    assert line.count("cancelled") == 1


def test_a_failed_attempt_has_a_line_when_the_next_one_starts() -> None:
    first, failed, second = attempts("code")
    assert "attempt" not in screen(first, failed)
    reported = screen(first, failed, second, finished("code", "built", attempts=2), over(0, "ok"))
    assert "   code  attempt 1 failed: 2 tests failed   0.0s\n" in reported
    assert reported.count("attempt 1") == 1
    assert reported.index("attempt 1 failed") < reported.index(" ✔ code")
    assert "attempt 1" not in screen(first, failed, second, quiet=True)


def test_failed_attempts_of_many_items_are_not_listed() -> None:
    names = tuple(f"code@{n}" for n in range(MAX_ITEM_LINES + 1))
    added = parse_event("stages_added", "", role="code", data={"items": names})
    assert "attempt" not in screen(added, *attempts(names[0]))
    assert "attempt 1 failed" in screen(*attempts(names[0]))


def test_restored_and_removed_files_are_named() -> None:
    reported = screen(
        parse_event("stage_restored", "restored", role="a", data={"files": ["a.txt"]}),
        finished("a", "restored"),
        parse_event("promoted", "gone", role="orch23", data={"files": [], "removed": ["old.txt"]}),
        over(0, "ok"),
    )
    assert " ✔ a     restored           a.txt\n" in reported
    assert " - removed, since no stage makes it any more: old.txt\n" in reported


def test_what_others_wrote_cannot_steer_the_terminal() -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\u202e"
    reported = screen(
        parse_event("warning", hostile, role="a"),
        finished("a", "failed", hostile, failure=hostile, command=hostile, attempts=2),
        over(1, "failed"),
    )
    assert "\x1b" not in reported
    assert "\u202e" not in reported


def test_an_ascii_stream_gets_ascii_marks() -> None:
    reported = screen(finished("a", "built", outputs=["a"]), over(0, "ok"), style=Style(marks=ASCII))
    reported.encode("ascii")
    assert " + a " in reported


def again(status: int | None, role: str = "code", **data: Any) -> Event:
    return parse_event("http_retry", f"{status}: again in 1 s", role=role, data={"status": status, **data})


def paid(role: str = "code", **data: Any) -> Event:
    usual = {"calls": 2, "recorded": 1, "input_tokens": 1200, "output_tokens": 80, "cost": "0.03471", "saved": "0.02"}
    return finished(role, "built", duration_s=1.25, attempts=1, outputs=["x.py"], **{**usual, **data})


def test_costs_are_shown_for_each_stage_and_as_a_sum_with_the_limit() -> None:
    reported = screen(paid(), over(0, "ok", limit="1"))
    assert "2 calls   1 recorded response   1,200+80 tok   $0.0347   x.py\n" in reported
    assert "2 calls, 1,200+80 tokens, $0.0347 of $1.00   saved 1 call, $0.02\n" in reported


def test_the_cost_of_an_interrupted_run_is_shown_since_the_limit_counts_it() -> None:
    reported = screen(paid(), over(0, "ok", limit="0.5", before="0.4"))
    assert "$0.0347 of $0.50, $0.40 in earlier runs that it continues   saved" in reported


def test_free_calls_have_no_cost_line() -> None:
    reported = screen(paid(cost="0", saved="0"), over(0, "ok", limit="1"))
    assert "$" not in reported
    assert "price" not in reported
    assert "saved 1 call\n" in reported


def test_an_unknown_price_is_named_and_no_sum_hides_it() -> None:
    reported = screen(paid(cost=None), over(0, "ok"))
    assert "1,200+80 tok   price unknown   x.py\n" in reported
    assert "1,200+80 tokens, price unknown   saved" in reported
    both = screen(paid("a"), paid(cost=None), over(0, "ok"))
    assert "2,400+160 tokens, $0.0347, and 1 stage of unknown price   saved" in both


def test_a_build_from_recordings_alone_spends_nothing_and_says_what_it_saved() -> None:
    reported = screen(paid(cost="0", calls=0, recorded=2), over(0, "ok", limit="1"))
    assert "1 stage: 1 built   2.5s   saved 2 calls, $0.02\n" in reported
    assert "price unknown" not in screen(paid(cost=None, calls=0), over(0, "ok"))  # no one was asked


def test_retries_are_shown_only_in_the_line_of_their_stage() -> None:
    reported = screen(again(429), again(429), again(None, code="E419"), paid(), paid("a"), over(0, "ok"))
    assert "$0.0347   3 retries: 429, E419   x.py\n" in reported
    assert reported.count("retr") == 1
    assert "again in 1 s" not in reported
    assert "1 retry: 503   x.py" in screen(again(503), paid(), over(0, "ok"))


def test_a_long_wait_for_a_rate_limit_is_shown() -> None:
    waits = parse_event("rate_limit_wait", "waits for the rate limit of p/m, 5.9s", role="code", data={"wait_s": 5.9})
    assert "   code  waits for the rate limit of p/m, 5.9s\n" in screen(waits, paid(), over(0, "ok"))
    assert screen(waits, paid(), over(0, "ok"), quiet=True) == ""


def test_verbose_shows_each_retry() -> None:
    assert "   code  429: again in 1 s\n" in screen(again(429), paid(), over(0, "ok"), verbose=True)


def test_quiet_does_not_show_costs() -> None:
    assert screen(again(429), paid(), over(0, "ok"), quiet=True) == ""


def test_the_header_comes_with_the_first_stage_that_starts() -> None:
    assert screen(parse_event("stage_started", "started", role="a")) == (
        "demo: 2 stages   provider scripted model m   sandbox: none\n"
    )


def test_a_screen_that_folds_counts_idle_stages_only() -> None:
    ends = (finished("a", "fresh"), finished("code", "built", outputs=["x.py"]), over(0, "ok"))
    assert " = a " in screen(*ends)
    folded = screen(*ends, folds=True)
    assert " = a " not in folded
    assert " 2 stages: 1 built, 1 fresh " in folded


@pytest.mark.parametrize("are_planned", [True, False])
def test_many_items_share_a_line_and_those_that_failed_have_their_own(are_planned: bool) -> None:
    names = tuple(f"code@{n}" for n in range(MAX_ITEM_LINES + 1))
    added = parse_event("stages_added", "", role="code", data={"items": names})
    planned = parse_event("plan", "", data={"stages": {"a": "shell", **dict.fromkeys(names, "llm")}})
    ends = [finished(one, "built", calls=1, input_tokens=10, output_tokens=2) for one in names[2:]]
    events = (
        planned if are_planned else added,
        finished(names[0], "fresh"),
        finished(names[1], "failed", "no"),
        *ends,
        over(1, "failed"),
    )
    reported = screen(*events)
    lines = [line for line in reported.split("\n") if "code" in line]
    assert lines[0].startswith(" ✘ code@1 ")
    assert lines[1] == " ✔ code     64 items   63 built, 1 fresh   63 calls, 630+126 tokens"
    assert "65 stages: 63 built, 1 fresh, 1 failed" in reported
    listed = screen(*events, verbose=True)
    assert all(f" {name} " in listed for name in names)


def test_the_first_line_names_lists_that_are_not_known_yet_and_columns_stay_when_they_are() -> None:
    names = ("part@short", "part@a_longer_name")
    part = ForeachStage(
        name="part",
        foreach=Foreach(source="list.json"),
        body={},
        kind="shell",
        needs=(),
        reads=(),
        writes=(),
    )
    planned = parse_event("plan", "", data={"stages": {"a": "shell", "part": "shell"}})
    events = (planned, finished("a", "built"), parse_event("stages_added", "", role="part", data={"items": names}))
    pipeline = replace(PIPELINE, stages=(*PIPELINE.stages, part))
    reported = screen(*events, *(finished(one, "built") for one in names), over(0, "ok"), pipeline=pipeline)
    head, *rows, _ = reported.splitlines()
    assert head.startswith("demo: 2 stages and the items of `part`   provider scripted ")
    assert len({row.index("shell") for row in rows}) == 1
    known = parse_event("plan", "", data={"stages": {"a": "shell", **dict.fromkeys(names, "shell")}})
    assert screen(known, finished("a", "built"), pipeline=pipeline).startswith("demo: 2 stages   provider")


def test_skipped_stages_are_counted_beside_the_others() -> None:
    reported = screen(finished("a", "built"), finished("code", "skipped"), over(0, "ok"))
    assert "\n 1 stage: 1 built; 1 skipped   " in reported


def blocked(names: Sequence[str], by: str = "a") -> tuple[Event, ...]:
    return tuple(finished(name, "blocked", f"blocked by {by}", by=[by]) for name in names)


def test_stages_that_did_not_run_share_a_line_before_the_summary_and_the_failure() -> None:
    failed = finished("a", "failed", "exited with 1")
    skipped = [finished(f"s{n}", "skipped", "`if` is false: x") for n in range(3)]
    reported = screen(*skipped, failed, *blocked([f"month_{n}" for n in range(24)]), over(1, "failed"), columns=60)
    assert reported.splitlines()[1:5] == [
        " ✘ a     shell              exited with 1",
        " - 24 blocked by `a`: month_0, month_1, month_2 and 21 more",
        " - 3 skipped: s0, s1, s2",
        " 25 stages: 1 failed, 24 blocked; 3 skipped   2.5s",
    ]
    assert reported.endswith("failed: a (p.yaml:4:3): exited with 1\n")


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_line_of_blocked_stages_fits_into_the_terminal(columns: int) -> None:
    names = [f"a_name_of_some_length_{n}" for n in range(10_000)]
    reported = screen(*blocked(names, by="b" * 64), over(1, "failed"), columns=columns)
    (line,) = (one for one in reported.splitlines() if "10,000 blocked by" in one)
    assert len(line) < columns


def test_a_stage_that_waits_for_a_blocked_one_is_blocked_by_what_failed() -> None:
    chain = (*blocked(["b"]), *blocked(["c"], by="b"), finished("d", "blocked", "", by=["c", "e"]))
    stopped = (finished("f", "blocked", "not run: another stage failed"), *blocked(["g"], by="f"))
    reported = screen(finished("a", "failed"), *chain, *stopped, over(1, "failed"))
    assert " - 3 blocked by `a`, `e`: b, c, d\n - 2 not run, since another stage failed: f, g\n" in reported


def test_a_stage_that_was_cancelled_while_it_ran_keeps_its_line() -> None:
    reported = screen(finished("a", "cancelled"), finished("code", "cancelled", calls=1), over(130, "interrupted"))
    assert " - code  cancelled" in reported
    assert " - 1 cancelled: a\n" in reported


def test_a_blocked_stage_that_ran_after_all_is_not_in_the_line() -> None:
    assert " - " not in screen(*blocked(["code"]), finished("code", "built"), over(0, "ok"))


def test_verbose_lists_stages_that_did_not_run() -> None:
    reported = screen(
        *blocked(["x", "y"]), finished("s", "skipped", "`if` is false: x"), over(1, "failed"), verbose=True
    )
    assert " - x     blocked            blocked by a\n - y " in reported
    assert "`if` is false: x\n" in reported


@pytest.mark.parametrize(
    ("message", "attempts", "shown"),
    [
        ("exited with 3; retries exhausted", 3, ", retries exhausted after 3 attempts: exited with 3\n"),
        (
            f"no: {'x' * 500}; retries exhausted",
            2,
            f", retries exhausted after 2 attempts: no: {'x' * 193}...\n",
        ),
        ("timeout; not retryable", 2, ", not retryable after 2 attempts: timeout\n"),
        (
            "no; no progress: the same failure 2 times",
            2,
            ", no progress: the same failure 2 times after 2 attempts: no\n",
        ),
        ("timeout; not retryable", 1, ": timeout; not retryable\n"),
        ("exited with 3", 1, ": exited with 3\n"),
    ],
)
@pytest.mark.parametrize("cause", [None, {"kind": "undeclared_input", "text": "the cause", "key": "inputs"}])
def test_the_last_line_says_that_retries_are_used_up(
    message: str, attempts: int, shown: str, cause: dict[str, str] | None
) -> None:
    more = {"cause": cause} if cause else {}
    reported = screen(finished("a", "failed", message, attempts=attempts, **more), over(1, "failed"))
    last = reported.splitlines()[-1]
    assert last.startswith(f"failed: a (p.yaml:4:3){shown.rstrip()}" if not cause else "failed: a (p.yaml:4:3)")
    assert shown.rpartition(": ")[0] in last
    assert ("the cause" in last) == bool(cause)


def test_a_few_items_have_a_line_each() -> None:
    names = tuple(f"code@{n}" for n in range(MAX_ITEM_LINES))
    added = parse_event("stages_added", "", role="code", data={"items": names})
    reported = screen(added, *(finished(one, "built") for one in names), over(0, "ok"))
    assert all(f" ✔ {name} " in reported for name in names)
