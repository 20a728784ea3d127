"""Run a pytest step: build its command, and judge the report of orch23's pytest plugin."""

import os.path
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from orch23.attempt.attempt import ProcessStepRunner
from orch23.attempt.failures import Failure, tests_failed
from orch23.attempt.process_runner import Files, FinishedProcess, ProcessRunner, StepCommand
from orch23.execute.pytest_report import reporter_files
from orch23.model.action import PYTHON, TOOLS_FOLDER, WORKING_DIRECTORY, ActionResult
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry
from orch23.model.paths import match_any
from orch23.model.ports import ContentStore
from orch23.model.step import ProcessStep
from orch23.plan.nodes import writes_of
from orch23.resolve.commands import EMPTY_PYTEST_CONFIG, REPORTER_MODULE
from orch23.steps.pytest.spec import PytestStep
from orch23.verdict.pytest_discovery import expected_tests, selects_tests
from orch23.verdict.verdict import judge_failing, judge_pytest, report_json

if TYPE_CHECKING:
    from orch23.verdict.verdict import Verdict


def pytest_command(step: PytestStep) -> StepCommand:
    """Return the command that runs pytest with orch23's plugin. The tested files cannot change how pytest runs."""
    config = step.config if step.config is not None else f"{TOOLS_FOLDER}/{EMPTY_PYTEST_CONFIG}"
    # Absolute paths: pytest takes relative ones from the folder of the config, not from the root.
    python_path = " ".join(shlex.quote(_below_cwd(path)) for path in step.pythonpath)
    return StepCommand(
        argv=(
            # Without `-P`, a pytest.py in the working directory would be imported instead of pytest.
            *(PYTHON, "-P", "-m", "pytest"),
            *("-p", "no:cacheprovider", "-p", REPORTER_MODULE),
            *(part for name in step.plugins for part in ("-p", name)),
            # Otherwise pytest would take a config and a root from the tested files, and read conftest files above them.
            *("-c", config, "--rootdir=.", "--confcutdir=."),
            *("-o", f"pythonpath={python_path}", "-o", "addopts="),
            *step.args,
            *step.paths,
        ),
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


def _below_cwd(path: str) -> str:
    if path.startswith("/"):
        return path
    return WORKING_DIRECTORY if path in (".", "./") else f"{WORKING_DIRECTORY}/{path.removeprefix('./')}"


def _texts(runner: ProcessRunner, files: Files) -> dict[str, str]:
    """Return the texts of the staged Python files below `cwd`, by path from there."""
    above = "" if runner.stage.cwd == "." else f"{runner.stage.cwd}/"
    return {
        path.removeprefix(above): runner.tree.read(path, entry).decode("utf-8", errors="replace")
        for path, entry in files.items()
        if path.endswith(".py") and path.startswith(above)
    }


class _PytestRunner(ProcessStepRunner):
    def distrusted(self, step: PytestStep, runner: ProcessRunner, files: Files) -> tuple[Diagnostic, ...]:
        """Return an error for each config file that a model wrote, and each module that shadows a library."""
        return runner.trust().refused(step, files)

    def unfixable(self, step: PytestStep, runner: ProcessRunner, files: Files) -> tuple[Diagnostic, ...]:
        """Return an error for each test, and each conftest.py above one, with a syntax error that a stage keeps."""
        version = tuple(int(part) for part in runner.facts.python.split(".")[:2] if part.isdecimal())
        # An older Python accepts no syntax that a newer one refuses. Files may be left out by arguments or a config.
        if step.args or step.config is not None or version > sys.version_info[:2]:
            return ()
        from orch23.text.source_syntax import syntax_fault  # noqa: PLC0415 - not for stages without a model

        fixed = _fixed_files(runner, files)
        found = [(path, fault) for path in _collected(step, fixed) if (fault := syntax_fault(path, fixed[path]))]
        if not found:
            return ()
        from orch23.verdict.unfixable_tests import syntax_error  # noqa: PLC0415 - only for failures

        cwd = runner.stage.cwd
        return tuple(syntax_error(os.path.normpath(f"{cwd}/{one}"), line, fault) for one, (line, fault) in found)

    def launch(self, step: PytestStep, runner: ProcessRunner) -> StepCommand:
        tools = {name: FileEntry(runner.contents.put(data)) for name, data in reporter_files().items()}
        return replace(pytest_command(step), tools=tools, reports=True)

    def judge(
        self, step: PytestStep, runner: ProcessRunner, files: Files, command: str, result: ActionResult, printed: str
    ) -> FinishedProcess | Failure:
        """Judge the report, never the exit code alone: tests can end the process with any exit code."""
        # Each test in the staged files must be in the report: the code under test could make pytest skip some.
        expected = step.expect or _expected(step, runner, files)
        report = None if result.report is None else runner.contents.get(result.report)
        if step.must_fail:
            verdict = judge_failing(result.exit_code, report, expected, printed)
        else:
            verdict = judge_pytest(
                result.exit_code,
                report,
                expected,
                printed,
                lambda module: runner.trust().may_make_module(module, (".", *step.pythonpath)),
                lambda path: bool(runner.trust().makers_of(os.path.normpath(f"{runner.stage.cwd}/{path}"))),
            )
        if verdict.passed:
            return FinishedProcess(command, result, verdict)
        failed = tests_failed(verdict, command, result, printed)
        unfixable = _unfixable(step, runner, files, report, verdict)
        if unfixable is not None:
            line = f":{unfixable.location.line}" if unfixable.location is not None else ""
            reason = f"{unfixable.subject}{line}: {unfixable.message}"
            failed = replace(failed, diagnostics=(unfixable, *failed.diagnostics), retryable=False, reason=reason)
        return failed

    def running_test(self, step: PytestStep, runner: ProcessRunner, report: Digest | None, output: str) -> str:
        del step, output
        from orch23.verdict.unfinished_test import unfinished_of_pytest  # noqa: PLC0415 - only for timeouts

        return unfinished_of_pytest(None if report is None else runner.contents.get(report))

    def reported(self, step: ProcessStep, verdict: "Verdict", contents: ContentStore) -> Files:
        return {path: FileEntry(contents.put(report_json(verdict))) for path in step.named_outputs}


def _fixed_files(runner: ProcessRunner, files: Files) -> dict[str, str]:
    """Return the texts of staged Python files that the stage (a check: any stage) cannot write, by path below `cwd`."""
    scope, asks_model = writes_of(runner.stage), runner.stage.step.asks_model
    others = (path for path in files if path.endswith(".py") and not match_any(scope, path))
    return _texts(runner, {path: files[path] for path in others if asks_model or not runner.trust().makers_of(path)})


def _collected(step: PytestStep, fixed: Mapping[str, str]) -> list[str]:
    """Return the files that pytest certainly loads: tests, and each conftest.py in a directory above one."""
    conftests = [path for path in fixed if path.rpartition("/")[2] == "conftest.py"]
    if any("ignore" in fixed[path] for path in conftests):  # `collect_ignore` leaves tests out
        return []
    tests = {name.partition("::")[0] for name in expected_tests(fixed, step.paths)}
    above = [path for path in conftests if any(one.startswith(path.removesuffix("conftest.py")) for one in tests)]
    return sorted({*tests, *above})


def _unfixable(
    step: PytestStep, runner: ProcessRunner, files: Files, report: bytes | None, verdict: "Verdict"
) -> Diagnostic | None:
    """Return why the tests cannot be collected, whatever a model writes; None if that is not certain."""
    stage = runner.stage
    asks_model = stage.step.asks_model
    # A check of a promotion group refuses what the models of the group wrote.
    if not (asks_model or stage.promote) or not verdict.uncollected:
        return None
    from orch23.verdict import unfixable_tests as tests  # noqa: PLC0415 - only for failures
    from orch23.verdict.pytest_report import read_report  # noqa: PLC0415 - only for failures

    scope, folders, may_make = writes_of(stage), (".", *step.pythonpath), runner.trust().may_make_module
    return tests.collection_error(
        read_report(report).failures,
        _fixed_files(runner, files),
        stage.cwd,
        lambda module: tests.may_be_module(module, scope) or (not asks_model and may_make(module, folders)),
        lambda module: tests.unfound_file(module, scope, files.keys()),
    )


def _expected(step: PytestStep, runner: ProcessRunner, files: Files) -> tuple[str, ...]:
    """Return the tests in the staged files that the step selects; none if its arguments filter tests, such as `-k`."""
    if selects_tests(step.args):
        return ()
    return tuple(sorted(expected_tests(_texts(runner, files), step.paths)))


PYTEST_RUNNER = _PytestRunner()
