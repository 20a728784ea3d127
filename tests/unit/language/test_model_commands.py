"""Commands that a model wrote: what is run of them, and what is refused."""

import pytest

from orch23.language.document import CommandsDocument
from orch23.language.reading import independent_problems, read_document
from orch23.model.fields import Problems
from orch23.model.pipeline import CommandsStep, SliceInput, Stage, Verify
from orch23.resolve.commands import (
    MAX_COMMAND_LENGTH,
    MAX_COMMANDS,
    command_step,
    command_steps,
    read_commands,
    resolve_commands,
)
from orch23.steps.pytest.spec import PytestStep
from orch23.steps.shell.spec import ShellStep

ALLOW = ("python", "pytest", "ruff")


@pytest.mark.parametrize(
    ("command", "step"),
    [
        ("python -c 'import a; assert a.f() > 2 | 1'", ShellStep(("python", "-c", "import a; assert a.f() > 2 | 1"))),
        ('python -c "print(1); x = 2 > 1"', ShellStep(("python", "-c", "print(1); x = 2 > 1"))),
        ("python -c 'a\nb'", ShellStep(("python", "-c", "a\nb"))),
        ("python x.py '`$('", ShellStep(("python", "x.py", "`$("))),
        ("python x.py a\\;b 'it'\\''s'", ShellStep(("python", "x.py", "a;b", "it's"))),
        ("  ruff   check .  ", ShellStep(("ruff", "check", "."))),
        ("pytest -q tests/test_a.py::test_b", PytestStep(args=("-q",), paths=("tests/test_a.py::test_b",))),
        ("pytest", PytestStep()),
        ("python -m pytest -xq -k 'a or b' tests", PytestStep(args=("-xq", "-k", "a or b"), paths=("tests",))),
        ("pytest --tb=short -rA --maxfail 1", PytestStep(args=("--tb=short", "-rA", "--maxfail", "1"))),
        ("pytest 'tests/test_a.py::test_b[*-?]'", PytestStep(paths=("tests/test_a.py::test_b[*-?]",))),
    ],
)
def test_a_plain_command_is_run(command, step):
    assert command_step(command, ALLOW) == step


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("python a.py | grep x", "operator `|`"),
        ("python a.py||python b.py", "operator `|`"),
        ("python a.py && python b.py", "operator `&`"),
        ("python a.py;python b.py", "operator `;`"),
        ("python a.py > out", "operator `>`"),
        ("python a.py 2>&1", "operator `>`"),
        ("python a.py < in", "operator `<`"),
        ("(python a.py)", "operator `(`"),
        ("python a.py &", "operator `&`"),
        ("python `id`", "backtick"),
        ('python "`id`"', "backtick"),
        ("python $(id)", "`$(`"),
        ('python "$(id)"', "`$(`"),
        ("python 'a' ; b", "operator `;`"),
        ("python a\\\\;b", "operator `;`"),
        ("python a.py\npython b.py", "more than one line"),
        ("python 'a", "cannot be split"),
        ("python a\\", "cannot be split"),
        ("", "is empty"),
        ("''", "not allowed"),
        ("rm -rf x", "`rm` is not allowed"),
        ("PYTHON a.py", "`PYTHON` is not allowed"),
        ("A=1 python a.py", "`A=1` is not allowed"),
        ("/usr/bin/python a.py", "is a path"),
        ("../python a.py", "is a path"),
        ("./python a.py", "is a path"),
        ("python a\x00b", "control character"),
        ("python a\x1b[0m", "control character"),
        ("python " + "a" * MAX_COMMAND_LENGTH, "at most 4,000 are allowed"),
        ("pytest -p evil", "option `-p`"),
        ("pytest -c other.ini", "option `-c`"),
        ("pytest -o addopts=-x", "option `-o`"),
        ("python -m pytest --rootdir=/", "option `--rootdir=/`"),
        ("pytest --deselect a", "option `--deselect`"),
        ("pytest -qp evil", "option `-qp`"),
        ("pytest -k", "needs a value"),
        ("pytest /etc/test_a.py", "not a plain path"),
        ("pytest ../test_a.py::test_b", "not a plain path"),
        ("pytest tests/*.py", "not a plain path"),
    ],
)
def test_command_that_is_not_plain_is_refused(command, why):
    refused = command_step(command, ALLOW)
    assert isinstance(refused, str)
    assert why in refused


def test_pytest_needs_leave_of_its_own_name():
    assert isinstance(command_step("pytest", ("python",)), str)
    assert isinstance(command_step("python -m pytest", ("pytest",)), str)


def read(**body):
    document, wrong = read_document(body, CommandsDocument, "s/commands")
    at = Problems("s/commands")
    step = None if document is None else read_commands(document.allow, document.source, at)
    return step, [(problem.path, problem.code) for problem in (*wrong, *independent_problems(wrong, at.found))]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"from": ["a"], "allow": ["sh"]}, ("s/commands/allow/0", "E812")),
        ({"from": ["python"], "allow": ["python", "/bin/ls"]}, ("s/commands/allow/1", "E812")),
        ({"from": ["python"], "allow": ["python", ".."]}, ("s/commands/allow/1", "E812")),
        ({"from": ["a"]}, ("s/commands/allow", "E810")),
        ({"allow": ["python"]}, ("s/commands/from", "E810")),
        ({"from": {"a": 1}, "allow": ["python"]}, ("s/commands/from", "E811")),
        ({"from": ["python"] * (MAX_COMMANDS + 1), "allow": ["python"]}, ("s/commands/from", "E835")),
        ({"from": ["python", 3], "allow": ["python"]}, ("s/commands/from/1", "E811")),
        ({"from": "plan.json", "allow": ["python"]}, ("s/commands/from", "E812")),
        ({"from": "plan.md#Heading", "allow": ["python"]}, ("s/commands/from", "E812")),
        ({"from": "../plan.json#/a", "allow": ["python"]}, ("s/commands/from", "E850")),
        ({"from": ["python"], "allow": ["python"], "shell": "x"}, ("s/commands/shell", "E802")),
    ],
)
def test_a_step_that_is_not_as_it_must_be(body, problem):
    assert problem in read(**body)[1]


def test_a_list_in_a_file_is_known_once_it_is_resolved():
    step, problems = read(**{"from": "plan.json#/a", "allow": ["python"]})
    assert problems == []
    assert step == CommandsStep(allow=("python",), source=SliceInput("plan.json", "/a"))
    stage = Stage(name="s", step=ShellStep(("x",)), verify=Verify((step,)))
    known, refused = resolve_commands(stage, {("plan.json", "/a"): '["python -V"]'})
    assert refused == []
    (filled,) = known.verify.steps
    assert isinstance(filled, CommandsStep)
    assert command_steps(filled) == (ShellStep(("python", "-V")),)
    for text in ('["rm x"]', '"python"', "[3]", "null", '{"a": 1}'):
        same, refused = resolve_commands(stage, {("plan.json", "/a"): text})
        assert [one.code for one in refused] == ["E835"], text
        assert same == stage
