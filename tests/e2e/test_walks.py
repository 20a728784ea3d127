"""Long walks through one project: what changes, what each next build costs, and what is on disk then."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.pipelines import calls, ends, green, note, noted, pipeline, prompt, proposing, shell
from tests.project import Project

pytestmark = [
    pytest.mark.slow,  # whole builds, many of them: `make test` runs them, `make check` does not
    pytest.mark.usefixtures("steps_reach_outside"),  # they note outside of their sandbox that they ran
]

CHAIN = """\
  edit:
    foreach:
      in: [one, two]
      as: name
      order: sequential
    inputs: ["specs/${{ name }}.md"]
    outputs: [app.py]
    llm: {prompt: edit.md.j2, returns: files}
"""
APPEND = proposing(
    "edit {{ item }}",
    {
        "app.py": "(inputs['app.py'].text if inputs | selectattr('path', 'equalto', 'app.py') | list else '') ~ "
        "inputs[0].text"
    },
)


def chained(project: Project) -> None:
    project.write(pipeline(CHAIN, {"specs/one.md": "# one 1\n", "specs/two.md": "# two 1\n", "edit.md.j2": APPEND}))


# ---- two items edit one file ---------------------------------------------------------------------


def test_two_items_edit_one_file_then_item_one_changes(project: Project) -> None:
    chained(project)
    green(project.build())
    assert project.read("app.py") == "# one 1\n# two 1\n"
    assert calls(project) == ["edit one", "edit two"]
    project.edit("specs/one.md", "# one 2\n")
    assert project.plan() == {"edit@one": "run", "edit@two": "maybe"}
    green(project.build())
    assert project.read("app.py") == "# one 2\n# two 1\n", "item two starts from the new version of item one"
    assert calls(project)[2:] == ["edit one", "edit two"]
    green(project.build())
    assert project.ran() == []


def test_two_items_edit_one_file_then_item_two_alone_changes(project: Project) -> None:
    chained(project)
    green(project.build())
    project.edit("specs/two.md", "# two 2\n")
    assert project.plan() == {"edit@one": "fresh", "edit@two": "run"}
    green(project.build())
    assert project.read("app.py") == "# one 1\n# two 2\n", "item two starts from item one's version, not from the disk"
    assert calls(project)[2:] == ["edit two"]


def test_two_items_edit_one_file_then_a_person_does(project: Project) -> None:
    chained(project)
    green(project.build())
    project.edit("app.py", "# mine\n")
    assert project.plan() == {"edit@one": "fresh", "edit@two": "edited"}, "the file on disk is the last item's"
    assert project.build().code == 6
    assert project.read("app.py") == "# mine\n"
    green(project.run("accept", "edit@two"))
    assert project.plan() == {"edit@one": "fresh", "edit@two": "fresh"}
    assert project.read("app.py") == "# mine\n"
    assert len(calls(project)) == 2, "to accept asks nobody"


def test_a_chain_starts_from_the_file_that_a_person_had(project: Project) -> None:
    chained(project)
    project.write({"app.py": "# zero\n"})
    green(project.build())
    assert project.read("app.py") == "# zero\n# one 1\n# two 1\n"
    project.edit("specs/one.md", "# one 2\n")
    green(project.build())
    assert project.read("app.py") == "# zero\n# one 2\n# two 1\n"


# ---- listings, removed items, removed stages -----------------------------------------------------


def test_a_listing_of_a_tree_that_the_pipeline_itself_fills_stays_fresh(project: Project) -> None:
    project.write(
        pipeline(
            """\
  plan:
    inputs: [spec.md, {list: "src/**"}]
    outputs: [plan.txt]
    llm: {prompt: plan.md.j2, returns: text}
  code: {inputs: [plan.txt], outputs: [src/made/], shell: mkdir -p src/made && cp plan.txt src/made/a.txt}
""",
            {
                "spec.md": "x\n",
                "src/mine.txt": "m\n",
                "plan.md.j2": prompt("plan", "{% for one in inputs %}{{ one.path }}: {{ one.text }}\n{% endfor %}"),
            },
        )
    )
    green(project.build())
    assert "src/mine.txt" in project.read("plan.txt")
    assert "src/made" not in project.read("plan.txt")
    green(project.build())
    assert (project.ran(), calls(project)) == ([], ["plan"])
    project.write({"src/another.txt": "n\n"})
    assert project.plan()["plan"] == "run"


def test_a_removed_item_leaves_no_file_behind(project: Project) -> None:
    project.write(
        shell(
            """\
  make:
    foreach: {from: "items.json#/names", as: name}
    outputs: ["out/${{ name }}.txt"]
    shell: [sh, -c, 'mkdir -p out && echo $0 > out/$0.txt', "${{ name }}"]
  all: {inputs: ["out/*.txt"], outputs: [all.txt], shell: cat out/*.txt > all.txt}
""",
            {"items.json": '{"names": ["a", "b", "c"]}'},
        )
    )
    green(project.build())
    assert project.read("all.txt") == "a\nb\nc\n"
    project.edit("items.json", '{"names": ["a", "c"]}')
    green(project.build())
    assert project.ran() == ["all"], "the other items are fresh, and whoever read the file is not"
    assert sorted(project.files("out")) == ["out/a.txt", "out/c.txt"]
    assert project.read("all.txt") == "a\nc\n"
    green(project.build())
    assert project.ran() == []


def test_a_file_that_existed_before_stays_as_it_is_when_its_stage_is_removed(project: Project) -> None:
    keep = "  keep: {outputs: [k.txt], shell: echo k > k.txt}\n"
    files = pipeline(
        f"{keep}  edit: {{outputs: [app.py], llm: {{prompt: edit.md.j2, returns: files}}}}\n",
        {"edit.md.j2": proposing("edit", {"app.py": "inputs[0].text ~ '# more\\n'"}), "app.py": "# mine\n"},
    )
    project.write(files)
    green(project.build())
    assert project.read("app.py") == "# mine\n# more\n"
    project.edit("pipeline.yaml", pipeline(keep)["pipeline.yaml"])
    assert json.loads(project.run("plan", "--json").out)["released_files"] == {"app.py": "edit"}
    green(project.build())
    assert project.read("app.py") == "# mine\n# more\n"
    green(project.build())
    assert project.read("app.py") == "# mine\n# more\n"
    assert "up to date" in project.run("plan").out


# ---- verification --------------------------------------------------------------------------------

TESTED = """\
  code:
    outputs: [app.py]
    llm: {prompt: code.md.j2, returns: files}
    retry: 1
    verify:
      inputs: [check.sh]
      steps: [{shell: [sh, check.sh]}]
"""
CODER = proposing("code{% if brief %} again{% endif %}", {"app.py": "'good\\n' if brief else 'plain\\n'"})


def test_a_green_test_edit_verifies_again_without_a_call(project: Project) -> None:
    project.write(pipeline(TESTED, {"check.sh": "test -s app.py\n", "code.md.j2": CODER}))
    green(project.build())
    project.edit("check.sh", "grep -q plain app.py\n")
    assert project.plan() == {"code": "verify"}
    green(project.build())
    assert (ends(project), calls(project)) == ({"code": "verified"}, ["code"])
    assert project.plan() == {"code": "fresh"}


def test_a_red_test_edit_briefs_the_first_attempt(project: Project) -> None:
    project.write(pipeline(TESTED, {"check.sh": "test -s app.py\n", "code.md.j2": CODER}))
    green(project.build())
    project.edit("check.sh", "grep -q good app.py\n")
    green(project.build())
    assert calls(project) == ["code", "code again"], "attempt 1 was told what the test said"
    assert project.read("app.py") == "good\n"


def test_a_red_test_edit_that_no_attempt_satisfies_leaves_the_file_as_it_was(project: Project) -> None:
    project.write(pipeline(TESTED, {"check.sh": "test -s app.py\n", "code.md.j2": CODER}))
    green(project.build())
    project.edit("check.sh", "echo 'never' && false\n")
    assert project.build().code == 1
    assert project.read("app.py") == "plain\n"


# ---- own outputs ---------------------------------------------------------------------------------


def test_own_outputs_are_shown_and_the_stage_is_fresh_all_the_same(project: Project) -> None:
    shown = "{% if own %}{{ own['notes.txt'].text }}{% endif %}{{ inputs['spec.md'].text }}"
    project.write(
        pipeline(
            """\
  code:
    inputs: [spec.md]
    outputs: [notes.txt]
    llm: {prompt: code.md.j2, returns: text, context: {own_outputs: true}}
""",
            {"spec.md": "one\n", "code.md.j2": prompt("code", shown)},
        )
    )
    green(project.build())
    assert project.read("notes.txt").split() == ["one"]
    green(project.build())
    assert (project.ran(), calls(project)) == ([], ["code"])
    project.edit("spec.md", "two\n")
    green(project.build())
    assert project.read("notes.txt").split() == ["one", "two"]
    green(project.build())
    assert (project.ran(), calls(project)) == ([], ["code", "code"])


# ---- branches, clones, a lost store --------------------------------------------------------------


def git(project: Project, *argv: str) -> None:
    """Run git as no one in particular, without the settings of the user who runs the tests."""
    environ = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(project.home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "n",
        "GIT_AUTHOR_EMAIL": "n@example.org",
        "GIT_COMMITTER_NAME": "n",
        "GIT_COMMITTER_EMAIL": "n@example.org",
    }
    subprocess.run(["git", "-C", str(project.root), *argv], check=True, env=environ, capture_output=True)


def committed(project: Project) -> None:
    """Build a pipeline of a model and a command on branch one, and again, of another spec, on branch two."""
    project.write(
        pipeline(
            f"""\
  ask: {{inputs: [spec.md], outputs: [said.txt], llm: {{prompt: ask.md.j2, returns: text}}}}
  turn:
    inputs: [said.txt]
    outputs: [turned.txt]
    shell: 'tr a-z A-Z < said.txt > turned.txt; {note(project, "turn")}'
""",
            {
                "spec.md": "one\n",
                "ask.md.j2": prompt("ask", "it says {{ inputs[0].text }}"),
                ".gitignore": ".orch23/\nlogs/\n",
            },
        )
    )
    git(project, "init", "-q", "-b", "one")
    green(project.build())
    git(project, "add", ".")
    git(project, "commit", "-qm", "one")
    git(project, "checkout", "-qb", "two")
    project.edit("spec.md", "two\n")
    green(project.build())
    git(project, "commit", "-qam", "two")


def test_a_branch_switch_costs_nothing(project: Project) -> None:
    committed(project)
    before = (calls(project), noted(project))
    for branch, text in (("one", "IT SAYS ONE"), ("two", "IT SAYS TWO"), ("one", "IT SAYS ONE")):
        git(project, "checkout", "-q", branch)
        assert project.plan() == {"ask": "fresh", "turn": "fresh"}
        green(project.build())
        assert ends(project) == {"ask": "fresh", "turn": "fresh"}
        assert project.read("turned.txt").strip() == text
        git(project, "diff", "--exit-code")
    assert (calls(project), noted(project)) == before


def test_a_clone_costs_nothing(project: Project, tmp_path: Path) -> None:
    committed(project)
    clone = Project(tmp_path / "clone")
    git(project, "clone", "-q", str(project.root), str(clone.root))
    assert not clone.exists(".orch23")
    assert clone.plan() == {"ask": "fresh", "turn": "fresh"}
    green(clone.build())
    assert ends(clone) == {"ask": "fresh", "turn": "fresh"}
    assert calls(clone) == []
    git(clone, "diff", "--exit-code")


@pytest.mark.parametrize("outputs", ["with", "without"])
def test_a_lost_store_is_rebuilt_from_transcripts_without_a_call(project: Project, outputs: str) -> None:
    project.write(
        pipeline(
            """\
  ask: {inputs: [spec.md], outputs: [said.txt], llm: {prompt: ask.md.j2, returns: text, transcripts: heard}}
  edit:
    inputs: [said.txt]
    outputs: [app.py]
    llm: {prompt: edit.md.j2, returns: files, transcripts: heard}
    retry: 1
    verify: [{shell: grep second app.py}]
""",
            {
                "spec.md": "one\n",
                "ask.md.j2": prompt("ask", "it says {{ inputs[0].text }}"),
                "app.py": "# zero\n",
                "edit.md.j2": proposing(
                    "edit", {"app.py": "inputs['app.py'].text ~ ('# second\\n' if brief else '# x\\n')"}
                ),
            },
        )
    )
    green(project.build())
    made = project.files()
    assert calls(project) == ["ask", "edit", "edit"]
    shutil.rmtree(project.root / ".orch23")
    shutil.rmtree(project.root / "logs")
    if outputs == "without":
        project.delete("said.txt")
        project.delete("app.py")
    expected = "fresh" if outputs == "with" else "restore"
    assert project.plan() == {"ask": expected, "edit": expected}
    green(project.build())
    assert calls(project) == ["ask", "edit", "edit"]
    assert project.files() == made


def test_a_lost_lock_and_lost_outputs_come_back_from_the_store(project: Project) -> None:
    committed(project)
    before = project.files()
    for path in ("pipeline.lock", "said.txt", "turned.txt"):
        project.delete(path)
    green(project.build())
    assert project.files() == before
    assert project.ran() == []
