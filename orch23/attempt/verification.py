"""Verify a result: declared outputs, write scope, checks, processes, conditions."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.failures import (
    Failure,
    acceptance_failed,
    command_failed,
    diagnostic_line,
    failure_of,
    joined_failure,
)
from orch23.attempt.process_runner import Files, FinishedProcess, ProcessRunner, run_step
from orch23.model.diagnostic import Diagnostic, Severity, errors
from orch23.model.digest import FileEntry
from orch23.model.event import CheckResult, Warned
from orch23.model.file_policy import DeclaredPatterns, sealed_reason
from orch23.model.paths import escape_pattern, is_glob, match_any, with_above
from orch23.model.pipeline import CheckStep, CommandsStep, Condition, EnsuresStep, Stage
from orch23.model.plugins import load_object
from orch23.model.step import ProcessStep, VerifyStep, describe_step
from orch23.model.text import shorten_command
from orch23.plan.diagnostics import missing_outputs
from orch23.resolve.commands import command_steps
from orch23.resolve.resolution import ResolvedStage

if TYPE_CHECKING:
    from orch23.attempt.base_verification import StepRun

TrialExpansion: TypeAlias = Callable[[Files], tuple[Diagnostic, ...]]
"""Expand every foreach over one of these files, without changing the plan; return the errors."""

_MAX_EXCERPT = 2000
_MOST_PATHS = 20


class Verifier(Struct, frozen=True, kw_only=True):
    """Verifies results of one stage. Each step gets its own copy of the files: what it writes is discarded.

    `unnamed` yields an error for each module that tests import in vain, whatever the stage writes. `plugins` may have
    further checks. `warned` has the warnings of checks that this run has reported, with their stages. `base_runs` has
    the runs on bases with tests of results, by their key.
    """

    resolved: ResolvedStage
    runner: ProcessRunner
    trial: TrialExpansion
    unnamed: Callable[[], Iterator[Diagnostic]] = lambda: iter(())
    previous: Files = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    warned: set[tuple[str, str]] = field(default_factory=set)
    base_runs: "dict[str, tuple[StepRun, ...]]" = field(default_factory=dict)

    def verify(self, result: Files, tree: Files, attempt: int = 0) -> Failure | None:
        """Return the first failure (or all, with `all: true`, as one), or None.

        `result` are the stage's own files; `tree` also has the files of its base that it left unchanged. Attempt 0 is
        the verification of a recorded result.
        """
        stage = self.resolved.stage
        self.runner.trace.forgiven.clear()
        self.runner.trace.passed.clear()
        # A program that writes the bytes of its base leaves no trace, so there what it started from counts as written.
        if missing := tuple(missing_outputs(stage, result if stage.step.asks_model else tree)):
            return failure_of("verify_failed", missing)
        if failures := self._failures(result, tree, attempt):
            return _joined(failures)
        if stage.verify.fails_on_base:
            from orch23.attempt.base_verification import prove_on_base  # noqa: PLC0415 - few stages need it

            unproved = prove_on_base(self.resolved, self.runner, tree, attempt, self.base_runs)
            printed = unproved.printed if unproved else None
            self._report("fails_on_base", unproved, attempt, "verify-base.txt", printed)
            if unproved is not None:
                return unproved
        # A list that passes can still make items with errors: the stage that made the list gets them as feedback.
        problems = self.trial(result)
        return failure_of("verify_failed", problems) if problems else None

    def unfixable(self) -> tuple[Diagnostic, ...]:
        """Return the errors of the user's own files with which the verification fails, whatever the stage writes."""
        given = {**self.resolved.files, **self.resolved.verify_files}
        # A file that a stage of the pipeline writes may be another one in the next build.
        files = {path: entry for path, entry in given.items() if not self.runner.trust().makers_of(path)}
        hooks = [(step, load_object(step.run)) for step in self.resolved.stage.verify.programs]
        return (*(error for step, how in hooks for error in how.unfixable(step, self.runner, files)), *self.unnamed())

    def _failures(self, result: Files, tree: Files, attempt: int) -> list[Failure]:
        """Run the steps of `verify` and return their failures: the first one, or all with `all: true`."""
        stage, files = self.resolved.stage, self.resolved.verified_files(tree)
        is_compared = stage.verifies_first or stage.verify.may_fail
        # Checks start no process, so a result that fails one costs less time when they run first.
        steps: list[VerifyStep] = sorted(stage.verify.steps, key=lambda step: not isinstance(step, CheckStep))
        steps += [EnsuresStep(stage.ensures)] if stage.ensures else []
        failures: list[Failure] = []
        for number, step in enumerate(steps, 1):
            failure, printed = self._step(step, result, files)
            tests: Mapping[str, tuple[str, ...]] = {}
            if failure is not None and isinstance(step, ProcessStep) and is_compared:
                from orch23.attempt.base_verification import compare_with_base  # noqa: PLC0415 - only for failures

                failure, tests = compare_with_base(self.resolved, self.runner, step, failure)
            self._report(_name(step), failure, attempt, f"verify-{number}.txt", printed, **tests)
            if failure is not None:
                failures.append(replace(failure, reason=f"verify: {failure.summary}"))
                if not stage.verify.run_all:
                    break
        passed = self.runner.trace.passed
        if not any(step.kind == "pytest" or {*step.judged_by} - {"reruns"} for step, _ in passed):
            return failures
        # A later step failed: no test did.
        return [replace(one, failed_tests=one.failed_tests or 0) for one in failures]

    def _step(self, step: VerifyStep, result: Files, files: Files) -> tuple[Failure | None, str | None]:
        """Return the failure, if any, and the output of the step's processes, if it has any."""
        match step:
            case CheckStep():
                return self._check(step, result), None
            case EnsuresStep():
                broken = [d for c in step.conditions if (d := _broken(c, files)) is not None]
                return failure_of("verify_failed", broken) if broken else None, None
            case ProcessStep():
                ran = run_step(self.runner, step, files, verifies=True)
                if not isinstance(ran, FinishedProcess):
                    return ran, ran.printed
                self.runner.trace.passed.append((step, ran))
                tests = {} if ran.verdict is None else ran.verdict.tests
                if skipped := [name for name, outcome in tests.items() if outcome == "skipped"]:
                    found = f"{len(skipped)} of {len(tests)} tests skipped: {', '.join(skipped[:3])}"
                    self.runner.report.emit(Warned(), found)
                return None, ran.result.output.text
            case CommandsStep():
                return self._commands(step, files)
            case _:
                message = f"BUG: {step} verifies nothing"
                raise TypeError(message)

    def _commands(self, step: CommandsStep, files: Files) -> tuple[Failure | None, str]:
        """Run every command of a model, each on its own copy; all failed commands are one failure.

        A timeout or a write outside of the scope is a failure of its own, at once.
        """
        passed, failed, printed = list[tuple[str, str]](), list[Failure](), ""
        for one in command_steps(step):
            ran = self.runner.run(one, files, verifies=True)
            if isinstance(ran, FinishedProcess):
                command, text = ran.command, ran.result.output.text
                passed.append((command, text))
                self.runner.trace.passed.append((one, ran))
            else:
                command, text = ran.feedback.command, ran.printed or ""
                failed.append(ran)
            printed += f"$ {shorten_command(command)}\n{text}\n"
            if failed and failed[-1].kind != "verify_failed":
                return failed[-1], printed
        return (acceptance_failed(failed, passed) if failed else None), printed

    def _check(self, step: CheckStep, result: Files) -> Failure | None:
        from orch23.checks.check import CheckInput  # noqa: PLC0415 - few stages have checks
        from orch23.checks.registry import available_checks  # noqa: PLC0415 - as above

        known = available_checks(self.plugins)
        check = known[step.name]
        given = CheckInput(
            outputs=self._bytes(result),
            previous=self._bytes(self.previous),
            inputs=self._bytes({**self.resolved.files, **self.resolved.verify_files}),
            listings=self.resolved.listings,
            options=step.options,
        )
        diagnostics: Any = check.run(given)
        if not isinstance(diagnostics, tuple) or not all(isinstance(one, Diagnostic) for one in diagnostics):
            raise known.unusable(step.name, "it did not return a tuple of `Diagnostic`")
        # Warnings do not fail the stage.
        for one in diagnostics:
            if one.code == "W310" and self.resolved.stage.edits:  # this time, no such file changed
                continue
            said = self.resolved.stage.name, diagnostic_line(one)
            if one.severity is Severity.WARNING and said not in self.warned:
                self.warned.add(said)
                self.runner.report.emit(Warned(code=one.code), said[1], "warning")
        found = errors(diagnostics)
        if not found:
            return None
        lines = "\n".join(map(diagnostic_line, found))
        return command_failed("verify_failed", f"check {step.name}", exit_code=None, output=lines, diagnostics=found)

    def _bytes(self, files: Files) -> dict[str, bytes]:
        return {path: self.runner.tree.read(path, entry) for path, entry in files.items()}

    def _report(
        self, step: str, failure: Failure | None, attempt: int, file: str, printed: str | None, **tests: tuple[str, ...]
    ) -> None:
        """Report how a step ended, and keep its output, if it has any, in a file of the attempt."""
        if printed is not None:
            self.runner.report.keep(attempt, file, printed)
        excerpt = failure.feedback.excerpt if failure else ""
        # The redactor needs the dots to know that the text was cut.
        cut = f"{excerpt[:_MAX_EXCERPT]}..." if len(excerpt) > _MAX_EXCERPT else excerpt
        data = CheckResult(
            step=step,
            passed=failure is None,
            exit_code=failure.feedback.exit_code if failure else 0,
            excerpt=cut,
            attempt=attempt,
            printed=file if printed is not None else "",
            **tests,
        )
        text = f"{data.step} {'failed' if failure else 'passed'}"
        self.runner.report.emit(data, text, "warning" if failure else "info")


def undeclared_writes(
    stage: Stage,
    changed: Mapping[str, FileEntry | None],
    inputs: Files,
    links: Callable[[str], tuple[str, ...]],
    own: tuple[str, ...] = (),
) -> dict[str, Diagnostic]:
    """Return an error for each path that a process must not change: out of scope, protected, an input, behind a link.

    `links` returns the links of the project that a pattern matches; `own` are patterns of orch23's own files.
    """
    problems: dict[str, Diagnostic] = {}
    scope = (*stage.fence.write, *stage.outputs)
    declared = DeclaredPatterns(scope, own)
    folders = {above for folder in {path.rpartition("/")[0] for path in changed} for above in with_above(folder)}
    linked = {one for one in folders if links(escape_pattern(one))}
    linked |= {path for path in changed if path in inputs and inputs[path].link}
    for path in sorted(changed):
        verb = "removed" if changed[path] is None else "wrote"
        link = next(filter(linked.__contains__, with_above(path)), None)
        if link is not None:
            why = f"`{link}` is a symbolic link"
        elif path in inputs:
            why = "it is an input of the stage"
        elif match_any(stage.fence.protect, path):
            why = "it is protected"
        elif not match_any(scope, path):
            why = "it is outside the fence"
        elif (refusal := declared.write_error(path)) is not None:
            why = refusal
        else:
            continue
        keys = "`edits` or `outputs`" if stage.edits else "`outputs` or `allowed_paths.write`"
        way = "write it elsewhere" if sealed_reason(path) else f"declare it in {keys}"
        way = f"write what the link leads to, and declare that in {keys}" if link is not None else way
        hint = f"{way}, or list its name in `scratch`"
        problems[path] = Diagnostic("E306", f"the step {verb} `{path}`: {why}", hint=hint)
    return problems


def first_errors(problems: Mapping[str, Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return the errors of the first paths, and the number of the others."""
    found = [*problems.values()]
    if (more := len(found) - _MOST_PATHS) > 0:
        last = Diagnostic("E306", f"so it did with {more} more paths", hint=found[_MOST_PATHS].hint)
        found = [*found[:_MOST_PATHS], last]
    return tuple(found)


def _broken(condition: Condition, files: Files) -> Diagnostic | None:
    present = any(match_any((condition.path,), path) for path in files)
    if present == (condition.kind == "file_exists"):
        return None
    state, hint = "is there" if present else "is not there", "make it so, or drop the condition"
    below = (f"{condition.path}/**",)
    if not present and not is_glob(condition.path) and any(match_any(below, path) for path in files):
        state, hint = "is a folder", f"write `{condition.path}/`: then there must be a file below it"
    return Diagnostic("E302", f"{condition.kind} {condition.path}: it {state}", hint=hint)


def _joined(failures: list[Failure]) -> Failure:
    """Return several failures as one, of the most serious kind: safety, then not retryable, then the first."""
    if len(failures) == 1:
        return failures[0]
    titled = [(f"{f.feedback.command or f.kind}:\n", f) for f in failures]
    # A violation of limits must end the stage even if an earlier failure could be retried.
    worst = min(failures, key=lambda one: (not one.safety, one.retryable))
    codes = (f.feedback.exit_code for f in failures)
    joint = joined_failure(worst.kind, titled, exit_code=next((c for c in codes if c is not None), None))
    reason = f"{worst.summary} (and {len(failures) - 1} more failed)"
    return replace(joint, safety=worst.safety, retryable=all(f.retryable for f in failures), reason=reason)


def _name(step: VerifyStep) -> str:
    if isinstance(step, CheckStep | ProcessStep):
        return f"check {step.name}" if isinstance(step, CheckStep) else describe_step(step)
    return f"commands ({len(step.commands)})" if isinstance(step, CommandsStep) else "ensures"
