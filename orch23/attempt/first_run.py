"""The verification of a stage on its base: whether it can pass with any answer, and what fails before an answer.

The results tell apart what failed before and what an answer broke, and say which failures may be forgiven (ADR 95).
"""

from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from orch23.attempt.base_run import BaseResult, StepRun, process_steps, run_verification, step_run
from orch23.attempt.failures import Failure
from orch23.attempt.process_runner import Files, ProcessRunner, verified_files
from orch23.decide.project_state import ProjectState
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, digest_json
from orch23.model.event import BaseVerified
from orch23.model.parsing import from_struct, to_struct
from orch23.model.paths import is_glob
from orch23.model.patterns import lazy_pattern
from orch23.model.step import ProcessStep
from orch23.model.text import join_first
from orch23.plan.nodes import writes_of
from orch23.resolve.resolution import ResolvedStage
from orch23.store.safe_files import PRIVATE_FILE_MODE, read_regular, write_atomic
from orch23.verdict.run_results import NOT_RUN

_PASSED = frozenset({"passed", "xpassed", "flaky"})
_MOST, _MOST_BYTES = 10, 2_000_000
_TITLES = {"failed_before": "Failed before", "broken": "Broken by this answer"}
_WORD = lazy_pattern(r"\w+")


class FirstRun(Struct, frozen=True, kw_only=True):
    """Verifies the base of a stage at most once, and keeps the results in the store."""

    resolved: ResolvedStage
    runner: ProcessRunner
    state: ProjectState

    def errors(self) -> tuple[Diagnostic, ...]:
        """Return why the verification fails with any answer, if that is certain. Called before a model is called.

        Raises:
            As `ProcessRunner.run`.
        """
        stage, base = self.resolved.stage, self.resolved.base
        steps, files = process_steps(self.resolved), verified_files(self.resolved, base)
        if not base:
            steps = () if stage.item else self._without_outputs(steps, files)
        if stage.verify.first == "off" or not steps or self._known(key := self._key(steps, files)):
            return ()
        from orch23.attempt.broken_verification import verification_errors  # noqa: PLC0415 - only before a model call

        runs = run_verification(self.resolved, self.runner, base, steps)
        errors = tuple(error for one in runs for error in verification_errors(one, self.runner, files))
        if not errors:
            self._keep(key, runs)
        return errors

    def compare(self, step: ProcessStep, failure: Failure) -> tuple[Failure | None, dict[str, tuple[str, ...]]]:
        """Return a failure that says what failed before and what the answer broke, and these tests by field of events.

        None if `may_fail` forgives it: it names all failed tests and findings, and all failed on the base. Nothing is
        forgiven if a test that passed on the base was not run now, or no test passed: the step may have ended before
        its other tests. The failure is unchanged if the base is not known.

        Raises:
            As `ProcessRunner.run`.
        """
        verify, run = self.resolved.stage.verify, step_run(step, failure)
        # Without a base, most tests of a new file fail: a pattern would forgive them.
        named = verify.may_fail if self.resolved.base else verify.named_failures
        is_named = bool(run.failed) and all(_matches(one, named) for one in run.failed)
        # A failure may have a hint about a refused write, which is part of the output of its tests.
        of_tests = failure.retryable and {one.code for one in failure.diagnostics} <= {"E301", "E323"}
        outcomes = {*run.tests.values()}
        may_pass = is_named and of_tests and NOT_RUN not in outcomes and not outcomes.isdisjoint({"finding", *_PASSED})
        if (base := self._of_step(step, runs=may_pass)) is None:
            return failure, {}
        passed = {name for name, outcome in base.tests.items() if outcome in _PASSED}
        lost = passed - run.tests.keys()
        if may_pass and run.failed <= base.failed and not lost:
            return None, {"forgiven": tuple(sorted(run.failed))}
        if not self.resolved.stage.step.asks_model:
            return failure, {}
        # Or a file that cannot be collected now: then tests of it passed.
        ids = {f"{one}::" for one in passed}
        broken = {name for name in run.failed - base.failed if any(one.startswith(f"{name}::") for one in ids)}
        found = {"failed_before": run.failed & base.failed, "broken": broken}
        tests = {name: tuple(sorted(ids)) for name, ids in found.items() if ids}
        lines = [f"{_TITLES[name]}: {join_first(ids, _MOST)}" for name, ids in tests.items()]
        # Then the known failures are not forgiven.
        lines += [f"Passed before, not run now: {join_first(sorted(lost), _MOST)}"] if lost and may_pass else []
        if not run.failed:
            lines = [f"{_TITLES['broken']}: this step passed before" if base.passed else "Failed before: this step"]
        if not lines:
            return failure, {}
        text, feedback = "\n".join(lines), failure.feedback
        feedback = replace(feedback, excerpt=f"{text}\n\n{feedback.excerpt}")
        return replace(failure, feedback=feedback, parts=(text, *failure.parts) if failure.parts else ()), tests

    def _of_step(self, step: ProcessStep, *, runs: bool) -> BaseResult | None:
        """Return the result of a step on the base; None if it is not known. `runs`: the verification runs if needed."""
        base = self.resolved.base
        if not (base or runs) or self.runner.contents.absent([entry.digest for entry in base.values()]):
            return None
        steps, files = process_steps(self.resolved), verified_files(self.resolved, base)
        known = self._known(key := self._key(steps, files))
        if runs and not known:
            known = self._keep(key, run_verification(self.resolved, self.runner, base, steps))
        return known[steps.index(step)] if known else None

    def _without_outputs(self, steps: Sequence[ProcessStep], files: Files) -> tuple[ProcessStep, ...]:
        """Return the steps that do not name what the stage makes: they can be tried before its files are there."""
        patterns = writes_of(self.resolved.stage)
        names = {name for path in patterns for name in _WORD.findall(path.rpartition("/")[2].partition(".")[0])}
        size = sum(entry.digest.size_bytes for entry in files.values())
        if size > _MOST_BYTES or any(is_glob(one) or one.endswith("/") for one in patterns):
            return ()
        texts = [self.runner.tree.read(path, entry).decode("utf-8", "replace") for path, entry in files.items()]
        is_free = names.isdisjoint(_WORD.findall("\n".join(texts)))
        return tuple(one for one in steps if is_free and names.isdisjoint(_WORD.findall(str(one.declared))))

    def _key(self, steps: Sequence[ProcessStep], files: Files) -> str:
        actions = [self.runner.action_of(one, files, verifies=True) for one in steps]
        ran: list[Json] = [[one.digest(), one.sandbox, one.timeout_s, from_struct(one.limits)] for one in actions]
        ran += [[one.kind, one.declared, dict(one.judged_by)] for one in steps]
        return digest_json([ran, self.runner.facts.python, self.runner.facts.pytest, [*self.runner.facts.plugins]])

    def _known(self, key: str) -> tuple[BaseResult, ...]:
        with suppress(ValueError):
            data = read_regular(self.state.store.base_runs / f"{key}.json") or b""
            return to_struct(self.state.store.key.decode(data), tuple[BaseResult, ...])
        return ()

    def _keep(self, key: str, runs: Sequence[StepRun]) -> tuple[BaseResult, ...]:
        results = tuple(BaseResult(passed=one.passed, tests=one.tests) for one in runs)
        # What a time limit has ended may end otherwise next time.
        if all(one.failure is None or one.failure.kind == "verify_failed" for one in runs):
            data = self.state.store.key.encode([from_struct(one) for one in results])
            write_atomic(self.state.store.base_runs / f"{key}.json", data, mode=PRIVATE_FILE_MODE, durable=False)
        failing = tuple(sorted({name for one in results for name in one.failed}))
        text = f"the verification ran on the base: {sum(not one.passed for one in results)} of {len(runs)} steps failed"
        text += f", failed tests: {len(failing)}" if failing else ""
        self.runner.report.emit(BaseVerified(failing=failing), text)
        return results


def _matches(name: str, patterns: Sequence[str]) -> bool:
    # Ids of pytest have brackets, which are not part of a pattern. A subtest is `ID (LABEL)`.
    test = name.partition(" (")[0] if "::" in name else name
    return any(one in (name, test) or fnmatchcase(name, one.replace("[", "[[]")) for one in patterns)
