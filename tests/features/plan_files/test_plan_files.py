"""Plan files: `plan --out FILE`, and `build --plan FILE` that builds this plan or nothing."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.pipelines import green, shell
from tests.project import Project

STAGES = """\
  upper: {inputs: [a.txt], outputs: [upper.txt], shell: 'tr a-z A-Z < a.txt > upper.txt'}
  count: {inputs: [upper.txt], outputs: [count.txt], shell: 'wc -c < upper.txt > count.txt'}
  other: {inputs: [b.txt], outputs: [other.txt], shell: 'cp b.txt other.txt; echo ${{ vars.word }} >> other.txt'}
"""
FILES = {"a.txt": "one\n", "b.txt": "two\n"}
HEAD = "vars: {word: plain}\n"


@pytest.fixture
def planned(project: Project) -> Project:
    """Build a pipeline, edit an input of its first stage, and write a plan file."""
    project.write(shell(STAGES, FILES, head=HEAD))
    green(project.build())
    project.edit("a.txt", "three\n")
    green(project.run("plan", "--out", "p.json"))
    return project


def plan_of(project: Project, file: str = "p.json") -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(project.read(file))
    return plan


@pytest.mark.slow
def test_a_build_of_a_plan_runs_what_the_plan_lists(planned: Project) -> None:
    actions = {one["stage"]: one["action"] for one in plan_of(planned)["stages"]}
    assert actions == {"upper": "run", "count": "maybe", "other": "fresh"}
    assert str(planned.root) not in planned.read("p.json")
    green(planned.build("--plan", "p.json"))
    assert planned.ran() == ["upper", "count"]
    assert planned.read("count.txt").strip() == "6"


@pytest.mark.slow
@pytest.mark.stride(2)
@pytest.mark.parametrize(
    ("change", "texts"),
    [
        (lambda one: one.edit("a.txt", "four\n"), ("stage `upper`", "a.txt changed: ", " -> ")),
        (lambda one: one.edit("b.txt", "five\n"), ("stage `other`: fresh -> run (b.txt changed)",)),
        (lambda one: one.replace("pipeline.yaml", "word: plain", "word: rich"), ("`pipeline.yaml` changed", "`word`")),
        (lambda one: one.delete("other.txt"), ("stage `other`: fresh -> restore",)),
        (lambda one: green(one.build()), ("stage `upper`: run", "-> fresh")),
    ],
    ids=["input", "input-of-a-fresh-stage", "pipeline", "missing-output", "records"],
)
def test_a_plan_that_no_longer_holds_builds_nothing(
    planned: Project, change: Callable[[Project], object], texts: tuple[str, ...]
) -> None:
    change(planned)
    before, runs = planned.read("upper.txt"), planned.journals()
    refused = planned.build("--plan", "p.json")
    assert refused.code == 6
    assert all(text in refused.err for text in ("E682", "plan again", *texts)), refused.err
    assert (planned.read("upper.txt"), planned.journals()) == (before, runs)


@pytest.mark.slow
def test_an_output_that_was_edited_after_its_plan_is_kept(planned: Project) -> None:
    planned.edit("count.txt", "mine\n")
    done = planned.build("--plan", "p.json")
    assert (done.code, "edited by hand: count.txt" in done.err) == (6, True)
    assert planned.read("count.txt") == "mine\n"


@pytest.mark.slow
def test_a_vars_file_that_changed_is_named(project: Project) -> None:
    project.write({**shell(STAGES, FILES, head=HEAD), "conf/v.yaml": "word: rich\n"})
    green(project.run("plan", "--vars", "conf/v.yaml", "--out", "p.json"))
    project.edit("conf/v.yaml", "word: poor\n")
    refused = project.build("--plan", "p.json")
    assert (refused.code, "the var `word` changed: rich -> poor" in refused.err) == (6, True), refused.err
    project.edit("conf/v.yaml", "word: rich\n")
    green(project.build("--plan", "p.json"))
    assert project.read("other.txt") == "two\nrich\n"


def test_a_build_has_the_options_of_its_plan(project: Project) -> None:
    project.write(shell(STAGES, FILES, head=HEAD))
    green(project.run("plan", "other", "--set", "word=rich", "--out", "out/p.json"))
    green(project.build("--plan", "out/p.json"))
    assert project.ran() == ["other"]
    assert project.read("other.txt") == "two\nrich\n"


@pytest.mark.slow
@pytest.mark.stride(4)
@pytest.mark.parametrize(
    "options",
    [
        ["upper"],
        ["--set", "word=rich"],
        ["--force", "upper"],
        ["--resample", "upper"],
        ["--model", "m"],
        ["--budget", "2"],
        ["--overwrite-edited"],
        ["elsewhere.yaml"],
        ["--dry-run"],
    ],
)
def test_an_option_that_contradicts_the_plan_is_a_usage_error(planned: Project, options: list[str]) -> None:
    runs = planned.journals()
    refused = planned.build("--plan", "p.json", *options)
    assert (refused.code, "E641" in refused.err) == (64, True), refused.err
    assert options[0].removeprefix("--") in refused.err
    assert planned.journals() == runs


def test_the_same_option_again_is_no_contradiction(project: Project) -> None:
    project.write(shell(STAGES, FILES, head=HEAD))
    options = ["upper", "--set", "word=rich", "--budget", "2", "--force", "upper"]
    green(project.run("plan", *options, "--out", "p.json"))
    green(project.build("--plan", "p.json", *options, "-j2"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is damaged"),
        ("[]", "is not a plan file"),
        ('{"orch23_plan": 1}', "is the output of `plan --json`"),
        ('{"orch23_plan_file": 2}', "has version 2"),
        ('{"orch23_plan_file": 1, "stages": 7}', "is damaged"),
    ],
)
def test_a_file_that_is_not_a_plan_file_is_refused(planned: Project, text: str, why: str) -> None:
    planned.edit("p.json", text)
    refused = planned.build("--plan", "p.json")
    assert (refused.code, "E681" in refused.err, why in refused.err) == (65, True, True), refused.err
    gone = planned.build("--plan", "gone.json")
    assert (gone.code, "E681" in gone.err) == (66, True), gone.err


@pytest.mark.slow
def test_a_stage_that_is_not_planned_does_not_run_if_its_input_changes_during_the_build(project: Project) -> None:
    """The step of a planned stage edits what a fresh stage reads: without a plan, that stage would run."""
    stages = """\
  first: {inputs: [a.txt], outputs: [first.txt], network: true, sandbox: 'off', shell: 'cp a.txt first.txt; EDIT'}
  later: {inputs: [b.txt], outputs: [later.txt], needs: [first], shell: 'cp b.txt later.txt'}
""".replace("EDIT", f"test $(cat a.txt) = one || echo changed > {project.root}/b.txt")
    project.write(shell(stages, FILES))
    allowed = ("--allow-unsandboxed",)
    green(project.build(*allowed))
    project.edit("a.txt", "three\n")
    green(project.run("plan", "--out", "p.json"))
    assert {one["stage"]: one["action"] for one in plan_of(project)["stages"]} == {"first": "run", "later": "fresh"}
    refused = project.build("--plan", "p.json", *allowed)
    assert refused.code == 1
    assert "the plan no longer holds: fresh -> run" in refused.err
    assert project.read("later.txt") == "two\n"


def test_a_plan_file_has_no_secret(project: Project) -> None:
    secret = "sk-proj-Zq81hfT4kPw92LmXcVb7"
    project.write(shell(STAGES, FILES, head=f"vars: {{word: {secret}}}\n"))
    env = {"MY_API_KEY": secret}
    green(project.run("plan", "--out", "p.json", env=env))
    assert secret not in project.read("p.json")
    built = project.build("--plan", "p.json", env=env)
    assert ("E602" in built.err, "E682" in built.err) == (True, False), "the plan holds; a stage refuses the secret"
    refused = project.run("plan", "--set", f"word={secret}", "--out", "q.json", env=env)
    assert (refused.code, project.exists("q.json")) == (64, False)


def test_a_plan_with_errors_is_not_written(project: Project) -> None:
    stages = "  a: {outputs: [a.txt], llm: {provider: scripted, prompt: p.j2, returns: text}}\n"
    project.write({**shell(stages), "p.j2": "{{ nothing_like_it }}"})
    refused = project.run("plan", "--out", "p.json")
    assert (refused.code != 0, project.exists("p.json")) == (True, False)


@pytest.mark.slow
def test_a_plan_from_a_subdirectory_is_built_from_the_root(project: Project) -> None:
    project.write({**shell(STAGES, FILES, head=HEAD), "orch23.toml": "", "sub/v.yaml": "word: rich\n"})
    green(project.run("-C", "sub", "plan", "--vars", "v.yaml", "--out", "p.json"))
    assert plan_of(project, "sub/p.json")["options"]["vars_file"] == "sub/v.yaml"
    green(project.build("--plan", "sub/p.json"))
    assert project.read("other.txt") == "two\nrich\n"


@pytest.mark.slow
def test_each_build_of_a_plan_is_checked(planned: Project) -> None:
    green(planned.build("--plan", "p.json"))
    green(planned.run("plan", "--out", "p.json"))
    green(planned.build("--plan", "p.json"))
    planned.edit("b.txt", "seven\n")
    assert planned.build("--plan", "p.json").code == 6
