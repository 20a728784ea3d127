"""The ten experiments of the language's design, from outside: each is something that popular tools get wrong."""

import json

import pytest

from tests.e2e.pipelines import calls, ends, green, note, noted, pipeline, prompt, shell
from tests.project import Project

pytestmark = pytest.mark.usefixtures("steps_reach_outside")  # they note outside of their sandbox that they ran

COPY = """\
  copy: {inputs: [in.txt], outputs: [out.txt], shell: cat in.txt > out.txt}
"""


def test_e1_an_input_edited_while_its_stage_runs_leaves_the_stage_stale(project: Project) -> None:
    source = project.root / "in.txt"
    once = f"grep -q one in.txt && echo two > {source}"
    project.write(
        shell(f"  copy: {{inputs: [in.txt], outputs: [out.txt], shell: 'cat in.txt > out.txt; {once} || true'}}\n")
    )
    project.write({"in.txt": "one\n"})
    first = project.build()
    green(first)
    assert project.read("out.txt") == "one\n", "the room had what was there when it was laid"
    assert project.read("in.txt") == "two\n"
    assert any("in.txt" in event["message"] for event in project.events_of("warning"))
    assert project.plan() == {"copy": "run"}
    green(project.build())
    assert project.read("out.txt") == "two\n"
    assert project.plan() == {"copy": "fresh"}


@pytest.mark.slow
@pytest.mark.parametrize("flag", [("plan", "--json"), ("build", "-n", "--json")])
def test_e2_plan_equals_build_in_three_values(project: Project, flag: tuple[str, ...]) -> None:
    project.write(
        shell("""\
  source: {inputs: [in.txt], outputs: [a.txt], shell: head -1 in.txt > a.txt}
  middle: {inputs: [a.txt], outputs: [b.txt], shell: cat a.txt > b.txt}
  last: {inputs: [b.txt], outputs: [c.txt], shell: cat b.txt > c.txt}
  aside: {inputs: [other.txt], outputs: [d.txt], shell: cat other.txt > d.txt}
""")
    )
    project.write({"in.txt": "one\n", "other.txt": "x\n"})
    green(project.build())
    project.edit("in.txt", "one\nmore\n")
    outcome = project.run(*flag)
    green(outcome)
    said = {entry["stage"]: entry["action"] for entry in json.loads(outcome.out)["stages"]}
    assert said == {"aside": "fresh", "last": "maybe", "middle": "maybe", "source": "run"}
    green(project.build())
    assert project.ran() == ["source"], "of what may run, nothing had to: the first line is the same"
    project.edit("in.txt", "two\n")
    assert project.plan()["middle"] == "maybe"
    green(project.build())
    assert project.ran() == ["source", "middle", "last"]


def test_e3_the_same_bytes_cut_off_what_is_downstream(project: Project) -> None:
    project.write(
        shell("""\
  sort: {inputs: [in.txt], outputs: [sorted.txt], shell: sort in.txt > sorted.txt}
  count: {inputs: [sorted.txt], outputs: [n.txt], shell: wc -l < sorted.txt > n.txt}
""")
    )
    project.write({"in.txt": "b\na\n"})
    green(project.build())
    project.edit("in.txt", "a\nb\n")
    green(project.build())
    assert project.ran() == ["sort"]
    assert ends(project) == {"sort": "built", "count": "fresh"}


def test_e4_an_edited_output_is_noticed_and_kept_until_somebody_decides(project: Project) -> None:
    project.write(shell(COPY, {"in.txt": "one\n"}))
    green(project.build())
    project.edit("out.txt", "by hand\n")
    assert project.plan() == {"copy": "edited"}
    stopped = project.build()
    assert stopped.code == 6
    assert "out.txt" in stopped.err
    assert project.read("out.txt") == "by hand\n"
    green(project.run("accept", "copy"))
    assert project.plan() == {"copy": "fresh"}
    green(project.build())
    assert project.ran() == []
    assert project.read("out.txt") == "by hand\n"


def test_e4_an_edited_output_is_replaced_on_demand(project: Project) -> None:
    project.write(shell(COPY, {"in.txt": "one\n"}))
    green(project.build())
    project.edit("out.txt", "by hand\n")
    green(project.build("--overwrite-edited"))
    assert project.read("out.txt") == "one\n"
    assert project.ran() == [], "the bytes are in the store"


def test_e4_an_edit_that_does_not_pass_is_not_accepted(project: Project) -> None:
    project.write(
        shell("""\
  copy:
    inputs: [in.txt]
    outputs: [out.txt]
    shell: cat in.txt > out.txt
    verify: [{shell: '! grep bad out.txt'}]
""")
    )
    project.write({"in.txt": "one\n"})
    green(project.build())
    project.edit("out.txt", "bad\n")
    refused = project.run("accept", "copy")
    assert refused.code == 1
    assert project.plan() == {"copy": "edited"}
    assert project.read("out.txt") == "bad\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("pipeline.yaml", "tr a b", "tr a c"),
        ("pipeline.yaml", "max_tokens: 100", "max_tokens: 200"),
        ("pipeline.yaml", "model: echo", "model: louder"),
        ("ask.md.j2", "answer", "another answer"),
        ("pipeline.yaml", "WORD: x", "WORD: z"),
    ],
)
def test_e5_a_change_of_command_prompt_model_parameter_or_variable_reruns(
    project: Project, path: str, old: str, new: str
) -> None:
    project.write(
        pipeline(
            """\
  ask: {outputs: [ask.txt], llm: {prompt: ask.md.j2, returns: text, max_tokens: 100}}
  turn: {inputs: [in.txt], outputs: [turned.txt], shell: tr a b < in.txt > turned.txt}
  say: {outputs: [said.txt], shell: 'echo $WORD > said.txt', env: {WORD: x}}
""",
            {"in.txt": "a\n", "ask.md.j2": prompt("ask", "an answer\n")},
        )
    )
    green(project.build())
    green(project.build())
    assert project.ran() == []
    project.replace(path, old, new)
    assert sorted(project.plan().values()) == ["fresh", "fresh", "run"]
    green(project.build())
    assert len(project.ran()) == 1


@pytest.mark.slow
def test_e6_a_to_b_and_back_to_a_restores_bytes_and_runs_nothing(project: Project) -> None:
    project.write(
        pipeline(
            f"""\
  copy: {{inputs: [in.txt], outputs: [out.txt], shell: 'cat in.txt > out.txt; {note(project, "copy")}'}}
  ask: {{inputs: [out.txt], outputs: [said.txt], llm: {{prompt: ask.md.j2, returns: text}}}}
""",
            {"in.txt": "A\n", "ask.md.j2": prompt("ask", "it says {{ inputs['out.txt'].text }}")},
        )
    )
    green(project.build())
    project.edit("in.txt", "B\n")
    green(project.build())
    assert (noted(project), calls(project)) == (["copy", "copy"], ["ask", "ask"])
    project.edit("in.txt", "A\n")
    assert project.plan() == {"copy": "restore", "ask": "restore"}
    green(project.build())
    assert (noted(project), calls(project)) == (["copy", "copy"], ["ask", "ask"])
    assert project.read("said.txt").strip() == "it says A"
    assert ends(project) == {"copy": "restored", "ask": "restored"}


def test_e7_a_failed_stage_is_never_fresh(project: Project) -> None:
    command = f"cp in.txt out.txt; {note(project, 'test')}; exit 3"
    project.write(shell(f"  test: {{inputs: [in.txt], outputs: [out.txt], shell: '{command}'}}\n"))
    project.write({"in.txt": "one\n"})
    for count in (1, 2):
        failed = project.build()
        assert failed.code == 1
        assert len(noted(project)) == count
        assert not project.exists("out.txt"), "what failed does not reach the workspace"
        assert project.plan() == {"test": "run"}


@pytest.mark.slow
def test_e8_a_diamond_runs_once_under_many_jobs(project: Project) -> None:
    wide = "".join(
        f"  m{n}: {{inputs: [top.txt], outputs: [m{n}.txt], shell: 'cp top.txt m{n}.txt; {note(project, f'm{n}')}'}}\n"
        for n in range(6)
    )
    project.write(
        shell(
            f"  top: {{inputs: [in.txt], outputs: [top.txt], shell: 'cp in.txt top.txt; {note(project, 'top')}'}}"
            f"\n{wide}"
            f"  end: {{inputs: [m*.txt], outputs: [end.txt], shell: 'cat m*.txt > end.txt; {note(project, 'end')}'}}\n",
            {"in.txt": "x\n"},
        )
    )
    green(project.build("-j8"))
    ran = noted(project)
    assert sorted(ran) == sorted(["top", *(f"m{n}" for n in range(6)), "end"])
    assert (ran[0], ran[-1]) == ("top", "end")
    assert project.read("end.txt") == "x\n" * 6
    green(project.build("-j8"))
    assert noted(project) == ran


def test_e9_a_typo_names_its_line_its_column_and_the_nearest_key(project: Project) -> None:
    project.write(shell("  test:\n    need: [build]\n    shell: 'true'\n"))
    refused = project.build()
    assert refused.code == 65
    assert "pipeline.yaml:5:5" in refused.err
    assert "`needs`" in refused.err
    assert "need: [build]" in refused.err, "the line is shown"


def test_e10_success_without_the_declared_output_is_a_failure(project: Project) -> None:
    project.write(shell("  make: {outputs: [made.txt, also.txt], shell: echo x > made.txt}\n"))
    failed = project.build()
    assert failed.code == 1
    assert "also.txt" in failed.err
    assert not project.exists("made.txt"), "all of it or nothing"
    assert project.plan() == {"make": "run"}
