"""Everything that happens becomes an exit code, and no traceback is shown."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from orch23.cli.group import orch23
from orch23.cli.main import main
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import BusyError, ConfigurationError, CorruptStateError, ExitCode, Orch23Error


def command_that_raises(error: BaseException) -> click.Command:
    @click.command("fails")
    def fails() -> None:
        raise error

    return fails


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def call(error: BaseException) -> int:
        monkeypatch.setitem(orch23.commands, "fails", command_that_raises(error))
        return main(["-C", str(tmp_path), "fails"])

    return call


@pytest.mark.parametrize("kind", [BusyError, ConfigurationError, CorruptStateError, Orch23Error])
def test_each_error_exits_with_its_code(failing, kind, capsys: pytest.CaptureFixture[str]) -> None:
    assert failing(kind(Diagnostic("E999", "so it is", hint="do that"))) == kind.exit_code
    assert capsys.readouterr().err == "error[E999]: so it is\n  = help: do that\n"


def test_a_bug_is_one_line_and_its_traceback_a_file(failing, tmp_path: Path, capsys) -> None:
    assert failing(KeyError("x\x1b[2J")) == ExitCode.BUG
    printed = capsys.readouterr()
    assert printed.err.startswith("error: this is a bug in orch23 (KeyError: ")
    assert printed.err.count("\n") == 1
    assert "\x1b" not in printed.err
    assert "Traceback" not in printed.out + printed.err
    (crash,) = (tmp_path / "logs").glob("crash-*.txt")
    assert crash.name in printed.err
    assert crash.read_text().startswith("Traceback")


def test_a_bug_is_reported_even_if_no_file_can_be_written(failing, tmp_path: Path, capsys) -> None:
    (tmp_path / "logs").write_text("a file is in the way")
    assert failing(RuntimeError("x")) == ExitCode.BUG
    assert "could not be written" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_outside_a_build_is_130_and_silent(failing, error, capsys) -> None:
    assert failing(error) == ExitCode.SIGINT
    assert capsys.readouterr().err == ""


def test_a_closed_pipe_is_not_an_error(failing, capsys, monkeypatch) -> None:
    silenced: list[object] = []
    monkeypatch.setattr("orch23.cli.error_report.redirect_to_devnull", silenced.append)
    assert failing(BrokenPipeError(32, "gone")) == ExitCode.OK
    assert capsys.readouterr().err == ""
    assert len(silenced) == 2


@pytest.mark.needs("inspecting", "upkeep")
@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--nope"],
        ["buidl"],
        ["build", "--jobs", "0"],
        ["--color", "red", "runs"],
        ["cache"],
        ["cache", "nope"],
    ],
)
def test_a_wrong_command_line_is_64_never_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 64
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Usage: orch23" in printed.err


@pytest.mark.slow
def test_a_misspelled_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    """In a process of its own: there no command is loaded yet."""
    argv = [sys.executable, "-c", "from orch23.entry import run; run()", "statsu"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.splitlines() == [
        "Usage: orch23 [OPTIONS] [COMMAND] [ARGS]...",
        "error: no such command: `statsu`",
        "  = help: did you mean `status`? `orch23 --help` lists commands",
    ]
    assert main(["quux"]) == ExitCode.USAGE
    assert "did you mean" not in capsys.readouterr().err


def test_version_and_help_go_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("orch23 ")
    assert main(["build", "--help"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("Usage: orch23 build")


@pytest.mark.needs("inspecting")
def test_options_come_from_the_environment_too(monkeypatch, tmp_path: Path, capsys) -> None:
    monkeypatch.setenv("ORCH23_RUNS_JSON", "1")
    assert main(["-C", str(tmp_path), "runs"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("{")
    monkeypatch.setenv("ORCH23_COLOR", "red")
    assert main(["runs"]) == ExitCode.USAGE


def test_run_exits_with_the_code_and_runs_exit_handlers() -> None:
    program = (
        "import atexit, sys; from orch23.entry import run; sys.argv[1:] = ['--nope']; "
        "atexit.register(print, 'at the end'); run()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == ExitCode.USAGE
    assert ended.stdout == "at the end\n"
    assert "--nope" in ended.stderr
