"""Run a process of a stage as an action, with paths that it may write; turn its outcome into a value or a failure."""

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.failures import E_SUPPLIED, Failure, LeftoverFiles, command_failed, diagnostic_line, failure_of
from orch23.attempt.run_events import StageReporter
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
from orch23.model.event_data import LikelyCause
from orch23.model.paths import is_glob, normalize_pattern, static_prefix
from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import Stage
from orch23.model.plugins import load_object
from orch23.model.record import Facts
from orch23.model.step import ProcessStep
from orch23.model.text import shorten_command
from orch23.resolve.commands import command_ran, display_command, typed_command
from orch23.resolve.resolution import VisibleFiles

if TYPE_CHECKING:
    from orch23.attempt.likely_cause import ProjectFacts
    from orch23.attempt.pytest_trust import TestTrust
    from orch23.model.ports import ContentStore, Executor
    from orch23.verdict.verdict import Verdict


_REFUSAL = lazy_pattern(r"^.*(?:[Rr]ead-only file system|[Pp]ermission denied).*$", re.MULTILINE)
_QUOTED = lazy_pattern(r"'([^']+)'")
_ABSOLUTE = lazy_pattern(r"(?:^|[^\w./~-])(/[\w./~-]+)")
_TREE = "/room/work/"
_RERUNS = "orch23.attempt.reruns:run_again"  # few steps have reruns
_MOST, _LONGEST = 3, 300
_HINT = "write below TMPDIR (in pytest: `tmp_path`), or list the path in `scratch`"
# Caches that are redirected below TMPDIR, or not written at all. If the code under test could write `__pycache__`, it
# could replace the compiled form of a test.
_ELSEWHERE = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis", ".coverage"})

# Staged code stays read-only: the code under test could otherwise replace a test (ADR 24).
_CODE = (".py", ".pyc", ".so")


def changed_tree_error(path: str) -> Diagnostic:
    """Return the error that a step changed its read-only tree. That is possible only without a sandbox."""
    message = "was changed by the step that verifies, for which the tree is read-only"
    return Diagnostic("E323", message, hint=_HINT, subject=path)


def with_refused_writes(failure: Failure, printed: str) -> Failure:
    """Return a failure with an error for each refused write in its output."""
    from orch23.text.excerpt import normalise  # noqa: PLC0415 - only for failures

    output = normalise(f"{failure.feedback.excerpt}\n{printed}")
    refused = dict.fromkeys(" ".join(line.split()) for line in _REFUSAL.findall(output) if _is_of_tree(line))
    said = "the tree of this step is read-only, and it may have tried to write there"
    found = [Diagnostic("E323", f"{said}: {line[:_LONGEST]}", hint=_HINT) for line in [*refused][:_MOST]]
    found[1:] = [replace(one, hint=None) for one in found[1:]]  # one refusal is printed as several lines
    if not found:
        return failure
    lines = tuple(map(diagnostic_line, found))
    excerpt = "\n".join((failure.feedback.excerpt.rstrip(), "", *lines))
    feedback = replace(failure.feedback, excerpt=excerpt, diagnostics=(*failure.feedback.diagnostics, *lines))
    parts = (*failure.parts, "\n".join(lines)) if failure.parts else ()
    return replace(failure, feedback=feedback, diagnostics=(*failure.diagnostics, *found), parts=parts)


def _is_of_tree(line: str) -> bool:
    """Return whether a line may be about the tree: it names a path there, or no path elsewhere."""
    named = _QUOTED.findall(line) or _ABSOLUTE.findall(line)
    return not named or any(not path.startswith("/") or f"{path}/".startswith(_TREE) for path in named)


_DISK = "free space where `.orch23` is (`df -h .orch23` shows it), or see what the message names; then build again"
_LENGTH = "write the values to a file and pass its name, or write the command as one text, which may be of any length"
PATH_HINT = "install it, with the program of its `#!` line, below /usr or in the project's environment: PATH is fixed"


class CancelledBuildError(Exception):
    """The build was interrupted while the stage ran."""


Files = Mapping[str, FileEntry]
_NotCompleted: TypeAlias = TimedOut | Cancelled | InputsChanged | EngineUnavailable


class FinishedProcess(Struct, frozen=True):
    """A process that ended by itself, with the verdict if it ran tests, and the inputs that count by its depfile."""

    command: str
    result: ActionResult
    verdict: "Verdict | None" = None
    tracked: frozenset[str] | None = None


class StepCommand(Struct, frozen=True):
    """The command of a step, with files of orch23 (`tools`); `reports`, `results` and `reads` are as in an action."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = {}
    tools: Mapping[str, FileEntry] = {}
    reports: bool = False
    results: tuple[str, ...] = ()
    reads: bool = False


class ProcessHooks(Protocol):
    """How a step kind starts its program and judges the result: methods of its `run` object."""

    def distrusted(self, step: Any, runner: "ProcessRunner", files: Files) -> tuple[Diagnostic, ...]:
        """Return the errors of files that must not decide the result."""

    def unfixable(self, step: Any, runner: "ProcessRunner", files: Files) -> tuple[Diagnostic, ...]:
        """Return the errors of files that the stage cannot write, and with which the step fails in any case.

        Called before the first model call, for a step of `verify`; `files` are its inputs.
        """
        del step, runner, files
        return ()

    def launch(self, step: Any, runner: "ProcessRunner") -> StepCommand:
        """Return the command."""

    def running_test(self, step: Any, runner: "ProcessRunner", report: "Digest | None", output: str) -> str:
        """Return the test that ran when a program was killed, by its report and output; empty if it is not known."""
        del step, runner, report, output
        return ""

    def judge(
        self, step: Any, runner: "ProcessRunner", files: Files, command: str, result: ActionResult, printed: str
    ) -> FinishedProcess | Failure:
        """Judge the result of a program that stayed inside its limits; secrets are removed from `printed`."""


class StageTrace(Struct, frozen=True):
    """What the processes of a stage showed: the sandboxes that they ran in, and the tests of its result.

    A sandbox is an empty text if it is not known. `before` and `now` are the numbers of tests in the last result and in
    this one, as in `Record.tests`. `passed` are the steps that passed, `forgiven` the failed tests and findings that
    the result may have, `proof` is as in `Record`.
    """

    before: Mapping[str, int] = {}
    now: dict[str, int] = field(default_factory=dict)
    passed: list[tuple[ProcessStep, FinishedProcess | Failure]] = field(default_factory=list)
    forgiven: set[str] = field(default_factory=set)
    proof: list[str] = field(default_factory=list)
    sandboxes: set[str] = field(default_factory=set)


class ProcessRunner(Struct, frozen=True, kw_only=True):
    """Runs the process steps of one stage. Secrets are removed from output before it is shortened.

    `project` returns the facts that may explain a failure. `trace` gets what processes showed. `begin` raises a
    LimitError if the wall time of the stage is over.
    """

    stage: Stage
    facts: Facts
    executor: "Executor"
    contents: "ContentStore"
    tree: VisibleFiles
    redact: Callable[[str], str]
    trust: "Callable[[], TestTrust]"
    report: StageReporter
    project: "Callable[[], ProjectFacts | None]" = lambda: None
    trace: StageTrace = field(default_factory=StageTrace)
    begin: Callable[[], None] = lambda: None

    def _note(self, command: str, exit_code: int | None, took_s: float) -> None:
        ran = command_ran(command, exit_code, took_s)
        self.report.emit(ran, f"$ {ran.command}", "debug")

    def run(self, step: ProcessStep, files: Files, *, verifies: bool = False) -> FinishedProcess | Failure:
        """Run a step on these files and judge its result. `verifies`: it is a step of `verify`.

        Raises:
            CancelledBuildError: the build was interrupted.
            MissingBytesError: the store lost the bytes of an input.
            ConfigurationError: the process could not be started at all.
        """
        # By name, so that a build of shell stages does not import pytest steps (ADR 18).
        how: ProcessHooks = load_object(step.run)
        if distrusted := how.distrusted(step, self, files):
            # A missing library is the user's to install: no response can pass.
            return failure_of("verify_failed", distrusted, retryable=all(one.code != E_SUPPLIED for one in distrusted))
        action = self.action_of(step, files, verifies=verifies)
        command = display_command(action.argv)
        outcome = self.executor.run(action, self.report.step_lines(shorten_command(command)))
        if not isinstance(outcome, Completed):
            return replace(self._not_completed(how, step, outcome, command), action=action)
        self._note(command, outcome.result.exit_code, outcome.result.duration_s)
        self.trace.sandboxes.add(outcome.result.tier)
        judged = self._judge(how, step, files, command, outcome.result)
        if isinstance(judged, FinishedProcess):
            return judged
        printed = self.redact(outcome.result.output.text)
        cause = self._likely_cause(step, action, judged, printed, verifies=verifies)
        # The tree of a verifying step is read-only (ADR 24). A refused write shows only in the output.
        if action.writable is not None and judged.retryable:
            judged = with_refused_writes(judged, printed)
        return replace(judged, printed=printed, took_s=outcome.result.duration_s, cause=cause, action=action)

    def _likely_cause(
        self, step: ProcessStep, action: Action, failure: Failure, printed: str, *, verifies: bool
    ) -> LikelyCause | None:
        """Return why a step probably failed, if the facts confirm it."""
        if (project := self.project()) is None or failure.safety:
            return None
        from orch23.attempt.likely_cause import FailedStep, likely_cause  # noqa: PLC0415 - only for failures

        path = tuple(filter(None, self.stage.env.get("PYTHONPATH", "").split(":")))
        # `env` of a stage with a pytest step must not set PYTHONPATH.
        key = "" if self.stage.runs_pytest else "env/PYTHONPATH"
        failed = FailedStep(
            project=project,
            stage=self.stage,
            staged=action.inputs,
            interpreter=self.facts.interpreter,
            output=f"{failure.feedback.excerpt}\n{printed}",
            command=typed_command(failure.feedback.command).replace("$HOME", "~"),
            exit_code=failure.feedback.exit_code,
            network=action.network or not (action.sandbox and project.is_isolated()),
            inputs_key="verify/inputs" if verifies else "inputs",
            python_path=tuple(map(posixpath.normpath, getattr(step, "pythonpath", path))),
            python_path_key="pytest/pythonpath" if step.kind == "pytest" and not verifies else key,
        )
        return likely_cause(failed)

    def _not_completed(self, how: ProcessHooks, step: ProcessStep, outcome: _NotCompleted, command: str) -> Failure:
        """Return the failure of a process that did not end by itself, or raise an error that is not the stage's."""
        match outcome:
            case TimedOut(timeout_s=timeout_s, report=report):
                from orch23.verdict.unfinished_test import stack_at_the_end  # noqa: PLC0415 - only for timeouts

                self._note(command, None, timeout_s)
                printed, frames = stack_at_the_end(self.redact(outcome.output.text), self.stage.cwd)
                test = how.running_test(step, self, report, printed)
                message = f"killed after {timeout_s:g} s{f' in {test}' if test else ''}"
                # A model cannot raise the timeout; its users read another hint (`report.failures`).
                hint = f"{'end every loop' if self.stage.step.asks_model else 'raise `timeout`'}, or make it faster"
                late = Diagnostic("E304", message, hint=hint, subject=self.stage.name)
                text = "\n".join((printed, message, *frames))
                failed = command_failed("timeout", command, exit_code=None, output=text, diagnostics=(late,))
                left = LeftoverFiles(outcome.written, outcome.removed)
                return replace(failed, printed=text, leftover=left, reason=message, took_s=timeout_s)
            case Cancelled(ran_s=ran_s):
                if ran_s is not None:
                    self._note(command, None, ran_s)
                raise CancelledBuildError
            case InputsChanged(paths=paths):
                raise MissingBytesError(", ".join(paths))
            case EngineUnavailable(diagnostic=Diagnostic() as barred):
                raise ConfigurationError(replace(barred, subject=self.stage.name))
            case EngineUnavailable(reason=reason, kind=kind):
                hint = {"length": _LENGTH, "room": _DISK}.get(kind, PATH_HINT)
                problem = Diagnostic("E309", f"`{shorten_command(command)}` could not be started: {reason}", hint=hint)
                text = reason if kind == "room" else f"the command could not be started: {reason}"
                failed = command_failed("exception", command, exit_code=None, output=text, diagnostics=(problem,))
                return replace(failed, reason=text)
            case _ as never:
                assert_never(never)

    def action_of(self, step: ProcessStep | None, files: Files, *, verifies: bool = False) -> Action:
        """Return what the executor is to run for a step on these files; without a step, an action with no command.

        Raises:
            ConfigurationError: there is no interpreter.
        """
        launch, writable = StepCommand(()), None
        if step is not None:
            how: ProcessHooks = load_object(step.run)
            launch = how.launch(step, self)
            writable = writable_paths(self.stage, step, files.keys(), verifies=verifies)
        if step is not None and not self.facts.interpreter:
            hint = "make a virtual environment at `.venv`, or name an interpreter in `python:`"
            problem = Diagnostic("E309", "no Python interpreter was found", hint=hint, subject=self.stage.name)
            raise ConfigurationError(problem)
        return Action(
            argv=launch.argv,
            # Sorted, so that equal actions have equal bytes (ADR 30).
            inputs=dict(sorted(files.items())),
            python=Interpreter.of(self.stage.python, self.facts.python, self.facts.pytest),
            working_directory=self.stage.cwd,
            output_folders=tuple(sorted({static_prefix(path) for path in self.stage.outputs} - {""})),
            env={**self.stage.env, **launch.env},
            scratch=self.stage.scratch,
            timeout_s=self.stage.timeout_s,
            network=self.stage.network,
            sandbox=self.stage.sandbox,
            min_tier=self.stage.min_tier,
            limits=self.stage.limits,
            tools=launch.tools,
            reports=launch.reports,
            results=launch.results,
            reads=launch.reads,
            writable=writable,
            programs=self.facts.tools,
            declared=tuple(tool.digest for tool in self.stage.tools),
            **self._tool_caches(step, verifies=verifies),
        )

    def _tool_caches(self, step: ProcessStep | None, *, verifies: bool) -> dict[str, Any]:
        if not self.stage.tool_caches:
            return {}
        from orch23.model.features import TOOL_CACHES, load_feature  # noqa: PLC0415 - few stages have tool caches

        used: dict[str, Any] = load_feature(TOOL_CACHES["used"])(self.trust(), self.stage, step, verifies=verifies)
        return used

    def _judge(
        self, how: ProcessHooks, step: ProcessStep, files: Files, command: str, result: ActionResult
    ) -> FinishedProcess | Failure:
        if result.violations:
            return failure_of("write_scope_violation", result.violations, safety=True, retryable=False)
        printed = self.redact(result.output.text)
        if result.touched:
            changed = tuple(map(changed_tree_error, result.touched))
            text = "\n".join((printed, *map(diagnostic_line, changed)))
            failed = command_failed(
                "verify_failed", command, exit_code=result.exit_code, output=text, diagnostics=changed
            )
            return replace(failed, leftover=LeftoverFiles(result.written, result.removed))
        return how.judge(step, self, files, command, result, printed)


def writable_paths(
    stage: Stage, step: ProcessStep, inputs: Collection[str], *, verifies: bool
) -> tuple[str, ...] | None:
    """Return what a step may write besides TMPDIR and HOME: a folder ends with `/`, everything else is a file.

    None means its whole tree, as for a step that makes outputs. A step that judges may write the outputs of its stage
    if it is the stage's own step and not one of `verify`.
    """
    if not (step.judges or verifies):
        return None
    # Code under test runs in these steps. With its whole tree writable, it could replace the tests that judge it.
    found = set(_scratch(stage, step, inputs))
    if not verifies:
        patterns = {*stage.outputs, *stage.fence.write} - {*step.named_outputs}
        found |= {path for one in patterns if (path := _output(one, inputs))}
    return tuple(sorted(found))


def _scratch(stage: Stage, step: ProcessStep, inputs: Collection[str]) -> Iterator[str]:
    """Yield the literal paths of `scratch`. A name without a `/` is relative to the working directory of the step.

    A path that is, contains or is inside a staged Python file is left out: an item may decide `scratch`.
    """
    for pattern in stage.scratch:
        bare = pattern.removesuffix("**").rstrip("/").removeprefix("./")
        name = bare.rpartition("/")[2]
        if name in _ELSEWHERE or name in step.caches:
            continue
        if is_glob(bare):
            # Mounts and Landlock rules need paths, so the folder before the wildcard becomes writable (ADR 24).
            folder = static_prefix(bare)
            path = "" if _holds(folder, inputs) else folder
        else:
            path = _literal(stage, pattern, bare, inputs)
        is_plain = not {"", ".", ".."} & set(path.removesuffix("/").split("/"))
        if is_plain and not any(path.startswith(f"{one}/") for one in inputs):
            yield path


def _literal(stage: Stage, pattern: str, bare: str, inputs: Collection[str]) -> str:
    """Return the path of a literal pattern, with `/` at the end of a folder; empty if it has a Python file."""
    path = bare if "/" in bare or stage.cwd == "." else f"{stage.cwd}/{bare}"
    is_folder = bare != pattern.removeprefix("./") or _holds(f"{path}/", inputs)
    # A file is one that is staged, or a name with a suffix.
    is_file = path in inputs or (not is_folder and "." in path.rpartition("/")[2].lstrip("."))
    path = path if is_file else f"{path}/"
    code = (one for one in inputs if one.endswith(_CODE))
    return "" if any(one == path or one.startswith(path) for one in code) else path


def _output(pattern: str, inputs: Collection[str]) -> str:
    """Return what must be writable for an output: its folder, or only the file if the folder has inputs."""
    folder = static_prefix(pattern)
    if folder and not _holds(folder, inputs):
        return folder
    return "" if is_glob(pattern) else normalize_pattern(pattern)


def _holds(folder: str, inputs: Collection[str]) -> bool:
    return any(path.startswith(folder) for path in inputs)


def run_step(
    runner: ProcessRunner, step: ProcessStep, files: Files, *, verifies: bool = False
) -> FinishedProcess | Failure:
    """Run a step on these files, also its `reruns`; the arguments are as of `ProcessRunner.run`."""
    run = partial(runner.run, step, files, verifies=verifies)
    ran = run()
    if isinstance(ran, FinishedProcess) or not step.reruns:
        return ran
    again: Callable[..., FinishedProcess | Failure] = load_object(_RERUNS)
    return again(runner, step, ran, run)
