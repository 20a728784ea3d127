"""The work on one stage: inputs taken in as they were resolved, recorded results verified, lists tried."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.attempt.stage_work import InputsChangedError
from orch23.decide.open_pipeline import OpenPipeline
from orch23.model.action import Action
from orch23.model.errors import ExitCode, MissingBytesError
from orch23.model.pipeline import PathInput, Verify, WriteScope
from orch23.model.record import LockFile
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.shell.spec import ShellStep
from orch23.text.secrets import Secrets
from tests.doubles import FakeProvider
from tests.unit.engine.rig import Project, answer, asks, each, entry, model, stage

TESTED = Verify((ShellStep(("test", "t")),))


def resolved(opened: OpenPipeline, name: str) -> ResolvedStage:
    return opened.decider.decide(name).resolved


def cloned(project: Project) -> Project:
    """Return the project as a clone has it: the sources and the lock file, and no store."""
    other = Project(*project.pipeline.stages, files={path: project.disk[path] for path in project.disk.files})
    other.lock = project.lock
    other.texts = project.texts
    return other


def codes(end: Any) -> list[str]:
    return [problem.code for problem in end.problems]


# ---- inputs -----------------------------------------------------------------------------------------


def test_an_input_that_was_saved_since_it_was_resolved_stops_the_work_before_it_starts() -> None:
    project = Project(stage("a", "src"), files={"src": "1"})
    opened = project.opened()
    before = resolved(opened, "a")
    project.disk["src"] = "2"
    with pytest.raises(InputsChangedError) as caught:
        project.worker(opened).work(before, None)
    assert (caught.value.args, project.ran()) == (("src",), [])


def test_an_input_that_a_stage_made_and_that_is_nowhere_any_more_is_lost() -> None:
    project = Project(stage("a"), stage("b", "a"))
    project.build()
    opened = project.opened()
    opened.state.settle("a", project.lock.records["a"])
    before = resolved(opened, "b")
    del project.disk.files["a"]
    project.store.forget_bytes("a()")
    with pytest.raises(MissingBytesError):
        project.worker(opened).work(before, None)


def test_source_inputs_are_stored_before_the_stage_starts() -> None:
    project = Project(stage("a", "src"), files={"src": "1"})
    seen = []

    def look(_files: Mapping[str, str]) -> dict[str, str]:
        project.disk["src"] = "saved meanwhile"
        seen.append(project.store.contents.has(entry("1").digest))
        return {"a": "a"}

    project.programs["a"] = look
    project.build()
    assert seen == [True]


# ---- a result that is recorded ------------------------------------------------------------------------


def test_all_processes_of_a_stage_get_the_sandbox_that_it_requires() -> None:
    project = Project(stage("a", "src", verify=TESTED, min_tier="namespaces"), files={"src": "1"})
    assert project.build().exit_code is ExitCode.OK
    assert [action.min_tier for action in project.executor.actions] == ["namespaces", "namespaces"]


def test_where_only_the_verification_changed_the_recorded_result_is_verified_and_nothing_runs() -> None:
    project = Project(stage("a", "src"), files={"src": "1"})
    project.build()
    project.pipeline = Project(stage("a", "src", verify=TESTED)).pipeline
    assert project.build().exit_code is ExitCode.OK
    assert (project.ran(), project.statuses()) == (["t"], {"a": "verified"})
    assert project.executor.actions[0].inputs["a"] == entry("a(1)")
    project.build()
    assert project.statuses() == {"a": "fresh"}


def test_a_recorded_result_that_fails_a_new_verification_is_rebuilt() -> None:
    project = Project(stage("a", "src"), files={"src": "1"})
    project.build()
    project.pipeline = Project(stage("a", "src", verify=TESTED)).pipeline
    project.programs["a"] = lambda _files: {"a": "better"}
    project.programs["t"] = lambda files: project.completed(code=int(files["a"] != "better"))
    assert project.build().exit_code is ExitCode.OK
    assert (project.ran(), project.disk["a"]) == (["t", "a", "t"], "better")
    assert project.statuses() == {"a": "built"}


# ---- what only the lock file has ------------------------------------------------------------------------


def test_a_program_known_only_from_the_lock_file_runs_and_its_new_result_counts() -> None:
    project = Project(stage("a"))
    project.programs["a"] = lambda _files: {"a": "on another machine"}
    project.build()
    clone = cloned(project)
    assert clone.build().exit_code is ExitCode.OK
    assert (clone.ran(), clone.disk["a"]) == (["a"], "a()")


def test_bytes_that_a_user_accepted_stay_where_a_program_makes_others_on_this_machine() -> None:
    project = Project(stage("a"))
    project.build()
    project.lock = LockFile({"a": replace(project.lock.records["a"], outputs={"a": entry("by hand")}, accepted=("a",))})
    project.disk["a"] = "by hand"
    clone = cloned(project)
    assert clone.build().exit_code is ExitCode.OK
    assert (clone.ran(), clone.disk["a"]) == (["a"], "by hand")
    assert clone.lock.records["a"].accepted == ("a",)


def a_model_wrote(**more: Any) -> Project:
    """Return a clone of a project with a file that a model wrote."""
    project = Project(asks("m", "src", **more), files={"src": "1"})
    project.texts["p.j2"] = "write m"
    project.provider = FakeProvider([answer(m="by a model")])
    assert project.build().exit_code is ExitCode.OK
    return cloned(project)


def test_a_model_result_known_only_from_the_lock_file_is_verified_without_a_model_call() -> None:
    clone = a_model_wrote(verify=TESTED)
    assert clone.build().exit_code is ExitCode.OK
    assert (clone.ran(), clone.statuses(), clone.provider.requests) == (["t"], {"m": "verified"}, [])


def test_a_model_result_of_the_lock_file_that_does_not_pass_fails_without_a_model_call() -> None:
    clone = a_model_wrote(verify=TESTED)
    clone.programs["t"] = clone.failing("1 test failed")
    end = clone.build().stages["m"]
    assert (end.status.value, clone.provider.requests) == ("failed", [])
    assert codes(end)[-1] == "E696"
    assert "--resample m" in (end.problems[-1].hint or "")
    assert "the result in the lock file does not pass" in end.text
    assert clone.disk["m"] == "by a model", "the file stays"


# ---- edits of a user ----------------------------------------------------------------------------------


def edited_chain(text: str) -> Project:
    """Return a project with an edit of what a model wrote, which the user has committed."""
    project = a_model_wrote(verify=TESTED)
    project.build()
    project.disk["m"] = project.git.head["m"] = text
    return project


def test_a_committed_edit_of_a_model_output_is_verified_and_accepted() -> None:
    project = edited_chain("by hand")
    assert project.build().exit_code is ExitCode.OK
    record = project.lock.records["m"]
    assert (record.accepted, record.outputs, project.provider.requests) == (("m",), {"m": entry("by hand")}, [])
    (fingerprint,) = record.exchanges
    assert project.store.exchanges.all[fingerprint].outcome == "accepted_by_hand"
    assert project.statuses() == {"m": "verified"}


def test_a_committed_edit_that_does_not_pass_stays_and_fails_its_stage() -> None:
    project = edited_chain("by hand")
    project.programs["t"] = project.failing()
    end = project.build().stages["m"]
    assert (end.status.value, project.disk["m"]) == ("failed", "by hand")
    assert "the edit of m does not pass" in end.text
    assert "m" not in (project.lock.records["m"].accepted)


def test_a_committed_edit_with_a_secret_is_refused_before_it_is_kept() -> None:
    project = edited_chain("the token: wunderbar-4711")
    project.secrets = Secrets({"TOKEN": "wunderbar-4711"})
    end = project.build().stages["m"]
    assert (end.status.value, project.ran()) == ("failed", [])
    assert not any("wunderbar" in str(one.files) for one in project.store.exchanges.all.values())


# ---- what a model may write over ------------------------------------------------------------------------


def test_a_model_may_not_write_over_a_file_that_it_was_not_shown() -> None:
    project = Project(asks("m", fence=WriteScope(("w/", "m"))), files={"w/mine": "a user's"})
    project.texts["p.j2"] = "write"
    project.provider = FakeProvider([answer(**{"m": "x", "w/mine": "a model's"})])
    assert project.build().exit_code is ExitCode.FAILED
    assert (project.disk["w/mine"], "m" in project.disk.files) == ("a user's", False)
    shown = asks("m", "w/mine", fence=WriteScope(("w/", "m")))
    project.pipeline = Project(replace(shown, outputs=("m",))).pipeline
    project.provider = FakeProvider([answer(m="x")])
    assert project.build().exit_code is ExitCode.OK


def test_a_prompt_that_shows_the_last_result_is_given_it_and_the_key_does_not_depend_on_it() -> None:
    project = Project(asks("m", "src", step=model(own_outputs=True)), files={"src": "1"})
    project.texts["p.j2"] = "write m of {{ inputs['src'].text }}{% if own %}{{ own | blocks }}{% endif %}"
    project.provider = FakeProvider([answer(m="first-version"), answer(m="two")])
    project.build()
    project.disk["src"] = "2"
    project.build()
    said = [request.messages[0].content for request in project.provider.requests]
    assert ["first-version" in text for text in said] == [False, True]
    project.build()
    assert project.statuses() == {"m": "fresh"}


# ---- lists on trial -----------------------------------------------------------------------------------


def list_of(text: str, *nodes: Any, **body: Any) -> Project:
    """Return a project with a stage that makes a list with this text, and a foreach over it."""
    written = {"outputs": ["e/${{ item }}"], "shell": ["make", "e", "e/${{ item }}"], **body}
    project = Project(stage("list", writes=("l.json",)), each("e", source="l.json", body=written), *nodes)
    project.programs["list"] = lambda _files: {"l.json": text}
    return project


@pytest.mark.parametrize(
    ("text", "code"),
    [('{"a": 1}', "E824"), ('["x", "x"]', "E826"), ("[true]", "E825"), ("no json", "E824"), ('["x"]', "")],
)
def test_a_list_that_cannot_be_used_fails_the_stage_that_made_it(text: str, code: str) -> None:
    project = list_of(text)
    result = project.build(keep_going=True)
    assert codes(result.stages["list"]) == ([code] if code else [])
    assert ("l.json" in project.disk.files) == (not code)


def test_items_with_inputs_that_no_stage_makes_fail_the_maker_of_the_list() -> None:
    project = list_of('["x", "y"]', inputs=["in/${{ item }}"])
    project.disk["in/x"] = "1"
    end = project.build(keep_going=True).stages["list"]
    assert end.status.value == "failed"
    assert [("in/y" in problem.message) for problem in end.problems] == [True]


def test_items_with_a_slice_that_is_not_there_fail_the_maker_of_the_list() -> None:
    project = list_of('["x", "y"]', inputs=["data.json#/${{ item }}"])
    project.disk["data.json"] = '{"x": 1}'
    end = project.build(keep_going=True).stages["list"]
    assert codes(end) == ["E833"]
    assert end.problems[0].subject == "e@y"


def test_a_slice_of_a_file_that_a_later_stage_makes_is_not_judged_yet() -> None:
    body = {"outputs": ["e/${{ item }}"], "shell": ["make", "e", "e/${{ item }}"], "inputs": ["d.json#/${{ item }}"]}
    project = Project(
        stage("list", "src", writes=("l.json",)),
        stage("data", "src", writes=("d.json",), needs=("list",)),
        each("e", source="l.json", body=body),
        files={"src": "[]"},
    )
    project.programs["list"] = lambda files: {"l.json": files["src"]}
    project.programs["data"] = lambda files: {"d.json": "{}" if files["src"] == "[]" else '{"y": 1}'}
    assert project.build().exit_code is ExitCode.OK
    project.disk["src"] = '["y"]'
    assert project.build(jobs=1).exit_code is ExitCode.OK, "its former version has no y"
    assert project.ran() == ["list", "data", "e"]


def test_verify_checks_outputs_as_they_are_on_disk() -> None:
    project = Project(stage("a", "src", verify=replace(TESTED, inputs=(PathInput("t"),))), files={"src": "1", "t": "T"})
    project.programs["t"] = lambda files: project.completed(code=int(files["a"] != "by hand" or files["t"] != "T"))
    opened = project.opened()
    project.disk["a"] = "by hand"
    worker = project.worker(opened)
    assert worker.verify(resolved(opened, "a"), {"a": entry("by hand")}) is None
    project.disk["a"] = "other"
    failure = worker.verify(resolved(opened, "a"), {"a": entry("other")})
    assert failure is not None
    actions: list[Action] = project.executor.actions
    assert [action.argv for action in actions] == [("test", "t")] * 2
