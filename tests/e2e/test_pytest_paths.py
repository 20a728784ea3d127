"""Test files that pytest does not get, and directories of modules that do not exist, are reported."""

import pytest

from tests.project import Project, scripted

CODE = "```python\ndef first():\n    return 1\n```"
TEST = "from app import first\n\n\ndef test_first():\n    assert first() == 1\n"


def write(project: Project, python_path: str = "src", extra: str = "tests/test_more.py") -> None:
    steps = [{"check": "python_syntax"}, {"pytest": {"paths": ["tests"], "pythonpath": [python_path]}}]
    stage = {
        "outputs": ["src/app.py"],
        "llm": {"returns": "code"},
        "verify": {"inputs": ["tests/test_app.py"], "steps": steps},
    }
    project.write({**scripted({"app": stage}, {"app": [CODE]}), "tests/test_app.py": TEST, extra: "x = 1\n"})


@pytest.mark.slow
@pytest.mark.parametrize("command", ["plan", "validate", "build"])
def test_a_test_file_that_is_not_an_input_is_reported(project: Project, command: str) -> None:
    write(project)
    done = project.run(command)
    assert done.code == 0
    shown = done.out + done.err
    assert shown.count("`tests/test_more.py` is not in `inputs`, so pytest does not run it") == 1
    assert "`verify: {inputs: [..., tests/test_more.py]}`" in shown
    assert "W827" in shown


@pytest.mark.parametrize("extra", ["tests/helper.py", "tests/deep/test_more.py", "tests/test_app.py"])
def test_other_files_are_not_reported(project: Project, extra: str) -> None:
    write(project, extra=extra)
    assert "W827" not in project.run("validate").out + project.run("validate").err


@pytest.mark.parametrize(
    ("python_path", "hint"), [("scr", "did you mean `src`?"), ("lib", "did you mean `src`, where the stage writes?")]
)
def test_a_directory_of_modules_that_no_stage_makes_is_reported(project: Project, python_path: str, hint: str) -> None:
    write(project, python_path, extra="tests/helper.py")
    for command in ("plan", "validate"):
        done = project.run(command)
        assert done.code == 0
        shown = done.out + done.err
        assert f"`pythonpath` of stage `app` has `{python_path}`, which does not exist, and no stage makes it" in shown
        assert hint in shown
