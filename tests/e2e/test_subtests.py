"""A failed subtest fails its test, and you and a model are told which one it was."""

import pytest

from tests.e2e.pipelines import green
from tests.project import Project, files_answer, scripted

pytestmark = pytest.mark.slow  # each starts pytest in a process

TEST = """\
import unittest
from app import double
class TestDouble(unittest.TestCase):
    def test_it(self):
        for n in (0, 3, 4):
            with self.subTest(n=n): self.assertEqual(double(n), 2 * n)
"""


def stages(retry: int) -> dict[str, dict[str, object]]:
    verify = {"inputs": ["tests/*.py"], "steps": [{"pytest": {"paths": ["tests"], "pythonpath": ["src"]}}]}
    return {"code": {"outputs": ["src/app.py"], "llm": {"returns": "files"}, "verify": verify, "retry": retry}}


def answers(*bodies: str) -> list[str]:
    return [files_answer({"src/app.py": f"def double(n):\n    return {body}\n"}) for body in bodies]


def test_a_model_is_told_which_subtests_failed(project: Project) -> None:
    project.write(scripted(stages(1), {"code": answers("0", "2 * n")})).write({"tests/test_app.py": TEST})
    green(project.build())
    told = project.run("show", "code", "--prompt").out
    assert "tests/test_app.py::TestDouble::test_it (n=3)" in told
    assert "tests/test_app.py::TestDouble::test_it (n=4)" in told
    assert "(n=0)" not in told


def test_progress_in_the_subtests_of_one_test_is_progress(project: Project) -> None:
    """Each attempt fails the same test with the same error: only the number of failed subtests differs."""
    pipeline = scripted(stages(0), {"code": answers("1", "0", "2 * n")})
    pipeline["pipeline.yaml"] = pipeline["pipeline.yaml"].replace('"retry": 0', '"retry": {"max": 3, "no_progress": 2}')
    project.write(pipeline).write({"tests/test_app.py": TEST})
    green(project.build())


@pytest.mark.needs("exports", "pages")
def test_screen_page_and_junit_name_a_failed_subtest(project: Project) -> None:
    project.write(scripted(stages(0), {"code": answers("0")})).write({"tests/test_app.py": TEST})
    outcome = project.build("--junit", "junit.xml")
    assert outcome.code == 1
    label = "tests/test_app.py::TestDouble::test_it (n=3)"
    assert label in outcome.out + outcome.err
    assert label in project.read("junit.xml")
    assert project.run("report", "-o", "page.html").code == 0
    assert "(n=3)" in project.read("page.html")
