"""`approve: true`: a user approves the changes of a stage, or rejects them with words, before they are promoted."""

import os
import shutil
from pathlib import Path

import pytest

from orch23.model.parsing import parse_stored
from orch23.store.json_text import TRUSTED, checked_line
from tests.e2e.pipelines import calls, ends, green, pipeline, prompt, proposing, shell
from tests.e2e.test_asked import on_a_terminal
from tests.project import Project, scripted

pytestmark = pytest.mark.slow  # whole builds

APPROVAL = 8
STAGES = """\
  page: {outputs: [page.txt], inputs: [spec.txt], llm: {prompt: page.j2, returns: text}, approve: true}
  site: {inputs: [page.txt], outputs: [site.txt], shell: cp page.txt site.txt}
"""
# The model writes what the reviewer said last; its name shows the attempt.
PAGE = prompt(
    "page {{ attempt }}",
    "{% if brief %}{{ brief.kind }}: {{ brief.excerpt }}{% else %}first {{ inputs['spec.txt'].text }}{% endif %}",
)


def story(project: Project, stages: str = STAGES, **files: str) -> Project:
    return project.write(pipeline(stages, {"spec.txt": "one\n", "page.j2": PAGE, **files}))


def held(project: Project, *argv: str) -> str:
    outcome = project.build(*argv)
    assert outcome.code == APPROVAL, outcome.err
    return outcome.err


def test_a_change_is_held_until_it_is_approved_and_no_model_is_called_again(project: Project) -> None:
    err = held(story(project))
    assert ends(project) == {"page": "held", "site": "blocked"}
    assert not project.exists("page.txt")
    assert not project.exists("pipeline.lock") or '"page"' not in project.read("pipeline.lock")
    assert "`orch23 approve page`" in err
    assert "waiting for approval" in err
    held(project)
    assert project.run("approve", "page", "--by", "Ann").out.startswith("approved page: 1 file (")
    green(project.build())
    assert project.read("site.txt") == "first one\n"
    assert calls(project) == ["page 1"]
    (approved,) = project.events_of("warning")
    assert approved["message"].startswith("approved by Ann (")
    assert set(project.plan().values()) == {"fresh"}
    green(project.build())


def test_the_user_of_git_decides_unless_someone_is_named(project: Project) -> None:
    held(story(project))
    (project.home / ".gitconfig").write_text("[user]\nname = Bea\n")
    green(project.run("approve", "page"))
    green(project.build())
    assert project.events_of("warning")[0]["message"].startswith("approved by Bea (")


def test_another_result_needs_another_approval_and_a_restored_one_none(project: Project) -> None:
    held(story(project))
    green(project.run("approve", "page"))
    green(project.build())
    project.edit("spec.txt", "two\n")
    held(project)
    assert project.read("page.txt") == "first one\n"
    project.edit("spec.txt", "one\n")
    green(project.build())
    assert "[E647]" in project.run("approve", "page").err, "nothing waits any more"
    project.edit("spec.txt", "two\n")
    held(project)
    green(project.run("approve", "page"))
    green(project.build())
    project.edit("spec.txt", "one\n")
    green(project.build())
    assert project.read("page.txt") == "first one\n"
    assert calls(project) == ["page 1", "page 1"]


def test_gc_by_age_removes_approvals_and_what_waits(project: Project) -> None:
    held(story(project))
    green(project.run("approve", "page"))
    folder = project.root / ".orch23/approvals"
    files = list(folder.rglob("*.json"))
    assert len(files) == 2
    green(project.run("gc", "--keep", "1d"))
    assert all(one.exists() for one in files)
    for one in files:
        os.utime(one, (0, 0))
    assert "2 approvals" in project.run("gc", "--keep", "1d", "--dry-run").out
    assert all(one.exists() for one in files)
    green(project.run("gc", "--keep", "1d"))
    assert not any(one.exists() for one in files)
    held(project)
    assert calls(project) == ["page 1"]


def test_three_rounds_of_words_are_replayed_without_a_key(project: Project, tmp_path: Path) -> None:
    stages = STAGES.replace("returns: text}", "returns: text, transcripts: t/}")
    held(story(project, stages))
    for number, text in enumerate(("make it short", "make it red", "make it blue"), start=2):
        green(project.run("reject", "page", "-m", text))
        held(project)
        assert calls(project)[-1] == f"page {number}"
        assert text in project.run("show", "page", "--changes").out
    assert calls(project) == ["page 1", "page 2", "page 3", "page 4"]
    clone = Project(tmp_path / "clone")
    for name in ("pipeline.yaml", "model.py", "spec.txt", "page.j2"):
        clone.write({name: project.read(name)})
    shutil.copytree(project.root / "t", clone.root / "t")
    assert clone.build("--replay").code == APPROVAL
    assert calls(clone) == []
    assert clone.run("show", "page", "--changes").out == project.run("show", "page", "--changes").out
    green(project.run("approve", "page"))
    green(project.build())
    last = project.read("site.txt")
    earlier = "".join(f"The user rejected an earlier result: make it {one}\n" for one in ("short", "red"))
    assert last == f"rejected: {earlier}\nmake it blue\n"
    # The lock file says what was promoted: it is approved.
    for name in ("page.txt", "site.txt"):
        project.delete(name)
    shutil.rmtree(project.root / ".orch23")
    green(project.build("--replay"))
    assert project.read("site.txt") == last
    assert len(calls(project)) == 4


def test_an_attempt_that_fails_after_a_rejection_does_not_end_the_wish(project: Project) -> None:
    stages = STAGES.replace(
        "approve: true", "approve: true, retry: 1, verify: [{shell: '! grep -q verify_failed page.txt'}]"
    )
    fails = PAGE.replace("{{ brief.excerpt }}", "{{ 'verify_failed' if attempt == 2 }} {{ brief.excerpt }}")
    held(story(project, stages, **{"page.j2": fails.replace("{{ brief.kind }}", "")}))
    green(project.run("reject", "page", "-m", "make it short"))
    held(project)
    assert calls(project) == ["page 1", "page 2", "page 3"]
    assert "The user rejected an earlier result: make it short" in project.run("show", "page", "--changes").out


@pytest.mark.parametrize("retry", [0, 1])
def test_a_rejection_always_has_another_attempt_and_the_same_result_ends_the_stage(
    project: Project, retry: int
) -> None:
    stages = STAGES.replace("approve: true", f"approve: true, retry: {retry}")
    held(story(project, stages, **{"page.j2": prompt("page {{ attempt }} {{ brief.excerpt if brief }}", "the same")}))
    green(project.run("reject", "page", "-m", "other"))
    failed = project.build()
    assert failed.code == 1
    assert "[E327]" in failed.err or "E327" in failed.err
    assert "other" in failed.err
    assert ends(project) == {"page": "failed", "site": "blocked"}
    assert calls(project) == ["page 1", "page 2 other"]
    assert project.build().code == 1
    assert len(calls(project)) == 2, "nothing is paid for twice"
    green(project.run("reject", "page", "-m", "really other"))
    assert project.build().code == 1
    assert calls(project)[2:] == ["page 2 really other"], "other words are another request"
    green(project.run("approve", "page"))
    green(project.build())
    assert len(calls(project)) == 3


GROUP = """\
  spec: {promote: app, inputs: [spec.txt], outputs: [app/spec.txt], llm: {prompt: page.j2, returns: text}}
  code: {promote: app, inputs: [app/spec.txt], outputs: [app/code.txt], shell: cp app/spec.txt app/code.txt}
  check: {promote: app, inputs: [app/code.txt], shell: "! grep -q bad app/code.txt", approve: true}
  after: {inputs: [app/code.txt], outputs: [after.txt], shell: cp app/code.txt after.txt}
  other: {inputs: [spec.txt], outputs: [other.txt], shell: cp spec.txt other.txt}
"""


def test_a_group_is_approved_once_for_its_whole_diff_after_its_tests(project: Project) -> None:
    held(story(project, GROUP), "-j1")
    assert ends(project) == {"spec": "held", "code": "held", "check": "held", "after": "blocked", "other": "built"}
    shown = project.run("show", "code", "--changes", "--files").out
    assert [line.split()[0] for line in shown.splitlines()[1:]] == ["app/code.txt", "app/spec.txt"]
    assert not project.exists("app")
    green(project.run("approve", "spec"))
    green(project.build())
    assert project.read("after.txt") == "first one\n"
    assert calls(project) == ["page 1"]


def test_a_rejection_in_a_group_is_of_the_stage_that_it_names_and_those_after_it_run_again(project: Project) -> None:
    held(story(project, GROUP), "-j1")
    green(project.run("reject", "spec", "-m", "in red"))
    held(project)
    assert ends(project)["after"] == "blocked"
    assert "+rejected: in red" in project.run("show", "check", "--changes").out
    green(project.run("reject", "spec", "-m", "bad"))
    failed = project.build()
    assert failed.code == 1
    assert ends(project)["check"] == "failed"
    assert project.run("show", "spec", "--changes").out.startswith("rejected: 2 files of check code spec (")
    assert not project.exists("app")
    assert calls(project) == ["page 1", "page 2", "page 3"]


def test_words_for_a_command_of_a_group_do_not_keep_its_model_from_another_attempt(project: Project) -> None:
    held(story(project, GROUP), "-j1")
    green(project.run("reject", "code", "-m", "wrong stage"))
    failed = project.build()
    assert failed.code == 1
    assert "`orch23 reject spec -m TEXT` asks its model" in failed.err
    green(project.run("reject", "spec", "-m", "in red"))
    held(project)
    assert "+rejected: in red" in project.run("show", "check", "--changes").out


def test_a_part_of_a_group_without_the_stage_that_says_approve_is_held_too(project: Project) -> None:
    held(story(project, GROUP), "code")
    assert not project.exists("app")
    assert ends(project) == {"spec": "held", "code": "held"}
    # The stage that says `approve` has no part in this change: the others name it.
    assert "`orch23 approve spec`" in project.run("status").out
    assert project.run("approve", "check").code == 66
    green(project.run("approve", "spec"))
    green(project.build("code"))
    assert project.read("app/code.txt") == "first one\n"


def test_a_rejected_command_fails_without_running_until_its_inputs_change(project: Project) -> None:
    stages = "  a: {inputs: [in.txt], outputs: [a.txt], shell: cp in.txt a.txt, approve: true}\n"
    held(story(project, stages, **{"in.txt": "one\n"}))
    green(project.run("reject", "a", "-m", "not this\nnor that"))
    for _ in range(2):
        failed = project.build()
        assert failed.code == 1
        assert "rejected: not this (by " in failed.err
        assert "`orch23 approve a` takes this result as it is" in failed.err
    assert not project.exists("a.txt")
    project.edit("in.txt", "two\n")
    held(project)
    project.edit("in.txt", "one\n")
    assert project.build().code == 1
    green(project.run("approve", "a"))
    green(project.build())
    assert project.read("a.txt") == "one\n"


def test_a_rejection_of_an_editor_whose_file_a_later_stage_changes_too_is_replayed(project: Project) -> None:
    model = "{prompt: page.j2, returns: files, transcripts: t/}"
    stages = f"""\
  a: {{promote: g, inputs: [src/*], edits: [src/*], llm: {model}, approve: true}}
  b: {{promote: g, needs: [a], inputs: [src/*], edits: [src/*], llm: {model.replace("page", "b")}}}
"""
    page = proposing("a {% set _ = inputs | blocks %}", {"src/a.txt": "(brief.excerpt if brief else 'new') ~ '\\n'"})
    second = proposing("b", {"src/a.txt": "inputs['src/a.txt'].text ~ 'b\\n'"})
    story(project, stages, **{"src/a.txt": "old\n", "page.j2": page, "b.j2": second})
    held(project)
    for text in ("red", "blue"):
        green(project.run("reject", "a", "-m", text))
        held(project)
    before = project.run("show", "a", "--changes").out
    assert "+blue\n+b\n" in before
    shutil.rmtree(project.root / ".orch23")
    held(project, "--replay")
    assert project.run("show", "a", "--changes").out == before


def test_an_approval_that_a_clone_brings_counts_for_nothing(project: Project, tmp_path: Path) -> None:
    untrusted = {"ORCH23_TRUST": ""}

    def waits(one: Project) -> None:
        assert one.build(env=untrusted).code == APPROVAL
        assert not one.exists("a.txt")

    waits(project.write(shell("  a: {outputs: [a.txt], shell: echo a > a.txt, approve: true}\n")))
    green(project.run("approve", "a", env=untrusted))
    # A copy with another store, and an approval that no command of this user wrote.
    victim = project.copy(tmp_path / "victim")
    shutil.rmtree(victim.root / ".orch23")
    waits(victim)
    shutil.copytree(project.root / ".orch23/approvals", victim.root / ".orch23/approvals", dirs_exist_ok=True)
    waits(victim)
    (approval,) = (project.root / ".orch23/approvals").glob("*.json")
    line = approval.read_bytes()
    approval.write_bytes(TRUSTED.encode(parse_stored(checked_line(line)[0])))
    waits(project)
    approval.write_bytes(line)
    assert project.build(env=untrusted).code == 0


def test_an_edited_base_and_another_file_of_the_diff_need_another_approval(project: Project) -> None:
    stages = STAGES.replace("[page.txt], inputs", "[page.txt, extra/], inputs")
    base = {"page.txt": "mine\n"}
    held(story(project, STAGES, **base))
    digest = project.run("show", "page", "--changes", "--json").json()["digest"]
    assert project.read("page.txt") == "mine\n"
    green(project.run("approve", "page"))
    project.edit("page.txt", "mine, edited\n")
    held(project)
    assert project.run("show", "page", "--changes", "--json").json()["digest"] != digest
    assert project.read("page.txt") == "mine, edited\n"
    assert stages != STAGES


def test_a_change_of_no_file_and_a_stage_that_is_fresh_need_none(project: Project) -> None:
    stages = STAGES.replace(", approve: true", "")
    green(story(project, stages).build())
    key = project.run("show", "page", "--key").out
    project.replace(
        "pipeline.yaml", "llm: {prompt: page.j2, returns: text}", "llm: {prompt: page.j2, returns: text}, approve: true"
    )
    assert set(project.plan().values()) == {"fresh"}
    green(project.build())
    assert project.run("show", "page", "--key").out == key
    project.delete("page.txt")
    green(project.build())
    assert len(calls(project)) == 1


def test_plan_status_explain_and_json_name_the_command(project: Project) -> None:
    held(story(project))
    way = "`orch23 approve page`"
    for command in ("plan", "status"):
        assert way in project.run(command).out
    assert way in project.run("explain", "page").out
    found = {one["stage"]: one["approve"] for one in project.run("plan", "--json").json()["stages"]}
    assert found == {"page": "waits for approval: `orch23 approve page`", "site": None}
    finished = project.events_of("run_finished")[-1]["data"]
    assert (finished["status"], finished["exit_code"]) == ("approval", APPROVAL)
    (end,) = (one["data"] for one in project.events_of("stage_finished") if one["role"] == "page")
    assert [one["code"] for one in end["problems"]] == ["E646"]
    green(project.run("reject", "page", "-m", "other"))
    assert "was rejected: a build starts another attempt" in project.run("plan").out


@pytest.mark.needs("exports")
def test_the_summary_of_a_job_names_the_command(project: Project, tmp_path: Path) -> None:
    story(project)
    env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    assert project.build(env=env).code == APPROVAL
    summary = (tmp_path / "summary.md").read_text()
    assert "approval" in summary
    assert "orch23 approve page" in summary


def test_with_k_a_failed_stage_does_not_hide_that_changes_wait(project: Project) -> None:
    story(project, STAGES + "  bad: {shell: exit 3}\n")
    outcome = project.build("-k")
    assert outcome.code == APPROVAL
    assert outcome.err.splitlines()[-1].startswith("failed: bad (")


def test_hidden_characters_and_files_that_are_no_texts_are_shown_as_such(project: Project) -> None:
    script = r"printf 'a\033[2Jb\r\nc\342\200\256d' > d/text.txt; printf '\0\1' > d/binary; seq 20000 > d/long.txt"
    stages = f'  a: {{outputs: [d/], shell: "{script.replace(chr(92), chr(92) * 2)}", approve: true}}\n'
    held(story(project, stages))
    shown = project.run("show", "a", "--changes")
    green(shown)
    assert "\x1b" not in shown.out
    assert "+a\\x1b[2Jb\\x0d\n" in shown.out
    assert "\\u202e" in shown.out
    assert "\\ No newline at end of file" in shown.out
    assert "d/binary  new not shown, 2 B" in shown.out
    assert "d/long.txt  new not shown" in shown.out
    files = project.run("show", "a", "--changes", "--json").json()["files"]
    assert files["d/binary"][0] == ""
    assert list(files) == ["d/binary", "d/long.txt", "d/text.txt"]
    assert "d/text.txt  new +2 -0" in project.run("show", "a", "--changes", "--files").out


def test_a_long_diff_is_cut(project: Project) -> None:
    held(story(project, "  a: {outputs: [a.txt], shell: seq 5000 > a.txt, approve: true}\n"))
    shown = project.run("show", "a", "--changes").out.splitlines()
    assert len(shown) == 2002
    assert shown[-1] == "... 3,003 more lines"


def test_wrong_uses_are_errors_with_a_way_out(project: Project) -> None:
    story(project)
    refused = project.run("approve", "page", "site")
    assert refused.code == 66
    assert refused.err.count("[E647]") == 2
    held(project)
    for argv in (("reject", "page", "-m", " "), ("build", "--ask"), ("show", "page", "--changes", "--key")):
        assert project.run(*argv).code == 64, argv
    assert project.run("reject", "page").code == 64
    assert (
        project.run(
            "reject", "page", "-m", "use sk-0123456789abcdefABCDEF", env={"MY_KEY": "sk-0123456789abcdefABCDEF"}
        ).code
        == 65
    )
    held(project)
    assert project.run("show", "page", "--changes", "--diff").out == project.run("show", "page", "--changes").out


@pytest.mark.parametrize(
    ("stages", "code"),
    [
        ("  a: {outputs: [a], shell: touch a, approve: true, on_failure: keep}\n", "E856"),
        (
            "  a: {foreach: {in: [{x: true}]}, outputs: ['${{ item.x }}'], shell: touch a, approve: '${{ item.x }}'}\n",
            "E857",
        ),
    ],
)
def test_keys_that_contradict_it_are_refused(project: Project, stages: str, code: str) -> None:
    refused = project.write(shell(stages)).run("plan")
    assert refused.code == 65
    assert f"[{code}]" in refused.err


def test_defaults_do_not_take_it(project: Project) -> None:
    project.write(shell("  a: {outputs: [a], shell: touch a}\n", head="defaults: {approve: true}\n"))
    assert "[E802]" in project.run("plan").err


def test_each_item_of_a_list_that_a_stage_makes_is_held(project: Project) -> None:
    stages = """\
  list: {outputs: [list.json], shell: 'echo "[1, 2]" > list.json'}
  page: {foreach: {from: list.json}, outputs: ["p/${{ item }}"], shell: [touch, "p/${{ item }}"], approve: true}
"""
    held(project.write(shell(stages)))
    assert ends(project) == {"list": "built", "page@1": "held", "page@2": "held"}
    green(project.run("approve", "page@1"))
    held(project)
    assert project.exists("p/1")
    assert not project.exists("p/2")


@pytest.mark.parametrize("style", ["prompt", "conversation"])
def test_a_prompt_without_feedback_gets_the_words_at_its_end(project: Project, style: str) -> None:
    stages = STAGES.replace("approve: true", f"approve: true, retry: {{max: 1, style: {style}}}")
    held(story(project, stages, **{"page.j2": prompt("page", "text")}))
    green(project.run("reject", "page", "-m", "Name what is faster."))
    held(project)
    sent = project.run("show", "page", "--prompt").out
    assert "A reviewer rejected th" in sent
    assert "and do this:\n\nName what is faster.\n" in sent
    assert "what failed" not in sent


def test_on_a_terminal_each_change_is_asked_about_until_none_is_left(tmp_path: Path) -> None:
    stages = {
        "page": {"outputs": ["page.txt"], "llm": {"returns": "text"}, "approve": True},
        "site": {"inputs": ["page.txt"], "outputs": ["site.txt"], "shell": "cp page.txt site.txt", "approve": True},
    }
    project = Project(tmp_path / "p").write(scripted(stages, {"page": ["first\n", "second\n"]}))
    answers = {b"+first": b"make it red\r", b"+second": b"y\r", b"site: 1 file": b"n\r"}
    code, screen = on_a_terminal(tmp_path, "-C", "p", "build", "--ask", answers=answers, env={"ORCH23_TRUST": "1"})
    assert code == APPROVAL, screen
    assert project.read("page.txt") == "second\n"
    assert not project.exists("site.txt")
    assert "make it red" in screen
    code, screen = on_a_terminal(
        tmp_path, "-C", "p", "build", "--ask", answers={b"+second": b"yes\r"}, env={"ORCH23_TRUST": "1"}
    )
    assert code == 0, screen
    assert project.read("site.txt") == "second\n"


def test_stages_after_a_group_run_once_its_next_result_is_approved(project: Project) -> None:
    held(story(project, GROUP), "-j1")
    green(project.run("reject", "spec", "-m", "in red"))
    held(project)
    green(project.run("approve", "check"))
    green(project.build())
    for path in (".orch23/records", "app"):
        shutil.rmtree(project.root / path)
    for path in ("pipeline.lock", "after.txt"):
        project.delete(path)
    green(project.build("--replay", "-j1"))
    assert project.read("after.txt") == "rejected: in red\n"
    assert ends(project)["after"] == "built"


def test_a_machine_that_has_the_result_replays_the_rejection_of_another_one(project: Project, tmp_path: Path) -> None:
    held(story(project, STAGES.replace("returns: text}", "returns: text, transcripts: t/}")))
    other = project.copy(tmp_path / "other")
    green(project.run("reject", "page", "-m", "in red"))
    held(project)
    shutil.copytree(project.root / "t", other.root / "t", dirs_exist_ok=True)
    held(other, "--replay")
    assert "+rejected: in red" in other.run("show", "page", "--changes").out


def test_what_reads_another_stage_of_the_group_is_blocked_by_the_one_that_failed(project: Project) -> None:
    stages = """\
  spec: {promote: app, outputs: [spec.txt], llm: {prompt: page.j2, returns: text}, approve: true}
  code: {promote: app, outputs: [code.txt], shell: echo x > code.txt, cache: false}
  after: {inputs: [code.txt], outputs: [after.txt], shell: cp code.txt after.txt}
"""
    held(story(project, stages, **{"page.j2": prompt("page", "the same{% set _ = brief %}")}), "-j1")
    green(project.run("reject", "spec", "-m", "other"))
    failed = project.build("-j1")
    assert failed.code == 1
    assert "1 blocked by `spec`: after" in failed.err


def test_a_stage_that_always_runs_is_approved_by_what_it_makes(project: Project) -> None:
    stages = """\
  a: {promote: g, cache: false, outputs: [a.txt], shell: "echo 1 > a.txt"}
  b: {promote: g, inputs: [a.txt], outputs: [b.txt], shell: cp a.txt b.txt, approve: true}
"""
    held(project.write(shell(stages)))
    green(project.run("approve", "b"))
    project.replace("pipeline.yaml", "echo 1", "echo 2")
    held(project)
    project.replace("pipeline.yaml", "echo 2", "echo 1")
    green(project.build())
    assert project.read("b.txt") == "1\n"


def test_accept_of_an_edit_leaves_the_other_files_of_the_result_to_approval(project: Project) -> None:
    script = "cp in.txt a.txt; cp in.txt b.txt"
    stages = f'  a: {{inputs: [in.txt], outputs: [a.txt, b.txt], shell: "{script}", approve: true}}\n'
    held(story(project, stages, **{"in.txt": "one\n"}))
    green(project.run("approve", "a"))
    green(project.build())
    project.edit("a.txt", "mine\n")
    green(project.run("accept", "a"))
    assert set(project.plan().values()) == {"fresh"}
    project.edit("in.txt", "two\n")
    project.edit("a.txt", "mine, too\n")
    accepted = project.run("accept", "a")
    assert accepted.code == APPROVAL, accepted.err
    assert "b.txt waits for approval: `orch23 build a`" in accepted.out + accepted.err
    assert (project.read("a.txt"), project.read("b.txt")) == ("mine, too\n", "one\n")
    held(project)
    assert project.read("b.txt") == "one\n"
    assert "+two" in project.run("show", "a", "--changes").out
    green(project.run("approve", "a"))
    green(project.build())
    assert (project.read("a.txt"), project.read("b.txt")) == ("mine, too\n", "two\n")


def test_nothing_is_asked_if_the_build_holds_no_change(tmp_path: Path) -> None:
    stages = {"a": {"inputs": ["in.txt"], "outputs": ["a.txt"], "shell": "cp in.txt a.txt", "approve": True}}
    project = Project(tmp_path / "p").write({**scripted(stages, {}), "in.txt": "one\n"})
    held(project)
    green(project.run("approve", "a"))
    green(project.build())
    project.edit("in.txt", "two\n")
    held(project)
    project.edit("in.txt", "one\n")
    code, screen = on_a_terminal(tmp_path, "-C", "p", "build", "--ask", answers={}, env={"ORCH23_TRUST": "1"})
    assert (code, "Promote?" in screen) == (0, False), screen
