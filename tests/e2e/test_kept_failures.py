"""`on_failure: keep`: what a failed attempt wrote within its write scope reaches the workspace, marked failed."""

import json

import pytest

from tests.e2e.pipelines import ends, green, pipeline, proposing, shell
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

KEPT = "  make: {inputs: [src.txt], outputs: [out.txt, log/], shell: 'COMMAND', on_failure: keepMORE}\n"


def story(project: Project, command: str, more: str = "") -> Project:
    text = KEPT.replace("COMMAND", command).replace("MORE", more)
    return project.write(shell(text, {"src.txt": "one\n"}))


def test_what_a_failing_command_wrote_is_kept(project: Project) -> None:
    story(project, "cp src.txt out.txt; echo why > log/why.txt; exit 3")
    assert project.build().code == 1
    assert (project.read("out.txt"), project.read("log/why.txt")) == ("one\n", "why\n")
    assert ends(project) == {"make": "failed"}
    assert project.plan() == {"make": "run"}, "it is marked failed, and is no edit of the user"
    assert project.build().code == 1
    project.replace("pipeline.yaml", "exit 3", "true")
    green(project.build())
    assert project.plan() == {"make": "fresh"}


def test_what_a_command_wrote_that_ran_out_of_time_is_kept(project: Project) -> None:
    story(project, "cp src.txt out.txt; sleep 60", ", timeout: 1s")
    assert project.build().code == 1
    assert project.read("out.txt") == "one\n"
    assert ends(project) == {"make": "failed"}


def test_the_last_attempt_is_kept_and_each_starts_over(project: Project) -> None:
    story(project, "test ! -e out.txt; cp src.txt out.txt; mkdir log/x; touch log/x/1; exit 1", ", retry: 2")
    project.replace("pipeline.yaml", "retry: 2", "retry: {max: 2, when: [verify_failed]}")
    assert project.build().code == 1
    assert (project.read("out.txt"), sorted(project.files("log"))) == ("one\n", ["log/x/1"])


def test_what_it_wrote_elsewhere_is_not_kept(project: Project) -> None:
    story(project, "cp src.txt out.txt; touch elsewhere.txt; echo two > src.txt; exit 1")
    assert project.build().code == 1
    assert project.read("out.txt") == "one\n"
    assert not project.exists("elsewhere.txt")
    assert project.read("src.txt") == "one\n"


def test_of_a_command_that_succeeds_and_leaves_its_scope_the_rest_is_kept(project: Project) -> None:
    story(project, "cp src.txt out.txt; touch log/x elsewhere.txt")
    outcome = project.build()
    assert outcome.code == 1
    assert "[E306]" in outcome.err
    assert (project.exists("out.txt"), project.exists("elsewhere.txt")) == (True, False)


def test_a_protected_file_is_not_kept(project: Project) -> None:
    story(project, "touch out.txt log/a log/b; exit 1", ", allowed_paths: {write: [out.txt, log/], protect: [log/b]}")
    assert project.build().code == 1
    assert sorted(project.files("log")) == ["log/a"]


def test_files_that_it_had_not_written_yet_stay_as_they_were(project: Project) -> None:
    story(project, "echo $(cat src.txt) > log/a; grep one src.txt; cp src.txt out.txt; touch log/b")
    green(project.build())
    project.edit("src.txt", "two\n")
    assert project.build().code == 1
    assert project.read("log/a") == "two\n"
    assert (project.read("out.txt"), project.exists("log/b")) == ("one\n", True)


def test_without_it_nothing_is_kept(project: Project) -> None:
    story(project, "cp src.txt out.txt; exit 1").replace("pipeline.yaml", ", on_failure: keep", "")
    assert project.build().code == 1
    assert not project.exists("out.txt")


def test_a_users_file_is_not_overwritten(project: Project) -> None:
    story(project, "cp src.txt out.txt; touch log/a; exit 1").write({"log/a": "mine\n"})
    assert project.build().code == 1
    assert project.read("log/a") == "mine\n"


def test_the_report_of_failing_tests_is_kept(project: Project) -> None:
    stages = "  test: {inputs: [test_a.py], pytest: {report: report.json}, on_failure: keep}\n"
    project.write(shell(stages, {"test_a.py": "def test_a(): assert False\ndef test_b(): pass\n"}))
    assert project.build().code == 1
    report = json.loads(project.read("report.json"))
    assert report["tests"] == {"test_a.py::test_a": "failed", "test_a.py::test_b": "passed"}
    assert report["passed"] is False


def test_an_item_of_a_chain_keeps_what_its_command_wrote(project: Project) -> None:
    stages = """\
  edit:
    foreach: {in: [one, two], order: sequential}
    outputs: [app.txt]
    on_failure: keep
    shell: 'echo ${{ item }} >> app.txt; test ${{ item }} = one'
"""
    project.write(shell(stages, {"app.txt": "mine\n"}))
    assert project.build().code == 1
    assert project.read("app.txt") == "mine\none\ntwo\n"


def test_the_files_of_a_response_whose_command_fails_are_kept_as_before(project: Project) -> None:
    stages = "  code: {outputs: [a.txt], on_failure: keep, llm: {prompt: code.md.j2}, verify: [{shell: 'exit 1'}]}\n"
    project.write(pipeline(stages, {"code.md.j2": proposing("code", {"a.txt": "'x'"})}))
    assert project.build().code == 1
    assert project.read("a.txt") == "x"


ITEMS = """\
  list: {inputs: [src.json], outputs: [list.json], shell: [cp, src.json, list.json]}
  one:
    foreach: {from: 'LIST#/tasks', key: id, as: task, order: ORDER}
    inputs: [src.json]
    outputs: ['${{ task.to }}']
    shell: [cp, src.json, '${{ task.to }}']
    verify: [{shell: exit 1}]
    on_failure: keep
"""
TASKS = '{"tasks": [{"id": "T1", "to": "a.txt"}]}'


def red_item(project: Project, where: str, *, before: str = "") -> Project:
    """Build an item that fails; with `before`, its file existed before and the items are those of a chain."""
    text = ITEMS.replace("LIST", where).replace("ORDER", "sequential" if before else "parallel")
    project.write(shell(text, {"src.json": TASKS, **({"a.txt": before} if before else {})}))
    assert project.build().code == 1
    assert project.read("a.txt") == TASKS
    return project


@pytest.mark.stride(5)
@pytest.mark.parametrize("argv", [(), ("--force",), ("pipeline.yaml", "one"), ("pipeline.yaml", "one@T1")])
@pytest.mark.parametrize("before", ["", "mine\n"])
@pytest.mark.parametrize("where", ["list.json", "src.json"])
def test_clean_removes_what_a_failed_item_left(
    project: Project, where: str, argv: tuple[str, ...], before: str
) -> None:
    red_item(project, where, before=before)
    green(project.run("clean", *argv))
    assert project.exists("a.txt") is bool(before)
    assert not before or project.read("a.txt") == before


@pytest.mark.parametrize("outputs", [(), ("--outputs",)])
def test_reset_removes_what_a_failed_item_left_or_clean_after_it(project: Project, outputs: tuple[str, ...]) -> None:
    red_item(project, "list.json")
    green(project.run("reset", *outputs))
    assert project.exists("a.txt") is not bool(outputs)
    green(project.run("clean"))
    assert not project.exists("a.txt")


def test_clean_removes_what_an_item_left_that_is_not_in_the_list_any_more(project: Project) -> None:
    red_item(project, "src.json").edit("src.json", TASKS.replace("T1", "T2").replace("a.txt", "b.txt"))
    green(project.run("clean", "pipeline.yaml", "one"))
    assert not project.exists("a.txt")


def test_clean_asks_about_a_file_of_a_failed_item_that_was_edited(project: Project) -> None:
    red_item(project, "list.json").edit("a.txt", "mine\n")
    assert project.run("clean").code == 6
    assert project.read("a.txt") == "mine\n"
    green(project.run("clean", "--force"))
    assert not project.exists("a.txt")


def test_clean_leaves_what_a_stage_of_another_pipeline_left(project: Project) -> None:
    other = shell("  one: {outputs: [b.txt], shell: 'echo > b.txt'}\n")["pipeline.yaml"]
    red_item(project, "list.json").write({"other.yaml": other})
    green(project.run("build", "other.yaml"))
    green(project.run("clean", "other.yaml", "one"))
    assert (project.exists("a.txt"), project.exists("b.txt")) == (True, False)


@pytest.mark.parametrize("stage", ["one", "one@T1"])
def test_release_gives_the_user_what_a_failed_item_left(project: Project, stage: str) -> None:
    red_item(project, "list.json")
    assert "released a.txt" in project.run("release", "pipeline.yaml", stage).out
    green(project.run("clean"))
    assert project.read("a.txt") == TASKS


def test_a_fix_of_a_file_of_a_failed_item_comes_back(project: Project) -> None:
    stages = """\
  list: {inputs: [src.json], outputs: [list.json], shell: 'cp src.json list.json'}
  one:
    foreach: {from: 'list.json#/tasks', key: id, as: task}
    outputs: ['${{ task.to }}']
    llm: {prompt: code.md.j2}
    verify: [{shell: exit 1}]
    on_failure: keep
"""
    project.write(pipeline(stages, {"src.json": TASKS, "code.md.j2": proposing("code", {"a.txt": "'x'"})}))
    assert project.build().code == 1
    project.edit("a.txt", "mine\n")
    assert project.build().code == 1
    assert project.read("a.txt") == "x\n"
    green(project.run("clean"))
    assert project.read("a.txt") == "mine\n"
