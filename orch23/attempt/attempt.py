"""Run the attempts of one stage: run its step, verify the result, retry with feedback.

Runs in a worker thread. Writes bytes into the store and exchanges through the conversation; changes no state.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, json
from msgspec.structs import replace

from orch23.attempt.failures import Failure, LeftoverFiles, failure_identity, failure_of, fit_feedback
from orch23.attempt.process_runner import Files, FinishedProcess, ProcessHooks, ProcessRunner, StageTrace, run_step
from orch23.attempt.run_events import StageReporter
from orch23.attempt.safeguards import Safeguards, guard_manifest, guard_paths
from orch23.attempt.stage_outcomes import NO_USAGE, StageUsage
from orch23.attempt.verification import Verifier, first_errors, undeclared_writes
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry, Json
from orch23.model.event import AttemptFinished, AttemptStarted
from orch23.model.paths import match_any
from orch23.model.pipeline import Condition, Retry, Stage
from orch23.model.plugins import load_object_as
from orch23.model.record import Record
from orch23.model.step import Grant, ProcessStep, Step
from orch23.model.text import join_first, shorten_command
from orch23.resolve.resolution import ResolvedStage, VisibleFiles

if TYPE_CHECKING:
    from orch23.attempt.conversation import Conversations, RequestBuilder
    from orch23.model.ports import ContentStore
    from orch23.resolve.prompt_inputs import Dialogue, Exploration, PromptInput
    from orch23.verdict.verdict import Verdict

_MOST_FILES = 3


class AttemptInput(Struct, frozen=True, kw_only=True):
    """What an attempt starts from: the stage's own files, their exchanges, the failure and response before it.

    `is_applied`: the files are those of the previous response. `dialogue` is the request that the attempt continues.
    """

    attempt: int
    start: Files
    exchanges: tuple[str, ...] = ()
    failure: Failure | None = None
    previous_response: str | None = None
    is_applied: bool = False
    dialogue: "Dialogue | None" = None


class AttemptResult(Struct, frozen=True):
    """The result of one attempt: the stage's own files, the exchanges behind them, and the failure if there is one.

    `written` are the paths that the responses wrote, also where the bytes equal those of the base. `leftover` is what a
    program had written when it failed: no attempt starts from it, but `on_failure: keep` promotes it. `settle` gets the
    failure of the verification, or None; it is not called if the attempt itself failed. `dialogue` is what the next
    attempt continues, if retries are a conversation. `keeps`: by the response, no file needs a change.
    `formatted` are the files that `format` changed; the next attempt starts from the answer as it was before.
    `tracked` are the inputs that count by a depfile, None for all.
    """

    tree: Files
    exchanges: tuple[str, ...] = ()
    failure: Failure | None = None
    response: str | None = None
    proposal: str | None = None
    took_s: float = 0.0
    written: frozenset[str] = frozenset()
    leftover: Files | None = None
    settle: Callable[[Failure | None], None] | None = None
    dialogue: "Dialogue | None" = None
    keeps: bool = False
    formatted: Files = {}
    tracked: frozenset[str] | None = None


class Models(Struct, frozen=True, kw_only=True):
    """How all stages of a build call models: requests, conversations, and validation by the schema at a path."""

    requests: "RequestBuilder"
    conversations: "Conversations"
    validate: Callable[[str, Json], tuple[Diagnostic, ...]]


class Shown(Struct, frozen=True):
    """What prompts show of a stage's own files: its last accepted result, `own`.

    `hidden` are the files within the write scope that exist and are not shown: a model may not write over them.
    `kept` are the files of that result, and its exchanges, if all of them are on disk.
    """

    own: "tuple[PromptInput, ...]" = ()
    hidden: frozenset[str] = frozenset()
    kept: tuple[Files, tuple[str, ...]] = ({}, ())


class BestAttempt(Struct):
    """The best attempt so far: with the fewest failing tests, of equal ones the latest (`retry.from: best`).

    A response that was refused, or whose tests did not run, is not better than one whose tests ran. Attempt 0 is the
    recorded result that the stage starts from, if any.
    """

    stage: Stage
    number: int = 0
    result: AttemptResult | None = None
    failure: Failure | None = None

    def add(self, number: int, result: AttemptResult, failure: Failure) -> None:
        """Compare a failed attempt with the best one."""
        if self.result is None or self.failure is None or _rank(result, failure) <= _rank(self.result, self.failure):
            self.number, self.result, self.failure = number, result, failure

    def next_start(
        self, attempt: int, last: AttemptResult, failure: Failure | None, counts: Sequence[str]
    ) -> tuple[AttemptResult, Failure | None]:
        """Return the attempt that the next one starts from, and its failure, which says so.

        The errors of a refused response are kept: it changed no files, and the next response must not have them.
        `counts` describes the failures of all attempts.
        """
        if self.result is None or self.failure is None or self.number == attempt - 1:
            return last, failure
        name = f"attempt {self.number}" if self.number else "the recorded result"
        how = f"{name} ({self.failure.headline or self.failure.kind})"
        if last.failure is not None:
            note = f"attempt {attempt} starts from {how}, since the last response was refused"
            return last, fit_feedback(last.failure, self.stage, note=note)
        others = "; ".join(text for number, text in enumerate(counts, 1) if number > self.number)
        note = f"attempt {attempt} starts again from {how}; {others}"
        return self.result, fit_feedback(self.failure, self.stage, note=note)


def _rank(result: AttemptResult, failure: Failure) -> tuple[bool, bool, int]:
    tests = failure.failed_tests
    return result.failure is not None, tests is None, tests or 0


class AttemptHistory(Struct):
    """The attempts of a stage so far: its model calls, whether a result failed its verification, and how each ended.

    `last` is the result of the last one, `proposals` are the responses whose files failed. `seen` are the files that
    prompts have shown as a whole, `explored` is what the model asked to see. Another loop can go on from here, if a
    check of several stages together or a user refuses the result. A user who rejects it grants further attempts,
    besides those of `retry`; `wishes` are the texts of all rejections.
    """

    used: set[str] = field(default_factory=set)
    usage: StageUsage = NO_USAGE
    has_failed: bool = False
    attempt: int = 0
    last: AttemptResult | None = None
    best: BestAttempt | None = None
    proposals: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    explored: "Exploration | None" = None
    same: list[dict[str, Json]] = field(default_factory=list)
    counts: list[str] = field(default_factory=list)
    granted: int = 0
    wishes: list[str] = field(default_factory=list)

    def stops(self, retry: Retry, failure: Failure) -> str:
        """Add the failure of the last attempt; return why there is no further one, or an empty string."""
        # Two failures are equal if they name the same tests and errors: their output may differ.
        self.same.append(failure_identity(failure))
        proposal = self.last.proposal if self.last is not None else None
        repeated = proposal in self.proposals
        self.proposals |= {proposal} if proposal else set()
        if not failure.retryable:
            return "not retryable"
        if failure.kind not in retry.when and not (failure.cut_off and "truncated" in retry.when):
            return f"{failure.kind} is not in retry.when" if retry.max else ""
        limit = retry.no_progress
        # A response that was made before fails as before, and each attempt costs a call.
        if limit and repeated:
            return "no progress: this response was made before"
        if limit and self.same[-limit:] == [self.same[-1]] * limit:
            return f"no progress: the same failure {limit} times in a row"
        return ""


class StageResult(Struct, frozen=True, kw_only=True):
    """The result of a stage's work. `failure` is None if it passed; `outputs` are its result, or the last attempt's.

    `took_s` is the duration of the last attempt's process, in seconds. `accepted` are outputs that the user wrote.
    `partial`: the program failed, so a missing file may only be one that it had not written yet. `claim` is a record of
    the lock file that passed its verification: it is kept as it is. `verified`: a recorded result was verified and
    nothing ran. `explored` are the digests of the parts that its model was shown, by place; None: no model was called.
    `made` is as in `Record`. `note` says why there was no further attempt. `trace` is what its processes showed.
    `history` are the attempts behind it. `tracked` are the inputs that count by a depfile, None for all.
    """

    outputs: Files
    deleted: tuple[str, ...]
    exchanges: tuple[str, ...]
    attempts: int
    usage: StageUsage = NO_USAGE
    failure: Failure | None = None
    note: str = ""
    took_s: float = 0.0
    accepted: tuple[str, ...] = ()
    partial: bool = False
    claim: Record | None = None
    made: Files = {}
    verified: bool = False
    trace: StageTrace = field(default_factory=lambda: StageTrace(sandboxes={""}))
    history: AttemptHistory = field(default_factory=AttemptHistory)
    explored: Mapping[str, Json] | None = None
    tracked: frozenset[str] | None = None


class AttemptLoop(Struct, frozen=True, kw_only=True):
    """Runs the attempts of one stage."""

    resolved: ResolvedStage
    runner: ProcessRunner
    verifier: Verifier
    models: Models | None
    safeguards: Safeguards
    report: StageReporter
    shown: Shown = Shown()
    history: AttemptHistory = field(default_factory=AttemptHistory)

    @property
    def contents(self) -> "ContentStore":
        """The store that the bytes of outputs are put into."""
        return self.runner.contents

    @property
    def tree(self) -> VisibleFiles:
        """The project as the stage sees it."""
        return self.runner.tree

    def run(self, start: tuple[Record | StageResult, Failure] | None = None) -> StageResult:
        """Run attempts until one passes.

        `start` is a result that passed before, and its failure now. It is a recorded result, or the result of the last
        attempt in the history.
        """
        stage, retry, history = self.resolved.stage, self.resolved.stage.retry, self.history
        if unmet := self.resolved.broken or [unmet_error(one, self.tree) for one in unmet_conditions(self.resolved)]:
            return self._refused(unmet)
        failure = self._of_earlier(*start) if start else None
        retry, base = replace(retry, max=retry.max + history.granted), self.resolved.base
        last = history.last or AttemptResult(base)
        if unfixable := self._unfixable(failure):
            return self._done(last, history.attempt, unfixable)
        best = history.best = history.best or (BestAttempt(stage) if retry.start_from == "best" else None)
        if best is not None and start is not None:
            best.add(history.attempt, last, start[1])
        for attempt in range(history.attempt + 1, retry.max + 2):
            # Before the attempt is reported: a stage whose wall time is over must not begin another one.
            self.safeguards.begin_attempt(stage.name)
            started = AttemptStarted(attempt=attempt, max_attempts=retry.max + 1, key=self.resolved.key)
            self.report.emit(started, f"attempt {attempt} of {retry.max + 1}")
            if best is not None:
                last, failure = best.next_start(attempt, last, failure, history.counts)
            before = last, failure
            earlier = AttemptResult(base) if retry.start_from == "baseline" else last
            turn = AttemptInput(
                attempt=attempt,
                start=earlier.tree,
                exchanges=earlier.exchanges,
                failure=failure,
                previous_response=last.response,
                is_applied=earlier is last and last.failure is None,
                dialogue=last.dialogue,
            )
            last = step_runner(stage.step).attempt(self, stage.step, turn)
            # A file of an earlier attempt stays the stage's own output, even if this attempt did not write it again.
            last = replace(last, written=(earlier.written | last.written) & last.tree.keys())
            last, failure = self._verify(last, attempt)
            history.attempt, history.last = attempt, last
            if best is not None and failure is not None and not failure.escalates:
                best.add(attempt, last, failure)
            failure = self._ended(attempt, failure)
            if failure is None:
                return self._done(last, attempt, None)
            if failure.escalates and attempt <= retry.max:
                # After a refusal, the next model has nothing to correct: it gets the same prompt.
                last, failure = before
                continue
            if stop := history.stops(retry, failure):
                return self._done(last, attempt, failure, stop)
        return self._done(last, retry.max + 1, failure, "retries exhausted" if retry.max else "")

    def forbidden(self) -> StageResult | None:
        """Return the failure of a stage that would store or send a secret, before any of its inputs is stored.

        Each request is checked again before it is sent, since attempts add to it.
        """
        # Before inputs are stored: the store keeps their bytes, and the lock file with the manifest is committed.
        problems, step = guard_manifest(self.safeguards.secrets, self.resolved), self.resolved.stage.step
        if not problems and not self.resolved.broken:
            problems = step_runner(step).forbidden(self, step)
        return self._refused(problems) if problems else None

    def _refused(self, problems: Sequence[Diagnostic]) -> StageResult:
        return self._done(AttemptResult({}, ()), 0, failure_of("preflight", problems, retryable=False))

    def verify_recorded(self, outputs: Files, deleted: tuple[str, ...]) -> Failure | None:
        """Verify a recorded result as it is, since its verification changed."""
        if self.resolved.broken:
            return failure_of("preflight", self.resolved.broken, retryable=False)
        return self.verifier.verify(outputs, {**self.resolved.base_without(deleted), **outputs})

    def _of_earlier(self, passed: Record | StageResult, failure: Failure) -> Failure | None:
        """Report the failure of a recorded result, or of the last attempt that had passed; return it as feedback."""
        self.history.has_failed = True
        if self.history.last is None:
            answer = {**self.resolved.base_without(passed.deleted), **passed.outputs, **passed.made}
            self.history.last = AttemptResult(answer, written=frozenset(passed.outputs))
        elif self.history.last.settle is not None:
            self.history.last.settle(failure)
        return self._ended(self.history.attempt, failure)

    def _ended(self, attempt: int, failure: Failure | None) -> Failure | None:
        """Report how an attempt ended; return its failure as feedback for the next one."""
        # Without these, an attempt that fails in another way would end what the user asked for.
        note = "\n".join(f"The user rejected an earlier result: {one}" for one in self.history.wishes)
        fitted = fit_feedback(failure, self.resolved.stage, self.history.counts, note) if failure else None
        if failure is not None and failure.kind == "rejected":
            self.history.wishes.append(failure.feedback.excerpt)
        self._end(attempt, fitted)
        if fitted is not None and attempt:
            self.history.counts.append(f"attempt {attempt}: {fitted.headline or fitted.kind}")
        return fitted

    def _verify(self, last: AttemptResult, attempt: int) -> tuple[AttemptResult, Failure | None]:
        """Format and verify the files of an attempt; return it with the formatted ones, and the failure, if any."""
        if last.failure is not None:
            return last, last.failure
        formatted = self._formatted(last)
        last = last if isinstance(formatted, Failure) else replace(last, formatted=formatted)
        failure = formatted if isinstance(formatted, Failure) else self._verify_files(last, attempt)
        self.history.has_failed |= failure is not None
        if last.settle is not None:
            last.settle(failure)
        return last, failure

    def _formatted(self, last: AttemptResult) -> Files | Failure:
        if not self.resolved.stage.format:
            return {}
        from orch23.attempt.formatting import format_files  # noqa: PLC0415 - few stages have formatters

        owned, base = self._owned(last, last.tree), self.resolved.base
        changed = [path for path, entry in owned.items() if base.get(path) != entry]
        return format_files(self.resolved, self.runner, last.tree, changed)

    def _verify_files(self, last: AttemptResult, attempt: int) -> Failure | None:
        tree = {**last.tree, **last.formatted}
        owned = self._owned(last, tree)
        if last.keeps:  # also the user's files that match a pattern: they are verified, and stay the user's
            kept = self.resolved.stage.required_outputs
            owned |= {path: entry for path, entry in tree.items() if match_any(kept, path)}
        return self.verifier.verify(owned, tree, attempt)

    def _owned(self, last: AttemptResult, tree: Files) -> dict[str, FileEntry]:
        """Return the stage's own files of a tree: those that differ from the base, and those it wrote again unchanged.

        Literal outputs always belong to the stage: a program that writes the same bytes again leaves no trace. A file
        of `edits` belongs to it only if it differs.
        """
        base, stage = self.resolved.base, self.resolved.stage
        certain = stage.literal_outputs | {path for path in last.written if not match_any(stage.edits, path)}
        return {path: entry for path, entry in sorted(tree.items()) if base.get(path) != entry or path in certain}

    def _unfixable(self, recorded: Failure | None) -> Failure | None:
        """Return why no response can pass the verification, if that is known before the first call.

        `recorded` is the failure of a recorded result.
        """
        if not self.resolved.stage.step.asks_model:
            return None
        if recorded is not None and recorded.kind == "verify_failed" and not recorded.retryable:
            return recorded
        problems, stage = self.verifier.unfixable(), self.resolved.stage
        if not problems and any(isinstance(one, ProcessStep) for one in (*stage.format, *stage.verify.steps)):
            from orch23.attempt.missing_programs import unfound_errors  # noqa: PLC0415 - only before a model call

            problems = unfound_errors(self.runner, self.resolved.verified_files(self.resolved.base))
        return failure_of("preflight", problems, retryable=False) if problems else None

    def _done(self, last: AttemptResult, attempts: int, failure: Failure | None, note: str = "") -> StageResult:
        explored = self.history.explored
        # With `on_failure: keep`, the files of the failed program are promoted, and not those it started from.
        tree = {**last.tree, **last.formatted} if failure is None or last.leftover is None else last.leftover
        return StageResult(
            outputs=self._owned(last, tree),
            deleted=tuple(sorted(path for path in self.resolved.base if path not in tree)),
            exchanges=last.exchanges,
            attempts=attempts,
            usage=self.history.usage,
            failure=failure,
            note=note,
            took_s=last.took_s,
            made={path: last.tree[path] for path in last.formatted},
            partial=tree is last.leftover,
            history=self.history,
            explored={one.place: one.digest for one in explored.inputs} if explored is not None else None,
            tracked=last.tracked,
        )

    def _end(self, attempt: int, failure: Failure | None) -> None:
        """Report how an attempt ended; attempt 0 is the verification of a recorded result."""
        if failure is None:
            data = AttemptFinished(attempt=attempt, passed=True, exit_code=0)
            self.report.emit(data, f"attempt {attempt} passed")
            return
        feedback = failure.feedback
        command = f"$ {shorten_command(feedback.command)}\n" if feedback.command else ""
        self.report.keep(attempt, "failure.txt", f"{failure.summary}\n{command}\n{feedback.excerpt}\n")
        self._keep_action(attempt, failure)
        data = AttemptFinished(
            attempt=attempt,
            passed=False,
            failure_kind=failure.kind,
            command=feedback.command,
            exit_code=feedback.exit_code,
            failing=tuple(feedback.failing),
            excerpt=feedback.excerpt,
        )
        name = f"attempt {attempt}" if attempt else "recorded result"
        self.report.emit(data, f"{name} failed: {failure.summary}")

    def _keep_action(self, attempt: int, failure: Failure) -> None:
        from orch23.attempt.kept_attempt import KEPT_ATTEMPT, KeptAttempt  # noqa: PLC0415 - only for failures

        step, last = self.resolved.stage.step, self.history.last or AttemptResult(self.resolved.base)
        process = step if isinstance(step, ProcessStep) else None
        with contextlib.suppress(ValueError):  # a path is not Unicode
            files = {**_given(self), **last.tree, **last.formatted}
            action = failure.action or self.runner.action_of(process, files)
            kept = KeptAttempt(action, dict(self._done(last, attempt, failure).outputs))
            self.report.keep(attempt, KEPT_ATTEMPT, json.encode(kept).decode())


class StepRequirements(Struct, frozen=True):
    """What a step needs from the user before it can run.

    `grants` need consent; `offline_error` is the error if the step would reach beyond this machine and must not.
    """

    grants: tuple[Grant, ...] = ()
    offline_error: Diagnostic | None = None


class StepRunner:
    """Runs one step kind. One instance serves all stages, in several threads at once."""

    def needs(self, step: Any, contents: "ContentStore") -> StepRequirements:
        """Return what a step that has `grants` needs. Called before the first stage starts."""
        del step, contents
        return StepRequirements()

    def attempt(self, attempts: AttemptLoop, step: Any, turn: AttemptInput) -> AttemptResult:
        """Run a step once.

        Raises:
            CancelledBuildError: the build was interrupted.
            MissingBytesError: the store lost the bytes of an input.
            ConfigurationError: it could not be started at all.
            ProviderError: the provider failed.
        """
        raise NotImplementedError

    def forbidden(self, attempts: AttemptLoop, step: Any) -> tuple[Diagnostic, ...]:
        """Return an error for each secret that a step would store or send. Called before anything is stored."""
        del attempts, step
        return ()


def step_runner(step: Step) -> StepRunner:
    """Return the runner of a step's kind."""
    return load_object_as(StepRunner, step.run)


def unmet_conditions(resolved: ResolvedStage) -> list[Condition]:
    """Return the conditions in `requires` that are not met: then the stage does not run."""
    manifest = resolved.manifest
    return [one for one in resolved.stage.requires if manifest.get(f"requires:{one.kind}:{one.path}") is not True]


def unmet_error(condition: Condition, tree: VisibleFiles) -> Diagnostic:
    """Return the error of a condition in `requires`. It names the files that must not be in a directory."""
    absent, folder = condition.kind == "file_absent", condition.path.endswith("/")
    below = f"{condition.path.rstrip('/')}/**"
    files = sorted({*tree.matching(below), *(tree.links(below) if absent else ())})
    state = f"it is {'' if absent else 'not '}there"
    way = "remove the file" if absent else "create the file, or build the stage that makes it"
    hint = f"no model was called; {way}, or drop the condition"
    if folder:
        state = f"there is {join_first(files, _MOST_FILES)}" if absent else "there is no file"
    elif files and not absent:
        state, hint = "it is a folder", f"write `{condition.path}/`: then there must be a file below it"
    return Diagnostic("E318", f"requires {condition.kind} {condition.path}: {state}", hint=hint)


class ProcessStepRunner(StepRunner, ProcessHooks):
    """Runs programs. A step kind adds the other methods of `ProcessHooks`."""

    def attempt(self, attempts: AttemptLoop, step: ProcessStep, turn: AttemptInput) -> AttemptResult:
        """Run the program, and take the files that it wrote within the stage's write scope."""
        start = turn.start
        ran = run_step(attempts.runner, step, {**_given(attempts), **start})
        if not isinstance(ran, FinishedProcess):
            return AttemptResult(start, (), ran, leftover=self._left(attempts, step, start, ran))
        result = ran.result
        if result.output.text:
            attempts.report.keep(turn.attempt, "output.txt", result.output.text)
        left = LeftoverFiles(result.written, result.removed)
        if problems := first_errors(_undeclared(attempts, start, left)):
            failure = replace(failure_of("write_scope_violation", problems), leftover=left)
            return AttemptResult(start, (), failure, leftover=self._left(attempts, step, start, failure))
        # Names of outputs are in the lock file, which is committed: they must not contain a secret (ADR 9).
        if named := guard_paths(attempts.safeguards.secrets, result.written):
            return AttemptResult(start, (), failure_of("write_scope_violation", named, retryable=False))
        tree = {p: e for p, e in start.items() if p not in result.removed} | dict(result.written)
        if ran.verdict is not None:
            tree |= self.reported(step, ran.verdict, attempts.contents)
        return AttemptResult(tree, (), took_s=result.duration_s, tracked=ran.tracked)

    def reported(self, step: ProcessStep, verdict: "Verdict", contents: "ContentStore") -> Files:
        """Return the outputs that a verdict produces."""
        del step, verdict, contents
        return {}

    def _left(self, attempts: AttemptLoop, step: ProcessStep, start: Files, failure: Failure) -> Files | None:
        """Return the stage's own files as a failed program left them, within its write scope."""
        left = failure.leftover
        if left is None or guard_paths(attempts.safeguards.secrets, left.written):
            return None
        refused = _undeclared(attempts, start, left)
        mine = {path: entry for path, entry in left.changes().items() if path not in refused}
        tree = {path: entry for path, entry in {**start, **mine}.items() if entry is not None}
        if left.verdict is not None:
            tree |= self.reported(step, left.verdict, attempts.contents)
        return tree


def _given(attempts: AttemptLoop) -> dict[str, FileEntry]:
    """Return the input files of a stage, also those of its slices."""
    return {**attempts.resolved.parts, **attempts.resolved.files}


def _undeclared(attempts: AttemptLoop, start: Files, left: LeftoverFiles) -> dict[str, Diagnostic]:
    inputs = {path: entry for path, entry in _given(attempts).items() if path not in start}
    links, own = attempts.tree.links, attempts.safeguards.protected
    return undeclared_writes(attempts.resolved.stage, left.changes(), inputs, links, own)
