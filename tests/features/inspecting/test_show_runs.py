"""`orch23 show` looks up the runs of the named pipeline only, and says how the attempt that it shows ended."""

import pytest

from tests.project import Project

pytestmark = pytest.mark.slow  # several builds each

STAGE = "{inputs: [i], outputs: [%s.txt], shell: 'echo %s; cp i %s.txt; ! grep -q bad i'}"


def two_pipelines(project: Project, output: str = "two") -> None:
    for name, path in (("one", "one"), ("two", output)):
        stage = STAGE % (path, name, path)
        project.write({f"pipelines/{name}.yaml": f"version: 1\nstages:\n  build: {stage}\n"})
    project.write({"i": "1\n"})
    for name in ("one", "two"):
        assert project.run("build", f"pipelines/{name}.yaml").code == 0


def test_only_runs_of_the_named_pipeline_are_shown(project: Project) -> None:
    two_pipelines(project)
    for name in ("one", "two"):
        shown = project.run("show", f"pipelines/{name}.yaml", "build").out
        assert f"$ echo {name}; cp i {name}.txt" in shown
        facts = project.run("show", f"pipelines/{name}.yaml", "build", "--json").json()
        assert facts["outputs"] == [f"{name}.txt"]
    project.edit("i", "bad\n")
    assert project.run("build", "pipelines/two.yaml").code == 1
    assert "the last attempt failed" in project.run("show", "pipelines/two.yaml", "build", "--diff").out
    assert "the last attempt failed" not in project.run("show", "pipelines/one.yaml", "build", "--diff").out
    assert "failure" not in project.run("show", "pipelines/one.yaml", "build").out


def test_a_run_of_another_pipeline_is_refused_with_the_command_that_shows_it(project: Project) -> None:
    two_pipelines(project)
    other = project.run("runs", "--json").json()["runs"][0]["run"]
    refused = project.run("show", "pipelines/one.yaml", "build", "--run", other)
    assert refused.code == 66
    assert f"run {other} is of pipelines/two.yaml, not of pipelines/one.yaml" in refused.err
    way = refused.err.partition("`orch23 ")[2].partition("`")[0]
    assert "echo two" in project.run(*way.split()).out


def test_the_results_of_another_pipeline_do_not_count_without_a_lock_file(project: Project) -> None:
    two_pipelines(project)
    key = project.run("show", "pipelines/one.yaml", "build", "--key", "--json").json()
    (project.root / "pipelines/one.lock").unlink()
    again = project.run("show", "pipelines/one.yaml", "build", "--key", "--json").json()
    assert (again["key"], again["has_result"]) == (key["key"], True)


RETRIED = """\
version: 1
stages:
  g:
    outputs: [g.txt]
    llm: {provider: scripted, model: x, answers: a.yaml, prompt: p.j2, returns: text}
    retry: 2
    verify: [{shell: grep three g.txt}]
"""


@pytest.mark.parametrize("last", ["three", "four"])
def test_the_result_of_a_failed_attempt_is_that_it_failed(project: Project, last: str) -> None:
    project.write({"pipeline.yaml": RETRIED, "p.j2": "hi\n", "a.yaml": f"g: [one, two, {last}]\n"})
    project.build()
    for attempt in ("1", "2"):
        assert project.run("show", "g", "--attempt", attempt).out.endswith("$ grep three g.txt\nfailed\n")
        facts = project.run("show", "g", "--attempt", attempt, "--json").json()
        assert (facts["status"], facts["outputs"]) == ("failed", [])
    end = "built in " if last == "three" else "failed in "
    assert project.run("show", "g", "--attempt", "3").out.splitlines()[-1].startswith(end)


@pytest.mark.parametrize(
    ("view", "option"), [("diff", "run"), ("diff", "attempt"), ("key", "run"), ("cost", "attempt")]
)
def test_a_view_refuses_the_options_that_do_not_change_it(project: Project, view: str, option: str) -> None:
    two_pipelines(project)
    run = project.run("runs", "--json").json()["runs"][0]["run"]
    value = run if option == "run" else "1"
    refused = project.run("show", "pipelines/two.yaml", "build", f"--{view}", f"--{option}", value)
    assert refused.code == 64
    assert f"`--{view}` and `--{option}` cannot be combined" in refused.err


def test_a_kept_failure_is_not_the_result_before(project: Project) -> None:
    stage = "{inputs: [i], outputs: [o], on_failure: keep, shell: 'cp i o; ! grep -q bad i'}"
    project.write({"pipeline.yaml": f"version: 1\nstages:\n  f: {stage}\n", "i": "0\n"})
    for text in ("1\n", "2\n"):
        project.edit("i", text)
        assert project.build().code == 0
    before = project.run("show", "f", "--diff").out
    assert "-1\n+2\n" in before
    project.edit("i", "bad\n")
    assert project.build().code == 1
    shown = project.run("show", "f", "--diff").out
    note, _, rest = shown.partition("\n")
    assert note.startswith("the last attempt failed, in ")
    assert rest == before
    project.edit("i", "3\n")
    assert project.build().code == 0
    assert "-2\n+3\n" in project.run("show", "f", "--diff").out


UNTRUE = """\
version: 1
stages:
  off: {if: false, outputs: [off.txt], shell: "echo > off.txt"}
  none: {foreach: {in: []}, outputs: ['${{ item }}.txt'], shell: "echo > off.txt"}
  r: {outputs: [r.txt], render: {template: t.j2}}
  s: {outputs: [s.txt], shell: "echo hi > s.txt"}
"""


def test_what_is_not_kept_is_explained_as_it_is(project: Project) -> None:
    project.write({"pipeline.yaml": UNTRUE, "t.j2": "x\n"})
    assert project.build().code == 0
    assert "`off` is skipped: `if` is false: false" in project.run("show", "off").err
    assert "`none` is skipped: 0 items" in project.run("show", "none").err
    for view in ("prompt", "response"):
        assert f"`s` has no {view}: only llm stages have one" in project.run("show", "s", f"--{view}").err
    project.edit("t.j2", "{{ nope.x }}\n")
    assert project.build().code == 1
    run = project.run("runs", "--json").json()["runs"][0]["run"]
    assert project.run("show", "r").out == f"failed before an attempt, in {run}: `nope` is not defined\n"
    assert project.run("show", "r", "--json").json()["status"] == "failed"
    hint = f"`orch23 log {run} --commands` shows what ran"
    assert hint in project.run("show", "r", "--attempt", "7").err
    assert hint in project.run("show", "s", "--run", run, "--attempt", "7").err
    assert project.run("log", run, "--commands").code == 0


@pytest.mark.parametrize("pair", [("--commands", "--state"), ("--commands", "--otel"), ("--otel", "--state")])
def test_log_refuses_forms_that_exclude_each_other(project: Project, pair: tuple[str, str]) -> None:
    refused = project.write({"pipeline.yaml": UNTRUE, "t.j2": "x"}).run("log", *pair)
    assert refused.code == 64
    assert "exclude each other" in refused.err
