"""The feedback of a failed attempt, as the next request has it: counts, causes, differences, and paths of one kind."""

import os
import sys
from pathlib import Path

import pytest

from tests.e2e.test_revision import excerpt, model, prompts, stage
from tests.features.inspecting.test_show import forget
from tests.project import Project

__all__ = ["model"]

pytestmark = pytest.mark.slow  # whole builds, many of them: `make test` runs them, `make check` does not

CALLS = """\
import app


def check(value):
    app.first(value)
    app.second(value)
"""
TESTS = """\
import pytest

from calls import check


@pytest.mark.parametrize("value", range(60))
def test_check(value):
    check(value)


def test_other(tmp_path):
    import app
    assert app.names() == {"one": 1, "two": 2, "three": 3}


def test_good():
    pass
"""
BAD = """\
```python
def first(value):
    raise LookupError(f"no {value}")


def second(value):
    pass


def names():
    return {"one": 1, "two": 3, "three": 3}
```"""
GOOD = """\
```python
def first(value):
    pass


second = first


def names():
    return {"one": 1, "two": 2, "three": 3}
```"""


def host_paths(project: Project) -> list[str]:
    """Return texts that say on which machine a build ran."""
    return [
        *(str(one) for one in (project.root, Path.home(), Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())),
        ".orch23",
        # A step has a /tmp of its own, whatever the machine is.
        *([os.environ["TMPDIR"]] if os.environ.get("TMPDIR", "/tmp") != "/tmp" else []),
    ]


def test_one_cause_in_many_tests_leaves_space_for_the_others(project: Project, model) -> None:
    provider = model([BAD, BAD.replace("raise LookupError(", "pass; ("), GOOD])
    files = {"ws/calls.py": CALLS, "ws/test_app.py": TESTS}
    verify = {"inputs": ["ws/*.py"], "steps": [{"pytest": {"paths": ["test_app.py"]}}]}
    stage(project, files, cwd="ws", outputs=["ws/app.py"], llm={"returns": "code"}, verify=verify, retry=2)
    assert project.build().code == 0
    _, second, third = prompts(provider)
    assert excerpt(second).startswith("61 failed, 1 passed\n\n60 tests with this cause: test_app.py::test_check[0] ")
    assert "LookupError: no 0" in excerpt(second)
    assert "LookupError: no 1" not in excerpt(second)
    assert "app.py:2: LookupError" in excerpt(second)
    assert "E         -     'two': 2," in excerpt(second)
    assert excerpt(third).startswith("1 failed, 61 passed (attempt 1: 61 failed, 1 passed)\n\ntest_app.py::test_other")
    for prompt in (second, third):
        assert [path for path in host_paths(project) if path in prompt] == []
        assert [path for path in ("/room/work", "ws/") if path in excerpt(prompt)] == []


def test_a_command_shows_paths_as_a_response_writes_them(project: Project, model) -> None:
    provider = model([BAD, GOOD])
    program = 'import sys, app; sys.path.insert(0, ".."); import lib; app.first(1)'
    shell = f"python -m nothing || true; python -c '{program}'"
    files = {"lib.py": "import app\nprint(app.__file__, __file__)\n"}
    verify = {"inputs": ["lib.py"], "steps": [{"shell": f"{{ {shell}; }} 2>&1"}]}
    stage(project, files, cwd="ws", outputs=["ws/app.py"], llm={"returns": "code"}, verify=verify, retry=1)
    assert project.build().code == 0
    reported = excerpt(prompts(provider)[1])
    assert "python: No module named nothing" in reported
    assert 'File "app.py", line 2, in first' in reported
    assert "../lib.py" in reported
    assert [path for path in (*host_paths(project), "/room") if path in reported] == []


def test_errors_of_a_response_have_paths_as_it_writes_them(project: Project, model) -> None:
    provider = model(["```python\nx = (\n```", GOOD])
    stage(project, {}, cwd="ws", outputs=["ws/app.py"], llm={"returns": "code"}, retry=1)
    assert project.build().code == 0
    reported = prompts(provider)[1]
    assert "[E215] app.py: line 1" in reported
    assert "ws/app.py" not in excerpt(reported)


VALUES = "from app import A, B\n\n\ndef test_a():\n    assert A == 1\n\n\ndef test_b():\n    assert B == 1\n"


def code(text: str) -> str:
    return f"```python\n{text}\n```"


def test_from_best_the_next_attempt_starts_from_the_fewest_failing_tests(project: Project, model) -> None:
    provider = model([code("A, B = 1, 2"), code("A, B = 3, 3"), code("A = B = 1")])
    verify = {"inputs": ["test_app.py"], "steps": [{"pytest": {"paths": ["test_app.py"]}}]}
    retry = {"max": 2, "from": "best"}
    stage(project, {"test_app.py": VALUES}, outputs=["app.py"], llm={"returns": "code"}, verify=verify, retry=retry)
    assert project.build().code == 0
    third = prompts(provider)[2]
    assert "FILE app.py\nA, B = 1, 2" in third
    assert excerpt(third).startswith(
        "attempt 3 starts again from attempt 1 (1 failed, 1 passed); attempt 2: 2 failed\n\n1 failed, 1 passed\n\n"
    )
    assert "FAILING test_app.py::test_b AssertionError\n" in third


def test_tests_that_passed_before_a_later_step_failed_count_as_passed(project: Project, model) -> None:
    provider = model([code("A = B = 1  # no"), code("A, B = 3, 1"), code("A = B = 1")])
    steps = [{"pytest": {"paths": ["test_app.py"]}}, {"shell": "if grep no app.py; then exit 1; fi"}]
    verify = {"inputs": ["test_app.py"], "steps": steps}
    retry = {"max": 2, "from": "best"}
    stage(project, {"test_app.py": VALUES}, outputs=["app.py"], llm={"returns": "code"}, verify=verify, retry=retry)
    assert project.build().code == 0
    assert "FILE app.py\nA = B = 1  # no" in prompts(provider)[2]


def test_a_prompt_without_feedback_gets_it_at_its_end(project: Project, model) -> None:
    provider = model([code("A, B = 1, 2"), code("A = B = 1")])
    verify = {"inputs": ["test_app.py"], "steps": [{"pytest": {"paths": ["test_app.py"]}}]}
    stage(project, {"test_app.py": VALUES}, outputs=["app.py"], llm={"returns": "code"}, verify=verify, retry=1)
    project.write({"p.j2": "Write app.py."})
    assert project.build().code == 0
    first, second = prompts(provider)
    assert first == "Write app.py."
    assert second.startswith(
        "Write app.py.\n\nThe last response to this prompt failed: verify_failed of `python -m pytest test_app.py`."
    )
    assert second.count("A, B = 1, 2") == second.count("assert 2 == 1") == 1
    assert second.endswith("\n\nwrite only: app.py\n")


def test_recordings_without_the_appended_feedback_stay_valid(project: Project, model) -> None:
    """An earlier version repeated the request; the recorded second sample is what the retry uses."""
    answers = [code("A, B = 1, 2"), code("A = B = 1")]
    llm = {"returns": "code", "transcripts": "t"}
    stage(project, outputs=["app.py"], llm=llm, retry=1, verify=[{"shell": "grep '= B' app.py"}])
    project.write({"p.j2": "Write app.py."})
    provider = model(answers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orch23.resolve.dialogue.uses_feedback", lambda *_: True)
        assert project.build().code == 0
    assert prompts(provider) == ["Write app.py."] * 2
    forget(project, "app.py", "pipeline.lock", ".orch23", "logs")
    provider = model([])
    recorded = {path.name: path.read_bytes() for path in (project.root / "t").iterdir()}
    again = project.build()
    assert (again.code, prompts(provider)) == (0, []), again.err
    assert project.read("app.py") == "A = B = 1\n"
    assert {path.name: path.read_bytes() for path in (project.root / "t").iterdir()} == recorded
