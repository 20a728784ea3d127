"""A pattern in `inputs` that matches no file is reported, once, unless a stage may make such a file."""

import pytest

from tests.project import Project

HEAD = "version: 1\nname: p\nstages:\n"
LLM = "{provider: scripted, answers: answers.yaml, model: m, prompt: p.j2, returns: text}"
MODEL = f"    outputs: [out.md]\n    llm: {LLM}\n"
FILES = {"specs/app.md": "# App\n", "p.j2": "Write.\n{{ inputs | blocks }}\n", "conf/a.yaml": "a: 1\n"}
FILES |= {".gitignore": "*.mo\n", "conf/a.mo": "compiled\n"}


NO_ITEMS = "  b: {foreach: {in: []}, outputs: ['gen/${{ item }}.md'], shell: 'true'}\n"


def write(project: Project, stages: str) -> None:
    project.write({"pipeline.yaml": HEAD + stages, "answers.yaml": "a: [text]\n", **FILES})


def reported(project: Project) -> list[str]:
    """Return what `build` reports about patterns."""
    return [event["message"] for event in project.events_of("warning") if event["data"].get("code") == "W822"]


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("spec/*.md", "did you mean `specs/*.md`?"),
        ("spec/**", "did you mean `specs/**`?"),
        ("conf/*.yml", "did you mean `conf/*.yaml`?"),
        ("nothing/*.md", "there is no directory `nothing/`: create it, or correct the pattern"),
        ("conf/*.mo", "`.gitignore` leaves out what matches, such as `conf/a.mo`: list each by its name"),
        (
            "specs/*.txt",
            "correct it, or write `{path: ..., optional: true}` if there may be none; the directory has `specs/app.md`",
        ),
    ],
)
def test_a_pattern_that_matches_nothing_is_reported_by_build_plan_and_validate(
    project: Project, pattern: str, hint: str
) -> None:
    write(project, f"  a:\n    inputs: ['{pattern}']\n    shell: 'true'\n")
    for command in ("plan", "validate"):
        done = project.run(command)
        assert done.code == 0
        shown = done.out + done.err
        assert f"warning[W822]: input `{pattern}` of stage `a` matches no file\n --> pipeline.yaml:5:14\n" in shown
        assert f"= help: {hint}\n" in shown
    assert project.build().code == 0
    assert reported(project) == [f"[W822] input `{pattern}` of stage `a` matches no file (pipeline.yaml:5:14); {hint}"]
    assert "W822" not in project.build().err, "nothing runs"


def test_a_model_without_any_input_is_not_called_if_the_pattern_is_misspelt(project: Project) -> None:
    write(project, f"  a:\n    inputs: ['spec/*.md']\n{MODEL}")
    for command in ("plan", "validate", "build"):
        done = project.run(command)
        shown = done.out + done.err
        assert done.code != 0
        assert "error[E822]: input `spec/*.md` of stage `a` matches no file, so the prompt would have no input" in shown
        assert "did you mean `specs/*.md`?" in shown
    assert not project.events_of("call_settled")
    project.edit("pipeline.yaml", project.read("pipeline.yaml").replace("spec/", "specs/"))
    assert project.build().code == 0


@pytest.mark.parametrize("inputs", ["['nothing/*.md']", "[specs/app.md, 'spec/*.md']"])
def test_a_model_is_called_if_nothing_proves_that_the_pattern_is_wrong(project: Project, inputs: str) -> None:
    write(project, f"  a:\n    inputs: {inputs}\n{MODEL}")
    assert project.build().code == 0
    assert len(reported(project)) == 1


@pytest.mark.parametrize(
    "stages",
    [
        "  a:\n    inputs: ['out/*.md']\n    outputs: [out/a.md]\n    shell: touch out/a.md\n",
        "  a: {inputs: ['gen/**'], shell: 'true'}\n  b: {outputs: [gen/x.md], shell: touch gen/x.md}\n",
        "  a: {inputs: [{path: 'nothing/*.md', optional: true}, {path: nothing/, optional: true}], shell: 'true'}\n",
        "  a: {inputs: ['gen/*'], needs: [b], shell: 'true'}\n" + NO_ITEMS,
        "  a: {inputs: ['specs/*.md'], shell: 'true'}\n",
    ],
)
def test_a_pattern_of_files_that_a_stage_may_make_is_not_reported(project: Project, stages: str) -> None:
    write(project, stages)
    for command in ("plan", "validate", "build"):
        done = project.run(command)
        assert done.code == 0, done.err
        assert "W822" not in done.out + done.err


@pytest.mark.slow
def test_a_pattern_that_all_items_share_is_reported_once(project: Project) -> None:
    write(project, "  a:\n    foreach: {in: [x, y, z]}\n    inputs: ['nothing/*']\n    shell: echo ${{ item }}\n")
    assert project.build().code == 0
    assert len(reported(project)) == 1
    assert project.run("validate").err.count("W822") + project.run("validate").out.count("W822") == 1


def test_an_exclusion_that_leaves_nothing_is_named(project: Project) -> None:
    write(project, "  a:\n    inputs: ['specs/*.md', '!specs/**']\n    shell: 'true'\n")
    shown = project.run("validate")
    assert "the exclusions after it leave out all that it matches, such as `specs/app.md`" in shown.out + shown.err
