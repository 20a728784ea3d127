"""Run processes of a stage: spell the action out, have it run, turn what came of it into a value or a failure."""

import os.path
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct
from msgspec.structs import replace

from orch23.decide.expected_tests import expected_tests, selects_tests
from orch23.engine.failure import Failure, Left, below, coded, command_failed, exit_text, refusal
from orch23.engine.live import Live
from orch23.model.action import (
    Action,
    ActionResult,
    Cancelled,
    Completed,
    EngineUnavailable,
    InputsChanged,
    Interpreter,
    TimedOut,
)
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry
from orch23.model.errors import ConfigurationError, MissingBytesError
from orch23.model.paths import static_prefix
from orch23.model.pipeline import PytestStep, ShellStep, Stage
from orch23.model.ports import ContentStore, Executor
from orch23.resolve.commands import display_command, pytest_command, shell_command, short_command
from orch23.resolve.resolution import Facts
from orch23.resolve.tree import Tree
from orch23.resolve.writable import writable_paths

if TYPE_CHECKING:
    from orch23.decide.verdict import Verdict

_NOT_STARTED = (126, 127)  # as every shell has it: not executable, not found
_LENGTH = "write the values to a file and pass its name, or write the command as one text, which may be of any length"
_PATH = "check that the program exists: PATH is set by orch23, not inherited"


class CancelledBuildError(Exception):
    """The build was asked to stop while the stage ran."""


Files = Mapping[str, FileEntry]


class Ran(Struct, frozen=True):
    """A process that ended by itself, with the verdict if it was pytest."""

    command: str
    result: ActionResult
    verdict: "Verdict | None" = None


def _nothing_refused(_step: PytestStep, _files: Files) -> tuple[Diagnostic, ...]:
    """Trust all files."""
    return ()


class Runner(Struct, frozen=True):
    """Runs the process steps of one stage. What they print and report is without secrets before anyone cuts it.

    `may_write` says of a pattern whether some stage of the pipeline may write a path that it means.
    """

    stage: Stage
    facts: Facts
    executor: Executor
    contents: ContentStore
    tree: Tree
    redact: Callable[[str], str] = str
    refused: Callable[[PytestStep, Files], tuple[Diagnostic, ...]] = _nothing_refused
    may_write: Callable[[str], bool] = lambda _pattern: True
    live: Live | None = None

    def run(self, step: ShellStep | PytestStep, files: Files, *, verifies: bool = False) -> Ran | Failure:
        """Run a step on these files and judge how it ended. `verifies` says that it is one of `verify`.

        Raises:
            CancelledBuildError: the build was asked to stop.
            MissingBytesError: the store lost the bytes of an input.
            ConfigurationError: the process could not be started at all.

        """
        distrusted = self.refused(step, files) if isinstance(step, PytestStep) else ()
        if distrusted:
            return refusal("verify_failed", distrusted)
        action = self._action(step, files, writable_paths(self.stage, step, files.keys(), verifies=verifies))
        command = display_command(action.argv)
        hear = self.live.of_step(short_command(command)) if self.live is not None else None
        outcome = self.executor.run(action, hear)
        match outcome:
            case Completed(result=result):
                judged = self._judge(step, files, command, result)
                if isinstance(judged, Ran):
                    return judged
                if action.writable is not None:
                    from orch23.engine.refused_writes import with_refused_writes  # noqa: PLC0415 - for failures alone

                    judged = with_refused_writes(judged, self.redact(result.output.text))
                return replace(judged, printed=self.redact(result.output.text))
            case TimedOut():
                message = f"killed after {outcome.timeout_s:g} s"
                late = Diagnostic("E304", message, hint="raise `timeout`, or make it faster", subject=self.stage.name)
                text = f"{self.redact(outcome.output.text)}\n{message}"
                failed = command_failed("timeout", command, exit_code=None, output=text, diagnostics=(late,))
                return replace(failed, printed=text, left=Left(outcome.written, outcome.removed), reason=message)
            case Cancelled():
                raise CancelledBuildError
            case InputsChanged(paths=paths):
                raise MissingBytesError(", ".join(paths))
            case EngineUnavailable(diagnostic=Diagnostic() as barred):
                raise ConfigurationError(replace(barred, subject=self.stage.name))
            case EngineUnavailable(reason=reason, kind=kind):
                hint = _LENGTH if kind == "length" else _PATH
                problem = Diagnostic("E309", f"`{short_command(command)}` could not be started: {reason}", hint=hint)
                text = f"the command could not be started: {reason}"
                failed = command_failed("exception", command, exit_code=None, output=text, diagnostics=(problem,))
                return replace(failed, reason=text)
            case _ as never:
                assert_never(never)

    def _action(self, step: ShellStep | PytestStep, files: Files, writable: tuple[str, ...] | None) -> Action:
        tools: dict[str, FileEntry] = {}
        if isinstance(step, ShellStep):
            argv, env = shell_command(step), dict(self.stage.env)
        else:
            from orch23.execute.reporter import reporter_files  # noqa: PLC0415 - only where pytest runs

            command = pytest_command(step)
            argv, env = command.argv, {**self.stage.env, **command.env}
            tools = {name: FileEntry(self.contents.put(data)) for name, data in reporter_files().items()}
        if not self.facts.interpreter:
            hint = "make a virtual environment at `.venv`, or name an interpreter in `python:`"
            problem = Diagnostic("E309", "no Python interpreter was found", hint=hint, subject=self.stage.name)
            raise ConfigurationError(problem)
        return Action(
            argv=argv,
            inputs=dict(sorted(files.items())),
            python=Interpreter(self.stage.python, self.facts.python, self.facts.pytest),
            working_directory=self.stage.cwd,
            output_folders=tuple(sorted({static_prefix(path) for path in self.stage.outputs} - {""})),
            env=env,
            scratch=self.stage.scratch,
            timeout_s=self.stage.timeout_s,
            network=self.stage.network,
            sandbox=self.stage.sandbox,
            limits=self.stage.limits,
            tools=tools,
            reports=isinstance(step, PytestStep),
            writable=writable,
        )

    def _judge(self, step: ShellStep | PytestStep, files: Files, command: str, result: ActionResult) -> Ran | Failure:
        if result.violations:
            return refusal("write_scope_violation", result.violations, safety=True, retryable=False)
        printed = self.redact(result.output.text)
        if result.touched:
            from orch23.engine.refused_writes import changed_tree  # noqa: PLC0415 - for failures alone

            changed = tuple(map(changed_tree, result.touched))
            text = "\n".join((printed, *map(coded, changed)))
            failed = command_failed(
                "verify_failed", command, exit_code=result.exit_code, output=text, diagnostics=changed
            )
            return replace(failed, left=Left(result.written, result.removed))
        if isinstance(step, PytestStep):
            expected = step.expect or self._expected(step, files)
            from orch23.decide.verdict import judge_failing, judge_pytest  # noqa: PLC0415 - only where pytest ran

            report = self._reported(result.report)
            if step.must_fail:
                verdict = judge_failing(result.exit_code, report, expected, printed)
            else:
                verdict = judge_pytest(
                    result.exit_code,
                    report,
                    expected,
                    printed,
                    lambda module: self._may_be_made(step, module),
                    lambda path: self.may_write(os.path.normpath(f"{self.stage.cwd}/{path}")),
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
        if result.exit_code != 0:
            failed = command_failed("verify_failed", command, exit_code=result.exit_code, output=printed)
            left = Left(result.written, result.removed)
            absent = _not_there(command, result.exit_code)  # what was printed says it, too
            return replace(failed, diagnostics=absent, left=left, reason=exit_text(result.exit_code))
        return Ran(command, result)

    def _may_be_made(self, step: PytestStep, module: str) -> bool:
        """Return whether a stage may make a module, by where the step looks for modules of the project."""
        top = module.partition(".")[0]
        cwd = self.stage.cwd
        folders = {os.path.normpath(f"{cwd}/{one}") for one in (".", *step.pythonpath)}
        places = [top if folder == "." else f"{folder}/{top}" for folder in folders]
        return any(self.may_write(f"{place}.py") or self.may_write(f"{place}/**") for place in places)

    def _reported(self, report: Digest | None) -> bytes | None:
        """Return the lines of a report without secrets; the mark of one is sound in JSON."""
        if report is None:
            return None
        return self.redact(self.contents.get(report).decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )

    def _expected(self, step: PytestStep, files: Files) -> tuple[str, ...]:
        """Return the tests that the staged files define and the step asks for; none where its arguments choose."""
        if selects_tests(step.args):
            return ()
        cwd = self.stage.cwd
        texts = {
            below(path, cwd): self.tree.read(path, entry).decode("utf-8", errors="replace")
            for path, entry in files.items()
            if path.endswith(".py") and (cwd == "." or path.startswith(f"{cwd}/"))
        }
        return tuple(sorted(expected_tests(texts, step.paths)))


def _not_there(command: str, exit_code: int) -> tuple[Diagnostic, ...]:
    """Return the usual reason of the exit codes with which a shell, or a step itself, has not started a program."""
    if exit_code not in _NOT_STARTED:
        return ()
    return (Diagnostic("E309", f"a program of `{short_command(command)}` could not be started", hint=_PATH),)
