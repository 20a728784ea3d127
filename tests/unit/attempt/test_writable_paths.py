"""What a step that judges may write: what `scratch` names literally, and the outputs of a pytest stage."""

import pytest

from orch23.attempt.process_runner import writable_paths
from orch23.model.pipeline import DEFAULT_SCRATCH, Stage, WriteScope
from orch23.steps.pytest.spec import PytestStep
from orch23.steps.shell.spec import ShellStep

FILES = ("app/src/a.py", "app/tests/test_a.py", "app/data/in.txt")
SHELL, TESTS = ShellStep("true"), PytestStep()


def written(*scratch: str, step: ShellStep | PytestStep = TESTS, cwd: str = "app") -> tuple[str, ...] | None:
    return writable_paths(Stage(name="s", step=step, scratch=scratch, cwd=cwd), step, FILES, verifies=True)


def test_a_shell_stage_may_write_its_whole_tree() -> None:
    assert writable_paths(Stage(name="s", step=SHELL), SHELL, FILES, verifies=False) is None


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("build", "app/build/"),
        ("build/", "app/build/"),
        (".hidden", "app/.hidden/"),
        ("out.txt", "app/out.txt"),
        ("./out.txt", "app/out.txt"),
        ("out.txt/", "app/out.txt/"),
        ("app/tests/out/", "app/tests/out/"),
        ("app/tests/out/**", "app/tests/out/"),
        ("app/tests/out.db", "app/tests/out.db"),
        ("app/out/*.log", "app/out/"),
        ("app/data/in.txt", "app/data/in.txt"),
        ("app/data", "app/data/"),
    ],
)
def test_what_a_literal_pattern_of_scratch_makes_writable(pattern: str, path: str) -> None:
    assert written(pattern) == (path,)


@pytest.mark.parametrize(
    "pattern",
    [
        *("*.log", "**", "*", "", ".", "./", "/", "/etc", "..", "../x", "app/../x", "app//x", "app/./x", "a/../../x/"),
        *("src", "tests", "app/tests/", "app/tests/**", "app/tests/*.tmp", "app/src/a.py", "app/src/a.py/x"),
        *("__pycache__", "app/tests/__pycache__/", "*.pyc", ".mypy_cache", ".ruff_cache", ".hypothesis", ".coverage"),
    ],
)
def test_what_no_pattern_of_scratch_makes_writable(pattern: str) -> None:
    assert written(pattern) == ()


def test_of_the_usual_patterns_only_the_cache_of_pytest_is_written_where_a_shell_step_works() -> None:
    assert written(*DEFAULT_SCRATCH) == ()
    assert written(*DEFAULT_SCRATCH, step=SHELL) == ("app/.pytest_cache/",)
    assert written(".pytest_cache", step=SHELL, cwd=".") == (".pytest_cache/",)


def test_a_pytest_stage_may_write_its_outputs_but_no_folder_that_holds_inputs() -> None:
    step = PytestStep(report="app/report.json")
    stage = Stage(
        name="s",
        step=step,
        outputs=("app/report.json", "app/tests/out.xml", "pages/", "app/src/*.txt", "more/a.txt"),
        fence=WriteScope(("**", "logs/**")),
    )
    assert writable_paths(stage, step, FILES, verifies=False) == ("app/tests/out.xml", "logs/", "more/", "pages/")
    assert writable_paths(stage, step, FILES, verifies=True) == ()
