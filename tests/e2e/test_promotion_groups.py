"""`promote: GROUP`: the results of all stages of a group reach the workspace in one transaction, or none does."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.e2e.pipelines import calls, ends, green, note, noted, pipeline, prompt, proposing, shell
from tests.e2e.test_crash import build_and_die
from tests.project import Project

pytestmark = [
    pytest.mark.slow,  # whole builds: `make test` runs them, `make check` does not
    pytest.mark.usefixtures("steps_reach_outside"),  # shell stages count their runs in a file outside the sandbox
]

STAGES = """\
  spec: {promote: app, inputs: [request.txt], outputs: [app/spec.txt], shell: 'cp request.txt app/spec.txt; NOTE spec'}
  code: {promote: app, inputs: [app/spec.txt], outputs: [app/code.txt],
         shell: 'cp app/spec.txt app/code.txt; NOTE code'}
  log: {promote: app, inputs: [app/spec.txt], outputs: [app/log.txt],
         shell: 'wc -c < app/spec.txt >app/log.txt; NOTE log'}
  acceptance:
    promote: app
    inputs: [app/spec.txt, app/code.txt]
    shell: 'cmp app/spec.txt app/code.txt; grep -qv bad app/code.txt; NOTE acceptance'
  report: {inputs: [app/log.txt], outputs: [report.txt], shell: 'cp app/log.txt report.txt; NOTE report'}
"""


def story(project: Project, stages: str = STAGES, **files: str) -> Project:
    """Write a pipeline in which NAME of `NOTE name` is counted each time that the stage runs."""
    text = re.sub(r"NOTE (\w+)", lambda found: note(project, found[1]), stages)
    project.write(shell(text, {"request.txt": "one\n", **files}))
    return project


def made(project: Project) -> dict[str, bytes]:
    """Return all files but the request: what a build makes, and the lock file."""
    return {path: data for path, data in project.files().items() if path not in ("request.txt", "pipeline.yaml")}


# ---- all or nothing --------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [("-j1",), ("-j4", "-k")])
def test_a_failing_acceptance_leaves_the_workspace_as_it_was(project: Project, argv: tuple[str, ...]) -> None:
    green(story(project).build(*argv))
    before = made(project)
    project.edit("request.txt", "bad, bad\n")
    outcome = project.build(*argv)
    assert outcome.code == 1
    assert made(project) == before, "no new spec, no new code, the same lock file"
    assert ends(project) == {
        "spec": "held",
        "code": "held",
        "log": "held",
        "acceptance": "failed",
        "report": "blocked",
    }
    assert "withheld: acceptance failed" in outcome.err
    assert "app  withheld: its stages are promoted together" in outcome.err


def test_a_first_build_that_fails_leaves_no_file(project: Project) -> None:
    assert story(project, **{"request.txt": "bad\n"}).build().code == 1
    assert not project.exists("app")


def test_acceptance_sees_the_new_results_of_the_group(project: Project) -> None:
    green(story(project).build())
    project.edit("request.txt", "two\n")
    green(project.build())
    assert project.read("app/code.txt") == "two\n"
    assert noted(project).count("acceptance") == 2
    assert set(project.plan().values()) == {"fresh"}


def test_what_was_withheld_is_restored_with_nothing_run(project: Project) -> None:
    green(story(project).build())
    project.edit("request.txt", "bad, bad\n")
    assert project.build("-k").code == 1
    ran = noted(project)
    project.replace("pipeline.yaml", "grep -qv bad app/code.txt", "true")
    assert {n: d for n, d in project.plan().items() if n in ("spec", "code", "log")} == dict.fromkeys(
        ("spec", "code", "log"), "restore"
    )
    green(project.build("-k"))
    assert sorted(noted(project)[len(ran) :]) == ["acceptance", "report"]
    assert project.read("app/spec.txt") == "bad, bad\n"


def test_it_is_one_transaction(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from orch23.store.promotion import Promoter  # noqa: PLC0415  the effect that is counted

    seen: list[set[str]] = []
    real = Promoter._apply

    def counted(self, new, old):
        seen.append(set(new))
        return real(self, new, old)

    monkeypatch.setattr(Promoter, "_apply", counted)
    green(story(project).build())
    assert seen[0] == {"app/spec.txt", "app/code.txt", "app/log.txt"}


def test_a_model_is_not_called_again_for_a_withheld_result(project: Project) -> None:
    stages = """\
  spec: {promote: app, outputs: [spec.txt], llm: {prompt: spec.md.j2, returns: text}}
  acceptance: {promote: app, inputs: [spec.txt, word.txt], shell: 'grep -f word.txt spec.txt'}
"""
    project.write(pipeline(stages, {"spec.md.j2": prompt("spec", "good words"), "word.txt": "bad\n"}))
    assert project.build().code == 1
    assert not project.exists("spec.txt")
    project.edit("word.txt", "good\n")
    green(project.build())
    assert calls(project) == ["spec"]
    assert project.read("spec.txt") == "good words\n"


def test_members_that_are_fresh_count_as_in_place(project: Project) -> None:
    green(story(project).build())
    project.replace("pipeline.yaml", "wc -c < app", "wc -l < app")
    green(project.build())
    assert ends(project) == {
        "spec": "fresh",
        "code": "fresh",
        "log": "built",
        "acceptance": "fresh",
        "report": "built",
    }


def test_it_is_in_no_key(project: Project) -> None:
    green(story(project).build())
    project.edit(
        "pipeline.yaml", project.read("pipeline.yaml").replace("promote: app, ", "").replace("    promote: app\n", "")
    )
    assert set(project.plan().values()) == {"fresh"}
    project.edit("pipeline.yaml", project.read("pipeline.yaml").replace("stages:", "defaults: {promote: all}\nstages:"))
    assert set(project.plan().values()) == {"fresh"}


def test_two_groups_are_promoted_apart(project: Project) -> None:
    stages = """\
  a: {promote: one, inputs: [request.txt], outputs: [a.txt], shell: 'cp request.txt a.txt'}
  b: {promote: one, inputs: [a.txt], outputs: [b.txt], shell: 'cp a.txt b.txt'}
  c: {promote: two, inputs: [other.txt], outputs: [c.txt], shell: 'cp other.txt c.txt'}
  d: {promote: two, inputs: [c.txt], outputs: [d.txt], shell: 'grep -v bad c.txt; cp c.txt d.txt'}
"""
    assert story(project, stages, **{"other.txt": "bad\n"}).build("-k").code == 1
    assert (project.exists("b.txt"), project.exists("c.txt")) == (True, False)


# ---- foreach ---------------------------------------------------------------------------------------

LATE = """\
  list: {promote: app, inputs: [request.txt], outputs: [list.json], shell: 'cp request.txt list.json'}
  items:
    promote: app
    foreach: {from: list.json, as: word}
    outputs: ["${{ word | under('out') }}"]
    shell: [touch, "${{ word | under('out') }}"]
  acceptance: {promote: app, inputs: ['out/*'], shell: 'test ! -e out/bad'}
"""


def test_items_of_a_list_that_a_member_makes_belong_to_the_group(project: Project) -> None:
    green(story(project, LATE, **{"request.txt": '["a", "b"]'}).build())
    assert sorted(project.files("out")) == ["out/a", "out/b"]
    before = made(project)
    project.edit("request.txt", '["a", "bad"]')
    assert project.build().code == 1
    assert made(project) == before
    assert ends(project)["list"] == ends(project)["items@bad"] == "held"
    project.edit("request.txt", '["b"]')
    green(project.build())
    assert sorted(project.files("out")) == ["out/b"]


@pytest.mark.parametrize("where", ["    promote: app\n    foreach: {", "    foreach: {promote: app, "])
def test_a_list_without_items_does_not_keep_the_group_waiting(project: Project, where: str) -> None:
    stages = LATE.replace("    promote: app\n    foreach: {", where)
    green(story(project, stages, **{"request.txt": "[]"}).build())
    assert project.read("list.json") == "[]"
    assert set(project.plan().values()) == {"fresh", "skipped"}


def test_a_list_without_items_at_the_end_of_the_group_completes_it(project: Project) -> None:
    stages = LATE.partition("  acceptance:")[0]
    green(story(project, stages, **{"request.txt": "[]"}).build())
    assert project.read("list.json") == "[]"


def test_nothing_is_promoted_before_every_foreach_of_the_group_is_expanded(project: Project) -> None:
    """`list` fails its trial: `first`, which is green, must not be promoted although no item is known yet."""
    stages = "  first: {promote: app, outputs: [first.txt], shell: 'touch first.txt'}\n" + LATE
    assert story(project, stages, **{"request.txt": '["../a"]'}).build("-k").code == 1
    assert not project.exists("first.txt")
    assert ends(project)["first"] == "held"


def test_items_and_stages_of_a_model_in_one_group(project: Project) -> None:
    stages = """\
  plan: {promote: app, outputs: [plan.json], llm: {prompt: plan.md.j2, returns: json}}
  code:
    promote: app
    foreach: {from: 'plan.json#/tasks', as: task, order: sequential}
    outputs: [app.txt]
    llm: {prompt: code.md.j2, returns: files}
  acceptance: {promote: app, inputs: [app.txt, word.txt], shell: 'grep -f word.txt app.txt'}
"""
    files = {
        "plan.md.j2": prompt("plan", '{"tasks": ["one", "two"]}'),
        "code.md.j2": proposing("code {{ item }}", {"app.txt": "'did ' ~ item ~ '\\n'"}),
        "word.txt": "never\n",
    }
    project.write(pipeline(stages, files))
    assert project.build().code == 1
    assert (project.exists("plan.json"), project.exists("app.txt")) == (False, False)
    project.edit("word.txt", "two\n")
    green(project.build())
    assert calls(project) == ["plan", "code one", "code two"]


# ---- stages outside of the group -------------------------------------------------------------------


def test_a_reader_outside_waits_for_the_whole_group(project: Project) -> None:
    graph = story(project).run("graph", "--json").json()
    assert {e["from"] for e in graph["edges"] if e["to"] == "report"} == {"spec", "code", "log", "acceptance"}


def test_a_reader_is_blocked_also_where_an_edit_reaches_few_of_many_stages(project: Project) -> None:
    """From 65 stages on, a build after an edit may decide only a part of them: a group needs all of its stages."""
    more = "".join(f"  more{n}: {{outputs: [more/{n}], shell: 'touch more/{n}'}}\n" for n in range(70))
    stages = """\
  a: {promote: app, inputs: [request.txt], outputs: [a.txt], shell: 'grep -v bad request.txt > a.txt'}
  b: {promote: app, inputs: [b.in], outputs: [b.txt], shell: 'cp b.in b.txt'}
  report: {inputs: [b.txt], outputs: [report.txt], shell: 'cp b.txt report.txt'}
"""
    green(story(project, stages + more, **{"b.in": "one\n"}).build())
    assert project.build().code == 0
    project.edit("request.txt", "bad\n")
    assert project.build().code == 1
    assert ends(project)["report"] == "blocked"
    assert project.build().code == 1
    project.edit("request.txt", "good\n")
    green(project.build())
    assert project.read("a.txt") == "good\n"


BETWEEN = """\
  spec: {promote: app, outputs: [spec.txt], shell: 'touch spec.txt'}
  middle: {inputs: [spec.txt], outputs: [middle.txt], shell: 'cp spec.txt middle.txt'}
  more: {inputs: [middle.txt], outputs: [more.txt], shell: 'cp middle.txt more.txt'}
  code: {promote: app, inputs: [more.txt], outputs: [code.txt], shell: 'cp more.txt code.txt'}
"""


def test_a_stage_between_two_members_is_refused_with_a_way_out(project: Project) -> None:
    outcome = story(project, BETWEEN).run("validate")
    assert outcome.code == 65
    text = outcome.out + outcome.err
    assert "E829" in text
    assert "E820" not in text
    assert "`middle` and `more` come between `spec` and `code`" in text
    assert "`app`" in text
    assert "write `promote: app`" in text


def test_two_groups_that_wait_for_each_other_are_refused(project: Project) -> None:
    stages = """\
  a: {promote: one, outputs: [a.txt], shell: 'touch a.txt'}
  b: {promote: two, inputs: [a.txt], outputs: [b.txt], shell: 'touch b.txt'}
  c: {promote: two, outputs: [c.txt], shell: 'touch c.txt'}
  d: {promote: one, inputs: [c.txt], outputs: [d.txt], shell: 'touch d.txt'}
"""
    text = story(project, stages).run("validate").err
    assert "E829" in text
    assert "`one`" in text
    assert "`two`" in text


def test_a_real_cycle_stays_a_cycle(project: Project) -> None:
    stages = """\
  a: {promote: app, needs: [b], outputs: [a.txt], shell: 'touch a.txt'}
  b: {promote: app, inputs: [a.txt], outputs: [b.txt], shell: 'touch b.txt'}
"""
    text = story(project, stages).run("validate").err
    assert "E820" in text
    assert "E829" not in text


# ---- what is asked for -----------------------------------------------------------------------------


def test_the_group_is_what_was_asked_for(project: Project) -> None:
    green(story(project).build("code"))
    assert sorted(project.files("app")) == ["app/code.txt", "app/spec.txt"]
    green(project.build())
    assert ends(project)["code"] == "fresh"


def test_plan_and_graph_show_the_group(project: Project) -> None:
    planned = story(project).run("plan")
    assert "promoted together as `app`: spec code log acceptance" in " ".join(planned.out.split())
    document = project.run("plan", "--json").json()
    assert document["groups"] == {"app": ["spec", "code", "log", "acceptance"]}
    assert "promote: app" in project.run("graph").out
    nodes = {node["stage"]: node["promote"] for node in project.run("graph", "--json").json()["nodes"]}
    assert nodes == {"spec": "app", "code": "app", "log": "app", "acceptance": "app", "report": None}
    for form in ("mermaid", "dot"):
        assert project.run("graph", "--format", form).code == 0
    assert project.run("explain", "code").code == 0
    green(project.build())
    assert project.run("show", "code").code == 0


# ---- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("log: {promote: app,", "log: {promote: app, on_failure: keep,", "`on_failure: keep` and `promote: app`"),
        ("log: {promote: app,", "log: {promote: together,", "names a group"),
        ("log: {promote: app,", "log: {promote: 'a b',", "which is malformed"),
        ("log: {promote: app,", "log: {promote: ap,", "has one stage"),
    ],
)
def test_mistakes_are_reported_with_a_way_out(project: Project, old: str, new: str, said: str) -> None:
    story(project).replace("pipeline.yaml", old, new)
    outcome = project.run("validate")
    assert said in outcome.out + outcome.err
    assert outcome.code == (0 if new.endswith("ap,") else 65)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("promote: app\n    foreach: {promote: each, ", "`promote: app` and `foreach.promote: each`"),
        ("promote: app\n    foreach: {promote: other, ", "`promote: app` and `foreach.promote: other`"),
        ("promote: '${{ word }}'\n    foreach: {", "an item may not decide `promote`"),
        ("promote: app\n    on_failure: keep\n    foreach: {", "`on_failure: keep` and `promote: app`"),
    ],
)
def test_mistakes_of_a_foreach_are_reported_too(project: Project, header: str, said: str) -> None:
    story(project, LATE.replace("promote: app\n    foreach: {", header))
    outcome = project.run("validate")
    assert (outcome.code, said in outcome.out + outcome.err) == (65, True), outcome.err


def test_a_foreach_may_say_together_and_be_in_a_group(project: Project) -> None:
    stages = LATE.replace("foreach: {", "foreach: {promote: together, ")
    assert story(project, stages, **{"request.txt": '["bad"]'}).build().code == 1
    assert not project.exists("list.json")


# ---- death -----------------------------------------------------------------------------------------


def test_a_build_killed_during_promotion_is_finished_by_the_next_one(project: Project) -> None:
    story(project, STAGES.partition("  report:")[0].replace("; NOTE", "; true"))
    green(project.build())
    project.edit("request.txt", "two\n")
    shutil.copytree(project.root, project.root.parent / "saved")

    def restored() -> Project:
        shutil.rmtree(project.root)
        shutil.copytree(project.root.parent / "saved", project.root)
        return Project(project.root)

    old = project.files("app")
    fresh = restored()
    code, steps = build_and_die(fresh, -1)
    assert code == 0
    new, whole = fresh.files("app"), made(fresh)
    half = 0
    for number in range(1, steps.count("Promoter.") + 1):
        fresh = restored()
        code, step = build_and_die(fresh, number, among="Promoter.")
        assert code == 137, step
        half += fresh.files("app") not in (old, new)
        fresh.edit("request.txt", "bad\n")
        assert fresh.build("-k").code == 1, step
        assert fresh.files("app") in (old, new), step
        fresh.edit("request.txt", "two\n")
        green(fresh.build())
        assert made(fresh) == whole, step
    assert half, "some of the deaths were in the midst of the promotion"


def test_a_users_edit_of_one_member_holds_back_all(project: Project) -> None:
    green(story(project).build())
    before = made(project)
    project.edit("app/log.txt", "mine\n")
    project.edit("request.txt", "two\n")
    assert project.build().code == 6
    assert made(project) == {**before, "app/log.txt": b"mine\n"}
    assert json.loads(project.read("pipeline.lock"))
    green(project.build("--overwrite-edited"))
    assert Path(project.root, "app/log.txt").read_text() == "4\n"
