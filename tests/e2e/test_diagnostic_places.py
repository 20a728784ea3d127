"""An error points at the value that is wrong, once, wherever it is written: in a stage, in defaults, in a list."""

import pytest

from tests.project import Outcome, Project

pytestmark = pytest.mark.needs("local")

STAGES = """\
stages:
  a:
    outputs: [a.py]
    {a}
  b:
    outputs: [b.py]
    {b}
"""


def validated(project: Project, text: str, *options: str) -> Outcome:
    project.write({"pipeline.yaml": f"version: 1\nname: p\n{text}", "p.md": "write it\n"})
    return project.run("validate", *options)


def places(outcome: Outcome) -> list[tuple[str, str, str]]:
    """Return code, line and underlined text of each error."""
    found = []
    lines = outcome.err.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("error["):
            at = lines[number + 1].partition("pipeline.yaml:")[2].partition(":")[0]
            source, marks = lines[number + 3].partition("| ")[2], lines[number + 4].partition("| ")[2]
            start, length = len(marks) - len(marks.lstrip()), marks.count("^")
            found.append((line[6:10], at, source[start : start + length]))
    return found


CHECKS = "verify: {inputs: [], steps: [{check: python_syntax}, {check: python_sintax}]}"
LOCAL = "provider: local, model: nope, prompt: p.md"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (STAGES.format(a="shell: make", b=f"shell: make\n    {CHECKS}"), [("E828", "10", "python_sintax")]),
        (f"defaults: {{{CHECKS}}}\n{STAGES.format(a='shell: x', b='shell: y')}", [("E828", "3", "python_sintax")]),
        (
            f"defaults: {{verify: [{{check: python_sintax}}]}}\n{STAGES.format(a='shell: x', b='shell: y')}",
            [("E828", "3", "python_sintax")],
        ),
        (STAGES.format(a="shell: make", b=f"llm: {{{LOCAL}}}"), [("E406", "9", "nope")]),
        (f"defaults: {{llm: {{{LOCAL}}}}}\n{STAGES.format(a='llm: {}', b='llm: {}')}", [("E406", "3", "nope")]),
        (
            f"stages: {{a: {{foreach: {{in: [x, y], as: t}}, outputs: ['${{{{ t }}}}.py'], llm: {{{LOCAL}}}}}}}\n",
            [("E406", "3", "nope")],
        ),
        (
            STAGES.format(
                a="shell: make",
                b="llm: {provider: local, model: smollm2, prompt: p.md, fallback: [{model: nope}]}\n"
                "    retry: {max: 1, escalate: [smollm2, nine]}",
            ),
            [("E406", "9", "nope"), ("E406", "10", "nine")],
        ),
        pytest.param(
            "defaults: {llm: {provider: openai, model: m, prompt: no.md, seed: 1, api: responses}}\n"
            + STAGES.format(a="llm: {}", b="llm: {}"),
            [("E831", "3", "no.md"), ("E409", "3", "1")],
            marks=pytest.mark.needs("vendors"),
        ),
        (STAGES.format(a="shell: x", b="shell: y\n    inputs: [ok.md, ../x.md]"), [("E850", "10", "../x.md")]),
        ("defaults: {env: {A: ${{ vars.x }}}}\nstages: {}\n", [("E801", "3", "${{ vars.x }}")]),
        ("stages:\n  a:\n    inputs: [\n      b.md\n    shell: x\n", [("E801", "5", "[")]),
        ("stages:\n  a\n    shell: x\n", [("E801", "4", "a")]),
    ],
)
def test_an_error_points_once_at_the_wrong_value(
    project: Project, text: str, expected: list[tuple[str, str, str]]
) -> None:
    assert sorted(places(validated(project, text))) == sorted(expected)


@pytest.mark.parametrize(
    "text",
    [
        "defaults: {llm: {provder: openai, model: m, prompt: p.md}}\n" + STAGES.format(a="llm: {}", b="llm: {}"),
        STAGES.format(a="llm: {provder: openai, model: m, prompt: p.md}", b="shell: x"),
        STAGES.format(a="llm: {provider: openai, modle: m, prompt: p.md}", b="shell: x"),
    ],
)
def test_a_misspelt_key_is_not_also_reported_as_missing(project: Project, text: str) -> None:
    outcome = validated(project, text)
    assert [code for code, _, _ in places(outcome)] == ["E802"]
    assert "did you mean `" in outcome.err


def test_a_misspelt_version_is_not_also_reported_as_missing(project: Project) -> None:
    project.write({"pipeline.yaml": "versoin: 1\nstages: {a: {outputs: [a], shell: x}}\n"})
    assert [code for code, _, _ in places(project.run("validate"))] == ["E802"]


def test_a_missing_key_beside_another_misspelt_one_is_reported(project: Project) -> None:
    outcome = validated(project, STAGES.format(a="llm: {provder: openai, prompt: p.md}", b="shell: x"))
    assert sorted(code for code, _, _ in places(outcome)) == ["E802", "E810"]
    assert "`model` is missing" in outcome.err


def test_an_error_of_an_item_shows_the_item_too(project: Project) -> None:
    item = "stages: {a: {foreach: {in: [x, ITEM]}, inputs: ['${{ item }}.md'], outputs: ['${{ item }}'], shell: x}}\n"
    project.write({"x.md": ""})
    outcome = validated(project, item.replace("ITEM", "../y"))
    assert "::: pipeline.yaml:3:32\n" in outcome.err
    assert "^^^^ this item\n" in outcome.err
    outcome = validated(project, "vars: {v: a}\n" + item.replace("ITEM", '"${{ vars.v }}"'), "--set", "v=../y")
    assert "^^^^ this item\n" in outcome.err
    assert "= note: `vars.v` is set by `--set`\n" in outcome.err


@pytest.mark.parametrize("model", ["nopenop", "nope"])
def test_an_error_of_a_value_of_set_says_so(project: Project, model: str) -> None:
    """The value of the default, of the same length or not, is not the cause."""
    text = "vars: {m: smollm2}\n" + STAGES.format(
        a="shell: x", b='llm: {provider: local, prompt: p.md, model: "${{ vars.m }}"}'
    )
    for command in ("validate", "plan", "build"):
        validated(project, text)
        outcome = project.run(command, "--set", f"m={model}")
        assert f"the provider `local` has no model `{model}`" in outcome.err
        assert "\n   = note: `vars.m` is set by `--set`\n" in outcome.err.replace("\n  = ", "\n   = ")
    assert validated(project, text).code == 0


def test_an_error_of_a_file_of_vars_shows_its_line(project: Project) -> None:
    text = "vars: {c: python_syntax}\n" + STAGES.format(
        a="shell: x", b='shell: y\n    verify: [{check: "${{ vars.c }}"}]'
    )
    project.write({"other.yaml": "# values\nc: python_sintax\n"})
    outcome = validated(project, text, "--vars", "other.yaml")
    assert ":::" in outcome.err
    assert "other.yaml:2:1" in outcome.err
    assert "`vars.c` is set here" in outcome.err
