"""Faults of the project that are known before a call are found before it, and each run that began has an end."""

import errno
import json
import os
from typing import Any

import pytest

from tests.e2e.pipelines import green
from tests.project import Project, scripted

ITEM = "${{ item }}"


def two_stages(project: Project, **more: Any) -> Project:
    """Write a pipeline whose first model makes `a.txt`, which the second one reads to make files below `src/`."""
    code = {"inputs": ["a.txt"], "outputs": ["src/", "note.txt"], "llm": {"returns": "files"}, **more}
    stages = {"a": {"outputs": ["a.txt"], "llm": {"returns": "text"}}, "code": code}
    answer = json.dumps({"src/m.py": "X = 1\n", "note.txt": "n\n"})
    return project.write(scripted(stages, {"a": ["a"], "code": [answer]}, jobs=1))


def state_of(project: Project) -> Any:
    """Return the state of the newest run, as it is on disk."""
    return json.loads(project.read(f"logs/{project.journals()[-1].stem}/state.json"))


def link(project: Project, path: str) -> None:
    (project.root / "elsewhere").mkdir()
    (project.root / path).symlink_to("elsewhere")


def link_to_file(project: Project, path: str) -> None:
    project.write({"other.txt": "other\n"})
    (project.root / path).symlink_to("other.txt")


def link_below(project: Project, path: str, target: str) -> None:
    project.write({"a.py": "A = 1\n", "elsewhere/x.txt": "x\n"})
    place = project.root / path
    place.parent.mkdir(parents=True)
    place.symlink_to(target)


FAULTS = {
    "link": (lambda project: link(project, "src"), 2, "E691", "'src'"),
    "dangling": (lambda project: (project.root / "src").symlink_to("nowhere"), 2, "E691", "'src'"),
    "link to a file": (lambda project: link_to_file(project, "note.txt"), 2, "E691", "'note.txt'"),
    "file": (lambda project: project.write({"src": ""}), 74, "E650", "File exists: src"),
    "folder": (lambda project: project.write({"note.txt/x": ""}), 74, "E650", "File exists: note.txt"),
}


@pytest.mark.parametrize(("spoil", "code", "diagnostic", "says"), FAULTS.values(), ids=FAULTS)
def test_what_is_in_the_way_of_an_output_costs_no_call(
    project: Project, spoil: Any, code: int, diagnostic: str, says: str
) -> None:
    spoil(two_stages(project))
    planned = project.run("plan")
    assert (planned.code, "LLM calls 0 to 1 " in planned.out, says in planned.err) == (0, True, True), "1 with `-k`"
    refused = project.build()
    assert (refused.code, f"error[{diagnostic}]" in refused.err, says in refused.err) == (code, True, True), refused.err
    assert project.events_of("llm_request") == []
    assert project.events_of("run_finished")[0]["data"]["exit_code"] == code
    state = state_of(project)
    assert (state["state"], diagnostic in state["last_error"]) == ("FAILED", True)
    assert project.build("-k").code == code
    assert [one["role"] for one in project.events_of("llm_request")] == ["a"], "what does not need it is built"


def test_a_folder_that_cannot_be_written_costs_no_call(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    two_stages(project).write({"src/.keep": ""})
    place = os.path.realpath(project.root / "src")
    monkeypatch.setattr(os, "access", lambda path, _mode: str(path) != place)
    refused = project.build()
    assert (refused.code, "error[E650]: code: Permission denied: src" in refused.err) == (74, True), refused.err
    assert project.events_of("llm_request") == []


def test_a_foreign_file_is_named_before_a_call(project: Project) -> None:
    two_stages(project, requires={"file_absent": "src/"}).write({f"src/{n}.txt": "" for n in range(4)})
    refused = project.build()
    assert (refused.code, project.events_of("llm_request")) == (1, [])
    assert "requires file_absent src/: there is src/0.txt, src/1.txt, src/2.txt and 1 more" in refused.err
    for path in project.files("src"):
        project.delete(path)
    green(project.build())


@pytest.mark.parametrize(("path", "absent"), [("src/m.py", "src/"), ("kept/m.py", "kept/"), ("m.py", "m.py")])
def test_a_broken_link_is_not_an_absent_file(project: Project, path: str, absent: str) -> None:
    two_stages(project, requires={"file_absent": absent})
    (project.root / path).parent.mkdir(exist_ok=True)
    (project.root / path).symlink_to("nowhere")
    for command in (["build"], ["build", "--overwrite-edited"], ["plan"]):
        refused = project.run(*command)
        assert refused.code == (command[0] == "build"), refused.err
        says = f"there is {path}" if absent != path else "it is there"
        assert f"requires file_absent {absent}: {says}" in refused.err
    assert project.events_of("llm_request") == []
    (project.root / path).unlink()
    green(project.build())


@pytest.mark.parametrize("inputs", [["a.txt"], ["a.txt", "src/read.py"]])
def test_a_link_in_an_output_directory_is_not_in_the_way_of_other_files(project: Project, inputs: list[str]) -> None:
    two_stages(project, inputs=inputs)
    link_below(project, "src/read.py", "../a.py")
    green(project.build())


def test_a_stage_that_is_fresh_or_not_selected_is_not_checked(project: Project) -> None:
    two_stages(project)
    project.write({"src": ""})
    green(project.build("a"))
    project.delete("src")
    green(project.build())
    project.write({"src/foreign.txt": ""})
    green(project.build())


def test_a_file_of_the_stage_itself_is_not_in_its_way(project: Project) -> None:
    stages = {"a": {"outputs": ["out"], "llm": {"returns": "text"}}}
    project.write(scripted(stages, {"a": ["a"]}))
    green(project.build())
    for outputs in ("out/a.txt", "out"):
        stages["a"]["outputs"] = [outputs]
        project.write(scripted(stages, {"a": ["a"]}))
        green(project.build())
        assert project.files("out") if outputs == "out/a.txt" else project.read("out") == "a\n"


def test_an_item_of_a_list_that_a_model_makes_is_checked_before_its_call(project: Project) -> None:
    stages = {
        "list": {"outputs": ["list.json"], "llm": {"returns": "json"}},
        "code": {
            "foreach": {"from": "list.json"},
            "outputs": [f"{ITEM}.txt"],
            "llm": {"returns": "text"},
        },
    }
    answers = {"list": ['["x", "y"]'], "code@x": ["x"], "code@y": ["y"]}
    project.write({**scripted(stages, answers, jobs=1), "y.txt/file": ""})
    refused = project.build("-k")
    assert (refused.code, "File exists: y.txt" in refused.err) == (74, True), refused.err
    assert [one["role"] for one in project.events_of("llm_request")] == ["list", "code@x"]


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 74), (None, 70)])
def test_a_run_that_an_error_stops_ends_in_its_journal_and_state_and_goes_on_in_the_next(
    project: Project, monkeypatch: pytest.MonkeyPatch, number: int | None, code: int
) -> None:
    def full(*_args: object) -> None:
        raise RuntimeError("defect") if number is None else OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr("orch23.store.promotion.Promoter.promote", full)
        assert two_stages(project).build().code == code
    ended = project.events_of("run_finished")[0]["data"]
    assert (ended["exit_code"], ended["calls"], ended["status"]) == (code, 1, "interrupted")
    state = state_of(project)
    assert (state["state"], state["last_error"]) == (
        "FAILED",
        "defect" if number is None else f"[Errno {number}] {os.strerror(number)}",
    )
    green(project.build())
    assert [one["role"] for one in project.events_of("llm_request") if not one["data"]["recorded"]] == ["code"]
