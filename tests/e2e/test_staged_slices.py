"""A slice is staged: a step finds a file that has the declared parts of it, and nothing else."""

import json

import pytest

from tests.e2e.pipelines import calls, ends, green, pipeline, prompt, proposing, shell
from tests.project import Project

SPEC = "# App\nintro\n## Login\nby name\n## Logout\nby click\n## Admin\nSECRET\n"
DATA = '{"x": {"k": 1}, "years": {"2024": "a", "2025": "SECRET"}, "tasks": [{"id": "T0", "t": "SECRET"}, {"id": 1}]}'


def copying(*slices: str, command: str = "cat v.json > out") -> str:
    return f"  copy: {{inputs: {json.dumps(slices)}, outputs: [out], shell: '{command}'}}\n"


@pytest.mark.stride(5)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("slices", "staged"),
    [
        (["#/x"], {"x": {"k": 1}}),
        (["#/x/k"], {"x": {"k": 1}}),
        (["#/years/2024"], {"years": {"2024": "a"}}),
        (["#/tasks/1"], {"tasks": [None, {"id": 1}]}),
        (["#/tasks/[id=1]"], {"tasks": [{"id": 1}]}),
        (["#/tasks/0/id", "#/x"], {"tasks": [{"id": "T0"}], "x": {"k": 1}}),
    ],
)
@pytest.mark.parametrize("name", ["v.json", "v.yaml"])
def test_a_shell_step_reads_the_declared_parts_where_they_are_in_the_file(
    project: Project, name: str, slices: list[str], staged: object
) -> None:
    project.write(shell(copying(*(f"{name}{one}" for one in slices), command=f"cat {name} > out")))
    project.write({name: DATA})
    green(project.build())
    assert json.loads(project.read("out")) == staged


def test_a_step_is_given_sections_of_markdown_and_no_other_text_of_the_file(project: Project) -> None:
    project.write(shell(copying("spec.md#Logout", "spec.md#Login", command="cat spec.md > out")))
    project.write({"spec.md": SPEC})
    green(project.build())
    assert project.read("out") == "## Login\nby name\n\n## Logout\nby click\n"
    project.edit(
        "spec.md", SPEC.replace("## Login\nby name\n## Logout\nby click\n", "## Logout\nby click\n## Login\nby name\n")
    )
    assert project.plan() == {"copy": "fresh"}


@pytest.mark.parametrize("inputs", [["v.json", "v.json#/x"], ["v.json#/x", "v.json"], ["v.json#/x", "*.json"]])
def test_the_whole_file_wins_over_a_slice_of_it(project: Project, inputs: list[str]) -> None:
    project.write(shell(copying(*inputs)))
    project.write({"v.json": DATA})
    green(project.build())
    assert project.read("out") == DATA


@pytest.mark.slow
def test_a_slice_of_a_file_that_an_upstream_stage_makes_is_staged_and_nothing_else_of_it_counts(
    project: Project,
) -> None:
    make = "  make: {inputs: [in.json], outputs: [build/v.json], shell: 'cp in.json build/v.json'}\n"
    project.write(shell(make + copying("build/v.json#/x", command="cat build/v.json > out; ls -R >> out")))
    project.write({"in.json": DATA})
    green(project.build())
    assert project.read("out").startswith('{"x":{"k":1}}\n')
    assert "in.json" not in project.read("out")
    project.edit("in.json", DATA.replace("SECRET", "other"))
    green(project.build())
    assert ends(project) == {"make": "built", "copy": "fresh"}


@pytest.mark.slow
def test_tests_of_a_pytest_stage_read_the_slice(project: Project) -> None:
    test = "import json\n\ndef test_it():\n    assert json.load(open('v.json')) == {'x': {'k': 1}}\n"
    project.write(shell('  test: {inputs: [test_v.py, "v.json#/x"], pytest: {paths: [test_v.py]}}\n'))
    project.write({"v.json": DATA, "test_v.py": test})
    green(project.build())


READS = """python -c 'import json; assert sorted(json.load(open("v.json"))) == {keys}'"""


def verified(keys: list[str]) -> str:
    steps = json.dumps([{"shell": READS.replace("{keys}", json.dumps(keys).replace('"', '"'))}])
    return f"{{inputs: ['v.json#/tasks/0/id'], steps: {steps}}}"


@pytest.mark.slow
def test_verification_of_a_model_stage_reads_the_slices_of_both_lists(project: Project) -> None:
    stage = f"inputs: ['v.json#/x'], outputs: [out.txt], verify: {verified(['tasks', 'x'])}"
    project.write(
        pipeline(
            f"  ask: {{{stage}, llm: {{prompt: p.md.j2, returns: text}}}}\n",
            {"v.json": DATA, "p.md.j2": prompt("ask", "{{ inputs[0].text }} .")},
        )
    )
    green(project.build())
    assert len(calls(project)) == 1


@pytest.mark.slow
def test_verification_of_an_edit_in_place_reads_the_result_and_not_the_slice(project: Project) -> None:
    steps = json.dumps([{"shell": "grep -q new m.md && grep -q Other m.md"}])
    stage = f"inputs: ['m.md#One'], outputs: [m.md], verify: {{steps: {steps}}}"
    answer = proposing("ask", {"m.md": r'"# One\nnew\n# Other\n"'})
    project.write(
        pipeline(
            f"  ask: {{{stage}, llm: {{prompt: p.md.j2, returns: files}}}}\n",
            {"m.md": "# One\nold\n# Other\n", "p.md.j2": answer},
        )
    )
    green(project.build())
    assert project.read("m.md") == "# One\nnew\n# Other\n"


@pytest.mark.slow
def test_verification_of_a_shell_stage_reads_a_slice_that_its_step_does_not(project: Project) -> None:
    command = "test ! -e v.json && echo made > out"
    project.write(shell(f"  make: {{outputs: [out], shell: '{command}', verify: {verified(['tasks'])}}}\n"))
    project.write({"v.json": DATA})
    green(project.build())


@pytest.mark.parametrize("command", ["echo 1 > v.json; touch out", "rm v.json; touch out"])
def test_a_step_that_changes_the_file_of_a_slice_is_refused(project: Project, command: str) -> None:
    project.write(shell(copying("v.json#/x", command=command)))
    project.write({"v.json": DATA})
    failed = project.build()
    assert "E306" in failed.err
    assert "`v.json`: it is an input of the stage" in failed.err
    assert project.read("v.json") == DATA
    assert ends(project) == {"copy": "failed"}


def test_the_file_of_a_slice_is_not_executable_and_what_is_no_utf_8_is_replaced(project: Project) -> None:
    project.write(shell(copying("run.md#A", command="test ! -x run.md && cat run.md > out")))
    project.write({"run.md": b"\xff\n# A\r\n\xff\xc3\xa4\r\n# B\nb\n"})
    (project.root / "run.md").chmod(0o755)
    green(project.build())
    assert (project.root / "out").read_bytes() == "# A\r\n\ufffd\u00e4\n".encode()


@pytest.mark.slow
def test_a_key_of_a_mapping_that_becomes_a_place_in_a_list_makes_the_step_stale(project: Project) -> None:
    project.write(shell(copying("v.json#/x/0")))
    project.write({"v.json": '{"x": {"0": "a"}}'})
    green(project.build())
    assert project.read("out") == '{"x":{"0":"a"}}\n'
    project.edit("v.json", '{"x": ["a"]}')
    assert project.plan() == {"copy": "run"}
    green(project.build())
    assert project.read("out") == '{"x":["a"]}\n'
