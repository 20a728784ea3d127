"""Verify the base of a stage: to compare a failure of a result with it, and with the tests of a result.

The results tell apart what failed before and what an answer broke, and which failures may be forgiven (ADR 95). With
the tests of a result, a step must fail on the base: that proves that the change is needed (ADR 96).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from orch23.attempt.failures import FAILED, Failure, failure_of
from orch23.attempt.process_runner import Files, FinishedProcess, ProcessRunner, StageTrace, run_step
from orch23.execute.process import NOT_EXECUTABLE
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, digest_json
from orch23.model.event import BaseVerified, FailedOnBase, Warned
from orch23.model.parsing import from_struct
from orch23.model.paths import match_any
from orch23.model.patterns import lazy_pattern
from orch23.model.step import ProcessStep
from orch23.model.text import join_first, shorten_command
from orch23.resolve.commands import typed_command
from orch23.resolve.resolution import ResolvedStage
from orch23.store.safe_files import PRIVATE_FILE_MODE, read_regular, write_atomic
from orch23.verdict.run_results import NOT_RUN, PASSED

MOST_NAMED = 5
"""The most tests that a message or a record names."""

_MOST = 10
_TITLES = {"failed_before": "Failed before", "broken": "Broken by this answer"}
_CODE = "E329"
_PASSES_HINT = "test what the change corrects, so that the test fails without it"
_IMPORT_HINT = "import it inside the test: then the test runs without the change, and fails"
_NO_TEST_HINT = "write the test so that it runs without the change, and fails there by an assertion"
# The function or title of a test in its id: after the file or the package, without parameters and subtests.
_LEAF = lazy_pattern(r"(?:.*(?:::| > ))?([^\[/]+)")
# The exit codes of pytest if no test decided them: interrupted, an internal error, wrong usage, no tests.
_PYTEST = lazy_pattern(r"\bpytest\b")
_CRASHES = range(2, 6)


class StepResult(Struct, frozen=True, kw_only=True):
    """The result of a step: whether it passed, and the outcomes of its tests by id, if it reported any."""

    passed: bool
    tests: Mapping[str, str] = {}

    @property
    def failed(self) -> frozenset[str]:
        """The ids of the tests and findings that failed, and of files that could not be collected."""
        return frozenset(name for name, outcome in self.tests.items() if outcome in FAILED)


class StepRun(StepResult, frozen=True, kw_only=True):
    """How a step of `verify` ended. `failure` is None if it passed."""

    step: ProcessStep
    failure: Failure | None = None


def compare_with_base(
    resolved: ResolvedStage, runner: ProcessRunner, step: ProcessStep, failure: Failure
) -> tuple[Failure | None, dict[str, tuple[str, ...]]]:
    """Return a failure that says what failed before and what the answer broke, and these tests by field of events.

    None if `may_fail` forgives it: it names all failed tests and findings, and all failed on the base. Nothing is
    forgiven if a test that passed on the base was not run now, or no test passed: the step may have ended before
    its other tests. The failure is unchanged if the base is not known.

    Raises:
        As `ProcessRunner.run`.
    """
    verify, run = resolved.stage.verify, step_run(step, failure)
    # Without a base, most tests of a new file fail: a pattern would forgive them.
    named = verify.may_fail if resolved.base else verify.named_failures
    is_named = bool(run.failed) and all(_matches(one, named) for one in run.failed)
    # A failure may have a hint about a refused write, which is part of the output of its tests.
    of_tests = failure.retryable and {one.code for one in failure.diagnostics} <= {"E301", "E323"}
    outcomes = {*run.tests.values()}
    may_pass = is_named and of_tests and NOT_RUN not in outcomes and not outcomes.isdisjoint({"finding", *PASSED})
    if (base := _on_base(resolved, runner, step, runs=may_pass)) is None:
        return failure, {}
    passed = {name for name, outcome in base.tests.items() if outcome in PASSED}
    lost = passed - run.tests.keys()
    if may_pass and run.failed <= base.failed and not lost:
        runner.trace.forgiven.update(run.failed)
        runner.trace.passed.append((step, failure))  # a forgiven test proves nothing; another may
        forgiven = tuple(sorted(run.failed))
        runner.report.emit(Warned(), f"known failures, allowed by `may_fail`: {join_first(forgiven, MOST_NAMED)}")
        return None, {"forgiven": forgiven}
    if not resolved.stage.step.asks_model:
        return failure, {}
    # Or a file that cannot be collected now: then tests of it passed.
    broken = {one for one in run.failed - base.failed if any(f"{name}::".startswith(f"{one}::") for name in passed)}
    found = {"failed_before": run.failed & base.failed, "broken": broken}
    tests = {key: tuple(sorted(ids)) for key, ids in found.items() if ids}
    lines = [f"{_TITLES[key]}: {join_first(ids, _MOST)}" for key, ids in tests.items()]
    # Then the known failures are not forgiven.
    lines += [f"Passed before, not run now: {join_first(sorted(lost), _MOST)}"] if lost and may_pass else []
    if not run.failed:
        lines = [f"{_TITLES['broken']}: this step passed before" if base.passed else "Failed before: this step"]
    if not lines:
        return failure, {}
    text, feedback = "\n".join(lines), failure.feedback
    feedback = replace(feedback, excerpt=f"{text}\n\n{feedback.excerpt}")
    return replace(failure, feedback=feedback, parts=(text, *failure.parts) if failure.parts else ()), tests


def _matches(name: str, patterns: Sequence[str]) -> bool:
    # Ids of pytest have brackets, which are not part of a pattern. A subtest is `ID (LABEL)`.
    test = name.partition(" (")[0] if "::" in name else name
    return any(one in (name, test) or fnmatchcase(name, one.replace("[", "[[]")) for one in patterns)


# ---- results on the base ----------------------------------------------------------------------


def _on_base(resolved: ResolvedStage, runner: ProcessRunner, step: ProcessStep, *, runs: bool) -> StepResult | None:
    """Return the result of a step on the base; None if it is not known. `runs`: it runs if needed."""
    base = resolved.base
    if not (base or runs) or runner.contents.absent([entry.digest for entry in base.values()]):
        return None
    known = known_result(resolved, runner, step)
    if runs and known is None:
        (known,) = ran = run_on_base(runner, resolved.verified_files(base), [step])
        keep_results(resolved, runner, ran)
    return known


def run_on_base(runner: ProcessRunner, files: Files, steps: Sequence[ProcessStep]) -> tuple[StepRun, ...]:
    """Run steps of `verify` on files. Nothing is counted or kept for an attempt.

    Raises:
        As `ProcessRunner.run`.
    """
    runner = replace(runner, trace=StageTrace())
    return tuple(step_run(one, run_step(runner, one, files, verifies=True)) for one in steps)


def step_run(step: ProcessStep, ran: FinishedProcess | Failure) -> StepRun:
    """Return how a step ended, with the tests that it reported."""
    failure, verdict, tests = ran if isinstance(ran, Failure) else None, ran.verdict, dict[str, str]()
    if verdict is not None:
        # A file that cannot be collected has no test: its error is reported by its path.
        tests = {**dict.fromkeys(verdict.uncollected, "error"), **verdict.tests}
        tests |= {name: "failed" for name, one in verdict.subtests.items() if one in FAILED}
    return StepRun(passed=failure is None, tests=tests, step=step, failure=failure)


def _place(resolved: ResolvedStage, runner: ProcessRunner, step: ProcessStep) -> Path:
    """Return where the result of a step on the base is kept."""
    action, facts = runner.action_of(step, resolved.verified_files(resolved.base), verifies=True), runner.facts
    ran: list[Json] = [action.digest(), action.sandbox, action.timeout_s, from_struct(action.limits)]
    ran += [step.kind, step.declared, dict(step.judged_by), facts.python, facts.pytest, [*facts.plugins]]
    return runner.trust().state.store.base_runs / f"{digest_json(ran)}.json"


def known_result(resolved: ResolvedStage, runner: ProcessRunner, step: ProcessStep) -> StepResult | None:
    """Return the kept result of a step on the base; None without one."""
    with suppress(ValueError):
        return runner.trust().state.store.key.decode(read_regular(_place(resolved, runner, step)) or b"", StepResult)
    return None


def keep_results(resolved: ResolvedStage, runner: ProcessRunner, runs: Sequence[StepRun]) -> None:
    """Keep results on the base, and report them."""
    for one in runs:
        # What a time limit has ended may end otherwise next time.
        if one.failure is None or one.failure.kind == "verify_failed":
            data = runner.trust().state.store.key.encode(StepResult(passed=one.passed, tests=one.tests))
            write_atomic(_place(resolved, runner, one.step), data, mode=PRIVATE_FILE_MODE, durable=False)
    failing = tuple(sorted({name for one in runs for name in one.failed}))
    text = f"the verification ran on the base: {sum(not one.passed for one in runs)} of {len(runs)} steps failed"
    text += f", failed tests: {len(failing)}" if failing else ""
    runner.report.emit(BaseVerified(failing=failing), text)


# ---- the proof --------------------------------------------------------------------------------


def prove_on_base(
    resolved: ResolvedStage, runner: ProcessRunner, tree: Files, attempt: int, known: dict[str, tuple[StepRun, ...]]
) -> Failure | None:
    """Report what fails on the base and passes in the result, by name; return the failure if nothing does.

    The steps that passed on the result run on the base, with the files of `fails_on_base` as the result has them. If
    any of them names its tests, only tests count. `known` are earlier runs by their key, to which this one is added.

    Raises:
        As `ProcessRunner.run`.
    """
    base, patterns = resolved.base, resolved.stage.verify.fails_on_base
    taken = {path: entry for path, entry in tree.items() if match_any(patterns, path)}
    changed = [path for path, entry in taken.items() if base.get(path) != entry]
    if not changed:
        message = f"the result has no new or changed file that matches `{', '.join(patterns)}`"
        return _failure([Diagnostic(_CODE, message, hint="add a test that fails without the change")], ())
    passed = [step_run(step, ran) for step, ran in runner.trace.passed]
    named = [one for one in passed if one.tests]
    passed = named or passed
    files = {**{path: entry for path, entry in base.items() if not match_any(patterns, path)}, **taken}
    entries = {path: str(entry) for path, entry in files.items()}
    key = digest_json([resolved.stage.name, resolved.key, [one.step.declared for one in passed], entries])
    if key not in known:
        known[key] = run_on_base(runner, resolved.verified_files(files), [one.step for one in passed])
    tests = [{name for name, how in one.tests.items() if how == "passed"} for one in passed]
    pairs = [*zip(known[key], tests, strict=True)]
    found = [name for run, names in pairs for name in sorted(run.failed & names)]
    if not named:
        found = [f"`{_command(one.failure)}`" for one in known[key] if one.failure and _fails(one.failure)]
    if not found:
        texts = _text(runner, base, changed), _text(runner, taken, changed)
        return _failure([*_errors(pairs, *texts)], known[key])
    proof = tuple(dict.fromkeys(found))
    runner.trace.proof[:] = proof[:MOST_NAMED]
    runner.report.emit(FailedOnBase(tests=proof, attempt=attempt), proof_text(proof))
    return None


def proof_text(found: Sequence[str]) -> str:
    """Return a sentence about what fails on the base and passes in the result."""
    verbs = "fails on the base, passes" if len(found) == 1 else "fail on the base, pass"
    return f"{join_first(found, MOST_NAMED)} {verbs} in the result"


def _command(failure: Failure) -> str:
    return shorten_command(typed_command(failure.feedback.command))


def _fails(failure: Failure) -> bool:
    """Return whether a step without named tests failed by itself: not by a timeout, a signal or a missing program."""
    code = (failure.feedback.exit_code or 0) if failure.kind == "verify_failed" else 0
    return 0 < code < NOT_EXECUTABLE and not (code in _CRASHES and _PYTEST.search(failure.feedback.command))


def _text(runner: ProcessRunner, files: Files, paths: Sequence[str]) -> str:
    return "\n".join(runner.tree.read(one, files[one]).decode("utf-8", "replace") for one in paths if one in files)


def _errors(pairs: Sequence[tuple[StepRun, set[str]]], before: str, after: str) -> Iterator[Diagnostic]:
    """Yield why nothing is proved by these runs on the base; each with the tests that pass in the result.

    `before` and `after` are the texts of the changed files.
    """
    # Known failures fail there, too: then the results of the other tests say more than the failure.
    failed = [(run, run.failure) for run, names in pairs if run.failure and not (names and names <= run.tests.keys())]
    for run, failure in failed:
        uncollected = failure.verdict.uncollected if failure.verdict else {}
        for name, error in [*uncollected.items()][:MOST_NAMED]:
            message = f"could not be collected without the change: {error}"
            yield Diagnostic(_CODE, message, hint=_IMPORT_HINT, subject=name)
        if not uncollected:
            message = f"without the change, `{_command(failure) or run.step.kind}` did not fail by a test that passes"
            yield Diagnostic(_CODE, f"{message} with it: {failure.summary}", hint=_NO_TEST_HINT)
    if failed:
        return
    outcomes = {name: run.tests.get(name, "not run") for run, names in pairs for name in names}
    if not outcomes:
        message = "the steps of `verify` pass without the change, too"
        yield Diagnostic(_CODE, message, hint="add a test that fails without it")
    leaves = {name: leaf[1] for name in sorted(outcomes) if (leaf := _LEAF.match(name))}
    changed = [name for name, leaf in leaves.items() if leaf in after]
    new = [name for name in changed if leaves[name] not in before]
    shown = new or changed or sorted(outcomes)
    for name in shown[:MOST_NAMED]:
        state = "passes" if outcomes[name] == "passed" else f"was {outcomes[name]}"
        message = f"the {'new ' if new else ''}test {state} without the change"
        yield Diagnostic(_CODE, message, hint=_PASSES_HINT, subject=name)
    if (more := len(shown) - MOST_NAMED) > 0:
        yield Diagnostic(_CODE, f"{more} more tests do not fail without the change", hint=_PASSES_HINT)


def _failure(errors: Sequence[Diagnostic], runs: Sequence[StepRun]) -> Failure:
    """Return the failure of the proof, with the output of what failed on the base."""
    failed, failure = [one.failure for one in runs if one.failure], failure_of("verify_failed", errors)
    return replace(
        failure,
        headline="no test fails without the change",
        parts=(failure.feedback.excerpt, *(f"without the change:\n{one.feedback.excerpt}" for one in failed)),
        failed_tests=0,
        reason=f"verify: {failure.summary}",
        printed="\n".join(one.printed or "" for one in failed) if failed else None,
    )
