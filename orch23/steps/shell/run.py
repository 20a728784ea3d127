"""How a shell step runs: the argv, the same on every machine, and its exit code."""

from msgspec.structs import replace

from orch23.engine.failure import Failure, Left, command_failed, exit_text
from orch23.engine.process_run import ProcessRun
from orch23.engine.running import Files, Launch, Ran, Runner, not_there
from orch23.model.action import ActionResult
from orch23.model.diagnostic import Diagnostic
from orch23.resolve.commands import SHELL
from orch23.steps.shell.spec import ShellStep


def shell_command(step: ShellStep) -> tuple[str, ...]:
    """Return the argv of a shell step: its own, or bash with every error fatal."""
    if isinstance(step.command, str):
        return (*SHELL, step.command)
    return step.command


class _Shell(ProcessRun):
    """Runs a command; what it says is its exit code."""

    def distrusted(self, step: ShellStep, runner: Runner, files: Files) -> tuple[Diagnostic, ...]:
        """Return nothing: it may read what it likes of its tree."""
        del step, runner, files
        return ()

    def launch(self, step: ShellStep, runner: Runner) -> Launch:
        """Return the command."""
        del runner
        return Launch(shell_command(step))

    def judge(
        self, step: ShellStep, runner: Runner, files: Files, command: str, result: ActionResult, printed: str
    ) -> Ran | Failure:
        """Take any exit code but 0 for a failure."""
        del step, runner, files
        if result.exit_code == 0:
            return Ran(command, result)
        failed = command_failed("verify_failed", command, exit_code=result.exit_code, output=printed)
        left = Left(result.written, result.removed)
        absent = not_there(command, result.exit_code)  # what was printed says it, too
        return replace(failed, diagnostics=absent, left=left, reason=exit_text(result.exit_code))


RUN = _Shell()
