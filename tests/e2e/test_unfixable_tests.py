"""Tests that cannot pass, whatever the stage writes, end the attempts: no further call is worth its money."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.project import Outcome, Project, scripted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("prepared_pytest"),
]  # whole builds, many of them: `make test` runs them, `make check` does not

CODE = "```python\ndef first():\n    return 1\n```"
# Different ones: the same proposal would end the attempts.
FIVE = tuple(CODE.replace("1\n", f"1  # {number}\n") for number in range(5))
TEST = "from app import first\n\n\ndef test_first():\n    assert first() == 1\n"


def build(
    project: Project, files: Mapping[str, str], answers: tuple[str, ...] = FIVE, **verify: Any
) -> tuple[Outcome, int]:
    """Build a stage that writes `src/app.py` with at most five attempts; return the outcome and the number of calls."""
    step = {"paths": ["tests"], "pythonpath": ["src", "lib"], **verify}
    stage = {
        "outputs": ["src/app.py"],
        "llm": {"returns": "code"},
        "verify": {"inputs": [*files], "steps": [{"pytest": step}]},
        "retry": {"max": 4, "no_progress": 9},
    }
    project.write({**scripted({"app": stage}, {"app": answers}), **files})
    return calls(project)


def calls(project: Project) -> tuple[Outcome, int]:
    outcome = project.build()
    return outcome, len(project.events_of("llm_response"))


def last_line(outcome: Outcome) -> str:
    return outcome.err.rstrip().rpartition("\n")[2]


@pytest.mark.parametrize("name", ["tests/test_app.py", "tests/conftest.py"])
def test_a_syntax_error_in_a_test_is_found_before_the_first_call(project: Project, name: str) -> None:
    broken = "import pytest\n\n\ndef test_first(:\n    pass\n"
    outcome, called = build(project, {"tests/test_app.py": TEST, name: broken})
    assert (outcome.code, called) == (1, 0)
    assert "error[E325]" in outcome.err
    assert f"{name}: has a syntax error" in last_line(outcome)
    project.edit(name, TEST if "test_" in name else "")
    outcome, called = calls(project)
    assert (outcome.code, called) == (0, 1)


@pytest.mark.stride(3)
@pytest.mark.parametrize(
    ("files", "why"),
    [
        (
            {"tests/test_app.py": f"import helper\n{TEST}", "lib/helper.py": "def a(:\n"},
            "lib/helper.py:1: has a syntax error",
        ),
        ({"tests/test_app.py": f"import no_such_helper\n{TEST}"}, "`no_such_helper` is not installed"),
        (
            {"tests/test_app.py": f"from helper import more\n{TEST}", "lib/helper.py": "less = 1\n"},
            "tests/test_app.py:1: imports `more` from `helper`",
        ),
    ],
)
def test_an_error_in_a_file_that_the_stage_cannot_write_ends_the_attempts(
    project: Project, files: Mapping[str, str], why: str
) -> None:
    outcome, called = build(project, files)
    assert (outcome.code, called) == (1, 1)
    assert why in last_line(outcome)
    assert "E325" in project.read(next((project.root / "logs").glob("*.jsonl")).relative_to(project.root).as_posix())


@pytest.mark.stride(3)
@pytest.mark.parametrize(
    ("first", "files"),
    [
        (CODE.replace("first", "other"), {}),
        ("```python\ndef first(:\n```", {}),
        ("```python\nimport no_such_helper\n```", {}),
        (
            CODE.replace("first", "other"),
            {"lib/helper.py": "from app import *\n", "tests/test_app.py": TEST.replace("app", "helper")},
        ),
    ],
)
def test_an_error_that_the_stage_can_correct_is_fed_back(
    project: Project, first: str, files: Mapping[str, str]
) -> None:
    outcome, called = build(project, {"tests/test_app.py": TEST, **files}, (first, CODE))
    assert (outcome.code, called) == (0, 2)


def test_a_test_that_is_left_out_may_have_any_syntax(project: Project) -> None:
    files = {"tests/test_app.py": TEST, "tests/test_newer.py": "def test(:\n"}
    outcome, called = build(project, files, args=["--ignore=tests/test_newer.py"])
    assert (outcome.code, called) == (0, 1)


def test_a_recorded_result_is_not_written_again_for_a_test_that_cannot_pass(project: Project) -> None:
    outcome, called = build(project, {"tests/test_app.py": TEST})
    assert (outcome.code, called) == (0, 1)
    project.edit("tests/test_app.py", f"import no_such_helper\n{TEST}")
    outcome, called = calls(project)
    assert (outcome.code, called) == (1, 0)
    assert "/room/work" not in outcome.err
    assert project.read("src/app.py").startswith("def first")


def test_the_failure_of_a_recorded_result_is_shown_before_the_next_attempt(project: Project) -> None:
    outcome, called = build(project, {"tests/test_app.py": TEST}, (CODE, CODE.replace("1\n", "2\n")))
    assert (outcome.code, called) == (0, 1)
    project.edit("tests/test_app.py", TEST.replace("== 1", "== 2"))
    outcome, called = calls(project)
    (line,) = [line for line in outcome.err.splitlines() if "recorded result failed: " in line]
    assert "assert 1 == 2" in line
    project.edit("tests/test_app.py", TEST.replace("== 1", "== 3"))
    outcome, called = calls(project)
    assert outcome.code != 0
    assert "recorded result failed: " in outcome.err.partition("\n\n")[2], "the block has it too"


def test_a_recorded_result_outside_of_the_python_path_is_not_written_again(project: Project) -> None:
    outcome, called = build(project, {"tests/test_app.py": TEST}, pythonpath=["src"])
    assert (outcome.code, called) == (0, 1)
    project.replace("pipeline.yaml", '"src"', '"lib"')
    outcome, called = calls(project)
    assert (outcome.code, called) == (1, 0)
    assert last_line(outcome).endswith("verify: `app` is in `src`, where Python does not look for modules")
    assert "= help: add `src` to `pythonpath` of the pytest step" in outcome.err


def test_a_stage_that_may_write_elsewhere_gets_a_further_attempt(project: Project) -> None:
    outcome, called = build(project, {"tests/test_app.py": TEST}, FIVE[:2], pythonpath=["lib"])
    assert (outcome.code, called) == (1, 1)
    project.replace("pipeline.yaml", '"outputs"', '"allowed_paths": {"write": ["lib/**"]}, "outputs"')
    outcome, called = calls(project)
    assert (outcome.code, called) != (1, 0)


def test_an_output_of_another_name_is_named_with_the_place_of_the_import(project: Project) -> None:
    outcome, called = build(project, {"tests/test_app.py": TEST.replace("app", "appp")})
    assert (outcome.code, called) == (1, 0)
    assert "tests/test_app.py:1:1" in last_line(outcome)
    assert "imports `appp`, which does not exist (the stage cannot write it)" in last_line(outcome)
    assert "= help: correct the name, or " in outcome.err


def test_a_package_that_is_not_installed_is_named_with_the_interpreter(project: Project) -> None:
    outcome, _ = build(project, {"tests/test_app.py": TEST.replace("app", "spacy")})
    assert "`spacy` is not installed" in last_line(outcome)
