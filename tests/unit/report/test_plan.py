"""A plan as text and as JSON says what each stage would do, why, and how much."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orch23.model.decision import Blocked, Decision, Edited, Expand, Fresh, Maybe, Restore, Run, VerifyOnly
from orch23.model.diagnostic import Location
from orch23.model.digest import Digest, FileEntry
from orch23.model.manifest import Reason
from orch23.model.pipeline import (
    Foreach,
    ForeachStage,
    LLMStep,
    Pipeline,
    PytestStep,
    RenderStep,
    Retry,
    ShellStep,
    Stage,
    StopConditions,
)
from orch23.model.plan import Plan
from orch23.model.record import Record
from orch23.report.marks import ASCII, PLAIN, Style
from orch23.report.plan_json import plan_json
from orch23.report.plan_text import plan_text, status_text
from orch23.report.plan_view import Calls, PlanView, kind_of, models_of, plan_view

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


def view(decisions: Mapping[str, Decision], *, limit: int | None = None, **more: Any) -> PlanView:
    places = {f"stages/{stage.name}": Location("p.yaml", n + 2, 3) for n, stage in enumerate(STAGES)}
    stop = StopConditions(max_llm_calls=limit)
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
    assert plan_text(view(MIXED, limit=7), PLAIN) == (
        "demo: 2 of 5 stages would run, 2 may   provider local tiny   provider scripted small\n"
        "   stage  action   why\n"
        " > a      run      in.txt changed, +1 more\n"
        " > b      restore  b.txt is missing\n"
        " ? code   maybe    if what a writes changes\n"
        " ! tests  edited   edited by hand: r.json\n"
        "                   `orch23 accept tests` keeps the edit, `--overwrite-edited` gives it up\n"
        " ? each   expand   its items are known after code has run; 2 items last time\n"
        " LLM calls 0 to 7; limit 7\n"
        " would write a.txt b.txt (code.py src/x.py)\n"
    )


def test_verbose_names_every_reason() -> None:
    told = plan_text(view(MIXED), PLAIN, verbose=True)
    assert "in.txt changed\n" in told
    assert "the salt changed\n" in told
    assert "more" not in told


def test_a_plan_with_nothing_to_do_is_one_line() -> None:
    quiet = view({"a": Fresh(RECORD), "b": Fresh(RECORD)})
    assert plan_text(quiet, PLAIN).startswith("demo: up to date (2 stages)   provider")
    assert plan_text(quiet, PLAIN).count("\n") == 1
    assert status_text(quiet, PLAIN) == "demo: up to date (2 stages)\n"
    assert quiet.is_quiet


def test_dead_files_are_something_to_do() -> None:
    some = view({"a": Fresh(RECORD)}, dead=("old.txt",))
    assert not some.is_quiet
    assert "would take away old.txt: no stage makes it now" in plan_text(some, PLAIN)
    assert "would take away old.txt" in status_text(some, PLAIN)


def test_status_leaves_out_what_is_fresh() -> None:
    told = status_text(view({"a": Fresh(RECORD), "b": Run((Reason("first_run"),))}), PLAIN)
    assert told == "demo: 2 stages: 1 fresh, 1 run\n > b      run      first run\n"


def test_calls_are_counted_from_least_to_most() -> None:
    run: dict[str, Decision] = {"code": Run((Reason("first_run"),))}
    assert view(run).calls == Calls(1, 4)
    assert view(run, recorded=("code",)).calls == Calls(0, 4)
    assert view(run, limit=2).calls == Calls(1, 2)
    assert view({"code": VerifyOnly(RECORD, ())}).calls == Calls(0, 4)
    assert view({"code": Fresh(RECORD)}).calls == Calls(0, 0)
    assert view({"each": Expand((), 2)}).calls == Calls(0, 6)
    assert view({"each": Expand((), 0)}).calls == Calls(0, None)
    assert view({"each": Expand((), 0)}, limit=9).calls == Calls(0, 9)
    assert view({"a": Run(())}).calls == Calls(0, 0)


def test_unknown_calls_are_not_called_zero() -> None:
    assert "LLM calls at least 0; the most is unknown" in plan_text(view({"each": Expand(("a",), 0)}), PLAIN)


def test_a_blocked_stage_says_by_whom() -> None:
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
    assert [kind_of(stage) for stage in STAGES] == ["shell", "render", "llm", "pytest", "llm"]
    assert models_of(STAGES) == ("local tiny", "scripted small")
