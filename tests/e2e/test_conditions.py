"""`if`: a stage or a step of verify that is switched off, as if it were not declared."""

import pytest

from tests.e2e.pipelines import calls, ends, green, pipeline, prompt, shell
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not

DOCS = (
    "  code: {outputs: [code.txt], shell: 'echo code > code.txt'}\n"
    "  docs: {if: '${{ vars.docs }}', outputs: [docs.txt], llm: {prompt: p.md.j2, returns: text}}\n"
    "  pack: {needs: [docs], inputs: ['*.txt'], outputs: [pack.lst], shell: 'ls *.txt > pack.lst'}\n"
)


def documented(project: Project, stages: str = DOCS, *, docs: str = "true") -> None:
    """Write a pipeline whose docs can be switched off."""
    project.write(pipeline(stages, {"p.md.j2": prompt("docs", "words")}, head=f"vars: {{docs: {docs}}}\n"))


def test_a_stage_that_is_switched_off_is_as_if_it_were_not_declared(project: Project) -> None:
    documented(project, docs="false")
    assert project.plan() == {"code": "run", "pack": "run", "docs": "skipped"}
    green(project.build())
    assert ends(project) == {"docs": "skipped", "code": "built", "pack": "built"}
    assert (project.read("pack.lst"), project.exists("docs.txt"), calls(project)) == ("code.txt\n", False, [])
    assert project.plan() == {"code": "fresh", "pack": "fresh", "docs": "skipped"}


def test_switching_off_takes_its_files_away_and_switching_on_brings_them_back_unasked(project: Project) -> None:
    documented(project)
    green(project.build())
    assert project.read("pack.lst") == "code.txt\ndocs.txt\n"
    plan = project.run("plan", "--set", "docs=false")
    assert "would remove docs.txt" in plan.out
    green(project.build("--set", "docs=false"))
    assert (project.read("pack.lst"), project.exists("docs.txt")) == ("code.txt\n", False)
    assert project.plan() == {"code": "fresh", "docs": "restore", "pack": "restore"}
    green(project.build())
    assert (project.read("docs.txt"), project.read("pack.lst")) == ("words\n", "code.txt\ndocs.txt\n")
    assert calls(project) == ["docs"], "asked once"


def test_a_file_that_a_person_edited_stays_when_its_stage_is_switched_off(project: Project) -> None:
    documented(project)
    green(project.build())
    project.edit("docs.txt", "mine\n")
    green(project.build("--set", "docs=false"))
    assert project.read("docs.txt") == "mine\n"


def test_plan_status_and_build_tell_what_is_skipped_and_why(project: Project) -> None:
    documented(project, docs="false")
    why = "`if` is false: ${{ vars.docs }}"
    plan = project.run("plan")
    assert plan.out.startswith("story: 2 of 2 stages to run, 1 skipped")
    assert f"docs   skipped  {why}" in plan.out
    built = project.build()
    assert "2 stages: 2 built; 1 skipped" in built.err
    assert "\n - 1 skipped: docs\n" in built.err
    again = project.build()
    assert again.err == "story: up to date (2 stages, 1 skipped)\n"
    status = project.run("status", "--exit-code")
    assert (status.code, "up to date (2 stages, 1 skipped)" in status.out, why in status.out) == (0, True, True)
    assert project.run("plan", "--exit-code").code == 0
    (line,) = [one for one in project.run("plan", "--json").json()["stages"] if one["stage"] == "docs"]
    assert (line["action"], line["why"]) == ("skipped", [why])
    (end,) = project.events_of("run_finished")
    assert end["data"]["stages"] == {"fresh": 2, "skipped": 1}
    assert why in project.run("explain", "docs").out


def test_a_stage_that_is_named_and_skipped_is_no_mistake(project: Project) -> None:
    documented(project, docs="false")
    green(project.build("docs"))
    assert (ends(project)["docs"], project.ran()) == ("skipped", [])
    green(project.build("code"))
    assert project.ran() == ["code"]
    assert "docs" not in ends(project)
    assert project.build("dosc").code == 66
    green(project.build("--force", "docs"))


def test_who_reads_what_a_skipped_stage_made_is_reported_before_anything_runs(project: Project) -> None:
    stages = DOCS + "  send: {inputs: [docs.txt], shell: cat docs.txt}\n"
    documented(project, stages, docs="false")
    refused = project.build()
    assert refused.code == 65
    assert "`docs`, which makes it, is skipped: give this stage the same `if`" in refused.err
    green(project.build("--set", "docs=true"))
    again = project.build()
    assert (again.code, "is skipped" in again.err) == (65, True), "although the file of the last build is still there"
    assert project.exists("docs.txt")


def test_the_mistakes_of_a_skipped_stage_are_reported_but_what_it_needs_is_not_asked_for(project: Project) -> None:
    stage = "  a: {if: false, outputs: [a], llm: {prompt: gone.j2, provider: anthropic, model: m, returns: text}}\n"
    project.write(pipeline(stage + "  b: {shell: [touch, x], outputs: [x]}\n"))
    green(project.build())
    project.replace("pipeline.yaml", "if: false,", "if: false, timeout: soon,")
    assert project.build().code == 65


def test_if_is_no_part_of_the_key(project: Project) -> None:
    documented(project)
    green(project.build())
    project.replace("pipeline.yaml", "if: '${{ vars.docs }}', ", "")
    assert set(project.plan().values()) == {"fresh"}


@pytest.mark.parametrize(
    ("condition", "made"),
    [
        ("true", True),
        ("false", False),
        ("'${{ vars.docs and not vars.ci }}'", True),
        ("'${{ vars.name == \"y\" }}'", False),
        ("'${{ vars.text }}'", False),
        ("'${{ vars.te }}${{ vars.xt }}'", True),
    ],
)
def test_conditions_that_hold_and_that_do_not(project: Project, condition: str, *, made: bool) -> None:
    head = "vars: {docs: true, ci: false, name: x, text: 'false', te: tr, xt: ue}\n"
    project.write(shell(f"  a: {{if: {condition}, shell: [touch, a], outputs: [a]}}\n", head=head))
    green(project.build())
    assert project.exists("a") is made


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("yes", "write `true`, without quotes"),
        ("'${{ vars.name }}'", "compare it with something"),
        ("'${{ vars.nothing }}'", "must be `true` or `false`"),
        ("1", "must be `true` or `false`"),
        ("'${{ vars.nane }}'", "`vars` has `name`, `nothing`"),  # `name` is a text: it would be refused too
    ],
)
def test_what_is_neither_true_nor_false_is_refused(project: Project, condition: str, words: str) -> None:
    head = "vars: {name: x, nothing: null}\n"
    project.write(shell(f"  a: {{if: {condition}, shell: [touch, a], outputs: [a]}}\n", head=head))
    refused = project.build()
    assert (refused.code, words in refused.err) == (65, True)


# ---- foreach ---------------------------------------------------------------------------------------


def test_items_of_a_list_in_the_pipeline_are_switched_off_one_by_one(project: Project) -> None:
    each = (
        "  each:\n"
        "    foreach: {in: [{id: a, file: x}, {id: b}, {id: c, file: y}], key: id, as: t, order: sequential}\n"
        "    if: '${{ t.file is defined }}'\n"
        "    outputs: [log.txt]\n"
        "    shell: 'echo ${{ t.file }} >> log.txt'\n"
        "  last: {needs: [each], inputs: [log.txt], shell: cat log.txt}\n"
    )
    project.write(shell(each))
    assert project.plan() == {"each@a": "run", "each@c": "run", "last": "run", "each@b": "skipped"}
    green(project.build())
    assert project.read("log.txt") == "x\ny\n"
    assert ends(project)["each@b"] == "skipped"
    assert set(project.plan().values()) == {"fresh", "skipped"}


def test_a_whole_foreach_is_switched_off_by_a_var_and_its_list_is_not_looked_for(project: Project) -> None:
    each = "  each: {if: '${{ vars.on }}', foreach: {from: gone.json, key: id, as: t}, shell: [echo, '${{ t.id }}']}\n"
    after = "  after: {needs: ['each[*]'], shell: 'true'}\n"
    project.write(shell(each + after, head="vars: {on: false}\n"))
    assert project.plan() == {"after": "run", "each": "skipped"}
    green(project.build())


def test_an_item_that_depends_on_a_skipped_one_does_not_wait(project: Project) -> None:
    items = "[{id: a, on: false, after: []}, {id: b, on: true, after: [a]}, {id: c, on: true, after: [b]}]"
    each = f"{{in: {items}, key: id, as: t, needs: after}}"
    project.write(shell(f"  each: {{foreach: {each}, if: '${{{{ t.on }}}}', shell: 'true'}}\n"))
    green(project.build("-j4"))
    assert project.ran() == ["each@b", "each@c"]


def test_a_twin_of_a_skipped_item_waits_for_no_one(project: Project) -> None:
    each = "foreach: {in: [{id: a, on: false}, {id: b, on: true}], key: id, as: t}"
    stages = (
        f"  one: {{{each}, if: '${{{{ t.on }}}}', shell: 'exit 3'}}\n  two: {{{each}, needs: [one], shell: 'true'}}\n"
    )
    project.write(shell(stages))
    assert project.build("-k").code == 1
    assert ends(project) == {"one@a": "skipped", "one@b": "failed", "two@a": "built", "two@b": "blocked"}


def test_the_items_of_a_file_may_not_decide_whether_they_are_made(project: Project) -> None:
    each = "  each: {foreach: {from: l.json, key: id, as: t}, if: '${{ t.on }}', shell: [echo, x]}\n"
    project.write({**shell(each), "l.json": "[]"})
    refused = project.build()
    assert (refused.code, "an item of a file may not decide `if`" in refused.err) == (65, True)


# ---- steps of verify -------------------------------------------------------------------------------


def test_a_step_of_verify_that_is_switched_off_is_left_out_and_only_verification_changes(project: Project) -> None:
    steps = "[{shell: 'test -s a.txt'}, {if: '${{ vars.strict }}', shell: 'grep -q good a.txt'}]"
    stage = f"  a: {{outputs: [a.txt], llm: {{prompt: p.md.j2, returns: text}}, verify: {steps}}}\n"
    project.write(pipeline(stage, {"p.md.j2": prompt("a", "bad")}, head="vars: {strict: false}\n"))
    green(project.build())
    assert project.plan("--set", "strict=true") == {"a": "verify"}
    assert project.build("--set", "strict=true").code == 1
    assert project.plan() == {"a": "fresh"}
    project.replace("pipeline.yaml", ", {if: '${{ vars.strict }}', shell: 'grep -q good a.txt'}", "")
    assert project.plan() == {"a": "fresh"}, "as if it were not declared"


def test_a_check_after_a_step_that_is_switched_off_is_found_at_its_place(project: Project) -> None:
    stage = "  a:\n    outputs: [a]\n    shell: [touch, a]\n    verify:\n      - {shell: 'true', if: false}\n"
    project.write(shell(stage + "      - check: json_shema\n"))
    refused = project.build()
    assert ("pipeline.yaml:9:16" in refused.err, refused.code) == (True, 65)
