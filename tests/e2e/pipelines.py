"""Small pipelines for stories, and a model that is a program: it answers what its prompt says, and notes each call."""

import os
import re
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.model_program import PROGRAM
from tests.moments import age
from tests.project import Outcome, Project

DEFAULTS = """\
version: 1
name: story
defaults:
  llm: {provider: command, model: echo, command: [PYTHON, -SE, model.py]}
""".replace("PYTHON", sys.executable)  # by its path: what PATH has may be a slow wrapper


REACHING_OUTSIDE = """
import os
os.environ["ORCH23_TRUST"] = "1"
from orch23.cli import build_run
from orch23.execute.launch import TierChoice
build_run._best_tier = lambda: TierChoice(None)
"""
"""What a build in a process of its own runs first, if its steps are to reach outside: a machine without a sandbox."""


def pipeline(stages: str, files: Mapping[str, str] | None = None, *, head: str = "") -> dict[str, str]:
    """Return the files of a pipeline whose models are `model.py`. `head` are further keys of its top level."""
    return {"pipeline.yaml": f"{DEFAULTS}{head}stages:\n{stages}", "model.py": PROGRAM, **(files or {})}


def shell(stages: str, files: Mapping[str, str] | None = None, *, head: str = "") -> dict[str, str]:
    """Return the files of a pipeline without models."""
    return {"pipeline.yaml": f"version: 1\nname: story\n{head}stages:\n{stages}", **(files or {})}


def decided_by_parts(root: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a project whose second build writes an index, so that the next one decides what an edit reaches."""
    from orch23.engine import idle_build  # noqa: PLC0415 - a test of one folder must not load the whole tool
    from orch23.entry import main  # noqa: PLC0415 - likewise

    monkeypatch.setattr(idle_build, "FEWEST", 0)

    def run(argv: Sequence[str]) -> int:
        age(str(root))
        return main([*argv[2:]])  # a snapshot knows no `-C`

    return Project(root, main=run)


def prompt(name: str, answer: str) -> str:
    """Return a prompt that is noted by this name and answered by this text, both of them Jinja2."""
    return f"{name}\n{answer}"


def proposing(name: str, files: Mapping[str, str], deletes: Sequence[str] = ()) -> str:
    """Return a prompt that is answered by these files, path -> Jinja2 expression, as `returns: files` wants it."""
    writes = ", ".join(f'{{"path": "{path}", "content": {expression}}}' for path, expression in files.items())
    gone = ", ".join(f'"{path}"' for path in deletes)
    return prompt(
        name, f'{{{{ {{"summary": "s", "writes": [{writes}], "deletes": [{gone}], "error": none}} | tojson }}}}'
    )


def calls(project: Project) -> list[str]:
    """Return the names of all calls so far, in order."""
    log = Path(f"{project.root}-calls.log")
    return log.read_text().splitlines() if log.exists() else []


def noted(project: Project) -> list[str]:
    """Return what shell stages noted by `note NAME`, in order."""
    log = Path(f"{project.root}-notes.log")
    return log.read_text().splitlines() if log.exists() else []


def note(project: Project, name: str) -> str:
    """Return a command that notes, outside of its sandbox directory, that it was run."""
    return f"echo {name} >> {project.root}-notes.log"


def what_came(gate: Path, process: "subprocess.Popen[bytes]") -> str:
    """Return what somebody wrote into a named pipe; it fails the test if the process ends before."""
    descriptor = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)
    found = b""
    try:
        while not found.endswith(b"\n"):
            assert process.poll() is None, f"it ended with {process.returncode} before it came to the gate"
            if select.select([descriptor], [], [], 0.05)[0]:
                found += os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    return found.decode()


def of_any_tier(text: str) -> str:
    """Return a screen as every machine shows it, whatever its sandbox."""
    text = re.sub(r"(sandbox: )(bubblewrap|namespaces|landlock|none)\n", r"\1TIER\n", text)
    warning = r"^.*(the sandbox is Landlock|steps run without a sandbox).*\n"
    return re.sub(warning, "", text, flags=re.MULTILINE)


def green(outcome: Outcome) -> None:
    """Hold a run to its success."""
    assert outcome.code == 0, f"exit {outcome.code}\n{outcome.out}\n{outcome.err}"


def ends(project: Project) -> dict[str, str]:
    """Return how each stage ended in the newest run: its last status."""
    return {event["role"]: event["data"]["status"] for event in project.events_of("stage_finished")}
