"""A model that is a program, and its double that answers without a process, where no story is about the process."""

import json
import os
import sys
from typing import Any

from orch23.execute import supervisor
from orch23.execute.launch import PlainLauncher
from orch23.execute.process import ProcessOutcome
from orch23.execute.program_runner import LocalProgramRunner
from orch23.execute.sandbox_tree import SandboxDir
from orch23.providers.adapter import ProgramCall

ROOT = 'os.getcwd().partition("/.orch23/rooms/")[0]'
"""What a program that answers calls the root of its project, where it is not confined."""

PROGRAM = f'''\
"""Answer with all but the first line of the question; note the first line, so that calls are counted from outside.

The feedback that orch23 appends to a prompt without any is no part of the answer.
"""
import json
import os
import sys

question = json.load(sys.stdin)["messages"][-1]["content"]
name, _, answer = question.partition("\\n")
with open({ROOT} + "-calls.log", "a") as log:
    log.write(name.strip() + "\\n")
answer = answer.partition("\\n\\nThe last response to this prompt failed: ")[0]
sys.stdout.write(answer)
'''

_ARGV = (sys.executable, "-SE", "model.py")


class AnsweringRunner(LocalProgramRunner):
    """Run programs as orch23 does, outside of a sandbox; give the answer of `PROGRAM` itself without a process."""

    def _start(self, sandbox_dir: SandboxDir, call: ProgramCall, stdin: int) -> ProcessOutcome:
        program = sandbox_dir.work / "model.py"
        if call.argv != _ARGV or not program.is_file() or program.read_text(encoding="utf-8") != PROGRAM:
            return super()._start(sandbox_dir, call, stdin)
        question = json.loads(call.stdin)["messages"][-1]["content"]
        name, _, answer = question.partition("\n")
        with open(os.path.realpath(sandbox_dir.work).partition("/.orch23/rooms/")[0] + "-calls.log", "a") as log:
            log.write(f"{name.strip()}\n")
        printed = answer.partition("\n\nThe last response to this prompt failed: ")[0].encode()
        assert len(printed) <= call.stdout_bytes, "such a long answer needs the process, which is killed"
        if printed:
            call.on_output(printed)
        return ProcessOutcome(
            reason="exited", exit_code=0, head=printed, tail=b"", size_bytes=len(printed), log=None, duration_s=0.01
        )


def answering_runner(**given: Any) -> AnsweringRunner:
    """Return what takes the place of the runner of a build."""
    return AnsweringRunner(**{**given, "launcher": PlainLauncher(), "no_sandbox": lambda: None})


def keep_supervisors() -> None:
    """Leave the supervisors of a build for the next one: each takes Python's start."""
    while len(supervisor._IDLE) > _KEPT:
        supervisor._IDLE.pop(0).close()


_KEPT = 4
