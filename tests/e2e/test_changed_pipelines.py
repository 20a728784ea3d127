"""A pipeline is rewritten between two builds: what counts is what a stage makes of what, not how it is written."""

import pytest

from tests.e2e.pipelines import calls, green, note, noted, pipeline, prompt, proposing, shell
from tests.project import Project

pytestmark = pytest.mark.usefixtures("steps_reach_outside")  # they note outside of their sandbox that they ran

TWO = """\
  a: {outputs: [x], shell: echo a > x}
  b: {inputs: [x], outputs: [y], shell: cp x y}
"""
REWRITTEN = """\
  # the same, said otherwise
  b:
    shell: cp x y
    outputs:
      - y
    inputs: [x]
    desc: copy
    timeout: 99s
    retry: 3
    on_failure: keep
  a: {shell: echo a > x, outputs: [x]}
"""


def test_comments_order_words_and_limits_change_nothing(project: Project) -> None:
    project.write(shell(TWO))
    green(project.build())
    lock = project.read("pipeline.lock")
    project.edit("pipeline.yaml", shell(REWRITTEN)["pipeline.yaml"])
    assert project.plan() == {"a": "fresh", "b": "fresh"}
    green(project.build())
    assert project.read("pipeline.lock") == lock


def test_a_var_counts_exactly_where_it_is_used(project: Project) -> None:
    stages = """\
  used: {outputs: [u], shell: 'echo ${{ vars.word }} > u'}
  not: {outputs: [n], shell: echo n > n}
"""
    project.write(shell(stages, head="vars: {word: one}\n"))
    green(project.build())
    project.replace("pipeline.yaml", "word: one", "word: two")
    assert project.plan() == {"not": "fresh", "used": "run"}
    green(project.build("--set", "word=one"))
    assert project.ran() == []


def test_two_stages_that_swap_their_files_do_so(project: Project) -> None:
    project.write(shell("  a: {outputs: [x], shell: echo a > x}\n  b: {outputs: [y], shell: echo b > y}\n"))
    green(project.build())
    swapped = shell("  a: {outputs: [y], shell: echo a > y}\n  b: {outputs: [x], shell: echo b > x}\n")
    project.edit("pipeline.yaml", swapped["pipeline.yaml"])
    green(project.build())
    assert (project.read("x"), project.read("y")) == ("b\n", "a\n")
    green(project.build())
    assert project.ran() == []


def test_two_items_that_swap_their_files_do_so_and_back_again_for_nothing(project: Project) -> None:
    there, back = (f'[{{"id": "p", "f": "{one}"}}, {{"id": "q", "f": "{two}"}}]' for one, two in ("12", "21"))
    project.write(
        shell(
            """\
  make:
    foreach: {from: list.json, key: id, as: t}
    outputs: ["o/${{ t.f }}"]
    shell: [sh, -c, 'echo $0 > o/$1', "${{ t.id }}", "${{ t.f }}"]
""",
            {"list.json": there},
        )
    )
    green(project.build())
    project.edit("list.json", back)
    green(project.build())
    assert (project.read("o/1"), project.read("o/2")) == ("q\n", "p\n")
    project.edit("list.json", there)
    green(project.build())
    assert (project.ran(), project.read("o/1"), project.read("o/2")) == ([], "p\n", "q\n")


def test_a_file_becomes_a_folder_and_a_file_again(project: Project) -> None:
    as_file, as_folder = "  a: {outputs: [x], shell: echo a > x}\n", "  a: {outputs: [x/y], shell: echo a > x/y}\n"
    project.write(shell(as_file))
    for stages, path in ((as_file, "x"), (as_folder, "x/y"), (as_file, "x"), (as_folder, "x/y")):
        project.write(shell(stages))
        green(project.build())
        assert project.read(path) == "a\n"


def test_an_optional_file_that_a_new_stage_makes_is_waited_for(project: Project) -> None:
    reader = "  r: {inputs: [{path: x, optional: true}], outputs: [o], shell: 'cat x > o || echo no > o'}\n"
    project.write(shell(reader))
    green(project.build())
    project.write(shell(reader + "  w: {outputs: [x], shell: echo x > x}\n"))
    green(project.build())
    assert project.read("o") == "x\n"


def test_two_pipelines_in_one_root_leave_each_other_alone(project: Project) -> None:
    project.write({"a.yaml": shell("  a: {outputs: [x], shell: echo a > x}\n")["pipeline.yaml"]})
    project.write({"b.yaml": shell("  b: {inputs: [x], outputs: [y], shell: cp x y}\n")["pipeline.yaml"]})
    green(project.build("a.yaml"))
    green(project.build("b.yaml"))
    green(project.build("a.yaml"))
    assert project.read("y") == "a\n"
    assert project.plan("a.yaml") == {"a": "fresh"}
    assert project.plan("b.yaml") == {"b": "fresh"}


def test_two_stages_that_ask_the_same_thing_ask_once(project: Project) -> None:
    project.write(
        pipeline(
            """\
  a: {outputs: [a.txt], llm: {prompt: p.md.j2, returns: text}}
  b: {needs: [a], outputs: [b.txt], llm: {prompt: p.md.j2, returns: text}}
""",
            {"p.md.j2": prompt("p", "x")},
        )
    )
    green(project.build())
    assert calls(project) == ["p"]
    assert project.read("b.txt") == project.read("a.txt")


@pytest.mark.slow
def test_the_limit_of_calls_holds_for_many_at_once(project: Project) -> None:
    stages = "".join(f"  a{n}: {{outputs: [a{n}.txt], llm: {{prompt: p{n}, returns: text}}}}\n" for n in range(6))
    prompts = {f"p{n}": prompt(f"a{n}", f"x{n}") for n in range(6)}
    project.write(pipeline(stages, prompts, head="stop_conditions: {max_llm_calls: 3}\n"))
    assert project.build("-j8").code == 4
    assert len(calls(project)) == 3
    green(project.build("-j8"))
    assert sorted(calls(project)) == [f"a{n}" for n in range(6)]


def test_a_person_s_file_inside_a_fence_is_never_written_over(project: Project) -> None:
    project.write(
        pipeline(
            """\
  model:
    allowed_paths: {write: [src/]}
    outputs: [src/a]
    llm: {prompt: p.md.j2, returns: files}
  command:
    allowed_paths: {write: [lib/]}
    outputs: [lib/a]
    shell: echo a > lib/a; echo o > lib/mine
""",
            {
                "src/mine": "mine\n",
                "lib/mine": "mine\n",
                "p.md.j2": proposing("p", {"src/a": "'a\\n'", "src/mine": "'o\\n'"}),
            },
        )
    )
    assert project.build("-k").code in {1, 6}
    assert (project.read("src/mine"), project.read("lib/mine")) == ("mine\n", "mine\n")
    assert not project.exists("src/a"), "a model that writes over what it was not shown is refused"


@pytest.mark.slow
def test_a_model_that_takes_too_long_is_a_failed_attempt(project: Project) -> None:
    project.write(
        pipeline(
            "  ask: {outputs: [p], llm: {prompt: q, returns: text, timeout: 0.6s}, retry: 1}\n",
            {"q": prompt("q{{ attempt }}", "x")},
        )
    )
    slow = "import time\nif name == 'q1':\n    time.sleep(30)\nsys.stdout.write(answer)"
    project.replace("model.py", "sys.stdout.write(answer)", slow)
    green(project.build())
    assert calls(project) == ["q1", "q2"]


def test_a_command_may_be_tried_again(project: Project) -> None:
    log = f"{project.root}-notes.log"
    flaky = f"{note(project, 'try')}; test $(wc -l < {log}) -ge 3; echo x > p"
    project.write(shell(f"  flaky: {{outputs: [p], shell: '{flaky}', retry: 5}}\n"))
    green(project.build())
    assert noted(project) == ["try"] * 3


def test_verify_stops_at_the_first_failure_unless_reported_otherwise(project: Project) -> None:
    steps = "[{shell: 'echo ONE; exit 1'}, {shell: 'echo TWO; exit 2'}]"
    project.write(shell(f"  a: {{outputs: [p], shell: echo x > p, verify: {steps}}}\n"))
    first = project.build()
    project.write(shell(f"  a: {{outputs: [p], shell: echo x > p, verify: {{all: true, steps: {steps}}}}}\n"))
    both = project.build()
    assert (first.code, both.code) == (1, 1)
    assert "TWO" not in first.err
    assert "ONE" in both.err
    assert "TWO" in both.err


MOVED = """\
  list: {outputs: ["${{ vars.to }}/list.json"], shell: "echo '[\\"a\\", \\"b\\"]' > ${{ vars.to }}/list.json"}
  item:
    foreach: {from: "${{ vars.to }}/list.json"}
    outputs: ["${{ vars.to }}/${{ item }}.txt"]
    shell: [touch, "${{ vars.to }}/${{ item }}.txt"]
  readme: {outputs: ["${{ vars.to }}/readme.txt"], shell: "echo hello > ${{ vars.to }}/readme.txt"}
"""


def moved(project: Project) -> None:
    """Build a project whose files are in `one`."""
    project.write(shell(MOVED, head="vars: {to: one}\n"))
    green(project.build())


@pytest.mark.slow
def test_what_a_build_removes_is_in_plan_screen_and_summary(project: Project) -> None:
    moved(project)
    old = ["one/a.txt", "one/b.txt", "one/list.json", "one/readme.txt"]
    project.edit("one/b.txt", "mine\n")
    seen = project.run("plan", "--set", "to=two")
    removed = "one/a.txt one/list.json one/readme.txt"
    assert f" would remove {removed}: no stage makes them any more\n" in seen.out
    assert project.run("plan", "--set", "to=two", "--json").json()["dead_files"] == removed.split()
    only = project.run("plan", "readme", "--set", "to=two").out
    assert "would remove one/readme.txt: no stage" in only
    built = project.build("--set", "to=two")
    assert sorted(line for line in built.err.splitlines() if "removed by" in line) == [
        " - removed by item@a: one/a.txt",
        " - removed by list: one/list.json",
        " - removed by readme: one/readme.txt",
    ]
    assert "3 files removed" in built.err
    assert [path for path in old if project.exists(path)] == ["one/b.txt"], "an edit stays"
    back = project.run("plan", "--set", "to=one").out
    assert "would remove two/a.txt two/list.json two/readme.txt" in back
    green(project.build("--set", "to=one", "--overwrite-edited"))
    assert project.run("plan").out.count("would remove") == 0


def test_a_stage_that_makes_a_file_of_another_one_now_is_no_removal(project: Project) -> None:
    project.write(shell("  a: {outputs: [x], shell: echo a > x}\n  b: {outputs: [d/], shell: echo b > d/y}\n"))
    green(project.build())
    swapped = shell("  a: {outputs: [y], shell: echo a > y}\n  b: {outputs: [x], shell: echo b > x}\n")
    project.edit("pipeline.yaml", swapped["pipeline.yaml"])
    assert "would remove d/y: no stage" in project.run("plan").out
    assert "1 file removed" in project.build().err


def test_an_item_that_the_last_list_lacks_is_unknown_until_the_list_is_made(project: Project) -> None:
    project.write(shell(MOVED, head="vars: {to: one}\n"))
    for command in ("plan", "status"):
        none = project.run(command, "item@a")
        assert (none.code, "error[E823]: no stage is named `item@a`" in none.err) == (66, True)
        assert "the items of `item` are known after `list` has run; plan `item`, or build these first" in none.err
    moved(project)
    for option in ((), ("--downstream",)):
        gone = project.run("plan", "item@z", *option, "--set", "to=two")
        assert (gone.code, "no stage is named `item@z`" in gone.err) == (66, True)
        assert "known after `list` has run; the last ones are `item@a`, `item@b`" in gone.err
        assert project.run("plan", "item@b", *option, "--set", "to=two").code == 0
    assert project.run("build", "item@z", "--set", "to=two", "--dry-run").code == 66
    assert project.run("plan", "item", "--set", "to=two").code == 0


def test_a_target_needs_no_list_of_stages_that_it_does_not_need(project: Project) -> None:
    moved(project)
    for command in ("plan", "status", "build"):
        done = project.run(command, "readme", "--set", "to=two")
        assert (done.code, "E822" in done.err) == (0, False), done.err
    assert project.read("two/readme.txt") == "hello\n"
    missing = project.run("plan", "item", "--set", "to=two")
    assert (missing.code, "its items are known after list has run" in missing.out) == (0, True)
    project.replace("pipeline.yaml", '  list: {outputs: ["${{ vars.to }}/list.json"]', "  list: {outputs: [other.json]")
    gone = project.run("plan", "--set", "to=two")
    assert (gone.code, "`two/list.json` does not exist, and no stage makes it" in gone.err) == (65, True)
