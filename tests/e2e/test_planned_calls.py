"""A build makes as many calls as its plan says, also where recorded responses have failed before."""

import pytest

from tests.e2e.pipelines import calls, green, pipeline, prompt
from tests.project import Project

pytestmark = pytest.mark.usefixtures("steps_reach_outside")  # the program notes its calls outside of its sandbox

STAGES = """\
  code:
    inputs: [spec.txt]
    outputs: [o.txt]
    llm: {prompt: p.j2, returns: text}
    verify: [{shell: grep -q fine o.txt}]
    retry: {max: 2, no_progress: 99}
  docs: {inputs: [o.txt], outputs: [d.txt], llm: {prompt: d.j2, returns: text}}
"""


def bounded(project: Project, *options: str) -> tuple[int, int | None, int]:
    """Hold a build to the bounds of its plan: return these, and the calls that it made."""
    document = project.run("plan", "--json", *options).json()
    least, most = document["llm_calls"]["min"], document["llm_calls"]["max"]
    shown = project.run("plan", *options).out
    until = f" to {most}" if most != least else ""
    if document["would_run"] and "E407" not in str(document["warnings"]):
        unbounded = f" LLM calls at least {least}; " in shown or ", and those of new items" in shown
        assert f" LLM calls {least}{until}" in shown if most is not None else unbounded
    before = len(calls(project))
    project.build(*options)
    made = len(calls(project)) - before
    assert made >= least, shown
    assert most is None or made <= most, shown
    return least, most, made


@pytest.mark.slow
def test_the_limit_of_attempts_is_reached_and_changed(project: Project) -> None:
    files = {"p.j2": prompt("code {{ attempt }}", "bad {{ attempt }}"), "d.j2": prompt("docs", "d"), "spec.txt": "x\n"}
    project.write(pipeline(STAGES, files))
    assert bounded(project) == (2, 4, 3)
    assert bounded(project) == (0, 3, 0), "three recorded responses fail again, and nothing follows"
    project.replace("pipeline.yaml", "max: 2", "max: 3")
    assert bounded(project) == (0, 4, 1)
    assert bounded(project) == (0, 4, 0)
    project.replace("pipeline.yaml", "max: 3", "max: 0")
    assert bounded(project) == (0, 1, 0)
    project.replace("pipeline.yaml", "max: 0", "max: 1")
    project.replace("pipeline.yaml", "grep -q fine", "grep -q bad")
    assert bounded(project) == (0, 2, 1), "the first recorded response passes now"
    assert bounded(project) == (0, 0, 0)


def test_a_limit_of_calls_does_not_count_recorded_responses(project: Project) -> None:
    files = {"p.j2": prompt("code {{ attempt }}", "bad {{ attempt }}"), "d.j2": prompt("docs", "d"), "spec.txt": "x\n"}
    project.write(pipeline(STAGES, files))
    bounded(project)
    project.replace("pipeline.yaml", "max: 2", "max: 5")
    project.replace("pipeline.yaml", "stages:", "stop_conditions: {max_llm_calls: 2}\nstages:")
    assert bounded(project) == (0, 2, 2)


def test_a_recorded_response_counts_only_if_nothing_before_it_runs(project: Project) -> None:
    stages = """\
  a: {inputs: [a.txt], outputs: [a.out], llm: {prompt: a.j2, returns: text}}
  b: {inputs: [a.out, extra.txt], outputs: [b.out], llm: {prompt: b.j2, returns: text}}
"""
    texts = {"a.j2": prompt("{{ inputs[0].text }}", "{{ inputs[0].text }}"), "b.j2": "b {{ inputs[0].text }}\n"}
    project.write(pipeline(stages, texts | {"a.txt": "1\n", "extra.txt": "1\n"}))
    assert bounded(project) == (2, 2, 2)
    project.edit("extra.txt", "2\n")
    assert bounded(project) == (0, 0, 0), "its prompt does not show the file"
    project.edit("a.txt", "2\n")
    project.edit("extra.txt", "3\n")
    assert bounded(project) == (1, 2, 2)


def test_without_keep_going_nothing_runs_after_an_unmet_condition(project: Project) -> None:
    stages = """\
  a: {outputs: [a.out], llm: {prompt: a.j2, returns: text}}
  b: {outputs: [b.out], llm: {prompt: b.j2, returns: text}, requires: {file_exists: missing.txt}}
  c: {inputs: [b.out], outputs: [c.out], llm: {prompt: c.j2, returns: text}}
"""
    project.write(pipeline(stages, {f"{one}.j2": prompt(one, one) for one in "abc"}))
    assert bounded(project) == (0, 1, 0)
    before = len(calls(project))
    assert project.build("--keep-going").code == 1
    assert len(calls(project)) == before + 1


def test_a_list_may_become_longer(project: Project) -> None:
    project.write(
        pipeline(
            """\
  names: {inputs: [names.txt], outputs: [names.json], shell: cp names.txt names.json}
  each:
    foreach: {from: names.json}
    outputs: ["o/${{ item }}"]
    llm: {prompt: p.j2, returns: text}
""",
            {"names.txt": '["a"]', "p.j2": prompt("{{ item }}", "{{ item }}")},
        )
    )
    green(project.build())
    project.edit("names.txt", '["a", "b", "c"]')
    assert bounded(project) == (0, None, 2)


def test_a_missing_program_is_a_warning_and_no_call(project: Project) -> None:
    stages = "  code: {outputs: [o], llm: {command: [PROGRAM, x], prompt: p.j2, returns: text}}\n"
    for program, where in (("no-such-program", "not on PATH"), ("tools/none", "not an executable file")):
        project.write(pipeline(stages.replace("PROGRAM", program), {"p.j2": prompt("code", "c")}))
        planned = project.run("plan")
        assert (planned.code, "LLM calls" in planned.out) == (0, False)
        assert f"warning[W669]: code: `{program}` is {where} (E407)" in planned.err
        assert planned.err.count("warning") == 1
        assert bounded(project) == (0, 0, 0)
    project.write(pipeline(stages.replace("[PROGRAM, x]", "[tools/none, x]"), {"tools/none": "#!/bin/sh\necho c\n"}))
    (project.root / "tools/none").chmod(0o755)
    planned = project.run("plan")
    assert (planned.err, "LLM calls 1" in planned.out) == ("", True)
