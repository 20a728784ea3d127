import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.event import Event, parse_event
from orch23.store.project_store import open_store
from orch23.store.run_logs import JournalLine
from orch23.store.run_state import (
    LEGAL_TRANSITIONS,
    RunState,
    RunStateFold,
    SeedState,
    StageState,
    StateFile,
    fold_events,
    with_state,
)
from tests.documents import read_state
from tests.doubles import FakeClock
from tests.sandbox.users import ROOT

MOMENT = datetime(2026, 2, 15, 14, 30, 22, tzinfo=UTC)
S0 = {
    *("run_id", "phase", "attempt", "max_retries", "test_passed", "last_test_output", "attempt_files"),
    *("spec_hash", "created_at", "updated_at"),
}
S1 = {
    *("run_id", "spec_file", "state", "retry_count", "max_retries", "last_test_exit_code", "last_test_stderr"),
    *("last_error", "created_at", "updated_at"),
}
START = parse_event(
    "run_started", "", data={"run_id": "r1", "pipeline": "p.yaml", "spec_file": "specs/a.md", "spec_hash": "sha256:ab"}
)


def of(event_type: Any, role: str = "code", *, message: str = "", **data: Any) -> Event:
    return parse_event(event_type, message, role, data=data)


def folded(events: list[Event]) -> RunState:
    return fold_events([JournalLine(number, "", event) for number, event in enumerate(events, 1)])


def red(number: int, most: int = 6) -> list[Event]:
    return [
        of("attempt_started", attempt=number, key="k", max_attempts=most),
        of("files_proposed", files=["app.py", "auth.py"]),
        of("check_result", message="1 failed", step="pytest", passed=False, exit_code=1, excerpt="FAILED test_auth"),
        of(
            "attempt_finished",
            attempt=number,
            passed=False,
            kind="verify_failed",
            exit_code=1,
            excerpt="FAILED test_auth",
        ),
    ]


def green(number: int, most: int = 6) -> list[Event]:
    return [
        of("attempt_started", attempt=number, key="k", max_attempts=most),
        of("files_proposed", files=["app.py"]),
        of("check_result", step="pytest", passed=True, exit_code=0, excerpt="1 passed"),
        of("attempt_finished", attempt=number, passed=True),
        of("promoted", files=["app.py"], removed=[]),
        of("stage_finished", status="built", key="k", attempts=number),
    ]


BEGIN = [START, of("stage_decided", decision="run", reasons=[]), of("stage_started", key="k")]


def test_the_fields_of_both_seeds_are_there() -> None:
    state = folded([]).to_json()
    assert set(state) >= S0 | S1 | {"stages"}
    json.dumps(state)


def test_after_two_red_attempts_it_says_what_the_seeds_say() -> None:
    state = folded([*BEGIN, *red(1), *red(2)]).to_json()
    expected = {
        "run_id": "r1",
        "spec_file": "specs/a.md",
        "spec_hash": "sha256:ab",
        "phase": "tested",
        "state": "TESTING",
        "attempt": 1,
        "retry_count": 1,
        "max_retries": 5,
        "test_passed": False,
        "last_test_exit_code": 1,
        "last_test_output": "FAILED test_auth",
        "last_test_stderr": "FAILED test_auth",
        "attempt_files": ["app.py", "auth.py"],
    }
    assert {name: state[name] for name in expected} == expected
    assert state["last_error"]


def test_the_walk_of_a_stage_that_was_patched_once() -> None:
    events = [*BEGIN, *red(1), *green(2), parse_event("run_finished", "ok", data={"status": "ok"})]
    walk: list[tuple[object, object]] = []
    for count in range(1, len(events) + 1):
        state = folded(events[:count]).to_json()
        if not walk or walk[-1] != (state["state"], state["phase"]):
            walk.append((state["state"], state["phase"]))
    assert walk == [
        ("INIT", "init"),
        ("GENERATING", "init"),
        ("TESTING", "generated"),
        ("TESTING", "tested"),
        ("PATCHING", "tested"),
        ("TESTING", "generated"),
        ("TESTING", "tested"),
        ("SUCCESS", "complete"),
    ]


def test_while_the_tests_run_it_is_testing_and_says_what_the_last_ones_said() -> None:
    checked = of("check_result", step="check python_syntax", passed=True, exit_code=0)
    state = folded([*BEGIN, *red(1)[:2], checked]).to_json()
    assert (state["state"], state["phase"], state["test_passed"]) == ("TESTING", "generated", None)
    state = folded([*BEGIN, *red(1), *green(2)[:2], checked]).to_json()
    assert (state["state"], state["phase"], state["test_passed"]) == ("TESTING", "generated", False)
    assert (state["last_test_exit_code"], state["last_test_output"]) == (1, "FAILED test_auth")


def test_a_step_that_passes_after_a_failed_one_does_not_make_the_attempt_green() -> None:
    after = of("check_result", step="lint", passed=True, exit_code=0)
    state = folded([*BEGIN, *red(1)[:3], after, red(1)[3]]).to_json()
    assert (state["test_passed"], state["last_test_exit_code"]) == (False, 1)
    assert state["last_test_output"] == state["last_error"] == "FAILED test_auth"


@pytest.mark.parametrize("kind", ["llm_output_invalid", "write_scope_violation", "timeout", "exception", "agent_error"])
@pytest.mark.parametrize(("before", "state"), [(0, "GENERATING"), (1, "PATCHING")])
def test_an_attempt_without_anything_to_test_fails_where_it_is(kind: str, before: int, state: str) -> None:
    begun = of("attempt_started", attempt=before + 1, key="k", max_attempts=6)
    ended = of("attempt_finished", attempt=before + 1, passed=False, kind=kind, excerpt="nothing came")
    history = [*BEGIN, *(red(1) if before else ()), begun, ended]
    assert folded(history).to_json()["state"] == state
    end = parse_event("run_finished", "failed", data={"status": "failed"})
    found = folded([*history, of("stage_finished", status="failed", message="no"), end]).to_json()
    assert (found["state"], found["phase"], found["last_error"]) == ("FAILED", "failed", "nothing came")


def test_the_last_error_is_that_of_a_stage_that_failed_although_another_went_on() -> None:
    history = [
        *BEGIN,
        *red(1, most=1),
        of("stage_finished", status="failed", message="no more attempts"),
        of("stage_decided", "docs", decision="run"),
        of("attempt_started", "docs", attempt=1, key="k"),
        of("attempt_finished", "docs", attempt=1, passed=True),
        of("stage_finished", "docs", status="built", key="k"),
        parse_event("run_finished", "failed", data={"status": "failed"}),
    ]
    assert folded(history).to_json()["last_error"] == "FAILED test_auth"


def test_how_often_may_be_retried_is_known_from_the_start() -> None:
    start = parse_event("run_started", "", data={"run_id": "r1", "max_retries": 7})
    assert folded([start]).to_json()["max_retries"] == 7
    assert folded([start, *BEGIN[1:], *red(1, most=6)]).to_json()["max_retries"] == 5


@pytest.mark.parametrize(
    ("status", "state", "phase"),
    [
        ("ok", "SUCCESS", "complete"),
        ("failed", "FAILED", "failed"),
        ("interrupted", "TESTING", "tested"),
        ("limit", "TESTING", "tested"),
    ],
)
def test_the_end_of_a_run_is_terminal_unless_it_can_go_on(status: str, state: str, phase: str) -> None:
    found = folded([*BEGIN, *red(1), parse_event("run_finished", "why", data={"status": status})]).to_json()
    assert (found["state"], found["phase"]) == (state, phase)


MODELS = parse_event("run_started", "", data={"run_id": "r1", "model": ["m"], "max_retries": 5})
KINDS = parse_event("plan", "", data={"stages": {"tests": "llm", "code": "llm", "skeleton": "render", "docs": "shell"}})
END = parse_event("run_finished", "ok", data={"status": "ok"})
TOP = ("state", "attempt", "max_retries", "test_passed", "last_test_exit_code", "attempt_files")


def rendered(name: str = "skeleton@cli") -> list[Event]:
    return [
        of("stage_decided", name, decision="run"),
        of("stage_started", name, key="k"),
        of("attempt_started", name, attempt=1, key="k"),
        of("attempt_finished", name, attempt=1, passed=True),
        of("stage_finished", name, status="built", key="k"),
    ]


def at_rest(name: str, status: str) -> list[Event]:
    decision = {"restored": "restore", "verified": "verify"}.get(status, status)
    return [of("stage_decided", name, decision=decision), of("stage_finished", name, status=status, key="k")]


def top(*events: Event) -> tuple[object, ...]:
    state = folded([MODELS, KINDS, *events]).to_json()
    return tuple(state[name] for name in TOP)


def test_a_stage_without_a_model_does_not_hide_the_loop() -> None:
    loop = [*BEGIN[1:], *red(1), *green(2)]
    expected = ("SUCCESS", 1, 5, True, 0, ["app.py"])
    assert top(*loop, *rendered(), END) == expected
    assert top(*rendered("docs"), *loop, *rendered(), END) == expected
    assert top(*loop, *at_rest("docs", "fresh"), END) == expected
    # Nor while it runs.
    assert top(*loop[:-1], *rendered()) == ("TESTING", 1, 5, True, 0, ["app.py"])
    # A stage that failed is shown, of whatever kind it is.
    broken = [*rendered()[:3], of("attempt_finished", "skeleton@cli", passed=False, kind="verify_failed", exit_code=3)]
    failed = [*broken, of("stage_finished", "skeleton@cli", status="failed")]
    assert top(*loop, *failed)[3:5] == (False, 3)


@pytest.mark.parametrize("status", ["fresh", "restored", "verified"])
def test_a_loop_that_was_not_run_has_its_recorded_verdict(status: str) -> None:
    assert top(*at_rest("code", status), END) == ("SUCCESS", 0, 5, True, 0, [])
    assert top(*at_rest("code", status), *rendered(), END) == ("SUCCESS", 0, 5, True, 0, [])
    stage = folded([MODELS, KINDS, *at_rest("code", status)]).stages["code"]
    assert (stage.test_passed, stage.exit_code) == (True, 0)


def test_a_run_without_its_loop_claims_no_verdict() -> None:
    assert top(*rendered(), END) == ("SUCCESS", 0, 5, None, None, [])
    assert top(of("stage_finished", "code", status="skipped"), *rendered(), END)[3:5] == (None, None)


def test_without_a_model_the_stage_last_worked_on_is_shown() -> None:
    kinds = parse_event("plan", "", data={"stages": {"code": "shell", "docs": "shell"}})
    assert folded([START, kinds, *BEGIN[1:], *red(1), *green(2), *rendered("docs"), END]).to_json()["attempt"] == 0


def test_an_expanded_foreach_has_no_state_beside_its_items() -> None:
    added = of("stages_added", "code", items=["code@a"])
    warned = of("warning", "code", message="a file of `code`")
    items = [
        of(one, "code@a", **data) for one, data in (("stage_started", {}), ("stage_finished", {"status": "built"}))
    ]
    assert set(folded([START, added, warned, *items, END]).stages) == {"code@a"}


def test_stages_are_distinguished() -> None:
    state = folded(
        [
            START,
            of("stage_decided", "a", decision="fresh"),
            of("stage_finished", "a", status="fresh", key="ka"),
            of("stage_decided", "b", decision="run"),
            of("stage_finished", "b", status="blocked"),
            *BEGIN[1:],
            *red(1, most=1),
            of("stage_finished", status="failed", message="no more attempts"),
        ]
    )
    assert {name: (s.status, s.state) for name, s in state.stages.items()} == {
        "a": ("fresh", "SUCCESS"),
        "b": ("blocked", "INIT"),
        "code": ("failed", "FAILED"),
    }
    assert state.to_json()["state"] == "TESTING"


ANSWERLESS = [
    of("attempt_started", attempt=1, key="k", max_attempts=3),
    of("attempt_finished", attempt=1, passed=False, kind="llm_output_invalid", excerpt="no JSON"),
]


@pytest.mark.parametrize(
    "events",
    [
        [*BEGIN, *ANSWERLESS, *green(2)],
        [*BEGIN, *ANSWERLESS, of("stage_finished", status="failed")],
        [*BEGIN, of("check_result", passed=True, step="pytest"), of("stage_finished", status="verified")],
        [*BEGIN, of("check_result", passed=False, step="pytest"), *green(1)],
        [*BEGIN, *green(3)],
        [*BEGIN, of("stage_finished", status="failed", message="requires: no such file")],
        [*BEGIN, of("attempt_started", attempt=1, key="k"), of("stage_finished", status="cancelled")],
        [*BEGIN, of("attempt_started", attempt=1, key="k"), of("attempt_finished", passed=True), *green(1)[4:]],
        [*BEGIN, *red(1), *BEGIN[1:], *green(1)],
        [*BEGIN, *green(1)[:-1], of("stage_held", key="k"), green(1)[-1]],
        [*BEGIN, *green(1)[:-1], of("stage_held", key="k"), of("stage_finished", status="held")],
        [*BEGIN, of("stage_held", key="k"), of("stage_finished", status="restored")],
        [*BEGIN, of("stage_held", key="k"), of("stage_finished", status="failed")],
    ],
    ids=[
        "asked_again",
        "never_usable",
        "verified",
        "verified_red",
        "resumed",
        "requires",
        "cancelled",
        "no_verify",
        "decided_anew",
        "held_and_promoted",
        "held_back",
        "restored_together",
        "lost_while_held",
    ],
)
def test_every_way_of_a_stage_is_legal(events: list[Event]) -> None:
    folded(events)


def test_a_stage_that_is_held_is_neither_done_nor_failed() -> None:
    held = folded([*BEGIN, *green(1)[:-1], of("stage_held", key="k")]).stages["code"]
    assert (held.status, held.state, held.phase) == ("held", "TESTING", "tested")
    ended = folded([*BEGIN, *green(1)[:-1], of("stage_held", key="k"), of("stage_finished", status="held")])
    assert ended.stages["code"] == held


def test_what_is_held_back_does_not_hide_what_failed() -> None:
    a, b = (of("attempt_started", "a@1", attempt=1), of("attempt_started", "a@2", attempt=1))
    passed = of("attempt_finished", "a@1", passed=True, attempt=1)
    red_ = of("attempt_finished", "a@2", passed=False, attempt=1, kind="verify_failed", exit_code=3, excerpt="no")
    events = [
        START,
        of("stage_started", "a@1"),
        a,
        passed,
        of("stage_held", "a@1"),
        of("stage_started", "a@2"),
        b,
        red_,
    ]
    events += [of("stage_finished", "a@2", status="failed"), of("stage_finished", "a@1", status="held")]
    state = folded([*events, parse_event("run_finished", "failed", data={"status": "failed"})]).to_json()
    assert (state["state"], state["test_passed"], state["last_test_exit_code"]) == ("FAILED", False, 3)


@pytest.mark.parametrize(
    "events",
    [
        [*BEGIN, *green(1), of("attempt_started", attempt=2, key="k")],
        [*BEGIN, *green(1), of("check_result", passed=True)],
        [*BEGIN, *green(1), of("stage_finished", status="built")],
        [*BEGIN, of("attempt_started", attempt=1, key="k"), of("stage_finished", status="built")],
        [*BEGIN, *green(1), of("stage_decided", decision="run")],
    ],
    ids=["after_success", "check_after_success", "twice", "untested", "decided_after_the_end"],
)
def test_an_unlisted_move_is_a_bug(events: list[Event]) -> None:
    with pytest.raises(ValueError, match="BUG: stage code"):
        folded(events)


@given(st.sampled_from(get_args(SeedState)), st.sampled_from(get_args(SeedState)))
def test_the_table_alone_says_what_is_legal(here: SeedState, there: SeedState) -> None:
    stage = StageState(state=here)
    if there in LEGAL_TRANSITIONS[here]:
        assert with_state(stage, there, "s").state == there
    else:
        with pytest.raises(ValueError, match="BUG"):
            with_state(stage, there, "s")


# The moves that the first two documents list: S1's table, and S0's read in S1's words.
LISTED: dict[SeedState, set[SeedState]] = {
    "INIT": {"GENERATING"},
    "GENERATING": {"TESTING", "FAILED"},
    "TESTING": {"SUCCESS", "PATCHING", "FAILED"},
    "PATCHING": {"TESTING", "FAILED"},
}
BEYOND: dict[SeedState, set[SeedState]] = {
    "INIT": {"INIT", "TESTING", "PATCHING", "SUCCESS", "FAILED"},
    "GENERATING": {"INIT", "PATCHING"},
    "TESTING": {"INIT", "TESTING", "GENERATING"},
    "PATCHING": {"INIT", "PATCHING"},
}


def test_all_listed_moves_are_legal_and_those_beyond_are_these() -> None:
    assert set(LEGAL_TRANSITIONS) == set(get_args(SeedState))
    for state, moves in LEGAL_TRANSITIONS.items():
        listed, beyond = LISTED.get(state, set()), BEYOND.get(state, set())
        assert listed.isdisjoint(beyond)
        assert moves == listed | beyond, state


SOME_EVENTS = st.sampled_from(
    [
        *BEGIN[1:],
        *red(1),
        *ANSWERLESS,
        *green(2),
        of("stage_decided", decision="fresh"),
        of("stage_finished", status="failed", message="no more attempts"),
        of("stage_finished", status="fresh"),
        of("stage_finished", status="cancelled"),
    ]
)


@given(st.lists(SOME_EVENTS, max_size=12))
def test_whatever_happens_a_stage_moves_by_the_table_or_it_is_a_bug(events: list[Event]) -> None:
    folding = RunStateFold()
    folding.add(START)
    before: SeedState = "INIT"
    for event in events:
        try:
            folding.add(event)
        except ValueError:
            return  # the way out of a move that the table does not have
        stages = folding.state().stages
        after: SeedState = stages["code"].state if "code" in stages else "INIT"
        assert after == before or after in LEGAL_TRANSITIONS[before]
        before = after


def test_the_file_is_in_step_with_the_run(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "r1" / "state.json"
    file = StateFile(path, lambda: MOMENT)
    seen: list[Event] = []
    for event in [*BEGIN, *red(1), *green(2), parse_event("run_finished", "ok", data={"status": "ok"})]:
        file.notice(event)
        seen.append(event)
        found = read_state(path)
        assert found is not None
        if event.type in ("attempt_started", "attempt_finished", "stage_finished", "run_finished"):
            assert {**found, "created_at": "", "updated_at": ""} == folded(seen).to_json()
            assert found["updated_at"] == "2026-02-15T14:30:22.000Z"
    assert [p.name for p in path.parent.iterdir()] == ["state.json"]


def test_a_run_of_many_stages_does_not_write_the_whole_file_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[object] = []
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        writes.append(target)
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    file = StateFile(tmp_path / "state.json", lambda: MOMENT)
    file.notice(START)
    for number in range(1500):
        file.notice(of("stage_decided", f"s{number}", decision="fresh"))
        file.notice(of("stage_finished", f"s{number}", status="fresh"))
    file.notice(parse_event("run_finished", "ok", data={"status": "ok"}))
    assert len(writes) < 600
    found = read_state(tmp_path / "state.json")
    assert found is not None
    assert len(found["stages"]) == 1500  # type: ignore[arg-type]


@pytest.mark.parametrize("status", ["ok", "failed", "interrupted"])
def test_at_its_end_the_file_of_a_run_of_many_stages_has_the_state_of_each(tmp_path: Path, status: str) -> None:
    file = StateFile(tmp_path / "state.json", lambda: MOMENT)
    file.notice(parse_event("run_started", "", data={**START.facts(), "stages": 300}))
    for number in range(300):
        file.notice(of("stage_decided", f"s{number}", decision="fresh"))
        file.notice(
            of("stage_finished", f"s{number}", status="fresh" if status == "ok" or number < 200 else "cancelled")
        )
    file.notice(parse_event("run_finished", status, data={"status": status}))
    found: Any = read_state(tmp_path / "state.json")
    assert found is not None
    ended = [found["stages"][f"s{number}"]["status"] for number in range(300)]
    assert ended == ["fresh"] * 200 + ["fresh" if status == "ok" else "cancelled"] * 100


def test_a_run_that_says_that_it_is_long_writes_now_and_then_from_its_beginning(tmp_path: Path) -> None:
    clock = FakeClock()
    path = tmp_path / "state.json"
    file = StateFile(path, clock)
    file.notice(parse_event("run_started", "", data={**START.facts(), "stages": 1000}))

    def decided(name: str) -> bool:
        """Say whether the file knows of a stage once it is started."""
        file.notice(of("stage_decided", name, decision="run"))
        file.notice(of("stage_started", name))
        found = read_state(path)
        assert found is not None
        return name in found["stages"]  # type: ignore[operator]

    assert not decided("a")
    clock.tick(2)
    assert decided("b")
    assert not decided("c")


def test_a_damaged_file_is_noticed_and_replaced_by_the_next_write(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "r1" / "state.json"
    file = StateFile(path, lambda: MOMENT)
    for event in [*BEGIN, *red(1)]:
        file.notice(event)
    before = read_state(path)
    damage(path)
    if read_state(path) == before:
        return  # only the line's end was lost
    assert read_state(path) is None
    file.notice(parse_event("run_finished", "failed", data={"status": "failed"}))
    after = read_state(path)
    assert after is not None
    assert after["state"] == "FAILED"


def test_after_a_fault_at_any_call_the_file_is_absent_or_whole(tmp_path: Path, disk: Any, fault: int | None) -> None:
    def make(at: int) -> Callable[[], object]:
        path = tmp_path / str(at) / "state.json"
        make.path = path  # type: ignore[attr-defined]
        file = StateFile(path, lambda: MOMENT)

        def run() -> None:
            for event in [*BEGIN, *red(1)]:
                file.notice(event)

        return run

    def check() -> None:
        path = make.path  # type: ignore[attr-defined]
        assert not path.exists() or read_state(path) is not None
        StateFile(path, lambda: MOMENT).notice(START)  # what was left behind is in no one's way
        assert read_state(path) is not None

    assert disk.every_point(make, fault, check) >= 8


def test_what_a_killed_build_left_of_it_is_swept_by_the_next(tmp_path: Path) -> None:
    """It is written beside the folders of runs, which may be many: no one would look into each."""
    script = (
        "import os, sys; from pathlib import Path; from datetime import datetime, UTC\n"
        "from orch23.model.event import parse_event; from orch23.store.run_state import StateFile\n"
        "os.replace = lambda *_, **_names: os._exit(9); os.rename = os.replace; Path.replace = os.replace\n"
        "file = StateFile(Path(sys.argv[1], 'logs/r1/state.json'), lambda: datetime.now(UTC))\n"
        "file.notice(parse_event('run_started', ''))\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, check=False)
    assert killed.returncode == 9
    assert len([path for path in (tmp_path / "logs").rglob("*") if path.is_file()]) == 1
    open_store(tmp_path).sweep()
    assert [path for path in (tmp_path / "logs").rglob("*") if path.is_file()] == []
