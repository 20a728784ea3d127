"""With `--wait-lock` a command waits until another build of the project ends, and then begins."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.pipelines import REACHING_OUTSIDE, green, shell, what_came
from tests.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60), pytest.mark.usefixtures("steps_reach_outside")]

_REPOSITORY = str(Path(__file__).parents[2])
_PROGRAM = f"{REACHING_OUTSIDE}\nfrom orch23.entry import run; run()"
_BUSY = 75


@contextmanager
def started(project: Project, *argv: str, **environ: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a command in a process of its own, which has the command line of the program; kill it afterwards."""
    environ |= {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": _REPOSITORY}
    environ["ORCH23_ALLOW_UNSANDBOXED"] = "1"
    program = Path(f"{project.root}-bin/orch23")
    program.parent.mkdir(exist_ok=True)
    program.write_text(_PROGRAM)
    command, out = [sys.executable, str(program), *argv], subprocess.DEVNULL
    with subprocess.Popen(command, cwd=project.root, env=environ, stdout=out, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def holding(project: Project) -> Iterator["subprocess.Popen[bytes]"]:
    """Build, and stop in a stage until the file `go` beside the project exists; the stage after it reads in.txt."""
    gate = Path(f"{project.root}-gate")
    os.mkfifo(gate)
    step = f"if [ -p {gate} ]; then echo $$ > {gate}; sleep 77; fi; echo a > a.txt"
    project.write(shell(f"  a: {{outputs: [a.txt], shell: '{step}'}}\n"))
    with started(project, "build", "-j1") as holder:
        number = int(what_came(gate, holder))
        gate.unlink()
        yield holder
    with suppress(ProcessLookupError):  # the next build kills what a killed one has left
        os.kill(number, signal.SIGKILL)


def first_line(process: "subprocess.Popen[bytes]") -> str:
    assert process.stderr is not None
    return process.stderr.readline().decode()


def end(process: "subprocess.Popen[bytes]") -> tuple[int, str]:
    return process.wait(), process.communicate()[1].decode()


def kept(project: Project) -> dict[str, bytes]:
    return {path: data for path, data in project.files().items() if not path.startswith(".orch23/rooms/")}


@pytest.mark.stride(5)
@pytest.mark.parametrize("option", [("--wait-lock",), ("--wait-lock=1h30m",), ("--wait-lock", "5000"), ()])
def test_a_build_waits_for_another_one_and_plans_after_it(project: Project, option: tuple[str, ...]) -> None:
    variable = {} if option else {"ORCH23_BUILD_WAIT_LOCK": "2h"}
    with holding(project) as holder, started(project, "build", *option, "pipeline.yaml", **variable) as waiting:
        line = first_line(waiting)
        assert line.startswith(f"waiting for another build: process {holder.pid} holds the lock since 20"), line
        assert line.endswith(": `orch23 build -j1`\n"), line
        project.write(shell("  a: {outputs: [b.txt], shell: 'echo b > b.txt'}\n"))  # what the waiting build sees
        holder.kill()
        code, reported = end(waiting)
    assert (code, reported.count("waiting")) == (0, 0), reported
    assert (project.read("b.txt"), project.exists("a.txt")) == ("b\n", False)
    again = project.build()
    assert (again.code, "waiting" in again.err) == (0, False), "a snapshot repeats nothing of it"


@pytest.mark.stride(4)
@pytest.mark.parametrize(
    "argv", [("build",), ("clean",), ("reset",), ("gc",), ("release", "a"), ("cache", "verify"), ("accept", "a")]
)
def test_every_command_that_takes_the_lock_waits_or_is_refused(project: Project, argv: tuple[str, ...]) -> None:
    with holding(project) as holder:
        before = kept(project)
        with started(project, *argv) as refused:
            code, reported = end(refused)
        assert (code, "`--wait-lock` waits until it ends" in reported) == (_BUSY, True), reported
        with started(project, *argv, "--wait-lock", "0.3") as late:
            code, reported = end(late)
        assert (code, reported.count("waiting for another build"), "waited 0.3s" in reported) == (_BUSY, 1, True)
        with started(project, *argv, "--wait-lock") as waiting:
            first_line(waiting)
            waiting.send_signal(signal.SIGINT)
            code, reported = end(waiting)
        assert (code, reported) == (130, "")
        assert kept(project) == before, "nothing was written"
        with started(project, *argv, "--wait-lock") as waiting:
            first_line(waiting)
            holder.kill()
            code, reported = end(waiting)
    assert (code, "E708" in reported) == ({"accept": 64, "release": 66}.get(argv[0], 0), False), reported


def test_several_builds_wait_and_all_have_their_turn(project: Project) -> None:
    with ExitStack() as stack:
        holder = stack.enter_context(holding(project))
        waiting = [stack.enter_context(started(project, "build", "--wait-lock")) for _ in range(3)]
        assert all(first_line(one).startswith("waiting") for one in waiting)
        holder.kill()
        ended = [end(one) for one in waiting]
    assert [code for code, _ in ended] == [0, 0, 0], ended
    assert project.read("a.txt") == "a\n"


def test_without_another_build_the_option_changes_nothing(project: Project) -> None:
    project.write(shell("  a: {outputs: [a.txt], shell: 'echo a > a.txt'}\n"))
    green(project.build("--wait-lock"))
    first = project.build()
    green(first)
    for option in (("--wait-lock",), ("--wait-lock=5m",), ("--wait-lock", "5m"), ("--wait-lock", "a")):
        again = project.build(*option)
        assert (again.code, again.err) == (0, first.err if option[-1] != "a" else again.err)
    for option in (("--wait-lock", "5x"), ("--wait-lock=5x",), ("--wait-lock=",), ("--wait-lock=-5",)):
        refused = project.build(*option)
        value = option[-1].removeprefix("--wait-lock=")
        said = f"`{value}` is not a duration: write 300s, 45m, 2h"
        assert (refused.code, said in refused.err) == (64, True), refused.err
