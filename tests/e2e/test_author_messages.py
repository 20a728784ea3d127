"""Errors of a result: the author's text has the place in the pipeline, the model's text says what to respond."""

import os
import re
import subprocess
import sys

import pytest

from tests.project import Project

SHELL = """\
version: 1
stages:
  s:
    outputs:
      - a.txt
      - b.txt
    shell: COMMAND
"""
CODE = """\
version: 1
stages:
  s:
    outputs: [x.py]
    llm: {provider: scripted, model: scripted, prompt: p.md, returns: code, answers: a.yaml}
    retry: 1
"""


@pytest.mark.parametrize(
    ("command", "code", "place", "way"),
    [
        ("touch a.txt", "E303", "p.yaml:6:9", "fix the command, or remove the path from `outputs`"),
        ("touch a.txt b.txt c.txt", "E306", "p.yaml:5:7", "declare it in `outputs`"),
    ],
)
def test_a_wrong_result_has_the_place_of_its_outputs(
    project: Project, command: str, code: str, place: str, way: str
) -> None:
    project.write({"p.yaml": SHELL.replace("COMMAND", command)})
    for number, outcome in enumerate((project.build("p.yaml"), project.build("p.yaml"))):
        assert outcome.code != 0
        assert f"error[{code}]: " in outcome.err + outcome.out, number
        assert f"--> {place}\n" in outcome.err + outcome.out
        assert way in outcome.err + outcome.out
        assert f"failed: s ({place})" in outcome.err + outcome.out


def test_the_author_and_the_model_get_a_text_of_their_own_about_a_missing_code_block(project: Project) -> None:
    answers = "s: ['I am sorry, but here is none', 'Here is none again, sorry']\n"
    project.write({"p.yaml": CODE, "p.md": "Write it.\n{{ brief }}\n", "a.yaml": answers})
    outcome = project.build("p.yaml")
    said = outcome.err + outcome.out
    assert "error[E218]: the response has no code block" in said
    assert "--> p.yaml:5:56\n" in said
    assert "ask for the whole file in one block of code" in said
    asked = project.run("show", "s", "p.yaml", "--prompt").out
    assert "Fix: respond with the whole file in one fenced code block." in asked
    assert "ask for the whole file" not in asked


# orch23 may write small files only, a step that asks for it any.
LIMITED = (
    "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY)); "
    "from orch23.entry import run; run()"
)


def build_on_a_full_disk(project: Project) -> str:
    environment = {"PYTHONPATH": os.getcwd(), "PATH": os.environ["PATH"], "HOME": str(project.root)}
    argv = [sys.executable, "-c", LIMITED, "-C", str(project.root), "build", "p.yaml"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode in (1, 74), done.stderr
    return done.stderr


@pytest.mark.slow
def test_a_result_that_the_disk_does_not_take_is_not_a_program_that_did_not_start(project: Project) -> None:
    large = "ulimit -S -f unlimited; head -c 3000000 /dev/zero > a.txt; touch b.txt"
    said = build_on_a_full_disk(project.write({"p.yaml": SHELL.replace("COMMAND", large)}))
    assert "✘ s  p.yaml:3:3" in said
    assert "| the result could not be stored: [Errno 27] File too large" in said
    assert "free space where `.orch23` is (`df -h .orch23` shows it)" in said
    assert "could not be started" not in said
    assert "check that the program exists" not in said


@pytest.mark.slow
def test_a_full_disk_names_the_stage_and_the_file_system(project: Project) -> None:
    answers = "s: ['```python\nx = \"" + "y" * 700_000 + "\"\n```']\n"
    said = build_on_a_full_disk(project.write({"p.yaml": CODE, "p.md": "Write it.\n", "a.yaml": answers}))
    assert re.search(r"error\[E650\]: File too large.*, in the stage `s`\n", said), said
    assert re.search(r"help: free space on the disk \(`df -h [^`]+` shows it\); then build again", said)
