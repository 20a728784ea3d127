"""A `--resample` that was interrupted stays promised: the next build calls each of its models once, and none twice."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.pipelines import REACHING_OUTSIDE, calls, ends, green, pipeline, what_came
from tests.model_program import ROOT
from tests.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("steps_reach_outside")]

_REPOSITORY = str(Path(__file__).parents[2])
_PROGRAM = f"{REACHING_OUTSIDE}\nfrom orch23.entry import run; run()"
# A model whose responses all differ. If there is a named pipe for its stage, it says that it runs, and never responds.
_MODEL = f"""\
import json, os, pathlib, sys, time
name = json.load(sys.stdin)["messages"][-1]["content"].split()[0]
root = {ROOT}
log = pathlib.Path(root + "-calls.log")
log.open("a").write(name + "\\n")
if os.path.exists(root + "-gate-" + name):
    pathlib.Path(root + "-gate-" + name).write_text("here\\n")
    time.sleep(77)
if os.path.exists(root + "/broken"):
    sys.exit("no network")
print(name, len(log.read_text().splitlines()))
"""
A = """\
  a:
    outputs: [a.txt]
    llm: {prompt: a.j2, returns: text}
    verify: [{shell: 'true; grep -q "a [3-9]" a.txt'}]
"""
B = "  b: {outputs: [b.txt], llm: {prompt: b.j2, returns: text}}\n"
OTHER = "  other: {outputs: [other.txt], shell: 'echo x > other.txt'}\n"
ITEMS = """\
  list: {inputs: [names.json], outputs: [list.json], shell: 'cp names.json list.json'}
  each:
    needs: [list]
    foreach: {from: list.json}
    outputs: ['${{ item }}.txt']
    llm: {prompt: each.j2, returns: text}
"""


def written(project: Project, stages: str) -> Project:
    prompts = {f"{name}.j2": name for name in "abc"}
    files = {**prompts, "each.j2": "{{ item }}", "names.json": '["u", "v", "w"]\n'}
    return project.write({**pipeline(stages, files, head="jobs: 1\n"), "model.py": _MODEL})


def killed_at(project: Project, name: str, number: int, *argv: str) -> None:
    """Build until the model of a stage is called, then send a signal; a later call of the stage responds."""
    gate = Path(f"{project.root}-gate-{name}")
    os.mkfifo(gate)
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": _REPOSITORY}
    environ["ORCH23_ALLOW_UNSANDBOXED"] = "1"
    command = [sys.executable, "-c", _PROGRAM, "-C", str(project.root), "build", "-j1", *argv]
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert what_came(gate, process) == "here\n"
        process.send_signal(number)
        reported = process.communicate()[1].decode()
    gate.unlink()
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), reported


def resampled(*names: str) -> Sequence[str]:
    return [word for name in names for word in ("--resample", name)]


def reasons(project: Project) -> dict[str, list[str]]:
    shown = project.run("plan", "pipeline.yaml", "--json").json()["stages"]
    return {one["stage"]: [reason["code"] for reason in one["reasons"]] for one in shown if one["action"] != "fresh"}


@pytest.mark.stride(3)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_next_build_calls_the_model_that_was_to_be_called_again_once(project: Project, number: int) -> None:
    assert written(project, A + B).build().code == 1
    assert calls(project) == ["a"], "a response that its verification refuses"
    assert project.build().code == 1
    assert calls(project) == ["a"], "which is replayed"
    killed_at(project, "a", number, *resampled("a"))
    assert reasons(project)["a"] == ["resample"]
    assert "a      run      `--resample` calls its model again" in project.run("plan").out
    assert project.run("plan", "--json").json()["llm_calls"]["min"] == 2
    green(project.build("--keep-going"))
    assert (calls(project), project.read("a.txt")) == (["a", "a", "a", "b"], "a 3\n")
    for _ in range(2):
        green(project.build())
        assert set(project.plan().values()) == {"fresh"}
    green(project.build("--force", "a"))
    assert len(calls(project)) == 4


def test_a_result_is_renewed_although_it_is_up_to_date(project: Project) -> None:
    green(written(project, B).build())
    green(project.build())  # with a snapshot, by which a build with nothing to do is answered
    killed_at(project, "b", signal.SIGKILL, *resampled("b"))
    assert "b" in project.run("status").out
    green(project.build())
    assert (calls(project), project.read("b.txt")) == (["b"] * 3, "b 3\n")
    green(project.build())
    assert len(calls(project)) == 3


def test_of_several_stages_only_those_that_had_no_end_are_called(project: Project) -> None:
    green(written(project, B + B.replace("b", "c")).build())
    killed_at(project, "c", signal.SIGINT, *resampled("b", "c"))
    assert calls(project) == ["b", "c", "b", "c"]
    assert set(reasons(project)) == {"c"}
    killed_at(project, "c", signal.SIGKILL)  # a plain build that is interrupted as well
    green(project.build())
    assert calls(project) == ["b", "c", "b", "c", "c", "c"]
    assert (project.read("b.txt"), project.read("c.txt")) == ("b 3\n", "c 6\n")
    green(project.build())
    assert len(calls(project)) == 6


@pytest.mark.stride(5)
@pytest.mark.parametrize("source", ["list.json", "names.json"])
@pytest.mark.parametrize("names", [("each",), ("each@u", "each@v")])
def test_of_a_foreach_only_the_items_are_called_that_had_no_end(
    project: Project, source: str, names: Sequence[str]
) -> None:
    green(written(project, ITEMS.replace("from: list.json", f"from: {source}")).build())
    killed_at(project, "v", signal.SIGKILL, *resampled(*names))
    assert calls(project)[3:] == ["u", "v"]
    green(project.build("each@v"))
    assert calls(project)[3:] == ["u", "v", "v"]
    green(project.build("list"))
    green(project.build())
    rest = ["w"] if names == ("each",) else []
    assert calls(project)[3:] == ["u", "v", "v", *rest]
    green(project.build())
    assert len(calls(project)) == 6 + len(rest)
    assert "up to date" in project.build().err


def test_a_response_that_has_arrived_is_used_and_not_paid_for_again(project: Project) -> None:
    stages = A.replace("true", f"if [ -p {project.root}-step ]; then echo here > {project.root}-step; sleep 77; fi")
    assert written(project, stages + OTHER).build("-k").code == 1
    os.mkfifo(f"{project.root}-step")
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": _REPOSITORY}
    environ["ORCH23_ALLOW_UNSANDBOXED"] = "1"
    for argv in (resampled("a"), ()):
        command = [sys.executable, "-c", _PROGRAM, "-C", str(project.root), "build", "-j1", *argv]
        with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as process:
            assert what_came(Path(f"{project.root}-step"), process) == "here\n"
            process.send_signal(signal.SIGINT)
    os.unlink(f"{project.root}-step")
    assert calls(project) == ["a", "a"], "the second build uses what the first one paid for"
    green(project.build("other"))
    assert project.build().code == 1, "2 does not pass"
    assert calls(project) == ["a", "a"]
    assert "--resample a" in project.build().err
    green(project.build(*resampled("a")))
    assert calls(project) == ["a", "a", "a"]


@pytest.mark.stride(4)
@pytest.mark.parametrize("between", [("other",), ("--offline",), ("--replay",), ("-n",), ("--only", "other")])
def test_a_build_that_does_not_call_it_keeps_the_promise(project: Project, between: Sequence[str]) -> None:
    green(written(project, B + OTHER).build())
    killed_at(project, "b", signal.SIGTERM, *resampled("b"))
    for _ in range(2):
        green(project.build(*between))
        assert calls(project) == ["b", "b"]
    green(project.build())
    assert (calls(project), ends(project)["b"]) == (["b", "b", "b"], "built")
    green(project.build())
    assert len(calls(project)) == 3


def test_the_option_force_runs_the_stage_with_its_recorded_response_instead(project: Project) -> None:
    green(written(project, B).build())
    killed_at(project, "b", signal.SIGINT, *resampled("b"))
    green(project.build("--force", "b"))
    green(project.build())
    assert (calls(project), project.read("b.txt")) == (["b", "b"], "b 1\n")


def test_a_stage_without_a_model_and_one_that_is_not_there_any_more_are_forgotten(project: Project) -> None:
    green(written(project, B + OTHER).build())
    killed_at(project, "b", signal.SIGINT, *resampled("other", "b"))
    project.write({"pipeline.yaml": project.read("pipeline.yaml").replace(B, "")})
    green(project.build())
    green(project.build())
    assert set(project.plan().values()) == {"fresh"}


def test_a_failure_of_the_new_response_ends_the_promise(project: Project) -> None:
    green(written(project, B).build())
    killed_at(project, "b", signal.SIGINT, *resampled("b"))
    project.write({"broken": ""})
    assert project.build().code == 5
    project.delete("broken")
    assert project.plan() == {"b": "fresh"}, "a failure replaces no good result"
