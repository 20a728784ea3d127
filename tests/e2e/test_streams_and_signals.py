"""A program that is started without its streams or its folder, or interrupted while it loads, ends in good order."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

_REPOSITORY = str(Path(__file__).parents[2])
_RUN = "from orch23.entry import run; run()"
PIPELINE = 'version: 1\nname: q\nstages:\n  s: {outputs: [a.txt], shell: "echo a > a.txt; echo b"}\n'
COMMANDS = (("build",), ("plan",), ("validate",), ("log",), ("doctor",), ("--help",), ("--version",), ("build", "-x"))


def start(
    project: Project,
    argv: Sequence[str],
    *,
    program: str = _RUN,
    closed: Sequence[int] = (),
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
) -> "subprocess.CompletedProcess[bytes]":
    """Run the program in a process of its own, which has none of the closed streams."""

    def close() -> None:
        for number in closed:
            os.close(number)

    return subprocess.run(
        [sys.executable, "-c", program, *argv],
        cwd=project.root,
        env={"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": _REPOSITORY},
        stdout=stdout,
        stderr=stderr,
        timeout=120,
        check=False,
        preexec_fn=close,
    )


@pytest.mark.stride(3)
@pytest.mark.parametrize("argv", [("build", "-x"), ("validate", "no.yaml"), ("plan",), ("build",)], ids="_".join)
def test_errors_that_no_one_reads_have_their_exit_codes(project: Project, argv: Sequence[str]) -> None:
    """As in `orch23 build 2>&1 | head -1`."""
    project.write({"pipeline.yaml": PIPELINE.replace("outputs", "outputz")})
    reading, writing = os.pipe()
    os.close(reading)
    gone = start(project, argv, stderr=writing)
    os.close(writing)
    assert gone.returncode == start(project, argv).returncode in {64, 65, 66}


@pytest.mark.stride(19)
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("argv", COMMANDS, ids="_".join)
def test_closed_streams_change_nothing_but_what_is_seen(
    project: Project, argv: Sequence[str], closed: Sequence[int]
) -> None:
    project.write({"pipeline.yaml": PIPELINE})
    assert start(project, ["build"]).returncode == 0
    usual = start(project, argv)
    project.edit("pipeline.yaml", PIPELINE.replace("echo a", "echo c"))
    assert start(project, ["build"], closed=closed).returncode == 0, "also where something is to be done"
    assert project.read("a.txt") == "c\n", "nothing was printed into a file"
    found = start(project, argv, closed=closed)
    assert found.returncode == usual.returncode
    for number, (said, plainly) in enumerate([(found.stdout, usual.stdout), (found.stderr, usual.stderr)], start=1):
        assert bool(said) == (bool(plainly) and number not in closed)
    assert b"Traceback" not in found.stdout + found.stderr
    assert not list(project.root.glob("logs/crash-*"))


@pytest.mark.parametrize("argv", [("--version",), ("plan",), ("--help",)], ids="_".join)
def test_a_full_device_is_reported_in_a_line(project: Project, argv: Sequence[str]) -> None:
    project.write({"pipeline.yaml": PIPELINE})
    with Path("/dev/full").open("wb") as full:
        found = start(project, argv, stdout=full)
    assert found.returncode == 74
    assert found.stderr.startswith(b"error[E650]: No space left on device\n")


@pytest.mark.stride(3)
@pytest.mark.parametrize("argv", [("build",), ("plan",), ("doctor",), ("init", "quickstart"), ("-C", ".", "log")])
def test_a_working_directory_that_was_removed_is_reported(project: Project, argv: Sequence[str]) -> None:
    program = f"import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); {_RUN}"
    found = start(project, argv, program=program)
    assert found.returncode == 66
    assert found.stderr.startswith(b"error[E667]: the working directory was removed\n")
    assert b"Traceback" not in found.stderr


def test_another_folder_can_be_named_where_the_working_directory_was_removed(project: Project) -> None:
    project.write({"pipeline.yaml": PIPELINE})
    program = f"import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); {_RUN}"
    found = start(project, ["-C", str(project.root), "build"], program=program)
    assert found.returncode == 0, found.stderr.decode()
    assert project.read("a.txt") == "a\n"


INTERRUPTING = """
import os, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Finder())
"""
LOADED = (
    "orch23.snapshot.fast_path",
    "orch23.cli.main",
    "click",
    "orch23.cli.actions.build",
    "yaml",
    "orch23.engine.build",
)


@pytest.mark.stride(7)
@pytest.mark.parametrize("name", LOADED)
def test_an_interrupt_while_the_program_loads_ends_it_without_a_word(project: Project, name: str) -> None:
    project.write({"pipeline.yaml": PIPELINE})
    program = INTERRUPTING.format(name=name, number=int(signal.SIGINT)) + _RUN
    found = start(project, ["build"], program=program)
    assert found.returncode == 130, found.stderr.decode()
    assert b"Traceback" not in found.stderr
    assert not project.exists("a.txt")
    assert start(project, ["build"]).returncode == 0


def test_an_interrupt_while_the_program_ends_ends_it_without_a_word(project: Project) -> None:
    at_end = f"import atexit, os; atexit.register(os.kill, os.getpid(), {int(signal.SIGINT)}); {_RUN}"
    found = start(project, ["--help"], program=at_end)
    assert found.returncode == 130
    assert found.stderr == b""


@pytest.mark.stride(2)
@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_a_pipeline_with_names_outside_ascii_builds_in_an_ascii_locale(project: Project, locale: str) -> None:
    text = PIPELINE.replace("echo b", "echo \u2014 > \u00e9.txt").replace("[a.txt]", "[a.txt, \u00e9.txt]")
    project.write({"pipeline.yaml": text})
    # Python would use UTF-8 in these locales by itself: without that, they are as any locale of one byte a character.
    environ = {"LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PATH": os.environ["PATH"]}
    environ |= {"HOME": str(project.home), "PYTHONPATH": _REPOSITORY}
    command = [sys.executable, "-c", _RUN, "build", "--output", "plain"]
    done = subprocess.run(command, cwd=project.root, env=environ, capture_output=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, b"")
    assert project.read("\u00e9.txt") == "\u2014\n"
    assert b" + s" in done.stderr, "marks that the terminal can show"
    assert b"\\xe9.txt" in done.stderr
