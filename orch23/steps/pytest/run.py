"""How a pytest step runs: the report of our own plugin is the verdict, never the exit code alone."""

import os.path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from orch23.decide.expected_tests import expected_tests, selects_tests
from orch23.decide.verdict import judge_failing, judge_pytest, report_json
from orch23.engine.failure import Failure, Left, below, command_failed
from orch23.engine.process_run import ProcessRun
from orch23.engine.running import Files, Launch, Ran, Runner
from orch23.execute.reporter import reporter_files
from orch23.model.action import ActionResult
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry
from orch23.model.ports import ContentStore
from orch23.model.step import ProcessStep
from orch23.steps.pytest.command import pytest_command
from orch23.steps.pytest.spec import PytestStep

if TYPE_CHECKING:
    from orch23.decide.verdict import Verdict


class _Pytest(ProcessRun):
    """Runs tests."""

    def distrusted(self, step: PytestStep, runner: Runner, files: Files) -> tuple[Diagnostic, ...]:
        """Return the settings that a model made, and the modules that hide one of a library."""
        return runner.trust.refused(step, files)

    def launch(self, step: PytestStep, runner: Runner) -> Launch:
        """Return the command, with our plugin."""
        command = pytest_command(step)
        tools = {name: FileEntry(runner.contents.put(data)) for name, data in reporter_files().items()}
        return Launch(command.argv, command.env, tools, reports=True)

    def judge(
        self, step: PytestStep, runner: Runner, files: Files, command: str, result: ActionResult, printed: str
    ) -> Ran | Failure:
        """Judge the report."""
        expected = step.expect or _expected(step, runner, files)
        report = _without_secrets(result.report, runner)
        if step.must_fail:
            verdict = judge_failing(result.exit_code, report, expected, printed)
        else:
            verdict = judge_pytest(
                result.exit_code,
                report,
                expected,
                printed,
                lambda module: _may_be_made(step, runner, module),
                lambda path: runner.trust.may_be_written(os.path.normpath(f"{runner.stage.cwd}/{path}")),
            )
        if verdict.passed:
            return Ran(command, result, verdict)
        failed = command_failed(
            "verify_failed",
            command,
            exit_code=result.exit_code,
            output=verdict.excerpt or printed,
            failing=verdict.failing,
            diagnostics=verdict.diagnostics,
        )
        return replace(failed, left=Left(result.written, result.removed, verdict))

    def reported(self, step: ProcessStep, verdict: "Verdict", contents: ContentStore) -> Files:
        """Return the JSON report, if the stage makes one."""
        return {path: FileEntry(contents.put(report_json(verdict))) for path in step.named_outputs}


def _may_be_made(step: PytestStep, runner: Runner, module: str) -> bool:
    """Return whether a stage may make a module, by where the step looks for modules of the project."""
    top = module.partition(".")[0]
    cwd = runner.stage.cwd
    folders = {os.path.normpath(f"{cwd}/{one}") for one in (".", *step.pythonpath)}
    places = [top if folder == "." else f"{folder}/{top}" for folder in folders]
    may_be_written = runner.trust.may_be_written
    return any(may_be_written(f"{place}.py") or may_be_written(f"{place}/**") for place in places)


def _without_secrets(report: Digest | None, runner: Runner) -> bytes | None:
    """Return the lines of a report without secrets; the mark of one is sound in JSON."""
    if report is None:
        return None
    text = runner.contents.get(report).decode("utf-8", "surrogateescape")
    return runner.redact(text).encode("utf-8", "surrogateescape")


def _expected(step: PytestStep, runner: Runner, files: Files) -> tuple[str, ...]:
    """Return the tests that the staged files define and the step asks for; none where its arguments choose."""
    if selects_tests(step.args):
        return ()
    cwd = runner.stage.cwd
    texts = {
        below(path, cwd): runner.tree.read(path, entry).decode("utf-8", errors="replace")
        for path, entry in files.items()
        if path.endswith(".py") and (cwd == "." or path.startswith(f"{cwd}/"))
    }
    return tuple(sorted(expected_tests(texts, step.paths)))


RUN = _Pytest()
