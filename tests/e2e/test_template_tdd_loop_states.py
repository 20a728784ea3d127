"""The state machine of `tdd_loop`, watched from outside: `state.json` as it is on the disk after each event."""

import json
import os
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orch23.model.event import Event
from orch23.store.run_logs import read_journal
from orch23.store.run_state import StateFile, fold_events
from tests.documents import read_state
from tests.e2e.pipelines import green
from tests.e2e.tdd_loop import PATCH, PATCH_TEXT, PIPELINE, PLACE, RED, RED_TEXT, SPEC, code_answers, state, with_tests
from tests.e2e.templates import asked
from tests.project import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("templates"),
    pytest.mark.usefixtures("prepared_pytest"),
]  # whole builds: `make test` runs them, `make check` does not

# The tables of the documents, as they stand there.
S1_MOVES = {
    ("INIT", "GENERATING"),
    ("GENERATING", "TESTING"),
    ("GENERATING", "FAILED"),
    ("TESTING", "SUCCESS"),
    ("TESTING", "PATCHING"),
    ("TESTING", "FAILED"),
    ("PATCHING", "TESTING"),
    ("PATCHING", "FAILED"),
}
S0_MOVES = {
    ("init", "generated"),
    ("generated", "tested"),
    ("tested", "complete"),
    ("tested", "generated"),
    ("tested", "failed"),
}
S0_FIELDS = {
    *("run_id", "phase", "attempt", "max_retries", "test_passed", "last_test_output", "attempt_files", "spec_hash"),
    *("created_at", "updated_at"),
}
S1_FIELDS = {
    *("run_id", "spec_file", "state", "retry_count", "max_retries", "last_test_exit_code", "last_test_stderr"),
    *("last_error", "created_at", "updated_at"),
}


PATCHED_TEXT = json.dumps({**RED, **PATCH})


class Seen(NamedTuple):
    """What state.json said of the run after an event of `code`."""

    state: str
    phase: str
    retry_count: int
    test_passed: bool | None


@pytest.fixture
def tdd(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    return with_tests(project, tmp_path_factory)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Give the list of all that state.json said, read from the disk after each event."""
    found: list[dict[str, Any]] = []
    real = StateFile.notice

    def notice(self: StateFile, event: Event) -> None:
        real(self, event)
        said = read_state(self._path)
        assert said is not None, "at every moment the file is whole"
        found.append(dict(said))

    monkeypatch.setattr(StateFile, "notice", notice)
    return found


def walk(said: list[dict[str, Any]]) -> list[Seen]:
    seen = [Seen(one["state"], one["phase"], one["retry_count"], one["test_passed"]) for one in said]
    return [one for number, one in enumerate(seen) if number == 0 or one != seen[number - 1]]


def moves(names: list[str]) -> set[tuple[str, str]]:
    return {(one, two) for one, two in pairwise(names) if one != two}


def test_a_loop_that_is_patched_once_goes_through_all_states_in_order(
    tdd: Project, watched: list[dict[str, Any]]
) -> None:
    green(tdd.build(PIPELINE))
    assert walk(watched) == [
        Seen("INIT", "init", 0, None),
        Seen("GENERATING", "init", 0, None),
        Seen("TESTING", "generated", 0, None),
        Seen("TESTING", "generated", 0, False),
        Seen("TESTING", "tested", 0, False),
        Seen("PATCHING", "tested", 1, False),
        Seen("TESTING", "generated", 1, False),
        Seen("TESTING", "tested", 1, True),
        Seen("SUCCESS", "complete", 1, True),
    ]


ENDINGS = {
    "patched": ([RED_TEXT, PATCH_TEXT], "SUCCESS", "tested"),
    "exhausted": ([RED_TEXT, RED_TEXT.replace("}", ', "src/x.py": ""}'), RED_TEXT], "FAILED", "tested"),
    "no_output": ([""], "FAILED", "init"),
    "no_answer": ([], "FAILED", "init"),
    "no_patch": ([RED_TEXT, ""], "FAILED", "tested"),
    "escape": ([RED_TEXT, '{"../x.py": ""}'], "FAILED", "tested"),
}


@pytest.mark.stride(3)
@pytest.mark.parametrize(("answers", "end", "last_phase"), ENDINGS.values(), ids=ENDINGS)
def test_no_transition_that_the_documents_do_not_list(
    tdd: Project, watched: list[dict[str, Any]], answers: list[str], end: str, last_phase: str
) -> None:
    code_answers(tdd, *answers)
    tdd.build(PIPELINE, "--set", "max_retries=2")
    assert moves([one["state"] for one in watched]) <= S1_MOVES
    # S0 has no word for an answer that cannot be used: it fails where it was
    assert moves([one["phase"] for one in watched]) <= S0_MOVES | {(last_phase, "failed")}
    assert (watched[-1]["state"], watched[-1]["phase"]) == (end, "complete" if end == "SUCCESS" else "failed")
    assert {one["state"] for one in watched[:-1]} <= {"INIT", "GENERATING", "TESTING", "PATCHING"}
    own = moves([one["stages"]["code"]["state"] for one in watched if "code" in one["stages"]])
    assert own <= S1_MOVES, "a stage's own state obeys the same table"


def test_the_journal_has_each_transition_and_gives_the_same_state(tdd: Project, watched: list[dict[str, Any]]) -> None:
    green(tdd.build(PIPELINE))
    lines = read_journal(tdd.journals()[-1])
    assert len(lines) == len(watched)
    timeless = {"created_at": "", "updated_at": ""}
    for count, said in enumerate(watched, 1):
        folded = fold_events(lines[:count]).to_json()
        apart = {"stages": {}, **timeless} if count < len(watched) else timeless  # decisions are written with the next
        assert {**said, "sum": "", **apart} == {**folded, "sum": "", **apart}


def test_the_fields_of_both_documents_hold_what_they_promise(tdd: Project, watched: list[dict[str, Any]]) -> None:
    green(tdd.build(PIPELINE))
    for said in watched:
        assert set(said) >= S0_FIELDS | S1_FIELDS
        assert (said["spec_file"], said["max_retries"], said["run_id"]) == (SPEC, 5, watched[0]["run_id"])
        assert said["attempt"] == said["retry_count"]
        assert said["created_at"] <= said["updated_at"]
    assert watched[0]["run_id"][:16].replace("T", "").strip("Z").isdigit(), "its time in UTC: 20260215T143022Z-..."
    red = next(one for one in watched if one["test_passed"] is False)
    assert red["last_test_exit_code"] == 1
    assert "test_equally_frequent_words_come_in_alphabetical_order" in red["last_test_output"]
    assert red["last_test_stderr"] == red["last_test_output"]
    assert red["attempt_files"] == [f"{PLACE}/{path}" for path in sorted(RED)]
    assert watched[-1]["attempt_files"] == [f"{PLACE}/src/textstats/stats.py"], "those of the last attempt alone"
    assert (watched[-1]["last_test_exit_code"], watched[-1]["last_error"]) == (0, None)
    assert len({one["spec_hash"] for one in watched}) == 1
    assert watched[0]["spec_hash"].startswith("sha256:")


def test_the_fields_are_those_of_the_loop_whatever_ran_after_it(tdd: Project, watched: list[dict[str, Any]]) -> None:
    own = "import textstats\n\n\ndef test_it():\n    assert textstats.N == 1\n"
    for path in tdd.files("specs/tdd_loop/tests"):
        tdd.delete(path)
    tdd.write({"specs/tdd_loop/tests/textstats/test_own.py": own})
    tdd.edit(PIPELINE, tdd.read(PIPELINE).rstrip("\n") + "\n  after: {needs: [code], shell: 'true'}\n")
    code_answers(tdd, *(json.dumps({"src/textstats/__init__.py": f"N = {n}\n"}) for n in (2, 1)))
    green(tdd.build(PIPELINE, "--set", "write_tests=false"))
    assert [*watched[-1]["stages"]][-1] == "after", "it ran after the loop"
    loop = [f"{PLACE}/src/textstats/__init__.py"]
    after = [one for one in watched if one["stages"].get("code", {}).get("status") == "built"]
    assert len(after) > 3
    for said in after:
        assert (said["attempt"], said["max_retries"], said["test_passed"], said["attempt_files"]) == (1, 5, True, loop)
    green(tdd.build(PIPELINE, "--set", "write_tests=false"))
    said = state(tdd)
    assert (said["state"], said["attempt"], said["test_passed"], said["last_test_exit_code"]) == ("SUCCESS", 0, True, 0)
    assert said["stages"]["code"]["test_passed"] is True


def test_log_state_prints_the_state_of_a_run(tdd: Project) -> None:
    green(tdd.build(PIPELINE))
    said = state(tdd)
    said.pop("sum")
    printed = tdd.run("log", "--state").json()
    assert {**printed, "updated_at": "", "created_at": ""} == {**said, "updated_at": "", "created_at": ""}


# ---- terminal states -----------------------------------------------------------------------------------


def test_a_terminal_state_is_reported_on_a_second_start_and_no_one_is_asked(tdd: Project) -> None:
    green(tdd.build(PIPELINE))
    assert tdd.build(PIPELINE).err == "tdd_loop: up to date (7 stages, 1 skipped)\n"
    assert state(tdd)["state"] == "SUCCESS"
    code_answers(tdd, RED_TEXT, "")
    assert tdd.build(PIPELINE).code == 1
    again = tdd.build(PIPELINE)
    assert (again.code, state(tdd)["state"], asked(tdd)) == (1, "FAILED", [])
    assert "--resample code" in again.err, "how to have something new is told"


# ---- crashes ---------------------------------------------------------------------------------------------

_KILLED = 91
MOMENTS = [
    ("INIT", "init", 0, []),
    ("GENERATING", "init", 0, []),
    ("TESTING", "generated", 0, ["code"]),
    ("TESTING", "tested", 0, ["code"]),
    ("PATCHING", "tested", 1, ["code"]),
    ("TESTING", "generated", 1, ["code", "code"]),
    ("TESTING", "tested", 1, ["code", "code"]),
]


def killed_at(project: Project, moment: tuple[str, str, int]) -> None:
    """Build in a child process that ends, as if killed, when state.json says this of the run for the first time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads: the child runs only what follows
        child = os.fork()
    if child == 0:
        real = StateFile.notice

        def notice(self: StateFile, event: Event) -> None:
            real(self, event)
            said = read_state(self._path)
            assert said is not None
            if (said["state"], said["phase"], said["retry_count"]) == moment:
                os._exit(_KILLED)

        StateFile.notice = notice  # type: ignore[method-assign]  # in the child alone
        try:
            project.build(PIPELINE)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == _KILLED


@pytest.mark.stride(7)
@pytest.mark.parametrize(("at", "phase", "retries", "paid"), MOMENTS)
def test_a_build_killed_in_any_state_is_taken_up_and_no_answer_is_fetched_twice(
    tdd: Project, at: str, phase: str, retries: int, paid: list[str]
) -> None:
    killed_at(tdd, (at, phase, retries))
    left = state(tdd)
    assert (left["state"], left["phase"], left["retry_count"]) == (at, phase, retries)
    assert asked(tdd) == paid
    assert not tdd.exists(f"{PLACE}/src")
    green(tdd.build(PIPELINE))
    assert [*paid, *asked(tdd)] == ["code", "code"]
    assert state(tdd)["retry_count"] == 1, "the attempt that was killed is not counted twice"
    assert tdd.read(f"{PLACE}/src/textstats/stats.py") == json.loads(PATCH_TEXT)["src/textstats/stats.py"]


def test_a_killed_build_is_not_taken_up_for_another_spec(tdd: Project) -> None:
    killed_at(tdd, ("PATCHING", "tested", 1))
    before = state(tdd)["spec_hash"]
    old = "A command that tells the statistics of text files."
    tdd.replace(SPEC, old, f"{old} A word with a hyphen is one word.")
    green(tdd.build(PIPELINE))
    assert state(tdd)["spec_hash"] != before
    assert asked(tdd) == ["code"], "generated anew, and green at once"
    first = next(e for e in tdd.events_of("attempt_started") if e["role"] == "code")
    assert first["data"]["attempt"] == 1


def test_to_resample_is_a_fresh_run(tdd: Project) -> None:
    green(tdd.build(PIPELINE))
    first = state(tdd)["run_id"]
    green(tdd.build(PIPELINE, "--resample", "code"))
    assert asked(tdd) == ["code", "code"]
    assert state(tdd)["run_id"] != first


# ---- the workspace ---------------------------------------------------------------------------------------


def test_reset_clears_the_workspace_and_keeps_logs_and_specs(tdd: Project) -> None:
    green(tdd.build(PIPELINE))
    logs, specs = list(tdd.journals()), tdd.files("specs")
    assert tdd.run("reset", PIPELINE, "--outputs").code == 0
    assert tdd.files(PLACE) == {}
    assert tdd.journals()[: len(logs)] == logs
    assert tdd.files("specs") == specs
    assert set(tdd.plan(PIPELINE).values()) <= {"run", "maybe", "skipped"}


def test_a_workspace_that_is_not_clean_is_refused_and_left_as_it_is(tdd: Project) -> None:
    mine = f"{PLACE}/src/textstats/mine.py"
    tdd.write({mine: "MINE = 1\n"})
    refused = tdd.build(PIPELINE)
    assert (refused.code, asked(tdd)) == (1, [])
    assert f"requires file_absent {PLACE}/src/: there is {mine}" in refused.err
    assert state(tdd)["state"] == "FAILED"
    assert tdd.files(f"{PLACE}/src") == {mine: b"MINE = 1\n"}
    tdd.delete(mine)
    green(tdd.build(PIPELINE))
    tdd.replace(SPEC, "of text files.", "of files.")
    code_answers(tdd, PATCHED_TEXT)
    green(tdd.build(PIPELINE))
    assert asked(tdd) == ["code"], "what the stage made itself is in nobody's way"


def test_an_edit_of_the_result_by_hand_is_never_overwritten(tdd: Project) -> None:
    green(tdd.build(PIPELINE))
    path = f"{PLACE}/src/textstats/cli.py"
    edited = tdd.read(path) + "\n# by hand\n"
    tdd.edit(path, edited)
    assert tdd.build(PIPELINE).code == 6
    assert tdd.read(path) == edited
    green(tdd.run("accept", PIPELINE, "code"))
    assert set(tdd.plan(PIPELINE).values()) == {"fresh", "skipped"}


def test_what_a_template_renders_needs_no_model(tdd: Project) -> None:
    green(tdd.run("reset", PIPELINE, "--outputs"))
    green(tdd.build(PIPELINE, "skeleton", "--replay"))
    assert "def mean_length(words: list[str]) -> float:\n    raise NotImplementedError\n" in tdd.read(
        f"{PLACE}/skeleton/textstats/stats.py"
    )


def test_there_is_one_append_only_log_of_a_run(tdd: Project) -> None:
    before = {path: path.read_bytes() for path in tdd.journals()}
    green(tdd.build(PIPELINE))
    assert len(tdd.journals()) == len(before) + 1
    assert all(Path(path).read_bytes() == data for path, data in before.items())
    lines = [json.loads(line) for line in tdd.journals()[-1].read_text().splitlines()]
    assert all({"ts", "level", "type", "role", "message", "data"} <= set(line) for line in lines)
    assert all(line["ts"].endswith("Z") for line in lines)
    attempts = [line for line in lines if line["role"] == "code" and line["type"] == "attempt_started"]
    assert [line["data"]["attempt"] for line in attempts] == [1, 2]
