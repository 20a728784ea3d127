"""Run a shell step: its exit code and the results of tests that it reports decide whether it passed."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from orch23.attempt.attempt import ProcessStepRunner
from orch23.attempt.failures import (
    Failure,
    LeftoverFiles,
    command_failed,
    exit_text,
    failure_of,
    relative_path,
    tests_failed,
)
from orch23.attempt.process_runner import Files, FinishedProcess, ProcessRunner, StepCommand
from orch23.execute.process import NOT_EXECUTABLE, NOT_FOUND
from orch23.model.action import MAX_RESULTS_BYTES, MAX_RESULTS_FILES, ActionResult
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.digest import Digest, digest_json
from orch23.resolve.commands import SHELL_COMMAND
from orch23.steps.shell.spec import STDOUT, ReportPlace, ShellStep

if TYPE_CHECKING:
    from orch23.verdict.verdict import Verdict


def shell_command(step: ShellStep) -> tuple[str, ...]:
    """Return the argv of a shell step: its own, or the argv of bash, which stops at the first error."""
    return (*SHELL_COMMAND, step.command) if isinstance(step.command, str) else step.command


class _ShellRunner(ProcessStepRunner):
    def distrusted(self, step: ShellStep, runner: ProcessRunner, files: Files) -> tuple[Diagnostic, ...]:
        del step, runner, files  # a command may read any file of its sandbox directory
        return ()

    def launch(self, step: ShellStep, runner: ProcessRunner) -> StepCommand:
        place = step.report.place if step.report else None
        depfile = _depfile(step, runner)
        results = (*([] if place in (None, STDOUT) else [str(place)]), *([depfile] if depfile else []))
        return StepCommand(shell_command(step), results=results, reads=bool(depfile))

    def running_test(self, step: ShellStep, runner: ProcessRunner, report: Digest | None, output: str) -> str:
        del runner, report
        from orch23.verdict.reported_results import own_format  # noqa: PLC0415 - only for timeouts
        from orch23.verdict.unfinished_test import last_started  # noqa: PLC0415 - likewise

        return last_started(step.report.form if step.report else own_format(output), output)

    def judge(
        self, step: ShellStep, runner: ProcessRunner, files: Files, command: str, result: ActionResult, printed: str
    ) -> FinishedProcess | Failure:
        verdict = _verdict(step, runner, files, result, printed)
        if result.exit_code == 0 and (verdict is None or verdict.passed):
            ended, depfile = FinishedProcess(command, result, verdict), _depfile(step, runner)
            return _with_tracked(ended, runner, files, depfile) if depfile else ended
        failed = command_failed("verify_failed", command, exit_code=result.exit_code, output=printed)
        left = LeftoverFiles(result.written, result.removed)
        failed = replace(failed, leftover=left, reason=exit_text(result.exit_code))
        if result.exit_code in (NOT_FOUND, NOT_EXECUTABLE):
            from orch23.attempt.missing_programs import with_missing_program  # noqa: PLC0415 - only for such failures

            return with_missing_program(failed, step, runner, files, printed)
        return failed if verdict is None else tests_failed(verdict, command, result, printed)


def _verdict(
    step: ShellStep, runner: ProcessRunner, files: Files, result: ActionResult, printed: str
) -> "Verdict | None":
    """Return the verdict on the tests of a step; None if it reports none, and need not."""
    # Most programs report nothing: for these, nothing is loaded.
    if step.report is None and "TAP version" not in printed[:2000] and not printed.lstrip().startswith("{"):
        return None
    from orch23.verdict import reported_results as reported  # noqa: PLC0415 - as above

    place = step.report or ReportPlace("", reported.own_format(printed), STDOUT)
    if not place.form:
        return None
    log, own = result.output.log, _depfile(step, runner)  # the log has the middle of a long output
    digests = {path: one for path, one in result.results.items() if path != own}
    reports = {path: _text(runner, one) for path, one in sorted(digests.items())}
    if place.place == STDOUT:
        reports = {"": runner.redact(_text(runner, log)) if log else printed}
    cwd, tests = runner.stage.cwd, _identity(step, runner, files)
    results = reported.read_reports(place.form, reports, cwd, place.place, place.line)
    if len(digests) > MAX_RESULTS_FILES or any(one.size_bytes > MAX_RESULTS_BYTES for one in digests.values()):
        results.broken = f"it has more than {MAX_RESULTS_FILES} files, or one of over {MAX_RESULTS_BYTES} bytes"
    staged, least = (relative_path(one, cwd) for one in files), runner.trace.before.get(tests, 0)
    verdict = reported.judge_results(result.exit_code, results, printed, staged, least)
    if verdict.passed and not results.are_findings:
        runner.trace.now[tests] = len(results.ids)
    return verdict


def _text(runner: ProcessRunner, digest: Digest) -> str:
    return runner.contents.get(digest).decode("utf-8", "replace")


def _depfile(step: ShellStep, runner: ProcessRunner) -> str | None:
    """Return the path of the depfile that a step writes; a step of `verify` writes none."""
    stage = runner.stage
    return stage.depfile[1] if stage.depfile and step is stage.step else None


def _with_tracked(
    ended: FinishedProcess, runner: ProcessRunner, files: Files, depfile: str
) -> FinishedProcess | Failure:
    from orch23.model.features import DEPFILES, load_feature  # noqa: PLC0415 - only for steps with a depfile

    digest, result = ended.result.results.get(depfile), ended.result
    is_whole = digest is not None and digest.size_bytes <= MAX_RESULTS_BYTES
    text = _text(runner, digest) if digest and is_whole else None
    tracked, problems = load_feature(DEPFILES["read"])(runner.stage, files, text, result.read)
    if problems:
        left = LeftoverFiles(result.written, result.removed)
        return replace(failure_of("verify_failed", problems, retryable=False), leftover=left)
    if tracked is None:
        message = (
            "access times do not show which files the step read, so all inputs count, not only the files in the depfile"
        )
        hint = "put `.orch23` on a local file system that is mounted without `noatime`"
        runner.report.warn(Diagnostic("W338", message, hint=hint, severity=Severity.WARNING))
    return replace(ended, tracked=tracked)


def _identity(step: ShellStep, runner: ProcessRunner, files: Files) -> str:
    """Return the digest of a command with its tests: the staged files that no stage makes."""
    makers_of = runner.trust().makers_of
    given = {path: entry.digest.sha256 for path, entry in files.items() if not makers_of(path)}
    return digest_json([step.declared, dict(step.judged_by), given])[:16]


SHELL_RUNNER = _ShellRunner()
