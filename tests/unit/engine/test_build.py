"""The build loop: what runs, what does not, how it ends, and what the next build finds."""

import queue
from typing import Any, cast

import pytest
from msgspec.structs import replace

from orch23.attempt.later_batches import LaterBatches
from orch23.engine.build import Build
from orch23.model.action import Cancelled
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import AwaitsResponseError, ExitCode, ProviderError
from orch23.model.event import FilesPromoted, FilesReleased, StagesAdded, Warned
from orch23.model.pipeline import SkippedStage, StopConditions
from orch23.plan.planner import Selection
from tests.unit.engine.rig import Project, each, limit, stage

CHAIN = (stage("a", "src"), stage("b", "a"), stage("c", "b"))


def warnings(project: Project) -> list[str]:
    return [event.message for event in project.events if isinstance(event.data, Warned)]


# ---- what runs --------------------------------------------------------------------------------------


def test_each_stage_gets_the_outputs_of_its_upstream_and_the_lock_file_has_all_records() -> None:
    project = Project(*CHAIN, files={"src": "1"})
    assert project.build().exit_code is ExitCode.OK
    assert project.disk["c"] == "c(b(a(1)))"
    assert project.ran() == ["a", "b", "c"]
    assert set(project.lock.records) == {"a", "b", "c"}


def test_a_second_build_runs_nothing_and_an_edit_reruns_only_its_downstream() -> None:
    project = Project(*CHAIN, stage("other", "x"), files={"src": "1", "x": "0"})
    project.build()
    assert project.build().exit_code is ExitCode.OK
    assert (project.ran(), set(project.statuses().values())) == ([], {"fresh"})
    project.disk["x"] = "9"
    project.build()
    assert (project.ran(), project.disk["other"]) == (["other"], "other(9)")


def test_downstream_stays_fresh_if_a_rerun_gives_the_same_bytes() -> None:
    project = Project(*CHAIN, files={"src": "1"})
    project.programs["a"] = lambda _files: {"a": "always the same"}
    project.build()
    project.disk["src"] = "2"
    project.build()
    assert (project.ran(), project.statuses()) == (["a"], {"a": "built", "b": "fresh", "c": "fresh"})


def test_no_more_stages_run_at_once_than_there_are_jobs() -> None:
    project = Project(*(stage(name) for name in "abcd"))
    running, most = set[str](), []

    def note(name: str) -> Any:
        def program(_files: object) -> dict[str, str]:
            running.add(name)
            most.append(len(running))
            running.remove(name)
            return {name: name}

        return program

    project.programs = {name: note(name) for name in "abcd"}
    project.build(jobs=1)
    assert (most, project.ran()) == ([1, 1, 1, 1], ["a", "b", "c", "d"])


def test_an_unselected_stage_keeps_its_last_result() -> None:
    project = Project(*CHAIN, files={"src": "1"})
    project.build()
    project.disk["src"] = "2"
    project.build(selection=Selection(only=("b",)))
    assert (project.ran(), project.statuses()) == ([], {"b": "fresh"})
    project.build(selection=Selection(targets=("b",)))
    assert (project.ran(), project.disk["c"]) == (["a", "b"], "c(b(a(1)))")


# ---- failures ---------------------------------------------------------------------------------------


def test_a_failed_stage_blocks_its_downstream_and_other_stages_run() -> None:
    project = Project(*CHAIN, stage("other"), files={"src": "1"})
    project.programs["a"] = project.failing("it is broken")
    result = project.build(keep_going=True)
    assert result.exit_code is ExitCode.FAILED
    assert project.statuses() == {"a": "failed", "b": "blocked", "c": "blocked", "other": "built"}
    assert (result.stages["b"].by, result.stages["c"].by) == (("a",), ("b",))
    assert "it is broken" in result.stages["a"].failure
    assert set(project.lock.records) == {"other"}


@pytest.mark.parametrize(("most", "ran"), [(1, ["a"]), (2, ["a", "b"]), (None, ["a", "b", "c"])])
def test_a_build_stops_at_so_many_failed_stages(most: int | None, ran: list[str]) -> None:
    project = Project(stage("a"), stage("b"), stage("c"), stop=StopConditions(max_failed_stages=most))
    project.programs = dict.fromkeys("abc", project.failing())
    result = project.build(jobs=1)
    assert project.ran() == ran
    not_run = [name for name, end in result.stages.items() if end.text == "not run: another stage failed"]
    assert not_run == [name for name in "abc" if name not in ran]


def test_with_keep_going_no_number_of_failures_stops_a_build() -> None:
    project = Project(stage("a"), stage("b"), stop=StopConditions(max_failed_stages=1))
    project.programs = dict.fromkeys("ab", project.failing())
    project.build(jobs=1, keep_going=True)
    assert project.ran() == ["a", "b"]


def test_a_stage_that_waits_for_a_place_is_not_started_once_too_many_have_failed() -> None:
    project = Project(stage("a", pools=("one",)), stage("b", pools=("one",)), pools={"one": 1})
    project.programs["a"] = project.failing()
    result = project.build(jobs=4)
    assert (project.ran(), result.stages["b"].text) == (["a"], "not run: another stage failed")


def test_a_stage_that_failed_runs_again_in_the_next_build_and_the_others_do_not() -> None:
    project = Project(stage("a"), stage("b"), stop=StopConditions(max_failed_stages=None))
    project.programs["a"] = project.failing()
    project.build()
    del project.programs["a"]
    assert project.build().exit_code is ExitCode.OK
    assert (project.ran(), project.statuses()) == (["a"], {"a": "built", "b": "fresh"})


def test_files_of_a_failed_stage_are_kept_only_with_on_failure_keep_and_never_count_as_fresh() -> None:
    for how, wanted in (("rollback", []), ("keep", [("half",)])):
        project = Project(stage("a", writes=("half",), on_failure=how))
        project.programs["a"] = project.failing(written={"half": "h"})
        project.build()
        assert [data.files for data in project.reported(FilesPromoted)] == wanted
        assert ("half" in project.disk.files) == bool(wanted)
        project.build()
        assert project.ran() == ["a"]


def test_a_provider_error_fails_its_stage_and_decides_the_exit_code() -> None:
    project = Project(stage("a"), stage("b"), stop=StopConditions(max_failed_stages=None))

    def pace(name: str) -> None:
        if name == "a":
            raise ProviderError(Diagnostic("E401", "it is down"))

    project.pace = pace
    assert project.build().exit_code is ExitCode.PROVIDER
    assert project.statuses() == {"a": "failed", "b": "built"}


def test_an_unknown_exception_of_a_worker_is_raised() -> None:
    project = Project(stage("a"))

    def broken(_files: object) -> Any:
        raise ZeroDivisionError

    project.programs["a"] = broken
    with pytest.raises(ZeroDivisionError):
        project.build()


# ---- stopping ---------------------------------------------------------------------------------------


def test_an_interrupt_keeps_finished_results_and_the_next_build_continues() -> None:
    project = Project(*CHAIN, files={"src": "1"})
    build = project.builder()

    def interrupted(_files: object) -> dict[str, str]:
        build.interrupt(2)
        return {"b": "made all the same"}

    project.programs["b"] = interrupted
    result = build.run()
    assert result.exit_code is ExitCode.SIGINT
    assert (project.statuses(), project.executor.cancelled) == ({"a": "built", "b": "built", "c": "cancelled"}, True)
    assert (project.disk["b"], set(project.lock.records)) == ("made all the same", {"a", "b"})
    project.build()
    assert project.ran() == ["c"]


def test_an_interrupt_kills_running_stages() -> None:
    project = Project(stage("a"), stage("b"))
    build = project.builder()

    def waits(_files: object) -> Cancelled:
        build.interrupt(15)
        assert project.executor.stopped.wait(5)
        return Cancelled()

    project.programs["a"] = waits
    assert build.run().exit_code is ExitCode.SIGTERM
    assert project.statuses()["a"] == "cancelled"
    assert "a" not in project.disk.files


def test_a_run_out_of_time_kills_running_stages_and_starts_no_more() -> None:
    project = Project(*CHAIN, files={"src": "1"}, stop=StopConditions(max_wall_s=10))

    def takes_long(_files: object) -> dict[str, str]:
        project.clock.tick(11)
        return {"a": "a"}

    def is_killed(_files: object) -> Cancelled:
        assert project.executor.stopped.wait(5)
        return Cancelled()

    project.programs = {"a": takes_long, "b": is_killed}
    result = project.build()
    assert (result.exit_code, project.ran()) == (ExitCode.LIMIT, ["a", "b"])
    assert project.statuses() == {"a": "built", "b": "cancelled", "c": "cancelled"}


FINGERPRINT = "f"


class Batches:
    """Requests in a batch that ends with the sixth look."""

    is_empty = has_unsent = False
    looks = 0

    def advance(self) -> frozenset[str]:
        self.looks += 1
        return frozenset({FINGERPRINT} if self.looks == 6 else ())

    def report(self) -> None:
        pass


class Messages(queue.SimpleQueue[Any]):
    """The messages of a build on the clock of its project: while nothing runs, a wait ends at once."""

    def __init__(self, build: Build, project: Project) -> None:
        self.build, self.project = build, project

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        is_idle = not self.build._running and not self.build._is_looking
        if is_idle:
            self.project.clock.tick(timeout or 0)
        if is_idle or timeout == 0:
            raise queue.Empty
        return super().get(block, 5)


def test_waiting_for_a_batch_does_not_count_against_the_wall_time_of_the_run() -> None:
    project = Project(stage("a"), stop=StopConditions(max_wall_s=10))
    later = Batches()

    def pace(_name: str) -> None:
        if later.looks < 6:
            raise AwaitsResponseError(FINGERPRINT)

    project.pace = pace
    build = project.builder()
    build.later = cast("LaterBatches", later)
    build.options = replace(build.options, waits=True)
    build._messages = Messages(build, project)
    began = project.clock.monotonic()
    assert build.run().exit_code is ExitCode.OK
    assert project.clock.monotonic() - began > 10
    assert project.statuses() == {"a": "built"}


def test_a_limit_of_the_run_stops_it_and_running_stages_finish() -> None:
    project = Project(stage("a"), stage("b", "a"), stage("c"))

    def pace(name: str) -> None:
        if name == "c":
            raise limit()

    project.pace = pace
    result = project.build(jobs=1)
    assert result.exit_code is ExitCode.LIMIT
    assert {name: end.status.value for name, end in result.stages.items()} == {
        "a": "built",
        "b": "built",
        "c": "cancelled",
    }
    assert warnings(project) == ["[E501] nothing is left (raise it)"]


# ---- starting over ----------------------------------------------------------------------------------


def test_a_stage_is_decided_again_if_its_inputs_change_before_it_starts() -> None:
    project = Project(stage("a", "src"), files={"src": "1"})
    edits = iter(["2", "2 again", "3"])

    def saved(_path: str) -> None:
        project.disk["src"] = next(edits, project.disk["src"])

    project.store.saved = saved
    assert project.build().exit_code is ExitCode.OK
    assert (project.disk["a"], project.ran()) == ("a(3)", ["a"])
    assert warnings(project) == ["inputs changed while the stage was prepared: src"] * 2
    assert project.disk.stale.count("src") >= 2, "what was known of the file is forgotten"


def test_a_stage_fails_if_its_inputs_change_six_times_before_it_starts() -> None:
    project = Project(stage("a", "src"), files={"src": ""})

    def saved(_path: str) -> None:
        project.disk["src"] += "."

    project.store.saved = saved
    result = project.build()
    assert (result.exit_code, project.ran()) == (ExitCode.FAILED, [])
    assert [problem.code for problem in result.stages["a"].problems] == ["E711"]
    assert "src changed 6 times" in result.stages["a"].text


def test_inputs_that_change_while_a_stage_runs_are_reported_and_the_stage_is_stale_again() -> None:
    project = Project(stage("a", "src"), files={"src": "1"})

    def edited(_files: object) -> dict[str, str]:
        project.disk["src"] = "2"
        return {"a": "of 1"}

    project.programs["a"] = edited
    assert project.build().exit_code is ExitCode.OK
    assert warnings(project) == ["inputs changed while it ran, so it is stale again: src"]
    del project.programs["a"]
    project.build()
    assert project.disk["a"] == "a(2)"


def test_an_output_that_is_gone_is_restored_and_nothing_runs() -> None:
    project = Project(*CHAIN, files={"src": "1"})
    project.build()
    del project.disk.files["b"]
    assert project.build().exit_code is ExitCode.OK
    assert (project.ran(), project.statuses()["b"], project.disk["b"]) == ([], "restored", "b(a(1))")


def test_where_the_bytes_to_restore_are_damaged_the_stage_runs_instead() -> None:
    project = Project(*CHAIN, files={"src": "1"})
    project.build()
    del project.disk.files["b"]
    project.store.forget_bytes("b(a(1))", damaged=True)
    assert project.build().exit_code is ExitCode.OK
    assert (project.ran(), project.statuses()["b"], project.disk["b"]) == (["b"], "built", "b(a(1))")
    assert "was damaged in the store and is dropped" in warnings(project)[0]


def test_a_result_with_lost_bytes_does_not_count_if_the_rerun_fails() -> None:
    project = Project(stage("a"))
    project.build()
    del project.disk.files["a"]
    project.store.forget_bytes("a()", damaged=True)
    project.programs["a"] = project.failing()
    build = project.builder()
    assert build.run().exit_code is ExitCode.FAILED
    assert build.opened.state.results == {}


# ---- lists, edits, groups, and what has ended -----------------------------------------------------------


def test_the_items_of_a_list_that_a_stage_makes_are_added_and_built() -> None:
    project = Project(stage("list", writes=("l.json",)), each("e", source="l.json"), stage("z", "e/y"))
    project.programs["list"] = lambda _files: {"l.json": '["x", "y"]'}
    assert project.build().exit_code is ExitCode.OK
    assert [data.items for data in project.reported(StagesAdded)] == [("e@x", "e@y")]
    assert project.disk["z"] == "z(e())"


def test_an_empty_list_blocks_neither_its_group_nor_its_downstream() -> None:
    project = Project(
        stage("list", writes=("l.json",), promote="g"),
        each("e", source="l.json", promote="g"),
        stage("z", needs=("e",)),
    )
    project.programs["list"] = lambda _files: {"l.json": "[]"}
    assert project.build().exit_code is ExitCode.OK
    assert project.statuses() == {"list": "built", "e": "skipped", "z": "built"}
    assert project.disk["l.json"] == "[]", "the group has no other members"


def test_a_stage_fails_if_it_makes_an_invalid_list() -> None:
    project = Project(stage("list", writes=("l.json",)), each("e", source="l.json"), stage("z", needs=("e",)))
    project.programs["list"] = lambda _files: {"l.json": '{"no": "list"}'}
    result = project.build(keep_going=True)
    assert result.exit_code is not ExitCode.OK
    assert project.statuses()["list"] == "failed", "its maker is held to it"
    assert [problem.code for problem in result.stages["list"].problems] == ["E824"]


def test_an_edited_output_stays_and_its_readers_wait_for_a_decision() -> None:
    project = Project(*CHAIN, stage("other", "src"), files={"src": "1"})
    project.build()
    project.disk["b"] = "by hand"
    result = project.build()
    assert (result.exit_code, project.disk["b"], project.ran()) == (ExitCode.DECISION, "by hand", [])
    assert project.statuses() == {"a": "fresh", "b": "edited", "c": "blocked", "other": "fresh"}
    assert result.stages["b"].paths == ("b",)
    project.build(overwrite_edited=True)
    assert project.disk["b"] == "b(a(1))"


def test_a_file_that_a_user_saves_while_its_stage_runs_is_not_overwritten() -> None:
    project = Project(stage("a"))

    def saved(_files: object) -> dict[str, str]:
        project.disk["a"] = "by hand"
        return {"a": "by the stage"}

    project.programs["a"] = saved
    assert project.build().exit_code is ExitCode.DECISION
    assert (project.disk["a"], project.statuses()) == ("by hand", {"a": "edited"})


def test_a_group_is_promoted_at_once_or_not_at_all() -> None:
    project = Project(stage("a", promote="g"), stage("b", promote="g"), stage("c", "a"))
    project.build()
    assert sorted(project.store.promotions[0]) == ["a", "b"]
    project = Project(stage("a", promote="g"), stage("b", promote="g"), stage("c", "a"))
    project.programs["b"] = project.failing()
    project.build(keep_going=True)
    assert project.statuses() == {"b": "failed", "c": "blocked", "a": "held"}
    assert project.disk.files == {}


def test_a_switched_off_stage_is_reported_and_no_stage_waits_for_it() -> None:
    off = SkippedStage(name="off", kind="shell", condition="vars.x", writes=("off",))
    project = Project(stage("a"), skipped=(off,))
    result = project.build()
    assert (result.exit_code, result.stages["off"].text) == (ExitCode.OK, "`if` is false: vars.x")


def test_files_of_a_stage_that_has_ended_go_once_everything_is_green() -> None:
    project = Project(stage("old"), stage("a"))
    project.build()
    project.pipeline = Project(stage("a", "src")).pipeline
    project.programs["a"] = project.failing()
    project.disk["src"] = "1"
    project.build()
    assert "old" in project.disk.files, "not after a failed build"
    del project.programs["a"]
    project.build(selection=Selection(targets=("a",)))
    assert "old" in project.disk.files, "nor where not all was asked for"
    project.build()
    assert ("old" in project.disk.files, set(project.lock.records)) == (False, {"a"})


def test_a_file_of_an_ended_stage_that_is_committed_stays_as_a_source() -> None:
    project = Project(stage("old"), stage("a"))
    project.build()
    project.git.head["old"] = project.disk["old"]
    project.pipeline = Project(stage("a")).pipeline
    project.build()
    assert "old" in project.disk.files
    assert [(data.files, data.stages) for data in project.reported(FilesReleased)] == [(("old",), ("old",))]
