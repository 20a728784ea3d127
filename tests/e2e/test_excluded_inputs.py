"""`!PATTERN` in `inputs` and `verify.inputs` removes files from the patterns and listings before it."""

import json

import pytest

from tests.e2e.pipelines import ends, green, pipeline, prompt, shell
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

FILES = {f"src/{path}": f"{path}\n" for path in ("a.py", "b.py", "x/c.py", "x/y/d.py", "z/e.py")}


def listing(project: Project, inputs: str, where: str = "inputs", **files: str) -> str:
    """Build a stage that lists the files it is given; return what it lists."""
    if where == "inputs":
        stages = f"  all: {{inputs: {inputs}, outputs: [out.txt], shell: 'find src -type f | sort > out.txt'}}\n"
    else:
        stages = f"""\
  all:
    outputs: [out.txt]
    shell: touch out.txt
    verify: {{inputs: {inputs}, steps: [{{shell: 'find src -type f | sort; exit 1'}}]}}
"""
    project.write(shell(stages, {**FILES, **files}))
    outcome = project.build()
    if where == "inputs":
        green(outcome)
        return " ".join(project.read("out.txt").split())
    (reported,) = project.root.glob("logs/*/all/attempt-1/verify-1.txt")
    return " ".join(reported.read_text().split())


CASES = {
    '["src/**", "!src/x/**"]': "src/a.py src/b.py src/z/e.py",
    '["src/**", "!src/x/"]': "src/a.py src/b.py src/z/e.py",
    '["src/**", "!src/x"]': "src/a.py src/b.py src/z/e.py",
    '["src/", "!src/a.py"]': "src/b.py src/x/c.py src/x/y/d.py src/z/e.py",
    '["src/**", "!**/*.py", "src/x/*"]': "src/x/c.py",
    '["src/**", "!src/x/**", "src/x/y/d.py"]': "src/a.py src/b.py src/x/y/d.py src/z/e.py",
    '["src/x/**", "src/*", "!src/**/d.py", "!./src/a.py"]': "src/b.py src/x/c.py",
    '["src/x/**", "!src/x/**", "src/*.py"]': "src/a.py src/b.py",
    '["src/**", "!src/[xz]/**"]': "src/a.py src/b.py",
}


@pytest.mark.stride(5)
@pytest.mark.parametrize("inputs", CASES)
@pytest.mark.parametrize("where", ["inputs", "verify"])
def test_it_removes_files_from_the_patterns_before_it(project: Project, inputs: str, where: str) -> None:
    assert listing(project, inputs, where) == CASES[inputs]


def test_only_files_that_remain_are_in_the_key(project: Project) -> None:
    listing(project, '["src/**", "!src/x/**"]')
    project.edit("src/x/c.py", "other\n")
    project.write({"src/x/new.py": "new\n"})
    assert project.plan() == {"all": "fresh"}
    project.edit("src/a.py", "other\n")
    assert project.plan() == {"all": "run"}


def test_the_key_is_that_of_a_list_without_an_exclusion(project: Project) -> None:
    listing(project, '["src/**", "!src/x/**"]')
    project.replace("pipeline.yaml", '["src/**", "!src/x/**"]', '["src/*", "src/z/*"]')
    assert project.plan() == {"all": "fresh"}


def test_a_listing_can_exclude_too(project: Project) -> None:
    stages = '  all: {inputs: [{list: "src/**"}, "!src/x/**"], outputs: [out.txt], render: out.j2}\n'
    template = "{% for one in inputs %}{{ one.text }}{% endfor %}"
    project.write(shell(stages, {**FILES, "out.j2": template}))
    green(project.build())
    assert project.read("out.txt").split() == ["src/a.py", "src/b.py", "src/z/e.py"]
    project.write({"src/x/new.py": ""})
    assert project.plan() == {"all": "fresh"}


def test_a_model_is_not_given_what_is_excluded(project: Project) -> None:
    stages = '  ask: {inputs: ["src/**", "!src/x/**"], outputs: [out.txt], llm: {prompt: ask.md.j2, returns: text}}\n'
    text = "{{ inputs | map(attribute='path') | join(' ') }}"
    project.write(pipeline(stages, {**FILES, "ask.md.j2": prompt("ask", text)}))
    green(project.build())
    assert project.read("out.txt") == "src/a.py src/b.py src/z/e.py\n"


@pytest.mark.parametrize("output", ["gen/a.txt", "gen/"])
def test_a_stage_that_makes_only_excluded_files_does_not_come_before(project: Project, output: str) -> None:
    """Without the exclusion, each of the two stages would wait for the other."""
    stages = f"""\
  read: {{inputs: ['**/*.txt', '!gen/**'], outputs: [list/all.lst], shell: 'find . -name "*.txt" > list/all.lst'}}
  make: {{inputs: [list/all.lst], outputs: [{output}], shell: 'cp list/all.lst gen/a.txt'}}
"""
    green(project.write(shell(stages, {"one.txt": ""})).build())
    assert project.read("gen/a.txt") == "./one.txt\n"
    assert set(project.plan().values()) == {"fresh"}
    assert project.run("graph", "--json").json()["edges"] == [{"from": "read", "to": "make", "why": "list/all.lst"}]


def test_a_stage_that_makes_other_files_too_comes_before(project: Project) -> None:
    stages = """\
  make: {outputs: [src/m.py, src/x/n.py], shell: 'touch src/m.py; mkdir -p src/x; touch src/x/n.py'}
  read: {inputs: ['src/**', '!src/x/**'], outputs: [out.txt], shell: 'find src -type f | sort > out.txt'}
"""
    green(project.write(shell(stages)).build())
    assert project.read("out.txt") == "src/m.py\n"


def test_items_may_exclude_what_the_author_says(project: Project) -> None:
    stages = """\
  each:
    foreach: {from: list.json, as: name}
    inputs: ["src/**", "!src/${{ name }}"]
    outputs: ["${{ name | under('out') }}"]
    shell: [sh, -c, 'find src -type f | sort > out/$0', "${{ name }}"]
"""
    green(project.write(shell(stages, {**FILES, "list.json": '["x", "z"]'})).build())
    assert project.read("out/x").split() == ["src/a.py", "src/b.py", "src/z/e.py"]
    assert project.read("out/z").split() == ["src/a.py", "src/b.py", "src/x/c.py", "src/x/y/d.py"]


def test_an_item_may_not_exclude_what_the_author_does_not(project: Project) -> None:
    """The list may be a model's: it must not remove the tests that a result is held to."""
    stages = """\
  each:
    foreach: {from: list.json, key: id, as: one}
    outputs: ["${{ one.id | under('out') }}"]
    shell: [touch, "${{ one.id | under('out') }}"]
    verify: {inputs: ["src/**", "${{ one.more }}"], steps: [{shell: 'find src'}]}
"""
    items = json.dumps([{"id": "a", "more": "!src/x/c.py"}])
    outcome = project.write(shell(stages, {**FILES, "list.json": items})).build()
    assert outcome.code == 65
    assert "an item may not exclude inputs" in outcome.err


def test_a_file_whose_name_starts_with_the_sign_is_written_with_a_dot(project: Project) -> None:
    stages = "  all: {inputs: ['./!a.txt'], outputs: [out.txt], shell: 'cp ./!a.txt out.txt'}\n"
    green(project.write(shell(stages, {"!a.txt": "yes\n"})).build())
    assert (project.read("out.txt"), ends(project)) == ("yes\n", {"all": "built"})


REFUSED = {
    'inputs: ["!src/x/**"]': "`!src/x/**` excludes nothing: no pattern is before it",
    'inputs: ["!src/x/**", "src/**"]': "excludes nothing: no pattern is before it",
    'inputs: ["src/a.py", "!src/a.py"]': "`!src/a.py` excludes `src/a.py`, which is listed before it",
    'inputs: ["src/**", "src/x/c.py", "!src/x/**"]': "excludes `src/x/c.py`, which is listed before it",
    'inputs: ["src/**", "src/x/c.py#/a", "!src/x/**"]': "excludes `src/x/c.py`, which is listed before it",
    'inputs: ["src/**", "!lib/**"]': "`!lib/**` excludes nothing: `src/**` cannot match it",
    'inputs: ["src/**", "!src/a.json#/x"]': "excludes a slice",
    'inputs: ["src/**", "!../x"]': "climbs out",
    'inputs: ["src/**", "!!src/x"]': "starts with `!`",
    'inputs: ["src/**", {path: "!src/x"}]': "the path `!src/x` starts with `!`",
    'inputs: ["src/**", {list: "!src/**"}]': "the path `!src/**` starts with `!`",
    'verify: {inputs: ["!src/x/**"], steps: [{shell: x}]}': "excludes nothing: no pattern is before it",
    "requires: {file_exists: ['!a']}": "the path `!a` starts with `!`",
    "allowed_paths: {write: ['out.txt', '!a']}": "the path `!a` starts with `!`",
    "allowed_paths: {write: ['out.txt'], protect: ['!a']}": "the path `!a` starts with `!`",
    "allowed_paths: {write: ['out.txt'], read: ['!a']}": "the path `!a` starts with `!`",
    "allowed_paths: {write: ['out.txt'], delete: ['!a']}": "the path `!a` starts with `!`",
    "scratch: ['!a']": "`!a` starts with `!`",
    "cwd: '!a'": "the path `!a` starts with `!`",
    "foreach: {from: '!a.json'}": "the path `!a.json` starts with `!`",
    "verify: [{pytest: {paths: ['tests', '!tests/a']}}]": "the path `!tests/a` starts with `!`",
}


@pytest.mark.parametrize("line", REFUSED)
def test_where_it_would_have_no_effect_it_is_refused_with_its_place(project: Project, line: str) -> None:
    stages = f"  all:\n    outputs: [out.txt]\n    {line}\n    shell: touch out.txt\n"
    outcome = project.write(shell(stages, FILES)).run("validate")
    assert outcome.code == 65
    text = outcome.out + outcome.err
    assert REFUSED[line] in text
    assert "pipeline.yaml:6:" in text
    assert "= help: " in text


def test_an_output_cannot_exclude(project: Project) -> None:
    outcome = project.write(shell("  all: {outputs: [out/, '!out/x'], shell: touch out/a}\n")).run("validate")
    assert (outcome.code, "the path `!out/x` starts with `!`" in outcome.err) == (65, True)
