"""The client library of a provider is imported while earlier stages run, and only if a call is due."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.pipelines import REACHING_OUTSIDE
from tests.loopback import loopback, message_reply
from tests.project import Project

pytestmark = [
    pytest.mark.slow,  # whole builds in processes of their own
    pytest.mark.usefixtures("steps_reach_outside"),
]

_REPOSITORY = str(Path(__file__).parents[2])
_LOADED = f"""{REACHING_OUTSIDE}
import sys, threading
from orch23.cli.main import main
code = main(sys.argv[1:])
for thread in threading.enumerate():
    if thread.name == "orch23-prepare":
        thread.join()
print(code, *(name for name in ("anthropic", "openai") if name in sys.modules))
"""
_RUN = f"{REACHING_OUTSIDE}\nfrom orch23.entry import run; run()"
# A stage before the call. It ends once the library below was imported, or has failed to be.
PIPELINE = """\
version: 1
name: story
stages:
  first:
    inputs: [src.txt]
    outputs: [first.txt]
    shell: {first}
  ask:
    inputs: [first.txt]
    outputs: [said.txt]
    llm: {{provider: anthropic, model: m, base_url: "{url}", prompt: ask.md.j2, returns: text{more}}}
"""
QUICK = "echo 1 > first.txt"


def write(project: Project, url: str, first: str = QUICK, more: str = "") -> Project:
    return project.write(
        {
            "pipeline.yaml": PIPELINE.format(first=first, url=url, more=more),
            "ask.md.j2": "Say something.",
            "src.txt": "1",
        }
    )


def start(project: Project, script: str, *argv: str, path: str = "") -> "subprocess.Popen[str]":
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "ANTHROPIC_API_KEY": "sk-ant-story"}
    environ |= {"PYTHONPATH": f"{path}:{_REPOSITORY}", "ORCH23_ALLOW_UNSANDBOXED": "1", "ORCH23_TRUST": "1"}
    program = [sys.executable, "-c", script, "-C", str(project.root), *argv]
    return subprocess.Popen(program, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def loaded(project: Project, *argv: str) -> str:
    """Return the exit code of a command, and the client libraries that it imported."""
    out, _ = start(project, _LOADED, *(argv or ("build", "-q"))).communicate(timeout=60)
    return out.splitlines()[-1]


def ended(build: "subprocess.Popen[str]") -> tuple[int, str]:
    """Return the exit code of a build that ends by itself, and what it printed."""
    try:
        out, _ = build.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        build.kill()
        raise
    return build.returncode, out


def reason(out: str) -> list[str]:
    """Return the error of a broken library, without the name of the traceback's file."""
    return [line.partition(";")[0] for line in out.splitlines() if "it is broken" in line]


def library(project: Project, text: str) -> str:
    """Write a library `anthropic`, and return the folder to import it from."""
    folder = project.root.parent / "site" / "anthropic"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(text)
    return str(folder.parent)


def test_only_a_build_with_a_due_call_imports_the_library(project: Project) -> None:
    with loopback(message_reply("done")) as server:
        write(project, server.url)
        assert loaded(project, "plan") == "0"
        assert loaded(project) == "0 anthropic"
        assert loaded(project) == "0"
        project.edit("src.txt", "2")
        assert loaded(project) == "0", "the stage before it runs; it is fresh"
        project.delete("pipeline.lock")
        project.edit("src.txt", "3")
        assert loaded(project) == "0", "its response is recorded"
        assert len(server.asked) == 1


def test_a_replay_imports_no_library(project: Project) -> None:
    write(project, "http://127.0.0.1:9", more=", mode: replay")
    assert loaded(project) == "5"


def test_the_library_is_imported_while_the_first_stage_runs_and_the_call_reports_its_error(project: Project) -> None:
    gate, mark = project.root.parent / "gate", project.root.parent / "mark"
    os.mkfifo(gate)
    # The first import opens the gate, which ends the first stage.
    lines = ["import os, sys", f"if not os.path.exists({str(mark)!r}):"]
    lines += [f"    open({str(mark)!r}, 'w').write(' '.join(sys.modules))", f"    open({str(gate)!r}, 'w')"]
    lines += ["raise RuntimeError('it is broken')"]
    path = library(project, "\n".join(lines))
    write(project, "http://127.0.0.1:9", first=f"cat {gate}; {QUICK}")
    code, out = ended(start(project, _RUN, "build", path=path))
    assert project.read("first.txt") == "1\n"
    assert {"jinja2", "genai_prices", "orch23.runners.llm"} <= set(mark.read_text().split())
    # Now `first` is fresh, so only the call imports.
    alone, printed = ended(start(project, _RUN, "build", path=path))
    assert "RuntimeError: it is broken" in out
    assert (code, reason(out)) == (alone, reason(printed))


@pytest.mark.parametrize("how", ["failure", "interrupt"])
def test_a_build_that_ends_does_not_wait_for_the_import(project: Project, how: str) -> None:
    gate = project.root.parent / "gate"
    os.mkfifo(gate)
    path = library(project, f"import threading\nopen({str(gate)!r}, 'w').close()\nthreading.Event().wait()\n")
    first = f"cat {gate}; exit 3" if how == "failure" else "sleep 3600"
    write(project, "http://127.0.0.1:9", first=first)
    build = start(project, _RUN, "build", path=path)
    if how == "interrupt":
        gate.read_text()
        build.send_signal(signal.SIGINT)
    code, out = ended(build)
    assert code == (130 if how == "interrupt" else 1), out
