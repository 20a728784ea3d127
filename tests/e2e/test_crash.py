"""A build that dies at any of its steps costs the next one only the action that was hit, and asks nobody twice."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orch23.store.content_store import DiskContentStore
from orch23.store.exchanges import Exchanges
from orch23.store.project_store import ProjectStore
from orch23.store.promotion import Promoter
from orch23.store.records import Records
from orch23.store.run_logs import Journal
from tests.e2e.pipelines import REACHING_OUTSIDE, calls, green, note, noted, pipeline, prompt, proposing, what_came
from tests.project import Project

_STEPS = (
    *((DiskContentStore, name) for name in ("put", "adopt", "sync")),
    (ProjectStore, "add_file"),
    *((Exchanges, name) for name in ("put", "put_later", "write_later", "put_original")),
    (Records, "put"),
    *((Promoter, name) for name in ("promote", "_apply", "_prepare", "_name", "_remove")),
    (Journal, "notice"),
    *((os, name) for name in ("rename", "replace", "unlink", "ftruncate")),
)

pytestmark = pytest.mark.usefixtures("steps_reach_outside")  # they note outside of their sandbox that they ran
_KILLED = 137
_STRIDE = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 97  # of all steps; a prime meets all kinds


def story(project: Project) -> None:
    """Write a pipeline with a model that needs two attempts, a chain of two over a person's file, and two commands."""
    again = proposing(
        "edit {{ item }}{% if brief %} again{% endif %}", {"app.py": "inputs['app.py'].text ~ brief_mark"}
    )
    project.write(
        pipeline(
            f"""\
  ask: {{inputs: [spec.md], outputs: [said.txt], llm: {{prompt: ask.md.j2, returns: text, transcripts: heard}}}}
  edit:
    foreach: {{in: [one, two], order: sequential}}
    inputs: [said.txt]
    outputs: [app.py]
    llm: {{prompt: edit.md.j2, returns: files}}
    retry: 1
    verify: [{{shell: 'tail -1 app.py | grep -q good'}}]
  split:
    inputs: [said.txt]
    outputs: [out/]
    shell: 'mkdir -p out; for w in $(cat said.txt); do echo $w > out/$w; done; {note(project, "split")}'
  join: {{inputs: ['out/*', app.py], outputs: [all.txt], shell: 'cat out/* app.py > all.txt; {note(project, "join")}'}}
""",
            {
                "spec.md": "red green\n",
                "app.py": "# mine\n",
                "ask.md.j2": prompt("ask", "{{ inputs['spec.md'].text }}"),
                "edit.md.j2": again.replace(
                    "brief_mark", "('# good ' if brief else '# bad ') ~ item ~ ' ' ~ inputs['said.txt'].text"
                ),
            },
        )
    )


def second_spec(project: Project) -> None:
    project.edit("spec.md", "blue\n")


# ---- one build in a child that dies at its step number n --------------------------------------------


def _die_at(target: int, seen: list[str], label_file: Path, among: str) -> None:
    """Let this process end, as if killed, before its step of that number among those whose name begins so."""

    lock = threading.Lock()

    def counted(owner: Any, name: str) -> Callable[..., Any]:
        real = getattr(owner, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            kind = f" {type(args[1].data).__name__}" if owner is Journal else ""
            label = f"{owner.__name__}.{name}{kind}"
            with lock:  # otherwise two threads could both count both steps, and neither would be the one of this number
                seen.append(label)
                if label.startswith(among) and sum(one.startswith(among) for one in seen) == target:
                    label_file.write_text(label)
                    os._exit(_KILLED)
            return real(*args, **kwargs)

        return step

    for owner, name in _STEPS:
        setattr(owner, name, counted(owner, name))


def build_and_die(project: Project, target: int, *, among: str = "") -> tuple[int, str]:
    """Build in a child process that dies before its step `target`; return its exit code and the step, or all steps.

    Only steps whose name begins with `among` count: how many others come before them depends on how long stages take.
    """
    label_file = project.root.parent / "step.txt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads: the child runs only what follows
        child = os.fork()
    if child == 0:
        code = 99
        try:
            seen: list[str] = []
            _die_at(target, seen, label_file, among)
            code = project.build("-j1").code
            label_file.write_text("\n".join(seen))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), label_file.read_text()


@dataclass(frozen=True, slots=True)
class Reference:
    """What a build leaves that no one disturbs, and how many steps it takes."""

    files: dict[str, bytes]
    calls: list[str]
    notes: list[str]
    steps: int


@dataclass(frozen=True, slots=True)
class Saved:
    """A project as it was before the build that dies: put back under the same path each time."""

    project: Project
    kept: Path

    def restore(self) -> Project:
        shutil.rmtree(self.project.root, ignore_errors=True)
        shutil.copytree(self.kept, self.project.root, symlinks=True)
        for log in ("calls", "notes"):
            Path(f"{self.project.root}-{log}.log").unlink(missing_ok=True)
        return Project(self.project.root)


def prepare(project: Project, which: str) -> tuple[Saved, Reference]:
    story(project)
    if which == "second":
        green(project.build("-j1"))
        second_spec(project)
    saved = Saved(project, project.root.parent / "saved")
    shutil.copytree(project.root, saved.kept, symlinks=True)
    fresh = saved.restore()
    code, steps = build_and_die(fresh, -1)
    assert code == 0
    reference = Reference(_timeless(fresh.files()), calls(fresh), noted(fresh), len(steps.splitlines()))
    assert reference.steps > 100, "the steps are still found where they were"
    return saved, reference


def _timeless(files: dict[str, bytes]) -> dict[str, bytes]:
    """Leave out the texts of exchanges, which say how long an answer took; their names stay."""
    return {path: b"" if path.startswith("heard/") else data for path, data in files.items()}


def numbers(reference: Reference) -> Iterator[int]:
    return iter(range(1, reference.steps + 1, _STRIDE))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("which", ["first", "second"])
def test_a_build_killed_at_any_step_is_finished_by_the_next_one(project: Project, which: str) -> None:
    saved, reference = prepare(project, which)
    for number in numbers(reference):
        fresh = saved.restore()
        code, step = build_and_die(fresh, number)
        where = f"killed before step {number} of {reference.steps}, {step}"
        assert code == _KILLED, where
        after = Project(fresh.root)
        green(after.build("-j1"))
        assert _timeless(after.files()) == reference.files, where
        asked_again = Counter(calls(after)) - Counter(reference.calls)
        # The answer was on its way to the disk, in this thread or beside the one that removes sandbox directories; the
        # command that gave it had ended.
        on_the_way = {"Journal.notice CommandRan", "Exchanges.put", "os.rename", "os.replace", "os.unlink"}
        paid_for = 1 if step in on_the_way else 0
        assert asked_again.total() <= paid_for, f"{where}: asked again: {asked_again}"
        assert (Counter(noted(after)) - Counter(reference.notes)).total() <= 1, f"{where}: run again: {noted(after)}"
        green(after.build("-j1"))
        assert after.ran() == [], where
        rooms = after.root / ".orch23/rooms"
        assert not rooms.exists() or not any(rooms.iterdir()), where


# ---- a real process, really killed ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["a command", "a model", "a promotion"])
def test_a_process_that_is_killed_leaves_nothing_that_the_next_build_cannot_take_up(
    project: Project, moment: str
) -> None:
    story(project)
    gate = project.root.parent / "gate"
    os.mkfifo(gate)
    hold = f"if [ -p {gate} ]; then echo > {gate}; sleep 60; fi"
    if moment == "a command":
        project.replace("pipeline.yaml", "mkdir -p out;", f"mkdir -p out; {hold};")
    elif moment == "a model":
        project.replace("model.py", "sys.stdout.write(answer)\n", _HELD_MODEL.format(gate=gate))
    script = _DYING if moment == "a promotion" else _PLAIN
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "GATE": str(gate), "PYTHONPATH": _REPOSITORY}
    environ["ORCH23_ALLOW_UNSANDBOXED"] = "1"
    argv = [sys.executable, "-c", script, "-C", str(project.root), "build", "-j1"]
    with subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        what_came(gate, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    gate.unlink()
    green(project.build("-j1"))
    assert project.read("all.txt").startswith("green\nred\n# mine\n# bad one")
    asked = Counter(calls(project))
    assert asked.total() == len(asked) + (moment == "a model"), (
        "no answer is asked for twice, but for the one that was lost"
    )
    green(project.build("-j1"))
    assert project.ran() == []


_REPOSITORY = str(Path(__file__).parents[2])
_PLAIN = f"{REACHING_OUTSIDE}\nfrom orch23.entry import run; run()"
_DYING = f"""{REACHING_OUTSIDE}
import os, time
from orch23.store.promotion import Promoter
real = Promoter._name
def held(self, places, path, *more):
    if path == "out/red":
        with open(os.environ["GATE"], "w") as gate:
            gate.write("here\\n")
        time.sleep(60)
    return real(self, places, path, *more)
Promoter._name = held
from orch23.entry import run; run()
"""
_HELD_MODEL = """\
import stat
import time
if name.startswith("edit two") and os.path.exists("{gate}"):
    with open("{gate}", "w") as gate:
        gate.write("here\\n")
    time.sleep(60)
sys.stdout.write(answer)
"""
