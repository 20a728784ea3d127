"""One build at a time changes a project, and the lock never outlives its process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.pipelines import REACHING_OUTSIDE, calls, ends, green, pipeline, prompt, what_came
from tests.project import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("steps_reach_outside"),  # a step tells outside of its sandbox directory that it runs
]

_REPOSITORY = str(Path(__file__).parents[2])
_PROGRAM = f"{REACHING_OUTSIDE}\nfrom orch23.entry import run; run()"
_PAIRS = 20 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 4
_BUSY = 75


def start(project: Project, *argv: str) -> "subprocess.Popen[bytes]":
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": _REPOSITORY}
    environ["ORCH23_ALLOW_UNSANDBOXED"] = "1"
    command = [sys.executable, "-c", _PROGRAM, "-C", str(project.root), "build", "-j1", *argv]
    return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def test_of_two_builds_at_once_one_works_or_both_do_after_each_other(project: Project) -> None:
    inside = f"mkdir {project.root}-inside; sleep 0.05; rmdir {project.root}-inside"
    project.write(
        pipeline(
            f"""\
  ask: {{inputs: [in.txt], outputs: [said.txt], llm: {{prompt: ask.md.j2, returns: text}}}}
  copy: {{inputs: [said.txt], outputs: [out.txt], shell: '{inside}; cp said.txt out.txt'}}
""",
            {"in.txt": "0\n", "ask.md.j2": prompt("ask", "{{ inputs[0].text }}")},
        )
    )
    statuses = []
    for number in range(1, _PAIRS + 1):
        project.edit("in.txt", f"{number}\n")
        both = [start(project), start(project)]
        reported = [process.communicate()[1].decode() for process in both]
        codes = sorted(process.returncode for process in both)
        assert codes in ([0, 0], [0, _BUSY]), reported
        if codes == [0, _BUSY]:
            assert any("error[E708]" in one and "holds the lock" in one for one in reported), reported
        assert not any("Traceback" in one for one in reported), reported
        assert project.read("out.txt").strip() == str(number)
        assert len(calls(project)) == number, "each question is asked once, whoever comes first"
        statuses.append(codes)
    green(project.build())
    assert set(ends(project).values()) == {"fresh"}
    sys.stdout.write(f"{statuses.count([0, _BUSY])} of {_PAIRS} pairs met\n")
    assert [0, _BUSY] in statuses, "at least once they met"


def test_the_lock_of_a_holder_that_is_killed_is_free_at_once(project: Project) -> None:
    gate = project.root.parent / "gate"
    os.mkfifo(gate)
    hold = f"if [ -p {gate} ]; then echo $$ > {gate}; sleep 77; fi; echo a > a.txt"
    project.write({"pipeline.yaml": f"version: 1\nstages:\n  a: {{outputs: [a.txt], shell: '{hold}'}}\n"})
    with start(project) as holder:
        step = int(what_came(gate, holder))
        with start(project) as refused:
            reported = refused.communicate()[1].decode()
        assert (refused.returncode, str(holder.pid) in reported) == (_BUSY, True), reported
        holder.kill()
        holder.communicate()
    gate.unlink()
    with start(project) as following:
        reported = following.communicate()[1].decode()
    assert following.returncode == 0, reported  # no one waits for a lock: one that is held is 75
    assert project.read("a.txt") == "a\n"
    os.kill(step, signal.SIGKILL)  # without a sandbox no one ends the steps of a killed build
