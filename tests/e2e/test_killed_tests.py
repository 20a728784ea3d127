"""Tests that are killed at the timeout of their step: the next attempt and the user see which, and where it was."""

import pytest

from tests.e2e.test_reported_tests import second_prompt
from tests.project import Project, scripted

HANGS = "def spin():\n    while True:\n        pass\n\n\ndef work():\n    return spin()\n"
TEST = "import app\n\n\ndef test_other():\n    pass\n\n\ndef test_work():\n    assert app.work() == 1\n"


def test_the_killed_test_of_pytest_and_its_stack_are_in_the_second_prompt(project: Project) -> None:
    stage = {
        "inputs": ["task.md"],
        "outputs": ["app.py"],
        "llm": {"returns": "code"},
        "retry": 1,
        "timeout": "5s",
        "verify": {"inputs": ["t/test_app.py"], "steps": [{"pytest": ["t"]}]},
    }
    answers = {
        "make": [f"```python\n{one}```\n" for one in (HANGS, HANGS.replace("while True:\n        pass", "return 1"))]
    }
    project.write({**scripted({"make": stage}, answers), "task.md": "work\n", "t/test_app.py": TEST})
    built = project.build()
    assert built.code == 0, built
    prompt = second_prompt(project)
    assert "killed after 5 s in t/test_app.py::test_work" in prompt
    assert "t/test_app.py:9: in test_work\napp.py:7: in work\napp.py:" in prompt
    assert "site-packages" not in prompt, "frames of pytest say nothing"


@pytest.mark.parametrize("reruns", [0, 1])
def test_the_killed_test_of_another_runner_is_named(project: Project, reruns: int) -> None:
    shell = "printf 'TAP version 13\\n# first\\nok 1 a\\n# second\\n'; sleep 60"
    project.write(
        scripted({"a": {"shell": shell, "timeout": 1, "test_results": {"tap": "stdout"}, "reruns": reruns}}, {})
    )
    built = project.build()
    assert built.code == 1
    assert f"killed after 1 s in second{' (in run 2 of 2)' if reruns else ''}\n" in built.err
