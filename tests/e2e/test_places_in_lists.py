"""A position in a list is the one at which a value is written: exclusions, doubles and lists of vars come before it."""

import re

import pytest

from tests.project import Project

HEAD = "version: 1\nvars: {two: [a, b]}\nstages:\n"
MISSING = "  s:\n    inputs:\n      - src/**\n      - '!src/v/**'\n      - src/a\n      - src/a\n      - missing\n"
REST = "    outputs: [y]\n    shell: 'true'\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (MISSING + REST, [10]),
        ("  s:\n    inputs:\n      - '${{ vars.two }}'\n      - missing\n" + REST, [6, 6, 7]),
        ("  s:\n    verify:\n      inputs: [src/**,\n       '!src/v',\n       missing]\n      steps: []\n" + REST, [8]),
        ("  s:\n    foreach: {in: [x]}\n    inputs: ['src/**',\n      '!src/v',\n      'a-${{ item }}']\n" + REST, [8]),
        ("  s:\n    inputs: ['src/**',\n      '!src/v',\n      'src/a#Nothing']\n" + REST, [7]),
        ('  s:\n    needs: [\'${{ ["o", "o"] }}\',\n      nobody]\n' + REST + "  o: {shell: 'true'}\n", [6]),
        ("  s:\n    inputs: [src/**,\n      '!src/v',\n      nix/*]\n" + REST, [7]),
        (
            "  s: {outputs: ['${{ vars.two }}',\n     z], shell: a}\n  t: {outputs: [c, d,\n    z], shell: a}\n",
            [7],
        ),
    ],
)
def test_an_error_is_shown_at_the_line_of_its_value(project: Project, text: str, lines: list[int]) -> None:
    project.write({"pipeline.yaml": HEAD + text, "src/a": "", "src/v/x": ""})
    found = project.run("validate").err
    assert [int(one) for one in re.findall(r"^ *--> pipeline.yaml:(\d+)", found, re.MULTILINE)] == lines
