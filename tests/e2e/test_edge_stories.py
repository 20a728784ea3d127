"""Stories at the edges: chains that grow and shrink, lost stores, renamed and retyped stages, deletes, races."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.e2e.pipelines import calls, ends, green, note, noted, pipeline, prompt, proposing, shell
from tests.project import Project

pytestmark = [
    pytest.mark.slow,  # whole builds, many of them: `make test` runs them, `make check` does not
    pytest.mark.usefixtures("steps_reach_outside"),  # they note outside of their sandbox that they ran
]

LINES = """\
  edit:
    foreach: {from: list.json, key: id, as: t, order: sequential}
    inputs: ["docs/${{ t.id }}.md"]
    outputs: [app.py]
    llm: {prompt: edit.md.j2, returns: files, transcripts: heard}
"""
APPEND = proposing(
    "{{ item.id }}",
    {
        "app.py": "(inputs['app.py'].text if inputs | map(attribute='path') | select('eq', 'app.py') | list else '')"
        " ~ inputs[0].text"
    },
)


def listed(*names: str) -> str:
    return "[" + ", ".join(f'{{"id": "{name}"}}' for name in names) + "]"


def lines(project: Project, *names: str) -> None:
    project.write(
        pipeline(
            LINES,
            {
                "list.json": listed(*names),
                "edit.md.j2": APPEND,
                **{f"docs/{name}.md": f"# {name}\n" for name in "abcd"},
            },
        )
    )


# ---- chains --------------------------------------------------------------------------------------


def test_an_item_put_in_between_reruns_what_comes_after_it_and_not_what_comes_before(project: Project) -> None:
    lines(project, "a", "c")
    green(project.build())
    project.edit("list.json", listed("a", "b", "c"))
    green(project.build())
    assert project.read("app.py") == "# a\n# b\n# c\n"
    assert calls(project) == ["a", "c", "b", "c"]
    project.edit("list.json", listed("a", "c"))
    green(project.build())
    assert project.read("app.py") == "# a\n# c\n"
    assert calls(project) == ["a", "c", "b", "c"], "both are recorded"
    assert project.ran() == []


def test_the_last_item_taken_away_leaves_the_version_of_the_one_before(project: Project) -> None:
    lines(project, "a", "b", "c")
    project.write({"app.py": "# mine\n"})
    green(project.build())
    project.edit("list.json", listed("a"))
    green(project.build())
    assert project.read("app.py") == "# mine\n# a\n"
    assert calls(project) == ["a", "b", "c"]
    project.edit("list.json", "[]")
    green(project.build())
    assert project.read("app.py") == "# mine\n# a\n", "no item is left: the file existed before, and is released"
    project.edit("list.json", listed("a", "b", "c"))
    green(project.build())
    assert project.read("app.py") == "# mine\n# a\n# b\n# c\n"
    assert calls(project) == ["a", "b", "c"]


def test_items_in_another_order_are_another_chain(project: Project) -> None:
    lines(project, "a", "b")
    green(project.build())
    project.edit("list.json", listed("b", "a"))
    green(project.build())
    assert project.read("app.py") == "# b\n# a\n"
    project.edit("list.json", listed("a", "b"))
    green(project.build())
    assert project.read("app.py") == "# a\n# b\n"
    assert calls(project) == ["a", "b", "b", "a"]


def test_an_intermediate_version_that_is_lost_is_placed_again_from_the_transcripts(project: Project) -> None:
    lines(project, "a", "b")
    green(project.build())
    shutil.rmtree(project.root / ".orch23")
    project.edit("docs/b.md", "# b 2\n")
    assert project.plan()["edit@b"] == "run"
    green(project.build())
    assert project.read("app.py") == "# a\n# b 2\n"
    assert calls(project) == ["a", "b", "b"]


def test_an_intermediate_version_that_no_one_has_is_made_again(project: Project) -> None:
    lines(project, "a", "b")
    green(project.build())
    shutil.rmtree(project.root / ".orch23")
    shutil.rmtree(project.root / "heard")
    project.edit("docs/b.md", "# b 2\n")
    green(project.build())
    assert project.read("app.py") == "# a\n# b 2\n"
    assert calls(project) == ["a", "b", "a", "b"]


def test_a_stage_above_a_chain_sees_the_file_as_it_was_and_one_below_as_it_is(project: Project) -> None:
    project.write(
        pipeline(
            """\
  count: {inputs: [app.py], outputs: [list.json], shell: 'echo "[\\"a\\", \\"$(wc -l < app.py)\\"]" > list.json'}
  edit:
    foreach: {from: list.json, as: t, order: sequential}
    inputs: []
    outputs: [app.py]
    llm: {prompt: edit.md.j2, returns: files}
  after: {inputs: ['*.py'], outputs: [after.txt], shell: cat app.py > after.txt}
""",
            {
                "app.py": "# mine\n",
                "edit.md.j2": proposing("{{ item }}", {"app.py": "inputs['app.py'].text ~ '# ' ~ item ~ '\\n'"}),
            },
        )
    )
    green(project.build())
    assert project.read("list.json") == '["a", "1"]\n'
    assert project.read("after.txt") == "# mine\n# a\n# 1\n"
    green(project.build())
    assert project.ran() == [], "what the chain wrote is not what counted"
    assert calls(project) == ["a", "1"]


def test_paths_that_a_later_item_makes_too_are_promoted_once_in_the_end(project: Project) -> None:
    lines(project, "a", "b")
    green(project.build())
    promoted = [event["data"]["files"] for event in project.events_of("promoted")]
    assert [files for files in promoted if "app.py" in files] == [["app.py"]]


def test_a_clone_of_a_chain_costs_nothing_and_knows_what_the_person_had(project: Project) -> None:
    lines(project, "a", "b")
    project.write({"app.py": "# mine\n"})
    green(project.build())
    shutil.rmtree(project.root / ".orch23")
    shutil.rmtree(project.root / "logs")
    assert project.plan() == {"edit@a": "fresh", "edit@b": "fresh"}
    green(project.run("clean"))
    assert project.read("app.py") == "# mine\n"
    assert calls(project) == ["a", "b"]


def test_a_released_file_of_which_the_first_version_is_lost_is_left_and_reported(project: Project) -> None:
    lines(project, "a")
    project.write({"app.py": "# mine\n"})
    green(project.build())
    for folder in (".orch23", "logs", "heard"):
        shutil.rmtree(project.root / folder)
    project.edit("list.json", "[]")
    assert "would release app.py" in project.run("plan").out
    outcome = project.build()
    green(outcome)
    assert project.read("app.py") == "# mine\n# a\n"
    assert "released" in outcome.err
    assert "app.py" in outcome.err
    assert "up to date" in project.run("plan").out


def test_an_accepted_edit_of_a_chain_is_the_base_of_what_changes_next(project: Project) -> None:
    lines(project, "a", "b")
    green(project.build())
    project.edit("app.py", "# by hand\n")
    green(project.run("accept", "edit"))
    shutil.rmtree(project.root / ".orch23")
    green(project.build())
    assert project.read("app.py") == "# by hand\n"
    assert calls(project) == ["a", "b"]
    project.edit("docs/a.md", "# a 2\n")
    green(project.build())
    assert project.read("app.py") == "# by hand\n# a 2\n# b\n", "an accepted edit is what the next run starts from"
    green(project.build())
    assert project.ran() == []


@pytest.mark.parametrize("text", [None, "# mine\n", "# by hand\n"])
def test_a_chain_is_restored_over_what_it_knows_and_over_an_edit_on_demand(project: Project, text: str | None) -> None:
    lines(project, "a", "b")
    project.write({"app.py": "# mine\n"})
    green(project.build())
    if text is None:
        project.delete("app.py")
    else:
        project.edit("app.py", text)
    green(project.build(*(["--overwrite-edited"] if text == "# by hand\n" else [])))
    assert project.read("app.py") == "# mine\n# a\n# b\n"
    assert calls(project) == ["a", "b"]


# ---- stages renamed, retyped, forced -------------------------------------------------------------


def test_a_renamed_stage_finds_its_result(project: Project) -> None:
    stage = f"{{inputs: [in.txt], outputs: [out.txt], shell: 'cat in.txt > out.txt; {note(project, 'ran')}'}}\n"
    project.write(shell(f"  old: {stage}", {"in.txt": "x\n"}))
    green(project.build())
    project.edit("pipeline.yaml", shell(f"  new: {stage}")["pipeline.yaml"])
    assert project.plan() == {"new": "fresh"}
    green(project.build())
    assert project.read("out.txt") == "x\n"
    assert noted(project) == ["ran"]


def test_a_stage_that_becomes_another_kind_takes_its_file_over(project: Project) -> None:
    project.write(
        pipeline("  make: {outputs: [out.txt], shell: echo shell > out.txt}\n", {"p.md.j2": prompt("make", "model")})
    )
    green(project.build())
    yaml = project.read("pipeline.yaml")
    project.edit("pipeline.yaml", yaml.replace("shell: echo shell > out.txt", "llm: {prompt: p.md.j2, returns: text}"))
    green(project.build())
    assert project.read("out.txt").strip() == "model"
    project.edit("pipeline.yaml", yaml)
    green(project.build())
    assert project.read("out.txt") == "shell\n"
    assert project.ran() == []


def test_a_file_that_moves_from_one_stage_to_another_stays(project: Project) -> None:
    project.write(shell("  a: {outputs: [x.txt, y.txt], shell: echo a | tee x.txt > y.txt}\n"))
    green(project.build())
    project.edit(
        "pipeline.yaml",
        shell("  a: {outputs: [x.txt], shell: echo a > x.txt}\n  b: {outputs: [y.txt], shell: echo b > y.txt}\n")[
            "pipeline.yaml"
        ],
    )
    green(project.build())
    assert (project.read("x.txt"), project.read("y.txt")) == ("a\n", "b\n")
    green(project.build())
    assert project.ran() == []


def test_a_forced_stage_runs_and_cuts_off_what_is_downstream(project: Project) -> None:
    project.write(
        shell(
            f"  a: {{outputs: [a.txt], shell: 'echo a > a.txt; {note(project, 'a')}'}}\n"
            f"  b: {{inputs: [a.txt], outputs: [b.txt], shell: 'cp a.txt b.txt; {note(project, 'b')}'}}\n"
        )
    )
    green(project.build())
    green(project.build("--force", "a"))
    assert noted(project) == ["a", "b", "a"]


def test_a_stage_that_says_cache_false_runs_each_time(project: Project) -> None:
    project.write(shell(f"  a: {{cache: false, outputs: [a.txt], shell: 'echo a > a.txt; {note(project, 'a')}'}}\n"))
    green(project.build())
    green(project.build())
    assert noted(project) == ["a", "a"]


# ---- what models may delete ----------------------------------------------------------------------


DELETING = """\
  clean:
    inputs: [spec.md]
    outputs: [src/]
    allowed_paths: {delete: [src/]}
    llm: {prompt: p.md.j2, returns: files}
"""
KEEP = "  keep: {outputs: [k.txt], shell: echo k > k.txt}\n"


def test_a_file_that_a_model_deleted_stays_deleted_when_its_stage_ends(project: Project) -> None:
    project.write(
        pipeline(
            DELETING + KEEP,
            {
                "spec.md": "x",
                "src/old.py": "# old\n",
                "p.md.j2": proposing("clean", {"src/new.py": "'# new\\n'"}, ["src/old.py"]),
            },
        )
    )
    green(project.build())
    assert sorted(project.files("src")) == ["src/new.py"]
    assert project.plan() == {"clean": "fresh", "keep": "fresh"}
    shutil.rmtree(project.root / "src")
    green(project.build())
    assert sorted(project.files("src")) == ["src/new.py"]
    assert calls(project) == ["clean"]
    project.edit("pipeline.yaml", pipeline(KEEP)["pipeline.yaml"])
    green(project.build())
    assert sorted(project.files("src")) == [], "what the stage created is removed, and nothing is reverted"


def test_an_input_is_never_deleted_and_the_model_is_reported(project: Project) -> None:
    project.write(
        pipeline(
            """\
  clean:
    inputs: [old.py]
    outputs: [new.py]
    allowed_paths: {write: [new.py, old.py], delete: [old.py]}
    llm: {prompt: p.md.j2, returns: files}
""",
            {"old.py": "# old\n", "p.md.j2": proposing("clean", {"new.py": "'# new\\n'"}, ["old.py"])},
        )
    )
    refused = project.build()
    assert refused.code == 1, "it must not look as if it were done"
    assert "old.py" in refused.err
    assert project.exists("old.py")


def test_a_delete_that_is_not_allowed_is_refused(project: Project) -> None:
    project.write(
        pipeline(
            "  clean: {outputs: [new.py], llm: {prompt: p.md.j2, returns: files}}\n",
            {"old.py": "# old\n", "p.md.j2": proposing("clean", {"new.py": "'# new\\n'"}, ["old.py"])},
        )
    )
    assert project.build().code == 1
    assert project.exists("old.py")
    assert not project.exists("new.py")


# ---- safety, modes, races ------------------------------------------------------------------------


@pytest.mark.parametrize("deed", ["ln -s /etc/passwd out.txt", "ln -s $PWD/in.txt out.txt", "mkfifo out.txt"])
def test_a_result_that_is_no_plain_file_is_a_safety_violation(project: Project, deed: str) -> None:
    project.write(shell(f"  make: {{inputs: [in.txt], outputs: [out.txt], shell: {deed}}}\n", {"in.txt": "x"}))
    assert project.build().code == 2
    assert not os.path.lexists(project.root / "out.txt")


def test_an_output_below_a_link_is_never_written_through_it(project: Project) -> None:
    outside = project.root.parent / "outside"
    outside.mkdir()
    project.write(shell("  make: {outputs: [out/x.txt], shell: mkdir -p out && echo x > out/x.txt}\n"))
    (project.root / "out").symlink_to(outside)
    stopped = project.build()
    assert stopped.code == 2, stopped.err
    assert list(outside.iterdir()) == []


def test_an_executable_result_stays_executable(project: Project) -> None:
    project.write(shell("  make: {outputs: [run.sh], shell: echo true > run.sh && chmod +x run.sh}\n"))
    green(project.build())
    assert os.access(project.root / "run.sh", os.X_OK)
    project.delete("run.sh")
    green(project.build())
    assert project.ran() == []
    assert os.access(project.root / "run.sh", os.X_OK)
    (project.root / "run.sh").chmod(0o644)
    assert project.plan() == {"make": "edited"}


def test_a_file_that_somebody_writes_while_the_stage_runs_is_left_and_reported(project: Project) -> None:
    command = f"cat in.txt | tee out.txt > b.txt; echo theirs > {project.root}/out.txt"
    project.write(shell(f"  make: {{inputs: [in.txt], outputs: [out.txt, b.txt], shell: '{command}'}}\n"))
    project.write({"in.txt": "x\n"})
    stopped = project.build()
    assert stopped.code == 6, stopped.err
    assert "out.txt" in stopped.err
    assert project.read("out.txt") == "theirs\n"
    assert not project.exists("b.txt"), "all files of a result are promoted, or none"
    assert project.plan() == {"make": "edited"}
    green(project.build("--overwrite-edited"))
    assert (project.read("out.txt"), project.read("b.txt")) == ("x\n", "x\n")


def test_two_builds_at_once_are_one_too_many(project: Project) -> None:
    # the second is started by a stage of the first
    program = f"{sys.executable} -c 'from orch23.entry import run; run()'"
    inner = f"PYTHONPATH={Path(__file__).parents[2]} {program} -C {project.root} build; echo $? > code.txt"
    project.write({"build.sh": inner})
    project.write(shell("  nest: {inputs: [build.sh], outputs: [code.txt], shell: [bash, build.sh]}\n"))
    green(project.build())
    assert project.read("code.txt") == "75\n"


def test_a_second_output_directory_between_two_stages_is_refused_at_load(project: Project) -> None:
    project.write(shell("  a: {outputs: [out/], shell: 'true'}\n  b: {outputs: [out/x.txt], shell: 'true'}\n"))
    assert project.build().code == 65


def test_what_failed_upstream_blocks_and_what_was_made_stays(project: Project) -> None:
    project.write(
        shell(
            "  a: {inputs: [in.txt], outputs: [a.txt], shell: grep good in.txt > a.txt}\n"
            "  b: {inputs: [a.txt], outputs: [b.txt], shell: cp a.txt b.txt}\n",
            {"in.txt": "good\n"},
        )
    )
    green(project.build())
    project.edit("in.txt", "bad\n")
    assert project.build().code == 1
    assert ends(project) == {"a": "failed", "b": "blocked"}
    assert (project.read("a.txt"), project.read("b.txt")) == ("good\n", "good\n")
    project.edit("in.txt", "good\n")
    green(project.build())
    assert project.ran() == []
