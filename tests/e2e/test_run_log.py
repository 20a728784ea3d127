"""`run_log`: each run renders a template from its events into its folder below `logs/`, however it ends."""

import json

import pytest

from tests.e2e.pipelines import green
from tests.project import Project, scripted

TEMPLATE = "log.jsonl.j2"
LINE = '{{ {"role": event.role, "type": event.type, "text": event.text} | tojson }}\n'
TEXT = "{% for event in events if event.type in ['attempt_finished', 'check_result'] %}" + LINE + "{% endfor %}"


def project_with_log(project: Project, answer: str = "a", *, check: str = "grep a a.txt") -> Project:
    stages = {"a": {"outputs": ["a.txt"], "llm": {"returns": "text"}, "verify": [{"shell": check}]}}
    project.write(scripted(stages, {"a": [answer]}, run_log=TEMPLATE) | {TEMPLATE: TEXT})
    return project


def logged(project: Project) -> list[tuple[str, str, str]]:
    """Return role, type and text of each line in the log of the newest run."""
    log = project.read(f"logs/{project.journals()[-1].stem}/log.jsonl")
    return [tuple(json.loads(line)[key] for key in ("role", "type", "text")) for line in log.splitlines()]


@pytest.mark.slow
def test_a_run_writes_its_log_with_responses_and_outputs_and_the_next_one_has_its_own(project: Project) -> None:
    green(project_with_log(project).build())
    assert logged(project) == [("a", "check_result", "a\n"), ("a", "attempt_finished", "a")]
    first = project.journals()[-1].stem
    project.replace("pipeline.yaml", "grep a a.txt", "grep -c a a.txt")
    green(project.build())
    assert logged(project)[0] == ("a", "check_result", "1\n"), "only the verification ran"
    assert project.journals()[-1].stem != first
    assert json.loads(project.read(f"logs/{first}/log.jsonl").splitlines()[0])["text"] == "a\n"


def test_a_failed_run_and_one_that_reached_a_limit_write_it_too(project: Project) -> None:
    assert project_with_log(project, check="echo it is red; exit 3").build().code == 1
    assert logged(project) == [("a", "check_result", "it is red\n"), ("a", "attempt_finished", "a")]
    limits = {"max_llm_calls": 1}
    stages = {name: {"outputs": [f"{name}.txt"], "llm": {"returns": "text"}} for name in ("b", "c")}
    project.write(scripted(stages, {"b": ["b"], "c": ["c"]}, run_log=TEMPLATE, stop_conditions=limits, jobs=1))
    assert project.build().code == 4
    assert logged(project) == [("b", "attempt_finished", "b")]


@pytest.mark.slow
def test_an_empty_log_is_not_written_and_the_template_is_in_no_key(project: Project) -> None:
    green(project_with_log(project).build())
    project.write({TEMPLATE: "{# nothing #}\n"})
    green(project.build())
    assert project.ran() == []
    green(project.build("-f", "a"))
    assert not project.exists(f"logs/{project.journals()[-1].stem}/log.jsonl")


def test_a_secret_in_what_a_step_printed_is_not_in_it(project: Project) -> None:
    secret = "s3cret-" + "x" * 30
    project_with_log(project, check=f"printf '%s%s' s3cret- {'x' * 30}; exit 3")
    assert project.build(env={"MY_API_TOKEN": secret}).code == 1
    assert logged(project)[0] == ("a", "check_result", "[redacted MY_API_TOKEN]")


@pytest.mark.parametrize(
    ("text", "code"), [("{{ evnts }}", "E832"), ("{% for %}", "E832"), (None, "E831")], ids=["name", "syntax", "gone"]
)
def test_a_template_that_cannot_be_rendered_ends_the_build_before_anything_runs(
    project: Project, text: str | None, code: str
) -> None:
    project_with_log(project)
    project.delete(TEMPLATE) if text is None else project.write({TEMPLATE: text})
    refused = project.build()
    assert (refused.code, f"error[{code}]" in refused.err) == (65, True)
    assert not project.journals()
    assert not project.exists("a.txt")


@pytest.mark.parametrize("name", ["state.json", "a", "a@1"])
def test_a_log_with_the_name_of_what_the_run_writes_itself_is_refused_at_load(project: Project, name: str) -> None:
    project_with_log(project)
    project.replace("pipeline.yaml", TEMPLATE, f"templates/{name}.j2")
    project.write({f"templates/{name}.j2": TEXT})
    refused = project.run("validate", "pipeline.yaml")
    assert (refused.code, f"the run writes `{name.partition('@')[0]}` " in refused.err) == (65, True), refused.err
    project.replace("pipeline.yaml", f"{name}.j2", "log.txt.j2")
    project.write({"templates/log.txt.j2": TEXT})
    green(project.run("validate", "pipeline.yaml"))


@pytest.mark.parametrize("command", ["validate", "plan", "build"])
def test_a_template_that_does_not_exist_is_an_error_with_its_place(project: Project, command: str) -> None:
    project_with_log(project)
    (project.root / TEMPLATE).unlink()
    done = project.run(command, "pipeline.yaml")
    assert done.code == 65, done.err
    assert f"`{TEMPLATE}`" in done.out + done.err
    assert "run_log" in done.out + done.err
