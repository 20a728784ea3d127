"""A build that is asked to stop: it says so by its exit code, leaves no process, and the next build goes on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.pipelines import REACHING_OUTSIDE, calls, green, noted, pipeline, prompt, what_came
from tests.project import Project

pytestmark = pytest.mark.usefixtures("steps_reach_outside")  # they note outside of their sandbox that they ran

_PROGRAM = f"{REACHING_OUTSIDE}\nfrom orch23.entry import run; run()"
_REPOSITORY = str(Path(__file__).parents[2])
_SIGNALS = [(signal.SIGINT, 130, "wait"), (signal.SIGTERM, 143, "held"), (signal.SIGHUP, 129, "wait")]

# each tells its own number and that of a child which will not go by itself
HELD_COMMAND = """\
if [ ! -p {gate} ]; then exit 0; fi
(trap '' INT TERM HUP; exec sleep 77) &
setsid sleep 78 &
echo $$ $! $(jobs -p) > {gate}
wait
"""
HELD_MODEL = """
import subprocess
if name == "held" and os.path.exists("{gate}"):
    child = subprocess.Popen(["sleep", "79"])
    with open("{gate}", "w") as gate:
        gate.write(str(os.getpid()) + " " + str(child.pid) + "\\n")
    child.wait()
"""


def story(project: Project, held: str) -> Path:
    """Write a pipeline whose stage `held` waits, as long as there is a gate, after it told its processes there."""
    gate = project.root.parent / "gate"
    os.mkfifo(gate)
    project.write(
        pipeline(
            f"""\
  ask: {{outputs: [said.txt], llm: {{prompt: ask.md.j2, returns: text}}}}
  held: {{inputs: [said.txt], outputs: [h.txt], llm: {{prompt: held.md.j2, returns: text}}}}
  wait:
    inputs: [{"said.txt" if held == "wait" else "h.txt"}]
    outputs: [w.txt]
    shell: 'echo w > w.txt; bash {project.root.parent}/hold.sh'
""",
            {"ask.md.j2": prompt("ask", "said"), "held.md.j2": prompt("held", "held")},
        )
    )
    (project.root.parent / "hold.sh").write_text(HELD_COMMAND.format(gate=gate))
    model = project.read("model.py")
    if held == "held":
        project.edit("model.py", model.replace("sys.stdout.write", HELD_MODEL.format(gate=gate) + "sys.stdout.write"))
    return gate


def start(project: Project) -> "subprocess.Popen[bytes]":
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": _REPOSITORY}
    environ["ORCH23_ALLOW_UNSANDBOXED"] = "1"
    argv = [sys.executable, "-c", _PROGRAM, "-C", str(project.root), "build", "-j1"]
    return subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def running(numbers: list[int]) -> list[int]:
    """Return those of some processes that are there and not merely waited for."""
    found = []
    for number in numbers:
        try:
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX":
            found.append(number)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "held"), _SIGNALS)
def test_a_signal_ends_the_build_and_all_it_started_and_the_next_one_goes_on(
    project: Project, number: signal.Signals, code: int, held: str
) -> None:
    gate = story(project, held)
    process = start(project)
    numbers = [int(word) for word in what_came(gate, process).split()]
    assert len(running(numbers)) == len(numbers) >= 2
    process.send_signal(number)
    _, reported = process.communicate(timeout=30)
    assert process.returncode == code, reported.decode()
    assert running(numbers) == [], reported.decode()
    assert b"Traceback" not in reported
    finished = project.events()[-1]
    assert (finished["type"], finished["data"]["exit_code"]) == ("run_finished", code)
    ran = project.run("log", "--commands", "--json").json()["commands"]
    expected = [("ask", 0), ("held", None)] if held == "held" else [("ask", 0), ("held", 0), ("wait", None)]
    assert [(one["stage"], one["exit_code"]) for one in ran] == expected
    assert {one["attempt"] for one in ran} == {1}
    gate.unlink()
    assert project.plan()["ask"] == "fresh", "what was done is kept"
    green(project.build("-j1"))
    assert [one for one in calls(project) if one == "ask"] == ["ask"]
    assert project.read("w.txt") == "w\n"
    assert noted(project) == []


@pytest.mark.slow
def test_a_build_that_is_killed_leaves_steps_that_the_next_one_ends(project: Project) -> None:
    gate = story(project, "wait")
    process = start(project)
    numbers = [int(word) for word in what_came(gate, process).split()]
    process.kill()
    process.communicate(timeout=30)
    assert running(numbers) == numbers, "without a sandbox nothing ends them"
    gate.unlink()
    outcome = project.build("-j1")
    green(outcome)
    assert running(numbers) == []
    assert "processes that a killed build left running" in outcome.err


@pytest.mark.slow
def test_a_second_signal_does_not_wait(project: Project) -> None:
    gate = story(project, "wait")
    process = start(project)
    what_came(gate, process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    gate.unlink()
    green(project.build())
