"""A run of pytest in which tests are skipped: which skips are accepted, and what a model is told of the others."""

import pytest

from tests.e2e.pipelines import green, shell
from tests.project import Outcome, Project

pytestmark = pytest.mark.slow  # each starts pytest in a process: `make test` runs them, `make check` does not

STAGES = """\
  code:
    inputs: [src/app.py]
    outputs: [OUTPUT]
    shell: cp src/app.py app.py; mkdir -p lib; touch lib/x.py
    verify:
      inputs: [tests/*.py]
      steps: [{pytest: {paths: [tests], pythonpath: [., lib, tests]}}]
"""
PASSING = "import app\ndef test_a(): pass\ndef test_b(): pass\n"


def built(project: Project, test: str, *, output: str = "app.py, lib/x.py", **files: str) -> Outcome:
    named = {"src/app.py": files.pop("app", ""), **{f"tests/{name}.py": text for name, text in files.items()}}
    tests = {"tests/test_a.py": PASSING, "tests/test_c.py": test}
    return project.write(shell(STAGES.replace("OUTPUT", output), {**tests, **named})).build()


AUTHORS = {
    "a mark": "import pytest\n@pytest.mark.skipif(True, reason='no server')\ndef test_c(): pass\n",
    "a mark of the module": "import pytest\npytestmark = pytest.mark.skip(reason='later')\ndef test_c(): pass\n",
    "a call": "import pytest\ndef test_c(): pytest.skip('no server')\n",
    "unittest": "import unittest\nclass TestC(unittest.TestCase):\n    @unittest.skip('')\n    def test_c(s): pass\n",
    "the module": "import pytest\npytest.skip('on Windows', allow_module_level=True)\ndef test_c(): pass\n",
    "importorskip": "import pytest\npytest.importorskip('no_such_library')\ndef test_c(): pass\n",
    "importorskip in a test": "import pytest\ndef test_c(): pytest.importorskip('no_such_library.part')\n",
}


@pytest.mark.stride(4)
@pytest.mark.parametrize("how", AUTHORS)
def test_a_skip_that_the_test_file_raises_is_accepted(project: Project, how: str) -> None:
    green(built(project, AUTHORS[how]))


CODES = {
    "a call": (
        "import app\ndef test_c(): app.go()\n",
        {"app": "import pytest\ndef go():\n    pytest.skip('too hard')\n"},
        "at `app.py:3`, which is not in a test file: too hard",
    ),
    "at its import": (
        "import app\ndef test_c(): pass\n",
        {"app": "import pytest\npytest.skip('too hard', allow_module_level=True)\n"},
        "with its whole module at `app.py:2`, which is not in a test file: too hard",
    ),
    "a module that is missing": (
        "import pytest\npytest.importorskip('app.more')\ndef test_c(): pass\n",
        {},
        "A stage of this pipeline may make `app.more`",
    ),
    "a module that is missing in one test": (
        "import pytest\ndef test_c(): pytest.importorskip('app.more', reason='x')\n",
        {},
        "A stage of this pipeline may make `app.more`",
    ),
}


@pytest.mark.stride(2)
@pytest.mark.parametrize("how", CODES)
def test_code_cannot_turn_its_tests_into_skips(project: Project, how: str) -> None:
    test, files, said = CODES[how]
    outcome = built(project, test, **files)
    assert outcome.code == 1
    (reported,) = project.root.glob("logs/*/code/attempt-1/failure.txt")
    text = reported.read_text()
    assert said in text
    assert "tests/test_c.py::test_c" in text
    assert "skipped in" not in text, "the summary line of pytest says nothing of the reason"
    assert said.rpartition(": ")[2] in outcome.err


def test_a_test_file_that_the_stage_makes_cannot_skip_itself_as_a_whole(project: Project) -> None:
    stages = """\
  code:
    inputs: [src/test_c.py]
    outputs: [tests/test_c.py]
    shell: cp src/test_c.py tests/test_c.py
    verify: {inputs: [tests/test_a.py], steps: [{pytest: {paths: [tests]}}]}
"""
    files = {"src/test_c.py": AUTHORS["the module"], "tests/test_a.py": "def test_a(): pass\n"}
    outcome = project.write(shell(stages, files)).build()
    assert outcome.code == 1
    assert "on Windows. A stage of this pipeline makes that file" in outcome.err


def test_a_module_below_a_folder_that_a_stage_makes_may_be_one_of_its(project: Project) -> None:
    outcome = built(project, AUTHORS["importorskip"], output="app.py, lib/")
    assert outcome.code == 1
    assert "A stage of this pipeline may make `no_such_library`" in outcome.err
    assert "list the tests that must run in `expect`" in outcome.err
    project.replace("pipeline.yaml", "paths: [tests],", "paths: [tests], expect: [tests/test_a.py],")
    green(project.build())
