"""A listing is a file for programs: one path a line, in the order of `inputs`."""

import json

import pytest

from tests.e2e.pipelines import green
from tests.project import Project

LISTING = ".orch23/listings"


def pipeline(**stage: object) -> str:
    return json.dumps({"version": 1, "stages": {"s": {"outputs": ["out"], **stage}}})


def test_a_program_reads_its_listings_in_their_order(project: Project) -> None:
    inputs = [{"list": "docs/*"}, "!docs/c", {"list": "none/**"}, "src", {"list": "src"}]
    project.write({"docs/b": "", "docs/a b": "", "docs/c": "", "src": ""})
    project.write({"pipeline.yaml": pipeline(inputs=inputs, shell=f"tail -n +1 {LISTING}/* > out")})
    green(project.build())
    parts = (f"==> {LISTING}/1 <==\ndocs/a b\ndocs/b\n", f"==> {LISTING}/2 <==\n", f"==> {LISTING}/3 <==\nsrc\n")
    assert project.read("out") == "\n".join(parts)
    assert set(project.plan().values()) == {"fresh"}
    project.write({"docs/d": ""})
    green(project.build())
    assert "docs/b\ndocs/d\n" in project.read("out")
    assert not project.exists(LISTING)


def test_a_name_with_a_line_break_is_one_line(project: Project) -> None:
    names = ["d/a\nb", 'd/"q', '"top', "d/\u2028"]
    project.write(dict.fromkeys(names, ""))
    inputs = [{"list": "d/*"}, {"list": '"*'}]
    project.write({"pipeline.yaml": pipeline(inputs=inputs, shell=["cp", f"{LISTING}/1", "out"])})
    green(project.build())
    assert project.read("out").splitlines() == ['d/"q', '"d/a\\nb"', '"d/\\u2028"']
    project.write({"pipeline.yaml": pipeline(inputs=inputs, shell=["cp", f"{LISTING}/2", "out"])})
    green(project.build())
    assert json.loads(project.read("out")) == '"top'


@pytest.mark.slow
def test_tests_and_steps_of_a_verification_read_them_too(project: Project) -> None:
    test = f"def test_it():\n    assert open('{LISTING}/1').read() == 'docs/a\\n'\n"
    project.write({"docs/a": "", "test_it.py": test, "t.j2": "{% for one in inputs %}{{ one.text }}{% endfor %}"})
    listed, check = (
        {"list": "docs/*"},
        {"inputs": [{"list": "*.py"}], "steps": [{"shell": f"cat {LISTING}/1 {LISTING}/2"}]},
    )
    bodies = {
        "tests": {"inputs": [listed, "test_it.py"], "pytest": {"paths": ["test_it.py"]}},
        "text": {"inputs": [listed], "outputs": ["t"], "render": {"template": "t.j2"}, "verify": check},
        "each": {
            "foreach": {"in": ["a"]},
            "inputs": [{"list": "docs/${{ item }}*"}],
            "outputs": ["o"],
            "cwd": "docs",
            "shell": ["cp", f"../{LISTING}/1", "../o"],
        },
    }
    project.write({"pipeline.yaml": json.dumps({"version": 1, "stages": bodies})})
    green(project.build())
    assert (project.read("t"), project.read("o")) == ("docs/a\n", "docs/a\n")
    log = next(project.root.glob("logs/*/text/*/verify-1.txt"))
    assert "docs/a\ntest_it.py\n" in log.read_text()
