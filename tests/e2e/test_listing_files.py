"""A listing is a file for programs: one path a line, in the order of `inputs`."""

import json

import pytest

from tests.e2e.pipelines import green
from tests.project import Project

LISTING = ".orch23/listings"


def pipeline(**stage: object) -> str:
    return json.dumps({"version": 1, "stages": {"s": {"outputs": ["out"], **stage}}})


@pytest.mark.slow
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


@pytest.mark.slow
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


A, B, ALL = {"list": "docs/a"}, {"list": "docs/b"}, {"list": "docs/*"}


@pytest.mark.slow
@pytest.mark.stride(3)
@pytest.mark.parametrize(
    ("before", "after", "became"),
    [
        ([A, B], [B, A], "run"),
        ([B, A], [A, B], "run"),
        ([ALL, "!docs/a", ALL], [ALL, "!docs/b", ALL], "run"),
        ([ALL, "!docs/a", ALL], [ALL], "run"),
        ([A, A, B], [A, B], "fresh"),
        ([A, "docs/a", B], ["docs/a", A, B], "fresh"),
    ],
)
def test_the_number_of_a_listing_is_in_the_key(
    project: Project, before: list[object], after: list[object], became: str
) -> None:
    project.write({"docs/a": "", "docs/b": ""})
    shell = f"tail -n +1 {LISTING}/* > out"
    for inputs in (before, after, before):
        project.write({"pipeline.yaml": pipeline(inputs=inputs, shell=shell)})
        if inputs is after:
            assert set(project.plan().values()) == {became}
        green(project.build())
        built = project.read("out")
        (project.root / "out").unlink()
        green(project.build("--force", "s"))
        assert project.read("out") == built


@pytest.mark.slow
def test_the_number_of_a_listing_is_in_the_key_of_a_verification(project: Project) -> None:
    project.write({"docs/a": "", "docs/b": "", "t.j2": "x", "c": ""})
    for own, inputs, number in (
        (["c"], [A, B], 1),
        (["c"], [B, A], 2),
        ([A, B], [], 1),
        ([B, A], [], 2),
        ([A, A], [B], 1),
        ([A], [A, B], 1),
        ([A], [B, A], 3),
    ):
        verify = {
            "inputs": inputs,
            "steps": [{"shell": f"test `grep -l docs/a {LISTING}/* | head -n 1` = {LISTING}/1"}],
        }
        project.write({"pipeline.yaml": pipeline(inputs=own, render={"template": "t.j2"}, verify=verify)})
        assert (project.build().code == 0) == (number == 1 or own == [A]), (own, inputs)


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


@pytest.mark.slow
def test_the_way_out_of_a_changed_listing_works(project: Project) -> None:
    project.write({"docs/a": ""})
    body: dict[str, object] = {"inputs": [{"list": "docs/*"}], "shell": f"echo >> {LISTING}/1; touch out"}
    project.write({"pipeline.yaml": pipeline(**body)})
    assert "write it elsewhere, or list its name in `scratch`" in project.build().err
    project.write({"pipeline.yaml": pipeline(**body, scratch=["1"])})
    green(project.build())
