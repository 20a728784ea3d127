"""A plan as text and as JSON says what each stage would do, why, and how much."""

import json
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.model.diagnostic import Location
from orch23.model.digest import Digest, FileEntry
from orch23.model.pipeline import Foreach, ForeachStage, Pipeline, Retry, Stage, StopConditions
from orch23.model.plan import (
    EMPTY_ESTIMATE,
    Blocked,
    CallRange,
    Decision,
    Edited,
    Estimate,
    Expand,
    Fresh,
    Maybe,
    Plan,
    Restore,
    Run,
)
from orch23.model.record import Reason, Record
from orch23.report.plan_json import plan_json
from orch23.report.plan_text import plan_text, status_text
from orch23.report.plan_view import PlanLine, PlanView, models_of, plan_view
from orch23.report.values import ASCII, Style
from orch23.steps.llm.spec import LLMStep
from orch23.steps.pytest.spec import PytestStep
from orch23.steps.render.spec import RenderStep
from orch23.steps.shell.spec import ShellStep

PLAIN = Style()

LLM = LLMStep(provider="scripted", model="small", prompt="p")
RECORD = Record(stage="b", key="k", manifest={}, outputs={"b.txt": FileEntry(Digest("0" * 64, 1))})
STAGES: tuple[Stage | ForeachStage, ...] = (
    Stage(name="a", step=ShellStep("x"), outputs=("a.txt",)),
    Stage(name="b", step=RenderStep("t"), outputs=("b.txt",)),
    Stage(name="code", step=LLM, outputs=("code.py",), retry=Retry(max=3)),
    Stage(name="tests", step=PytestStep()),
    ForeachStage(
        name="each",
        foreach=Foreach(source="l.json"),
        kind="llm",
        body={"llm": {"provider": "local", "model": "tiny"}, "retry": {"max": 2}},
        writes=("src/**", "src/x.py"),
    ),
)


def view(
    decisions: Mapping[str, Decision], *, limit: int | None = None, dollars: str | None = None, **more: Any
) -> PlanView:
    places = {f"stages/{stage.name}": Location("p.yaml", n + 2, 3) for n, stage in enumerate(STAGES)}
    stop = StopConditions(max_llm_calls=limit, max_cost_usd=Decimal(dollars) if dollars else None)
    pipeline = Pipeline(name="demo", file="p.yaml", stages=STAGES, stop=stop, locations=places)
    nodes = {stage.name: stage for stage in STAGES}
    plan = Plan(pipeline=pipeline, nodes=nodes, order=tuple(nodes), upstream={}, downstream={})
    return plan_view(plan, decisions, **more)


MIXED: dict[str, Decision] = {
    "a": Run((Reason("input_changed", "in.txt"), Reason("salt_changed", "salt"))),
    "b": Restore(RECORD, (Reason("output_missing", "b.txt"),)),
    "code": Maybe(("a",)),
    "tests": Edited(("r.json",)),
    "each": Expand(("code",), 2),
}


def test_the_text_has_a_line_a_stage_and_the_sums() -> None:
    estimates = {
        "code": FREE,
        "each": replace(FREE, calls=CallRange(0, 6)),
        "a": replace(EMPTY_ESTIMATE, duration_s=3.2, runs=2),
    }
    assert plan_text(view(MIXED, limit=7, estimates=estimates), PLAIN) == (
        "demo: 2 of 5 stages to run, 2 depend on upstream   provider local tiny   provider scripted small\n"
        "   stage  action   why\n"
        " > a      run      in.txt changed, +1 more\n"
        " > b      restore  b.txt is missing\n"
        " ? code   maybe    if the outputs of a change\n"
        " ! tests  edited   edited by hand: r.json\n"
        "                   `orch23 accept p.yaml tests` keeps the edit, `--overwrite-edited` discards it\n"
        " ? each   expand   its items are known after code has run; 2 items last time\n"
        " LLM calls 0 to 7; limit 7 · ~3 s (median of 2 runs; not counting 2 stages without history)\n"
        " would write a.txt b.txt (code.py src/x.py)\n"
    )


def test_verbose_names_every_reason() -> None:
    reported = plan_text(view(MIXED), PLAIN, verbose=True)
    assert "in.txt changed\n" in reported
    assert "the salt changed\n" in reported
    assert "more" not in reported


def test_a_plan_with_nothing_to_do_is_one_line() -> None:
    quiet = view({"a": Fresh(RECORD), "b": Fresh(RECORD)})
    assert plan_text(quiet, PLAIN).startswith("demo: up to date (2 stages)   provider")
    assert plan_text(quiet, PLAIN).count("\n") == 1
    assert status_text(quiet, PLAIN) == "demo: up to date (2 stages)\n"
    assert quiet.is_up_to_date


@pytest.mark.parametrize("text_of", [plan_text, status_text])
def test_the_work_of_a_text_grows_as_its_stages_do(text_of: Callable[[PlanView, Style], str]) -> None:
    def calls(stages: int) -> int:
        shown = PlanView(
            name="demo", file="p.yaml", lines=tuple(line(f"s{number}") for number in range(stages)), models=()
        )
        counted = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal counted
            counted += event == "call"

        sys.setprofile(count)
        try:
            text_of(shown, PLAIN)
        finally:
            sys.setprofile(None)
        return counted

    assert calls(400) < 2.5 * calls(200)


def line(stage: str) -> PlanLine:
    return PlanLine(stage=stage, kind="shell", decision=Run((Reason("input_changed", "in.txt"),)))


def test_dead_files_are_something_to_do() -> None:
    some = replace(view({"a": Fresh(RECORD)}), dead=("old.txt",))
    assert not some.is_up_to_date
    assert "would remove old.txt: no stage makes it any more" in plan_text(some, PLAIN)
    assert "would remove old.txt" in status_text(some, PLAIN)


def test_status_leaves_out_what_is_fresh() -> None:
    reported = status_text(view({"a": Fresh(RECORD), "b": Run((Reason("first_run"),))}), PLAIN)
    assert reported == "demo: 2 stages: 1 run, 1 fresh\n > b      run      first run\n"


def test_the_whole_status_lists_fresh_stages_too_and_the_descriptions() -> None:
    lines = (
        PlanLine(stage="a", kind="shell", decision=Fresh(RECORD), desc="Make a.\n  Of one line.\n"),
        PlanLine(stage="code", kind="shell", decision=Run((Reason("first_run"),)), desc=" \n"),
    )
    whole = status_text(PlanView(name="demo", file="p.yaml", lines=lines), PLAIN, verbose=True)
    assert whole == (
        "demo: 2 stages: 1 run, 1 fresh\n = a      fresh\n     Make a. Of one line.\n > code   run      first run\n"
    )
    idle = status_text(PlanView(name="demo", file="p.yaml", lines=lines[:1]), PLAIN, verbose=True)
    assert idle == "demo: 1 stage: 1 fresh\n = a      fresh\n     Make a. Of one line.\n"


def test_calls_of_all_stages_are_summed_within_the_limit() -> None:
    run: dict[str, Decision] = {"a": Run(()), "code": Run(())}
    both = {"a": Estimate(calls=CallRange(1, 4)), "code": Estimate(calls=CallRange(1, 3))}
    assert view(run, estimates=both).calls == CallRange(2, 7)
    assert view(run, estimates=both, limit=5).calls == CallRange(2, 5)
    unknown = {**both, "code": Estimate(calls=CallRange(0, None))}
    assert view(run, estimates=unknown).calls == CallRange(1, None)
    assert view(run, estimates=unknown, limit=9).calls == CallRange(1, 9)
    assert view(run).calls == CallRange(0, 0)


def footer(*estimates: Estimate, **more: Any) -> str:
    """Return what stands below a plan of stages that would run, without what it would write."""
    names = ("code", "a", "b")[: len(estimates)]
    shown = view({name: Run(()) for name in names}, estimates=dict(zip(names, estimates, strict=True)), **more)
    lines = plan_text(shown, PLAIN).splitlines()[2 + len(names) :]
    return "\n".join(line for line in lines if "would write" not in line)


FREE = Estimate(calls=CallRange(0, 4), price="free", input_tokens=90, output_tokens=20)
PAID = Estimate(
    calls=CallRange(1, 6),
    price="known",
    input_tokens=4300,
    output_tokens=1400,
    responses=3,
    least_cost=Decimal("0.0123"),
    likely_cost=Decimal("0.0123"),
    most_cost=Decimal("0.3"),
    duration_s=20.4,
    runs=3,
)


def test_the_footer_says_calls_tokens_money_and_time() -> None:
    second = replace(PAID, input_tokens=1000, output_tokens=0, most_cost=Decimal("0.01"), duration_s=3.4, runs=4)
    assert footer(PAID, second, limit=20, dollars="1") == (
        " LLM calls 2 to 12; limit 20 · ~5,300+1,400 tokens for first attempts"
        " · ~$0.0246, at most $0.31; limit $1.00 · ~24 s (median of 3 runs)"
    )


def test_free_models_have_no_cost_line() -> None:
    assert footer(FREE, dollars="1") == " LLM calls 0 to 4 · no estimate of time"


def test_without_the_time_of_a_sure_call_there_is_no_estimate_of_time() -> None:
    quick = replace(EMPTY_ESTIMATE, duration_s=0.2, runs=1)
    assert footer(replace(FREE, calls=CallRange(1, 4)), quick).endswith("no estimate of time")
    assert footer(FREE, quick).endswith("under 1 s (median of 1 run; not counting 1 stage without history)")


def test_an_unknown_price_is_shown_and_never_zero() -> None:
    unknown = replace(PAID, price="unknown", least_cost=None, likely_cost=None, most_cost=None)
    assert "for first attempts · unknown price · ~20 s" in footer(unknown)
    assert "unknown price; limit $2.00" in footer(unknown, dollars="2")
    assert "~$0.0123, at most $0.30, unknown price of 1 stage ·" in footer(PAID, unknown)
    assert "$0 " not in footer(unknown)


def test_a_first_run_does_not_guess_what_a_model_will_write() -> None:
    first = replace(PAID, output_tokens=None, responses=0, least_cost=None, likely_cost=None, duration_s=None, runs=0)
    assert footer(first) == (
        " LLM calls 1 to 6 · ~4,300 tokens in for first attempts, out unknown · at most $0.30 · no estimate of time"
    )
    blind = replace(first, input_tokens=None, most_cost=None)
    assert "tokens unknown · maximum unknown" in footer(blind)
    assert "~8,600+1,400 tokens for first attempts, out unknown of 1 · at most $0.60" in footer(first, PAID)
    assert "~4,300+1,400 tokens for first attempts, out unknown of 1, in unknown of 1" in footer(blind, PAID)


def test_the_calls_that_recordings_save_are_shown_with_their_cost() -> None:
    nothing = Decimal(0)
    saved = replace(
        PAID, calls=CallRange(0, 6), input_tokens=0, output_tokens=0, least_cost=nothing, likely_cost=nothing
    )
    saved = replace(saved, saved_calls=1, saved_cost=Decimal("0.0123"))
    assert footer(saved) == (
        " LLM calls 0 to 6 · ~20 s (median of 3 runs)\n"
        " recorded responses save 1 call, $0.0123; if they no longer pass: up to 6 calls, at most $0.30"
    )
    assert "\n recorded responses save 2 calls; if they" in footer(saved, replace(saved, saved_cost=None))
    free = replace(saved, price="free", saved_cost=nothing)
    assert footer(free).endswith("\n recorded responses save 1 call; if they no longer pass: up to 6 calls")
    assert footer(replace(free, calls=CallRange())).endswith("\n recorded responses save 1 call")


def test_tokens_and_cost_do_not_count_stages_whose_responses_are_recorded() -> None:
    saved = replace(PAID, calls=CallRange(0, 6), likely_cost=Decimal(0), saved_calls=1, saved_cost=Decimal(1))
    first, second = footer(PAID, saved, dollars="2").split("\n")
    assert first.startswith(" LLM calls 1 to 12 · ~4,300+1,400 tokens for first attempts · ~$0.0123, at most $0.30; ")
    assert second == (
        " recorded responses save 1 call, $1.00; if they no longer pass: up to 6 calls, at most $0.30; limit $2.00"
    )


def test_stages_without_a_model_say_how_long_they_took() -> None:
    assert footer(replace(EMPTY_ESTIMATE, duration_s=0.2, runs=1)) == " under 1 s (median of 1 run)"
    assert footer(replace(EMPTY_ESTIMATE, duration_s=100.0, runs=2)) == " ~1m 40s (median of 2 runs)"
    assert footer(EMPTY_ESTIMATE) == ""


def test_the_json_has_every_number_of_an_estimate_and_null_for_what_is_unknown() -> None:
    shown = view({"code": Run(())}, estimates={"code": replace(PAID, most_cost=None)}, dollars="1.5")
    found = json.loads(plan_json(shown))
    assert found["max_cost_usd"] == "1.5"
    assert found["stages"][0]["llm_calls"] == {"min": 1, "max": 6}
    assert found["stages"][0]["estimate"] == {
        "input_tokens": 4300,
        "output_tokens": 1400,
        "earlier_answers": 3,
        "price": "known",
        "cost_usd": {"min": "0.0123", "likely": "0.0123", "max": None},
        "saved": {"calls": 0, "cost_usd": "0"},
        "cache_saving_usd": "0",
        "shared_lines": 0,
        "stored_at": None,
        "explores": None,
        "verifies_base": False,
        "duration_s": 20.4,
        "earlier_runs": 3,
    }


def test_the_saving_of_the_prompt_cache_is_counted_and_named() -> None:
    writes, reads = (PAID.with_cache(Decimal(amount)) for amount in ("-0.0100", "0.0500"))
    assert (reads.least_cost, reads.likely_cost) == (Decimal("-0.0377"), Decimal("-0.0377"))
    assert Estimate(least_cost=Decimal(0), likely_cost=None).with_cache(Decimal(1)).least_cost == 0
    shown = plan_text(view({"a": Run(()), "b": Run(())}, estimates={"a": writes, "b": reads}), PLAIN)
    assert " the prompt cache should save ~$0.04 of first attempts\n" in shown
    little = PAID.with_cache(Decimal("0.0099"))
    assert "prompt cache" not in plan_text(view({"a": Run(())}, estimates={"a": little}), PLAIN)


def test_unknown_calls_are_not_shown_as_zero() -> None:
    estimates = {"each": Estimate(calls=CallRange(0, None), price="free")}
    reported = plan_text(view({"each": Expand(("a",), 0)}, estimates=estimates), PLAIN)
    assert "LLM calls at least 0; the maximum is unknown" in reported


@pytest.mark.parametrize(
    ("limit", "text", "most"), [(None, "1 to 8, and those of new items", None), (20, "1 to 20; limit 20", 20)]
)
def test_the_calls_of_new_items_are_not_within_the_maximum(limit: int | None, text: str, most: int | None) -> None:
    counted = replace(FREE, calls=CallRange(1, 2))
    estimates = {"code": counted, "each": replace(FREE, calls=CallRange(0, 6, has_new_items=True))}
    seen = view({"code": Run(()), "each": Expand(("code",), 2)}, limit=limit, estimates=estimates)
    assert f" LLM calls {text} · " in plan_text(seen, PLAIN)
    found = json.loads(plan_json(seen))
    assert found["llm_calls"] == {"min": 1, "max": most}
    assert [one["llm_calls"]["max"] for one in found["stages"]] == [2, None]


def test_a_blocked_stage_names_the_stages_that_block_it() -> None:
    assert " - b      blocked  blocked by a\n" in plan_text(view({"b": Blocked(("a",))}), PLAIN)


def test_the_json_has_a_version_and_every_stage() -> None:
    found = json.loads(plan_json(view(MIXED, keys={"a": "ff"})))
    assert found["orch23_plan"] == 1
    assert [(one["stage"], one["kind"], one["action"]) for one in found["stages"]] == [
        ("a", "shell", "run"),
        ("b", "render", "restore"),
        ("code", "llm", "maybe"),
        ("tests", "pytest", "edited"),
        ("each", "llm", "expand"),
    ]
    first = found["stages"][0]
    assert first["reasons"][0] == {
        "code": "input_changed",
        "subject": "in.txt",
        "old": None,
        "new": None,
        "text": "in.txt changed",
    }
    assert first["location"] == {"file": "p.yaml", "line": 2, "column": 3}
    assert (first["key"], found["stages"][1]["key"]) == ("ff", None)
    assert found["stages"][4]["waiting_on"] == ["code"]
    assert (found["would_run"], found["may_run"], found["up_to_date"]) == (2, 2, False)


def test_hostile_names_do_not_reach_the_terminal() -> None:
    line = view(MIXED).lines[0]
    hostile = replace(view(MIXED), lines=(replace(line, stage="a\x1b[2J"),), name="\x1b]0;x\x07")
    assert "\x1b" not in plan_text(hostile, PLAIN)
    assert "\x1b" not in status_text(hostile, PLAIN)


def test_an_ascii_stream_gets_ascii() -> None:
    plan_text(view(MIXED), Style(marks=ASCII)).encode("ascii")


def test_kinds_and_models() -> None:
    assert [stage.kind for stage in STAGES] == ["shell", "render", "llm", "pytest", "llm"]
    assert models_of(STAGES) == ("local tiny", "scripted small")


@pytest.mark.parametrize(("value", "network"), [(None, False), (False, False), (True, True), ("${{ item.net }}", True)])
def test_a_foreach_whose_items_decide_on_the_network_may_use_it(value: Any, network: bool) -> None:
    assert foreach_line({"network": value}).network is network


@pytest.mark.parametrize(("value", "sandbox"), [(None, True), ("on", True), ("off", False), ("${{ item.box }}", False)])
def test_a_foreach_whose_items_decide_on_the_sandbox_may_go_without(value: Any, sandbox: bool) -> None:
    assert foreach_line({"sandbox": value}).sandbox is sandbox


def foreach_line(body: Mapping[str, Any]) -> PlanLine:
    node = ForeachStage(name="each", foreach=Foreach(source="l.json"), kind="shell", body=body)
    plan = Plan(
        pipeline=Pipeline(name="demo", file="p.yaml", stages=(node,)),
        nodes={"each": node},
        order=("each",),
        upstream={},
        downstream={},
    )
    (line,) = plan_view(plan, {"each": Expand((), 0)}).lines
    return line
