"""Run a shell step: its exit code decides whether it passed."""

from msgspec.structs import replace

from orch23.attempt.attempt import ProcessStepRunner
from orch23.attempt.failures import Failure, LeftoverFiles, command_failed, exit_text
from orch23.attempt.process_runner import Files, FinishedProcess, ProcessRunner, StepCommand
from orch23.execute.process import NOT_EXECUTABLE, NOT_FOUND
from orch23.model.action import ActionResult
from orch23.model.diagnostic import Diagnostic
from orch23.resolve.commands import SHELL_COMMAND
from orch23.steps.shell.spec import ShellStep


def shell_command(step: ShellStep) -> tuple[str, ...]:
    """Return the argv of a shell step: its own, or the argv of bash, which stops at the first error."""
    return (*SHELL_COMMAND, step.command) if isinstance(step.command, str) else step.command


class _ShellRunner(ProcessStepRunner):
    def distrusted(self, step: ShellStep, runner: ProcessRunner, files: Files) -> tuple[Diagnostic, ...]:
        del step, runner, files  # a command may read any file of its sandbox directory
        return ()

    def launch(self, step: ShellStep, runner: ProcessRunner) -> StepCommand:
        del runner
        return StepCommand(shell_command(step))

    def judge(
        self, step: ShellStep, runner: ProcessRunner, files: Files, command: str, result: ActionResult, printed: str
    ) -> FinishedProcess | Failure:
        if result.exit_code == 0:
            return FinishedProcess(command, result)
        failed = command_failed("verify_failed", command, exit_code=result.exit_code, output=printed)
        left = LeftoverFiles(result.written, result.removed)
        failed = replace(failed, leftover=left, reason=exit_text(result.exit_code))
        if result.exit_code not in (NOT_FOUND, NOT_EXECUTABLE):
            return failed
        from orch23.attempt.missing_programs import with_missing_program  # noqa: PLC0415 - only for such failures

        return with_missing_program(failed, step, runner, files, printed)


SHELL_RUNNER = _ShellRunner()
