"""The argv of steps."""

from orch23.resolve.commands import display_command
from orch23.runners.pytest import pytest_command
from orch23.runners.shell import shell_command
from orch23.steps.pytest.spec import PytestStep
from orch23.steps.shell.spec import ShellStep


def test_a_list_is_argv_and_a_string_is_bash_with_every_error_fatal() -> None:
    assert shell_command(ShellStep(("python", "-m", "compileall", "todo dir"))) == (
        "python",
        "-m",
        "compileall",
        "todo dir",
    )
    assert shell_command(ShellStep("a | b")) == ("bash", "-euo", "pipefail", "-c", "a | b")


def test_the_default_pytest_command_is_this_one() -> None:
    """A change of it makes every pytest stage of every user stale, so it is spelled out here."""
    command = pytest_command(PytestStep(args=("-q",), paths=("tests",)))
    assert command.argv == (
        *("python", "-P", "-m", "pytest", "-p", "no:cacheprovider", "-p", "orch23_reporter"),
        *("-c", "{orch23:tools}/orch23.ini", "--rootdir=.", "--confcutdir=."),
        *("-o", "pythonpath='{orch23:cwd}'", "-o", "addopts=", "-q", "tests"),
    )
    assert command.env == {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def test_config_plugins_and_pythonpath_are_the_authors() -> None:
    step = PytestStep(config="pytest.ini", plugins=("xdist", "anyio"), pythonpath=("src", "./a b", "/opt/lib"))
    argv = pytest_command(step).argv
    assert argv[argv.index("-c") + 1] == "pytest.ini"
    assert "-p xdist -p anyio" in " ".join(argv)
    assert "pythonpath='{orch23:cwd}/src' '{orch23:cwd}/a b' /opt/lib" in argv


def test_the_authors_arguments_come_last_so_that_ours_cannot_be_taken_for_paths() -> None:
    argv = pytest_command(PytestStep(args=("-o", "addopts=--co"), paths=("t",))).argv
    assert argv[-3:] == ("-o", "addopts=--co", "t")


def test_nothing_of_the_machine_is_in_a_command() -> None:
    command = pytest_command(PytestStep())
    assert not [part for part in (*command.argv, *command.env.values()) if part.startswith("/")]


def test_a_command_is_shown_as_a_person_would_type_it() -> None:
    assert display_command(pytest_command(PytestStep(args=("-q",), paths=("a b",))).argv) == "python -m pytest -q 'a b'"
    assert display_command(("echo", "a b")) == "echo 'a b'"
