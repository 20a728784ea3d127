"""The page of a run from its journal: verdict, totals, reasons, groups, comparison; and what is not there."""

import re
from pathlib import Path

import pytest

from orch23.features.pages.html.compose import PageSources, compose_page
from orch23.features.pages.html.page import RunPage, StageGroup, StageView
from orch23.features.pages.html.texts import LongText
from orch23.features.pages.writing import read_run, render_page
from orch23.model.event import (
    AttemptFinished,
    AttemptStarted,
    CallReserved,
    CallSettled,
    Event,
    LlmRequest,
    LlmResponse,
    Planned,
    RunFinished,
    RunStarted,
    StageDecided,
    StageFinished,
    StagesAdded,
    StageStarted,
)
from orch23.model.event_data import EventData, EventProblem, EventReason, SentFile, StageStatus
from orch23.model.run_facts import RunFacts
from orch23.store.run_logs import JournalLine, read_journal
from tests.run_journals import write_run


def unchanged_event(event: Event) -> Event:
    return event


def run_of(*events: tuple[str, EventData], run: str = "r1") -> RunFacts:
    lines = (
        JournalLine(at, f"2026-11-26T12:00:{at:02}.000Z", Event(data, data.kind, role))
        for at, (role, data) in enumerate(events)
    )
    return read_run(run, lines, unchanged_event)


def nothing_kept(stage: str, attempt: int, name: str, limit: int) -> LongText | None:
    del stage, attempt, name, limit
    return None


SOURCES = PageSources(read=nothing_kept, redact=str)


def page_of(run: RunFacts, former: RunFacts | None = None) -> RunPage:
    return compose_page(run, SOURCES, former)


def built(name: str, *, outputs: tuple[str, ...] = (), unchanged: bool = False) -> tuple[tuple[str, EventData], ...]:
    end = StageFinished(status=StageStatus.BUILT, duration_s=1.0, outputs=outputs, unchanged=unchanged)
    return ((name, StageStarted()), (name, AttemptStarted()), (name, end))


def decided(name: str, code: str, subject: str = "") -> tuple[str, EventData]:
    return name, StageDecided(decision="run", reasons=(EventReason(code, subject),))


def ended(name: str, status: StageStatus) -> tuple[str, EventData]:
    return name, StageFinished(status=status)


def rows(page: RunPage) -> dict[str, StageView]:
    return {one.name: one for one in page.blocks if isinstance(one, StageView)}


def test_impact_names_the_change_the_followers_and_the_cutoff() -> None:
    plan = Planned(stages=dict.fromkeys("abcd", "shell"), needs={"b": ("a",), "c": ("b",), "d": ("b",)})
    run = run_of(
        ("orch23", RunStarted(name="p", stages=4)),
        ("orch23", plan),
        decided("a", "input_changed", "spec.md#Fields"),
        *built("a", outputs=("out/a.txt",)),
        decided("b", "input_changed", "out/a.txt"),
        *built("b", outputs=("out/b.txt",), unchanged=True),
        ended("c", StageStatus.FRESH),
        ended("d", StageStatus.FRESH),
        ("orch23", RunFinished(status="ok")),
    )
    impact = page_of(run).impact
    assert [(clause, [row.name for row in found]) for clause, found in impact.causes] == [
        ("spec.md#Fields changed", ["a"])
    ]
    assert [(row.name, row.text) for row in impact.followers] == [("b", "a wrote out/a.txt")]
    assert [(row.name, row.text) for row in impact.cutoffs] == [
        ("b", "wrote the same bytes as before, so c, d stayed fresh")
    ]


def test_a_reason_of_a_later_version_is_shown_by_its_code() -> None:
    run = run_of(("orch23", RunStarted()), decided("a", "moon_phase"), *built("a"))
    assert rows(page_of(run))["a"].reason == "moon_phase"


def test_a_run_with_nothing_to_do() -> None:
    run = run_of(
        ("orch23", RunStarted(name="p", stages=3, at_rest={"fresh": 3})),
        ("orch23", RunFinished(status="ok", stages={"fresh": 3})),
    )
    page = page_of(run)
    assert page.verdict == "Nothing had changed. 3 stages: 3 fresh."
    assert (page.timeline, page.blocks, page.impact.note) == (None, (), "Nothing had to run.")
    assert "The journal names no stages" in render_page(page)


def test_a_stage_that_starts_again_has_bars_one_after_the_other() -> None:
    page = page_of(run_of(("a", StageStarted()), ("a", StageStarted()), *built("a")[-1:]))
    assert page.timeline is not None
    (first, second) = page.timeline.bars
    assert first.x + first.width == second.x
    assert first.y == second.y


def test_a_killed_run_ends_where_its_journal_does() -> None:
    run = run_of(
        ("orch23", RunStarted(name="p", stages=2)),
        ("orch23", Planned(stages={"a": "llm", "b": "llm"}, needs={"b": ("a",)})),
        ("a", StageStarted()),
        ("a", AttemptStarted()),
    )
    page = page_of(run)
    # Whether the build still runs is not in the journal.
    assert page.badge.word == "not finished"
    assert {name: one.badge.word for name, one in rows(page).items()} == {"a": "not finished", "b": "waiting"}
    assert page.timeline is not None
    assert len(page.timeline.bars) == 1
    render_page(page)


def test_items_are_in_the_place_of_their_foreach() -> None:
    run = run_of(
        ("orch23", Planned(stages={"z": "shell", "made": "shell", "c": "shell"})),
        ("made", StagesAdded(items=("made@b", "made@a"))),
        *(event for name in ("c", "made@a", "z", "made@b") for event in built(name)),
    )
    assert [*run.stages] == ["z", "made@b", "made@a", "c"]


def test_many_items_are_one_node_and_one_row_with_failures_first() -> None:
    names = tuple(f"each@{at}" for at in range(30))
    run = run_of(
        ("orch23", RunStarted(name="p")),
        ("orch23", Planned(stages={"each": "shell", "last": "shell"}, needs={"last": ("each",)})),
        ("each", StagesAdded(items=names)),
        *(ended(name, StageStatus.FAILED if name == "each@17" else StageStatus.FRESH) for name in names),
        ended("last", StageStatus.BLOCKED),
    )
    page = page_of(run)
    assert [one.label for one in page.graph.nodes] == ["each", "last"]
    assert len(page.graph.paths) == 1
    folded = page.graph.nodes[0]
    assert (folded.badge.word, folded.note, [tone for tone, _, _ in folded.parts]) == (
        "failed",
        " x30",
        ["bad", "kept"],
    )
    assert sum(width for _, _, width in folded.parts) == pytest.approx(folded.width)
    group = next(one for one in page.blocks if isinstance(one, StageGroup))
    assert (group.anchor, group.summary) == (folded.anchor, "30 items: 29 fresh, 1 failed")
    assert group.stages[0].name == "each@17"
    assert [one.name for one in page.failures] == ["each@17"]


@pytest.mark.slow
def test_thousands_of_items_are_shown_in_part(tmp_path: Path) -> None:
    names = tuple(f"each@{at}" for at in range(5_000))
    run = run_of(
        ("orch23", Planned(stages={"each": "shell"})),
        ("each", StagesAdded(items=names)),
        *(event for name in names[:4_000] for event in built(name)),
        ended(names[-1], StageStatus.FAILED),
    )
    page = page_of(run)
    (group,) = page.blocks
    assert isinstance(group, StageGroup)
    assert (len(group.stages), group.stages[0].name) == (1_000, "each@4999")
    assert group.more == "4,000 more stages not shown; `orch23 log` lists all."
    assert page.timeline is not None
    assert (len(page.timeline.bars), page.timeline.note) == (1_500, "Only the 1,500 longest of 4,000 bars are shown.")
    assert len(render_page(page).encode()) < 2_500_000


def test_a_failure_names_its_tests() -> None:
    failing = tuple(f"test_a.py::test_{at}" for at in range(12))
    run = run_of(
        ("a", StageStarted()),
        ("a", AttemptFinished(attempt=1, failing=("test_a.py::test_early",))),
        ("a", AttemptFinished(attempt=2, failing=failing)),
        ("a", StageFinished(status=StageStatus.FAILED, failure="12 failed")),
    )
    (failure,) = page_of(run).failures
    assert failure.failing == (*failing[:10], "and 2 more")
    assert failure.excerpt == "12 failed"


def test_many_fresh_stages_share_a_row_below_the_others() -> None:
    names = [f"s{at}" for at in range(40)]
    run = run_of(*((ended(name, StageStatus.FRESH)) for name in names), *built("own"))
    *others, idle = page_of(run).blocks
    assert [one.name for one in others if isinstance(one, StageView)] == ["own"]
    assert isinstance(idle, StageGroup)
    assert (idle.title, len(idle.stages)) == ("40 stages with nothing to do", 40)


def test_a_dependency_outside_of_the_run_is_a_node_without_a_link() -> None:
    run = run_of(("orch23", Planned(stages={"b": "shell"}, needs={"b": ("a",)})), *built("b"))
    page = page_of(run)
    assert {one.label: bool(one.anchor) for one in page.graph.nodes} == {"a": False, "b": True}
    assert page.graph.note == "Dashed stages are not part of this run."


def test_names_that_differ_only_in_odd_characters_have_different_ids() -> None:
    run = run_of(*built("s@a b"), *built("s@a_b"), *built("s@a/b"))
    anchors = {one.anchor for one in rows(page_of(run)).values()}
    assert anchors == {"stage-s@a_b", "stage-s@a_b-2", "stage-s@a_b-3"}


def test_costs_of_recorded_paid_and_unpriced_responses() -> None:
    def response(cost: str | None, *, replayed: bool) -> tuple[str, EventData]:
        return "a", LlmResponse(cost=cost, replayed=replayed, input_tokens=1_000, output_tokens=20)

    known = run_of(*built("a"), response("0.25", replayed=False), response("0.5", replayed=True))
    facts = {one.label: (one.value, one.note) for one in page_of(known).totals}
    assert facts["Cost"] == ("$0.25", "")
    assert facts["Model calls"][0] == "1"
    assert facts["Tokens"][0] == "2,000 + 40"
    assert facts["Recorded responses"] == ("1", "no call needed, saved $0.50")
    unpriced = run_of(*built("a"), response(None, replayed=False))
    assert {one.label: one.value for one in page_of(unpriced).totals}["Cost"] == "price unknown"


def test_totals_say_what_the_tokens_are_of_and_nothing_about_what_was_not_used() -> None:
    def totals(*events: tuple[str, EventData]) -> dict[str, tuple[str, str]]:
        return {one.label: (one.value, one.note) for one in page_of(run_of(*built("a"), *events)).totals}

    free = LlmResponse(cost=None, replayed=True, input_tokens=1_000, output_tokens=20, prices="free")
    recorded = totals(("a", free))
    assert recorded["Tokens"] == ("1,000 + 20", "input + output of recorded responses")
    assert recorded["Recorded responses"] == ("1", "no call needed")
    assert recorded["Stages reused"] == ("0", "fresh or restored; they did not run")
    unused = totals()
    assert (unused["Tokens"], unused["Recorded responses"]) == (("0 + 0", ""), ("0", ""))


def test_a_failed_command_without_output_says_so() -> None:
    end = StageFinished(status=StageStatus.FAILED, exit_code=1, command="grep b c")
    (failure,) = page_of(run_of(("a", end))).failures
    assert failure.message.endswith("; it printed nothing")


def test_the_tokens_of_an_interrupted_call_are_not_known() -> None:
    answered = run_of(*built("a"), ("a", LlmResponse(input_tokens=3, output_tokens=4)), run="r0")
    interrupted = run_of(*built("a"), ("a", CallSettled(forfeited=True, calls=1, cost="0.5")))
    comparison = page_of(interrupted, answered).comparison
    assert comparison is not None
    (tokens,) = (one for one in comparison.totals if one.name == "Tokens")
    assert (tokens.then, tokens.now, tokens.change) == ("7", "not known", "")
    (cost,) = (one for one in comparison.totals if one.name == "Cost")
    assert (cost.then, cost.now) == ("price unknown", "$0, at most $0.50 more")


def test_the_comparison_shows_what_differs() -> None:
    then = run_of(*built("a"), *built("b"), *built("gone"), ("orch23", RunFinished(status="ok")), run="r0")
    now = run_of(
        *built("a"),
        ("b", StageStarted()),
        ("b", StageFinished(status=StageStatus.FAILED)),
        *built("new"),
        ("orch23", RunFinished(status="failed")),
    )
    comparison = page_of(now, then).comparison
    assert comparison is not None
    assert comparison.run_id == "r0"
    assert [(one.name, one.then, one.now) for one in comparison.totals][:2] == [
        ("Result", "passed", "failed"),
        ("Stages", "3 built", "2 built, 1 failed"),
    ]
    assert [(one.name, one.then, one.now) for one in comparison.stages] == [
        ("b", "built, 1.0s", "failed"),
        ("new", "not part of it", "built, 1.0s"),
    ]
    assert comparison.note == "1 stage of that run did not take part in this one."


def test_everything_is_escaped_and_nothing_hidden() -> None:
    nasty = '"><script>x</script>\u202e\x1b[31m{{ 7 * 7 }}</style>'
    end = StageFinished(
        status=StageStatus.FAILED,
        failure=nasty,
        command=nasty,
        problems=(EventProblem("E1", nasty, hint=nasty),),
        outputs=(nasty,),
    )
    run = run_of(
        ("orch23", RunStarted(pipeline=nasty, name=nasty, provider=(nasty,), model=(nasty,), version=nasty)),
        ("orch23", Planned(stages={nasty: nasty}, needs={nasty: (nasty, "other")})),
        (nasty, StageDecided(decision="run", key=nasty, reasons=(EventReason("input_changed", nasty),))),
        (nasty, StageStarted()),
        (nasty, end),
    )
    html = render_page(page_of(run, run))
    assert "<script" not in html
    assert html.count("</style>") == 1
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert "49" not in re.sub(r"sha256-\S+|<style>.*?</style>|[\d.]*49[\d.]*(?= |\")", "", html, flags=re.DOTALL)
    assert re.findall(r'\s(?:src|style|on\w+)="', html) == []
    assert {one[0] for one in re.findall(r'href="([^"]*)"', html)} == {"#"}


@pytest.mark.stride(2)
@pytest.mark.slow
@pytest.mark.parametrize(("number", "most"), [(200, 5_000_000), (1_000, 5_000_000)])
def test_the_size_of_a_page_with_many_stages(tmp_path: Path, number: int, most: int) -> None:
    name = write_run(tmp_path, number, characters=100)

    def long_texts(stage: str, attempt: int, name: str, limit: int) -> LongText:
        text = f'{stage} {attempt} "<&>"\n' * 2_000
        return LongText(text=text[:limit], size=len(text), path=f"logs/r/{stage}/attempt-{attempt}/{name}")

    sources = PageSources(read=long_texts, redact=str)
    html = render_page(compose_page(read_run(name, read_journal(tmp_path / f"{name}.jsonl"), unchanged_event), sources))
    assert len(html.encode()) < most
    assert html.count('<tbody id="stage-') == number


@pytest.mark.parametrize(("jobs", "text"), [(1, "at most 1 stage at once"), (4, "at most 4 stages at once"), (0, "")])
def test_the_maximum_of_stages_is_shown_if_there_is_one(jobs: int, text: str) -> None:
    run = run_of(("orch23", RunStarted(jobs=jobs)), ("orch23", RunFinished(status="ok")))
    assert [one.note for one in page_of(run).totals if one.label == "Time"] == [text]


def test_what_was_sent_is_listed_by_receiver_and_recorded_responses_are_not() -> None:
    def asked(*files: str, recorded: bool = False, endpoint: str = "") -> LlmRequest:
        sent = tuple(SentFile(file.partition("#")[0], file.partition("#")[2], "0" * 64, len(file)) for file in files)
        return LlmRequest(provider="anthropic", endpoint=endpoint, files=sent, recorded=recorded, bytes=9)

    first = CallReserved(provider="anthropic", calls=1)
    run = run_of(
        ("orch23", RunStarted(name="p", stages=3)),
        ("a", asked("spec.md", "src/<b>.py#def f", endpoint="https://api.example")),
        ("a", first),
        ("a", CallReserved(provider="local", calls=1)),
        ("b", asked("spec.md", endpoint="https://api.example")),
        ("b", first),
        ("c", asked("recorded.md", recorded=True)),
        ("d", asked("refused.md")),
    )
    page = page_of(run)
    found = {one.receiver: [(row.place, row.requests, row.stages) for row in one.rows] for one in page.sent}
    assert found == {
        "anthropic at https://api.example": [("spec.md", 2, "a, b"), ("src/<b>.py#def f", 1, "a")],
        "local": [("spec.md", 1, "a"), ("src/<b>.py#def f", 1, "a")],
    }
    text = render_page(page)
    assert "What was sent" in text
    assert "src/&lt;b&gt;.py#def f" in text
    assert "recorded.md" not in text
    assert "refused.md" not in text
    assert "What was sent" not in render_page(page_of(run_of(("orch23", RunStarted(name="p", stages=0)))))
