"""The verification of a stage on its base: whether it can pass with any answer, and what fails before an answer.

The results tell apart what failed before and what an answer broke, and say which failures may be forgiven (ADR 95).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.base_run import StepRun, failed_ids, process_steps, run_verification, step_run
from orch23.attempt.failures import Failure
from orch23.attempt.process_runner import Files, ProcessRunner
from orch23.attempt.verification import verified_files
from orch23.decide.project_state import ProjectState
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, digest_json
from orch23.model.event import BaseVerified
from orch23.model.parsing import from_struct, to_struct
from orch23.model.paths import is_glob
from orch23.model.patterns import lazy_pattern
from orch23.model.step import ProcessStep
from orch23.model.text import join_first
from orch23.resolve.resolution import ResolvedStage
from orch23.store.safe_files import PRIVATE_FILE_MODE, read_regular, write_atomic
from orch23.verdict.run_results import NOT_RUN

_PASSED = frozenset({"passed", "xpassed", "flaky"})
# What a failure may say besides its tests: a hint about a refused write, which is part of their output.
_OF_TESTS = frozenset({"E301", "E323"})
_MOST, _MOST_FILES, _MOST_BYTES = 10, 200, 2_000_000
_TITLES = {"failed_before": "Failed before", "broken": "Broken by this answer"}
_WORD = lazy_pattern(r"\w+")


class BaseResult(Struct, frozen=True):
    """The result of a step on the base: whether it passed, and the outcomes of its tests by id."""

    passed: bool
    tests: dict[str, str] = {}


class FirstRun(Struct, frozen=True, kw_only=True):
    """Verifies the base of a stage at most once, and keeps the results in the store. `read` are those of this build."""

    resolved: ResolvedStage
    runner: ProcessRunner
    state: ProjectState
    read: dict[str, tuple[BaseResult, ...]] = field(default_factory=dict)

    def errors(self) -> tuple[Diagnostic, ...]:
        """Return why the verification fails with any answer, if that is certain. Called before a model is called.

        Raises:
            As `ProcessRunner.run`.
        """
        verify, base = self.resolved.stage.verify, self.resolved.base
        steps = process_steps(self.resolved)
        if verify.first == "off" and not verify.may_fail:
            return ()
        files = verified_files(self.resolved, base)
        steps = steps if base else () if self.resolved.stage.item else self._without_outputs(steps, files)
        if not steps or self._known(key := self._key(steps, files)) is not None:
            return ()
        from orch23.attempt.broken_verification import verification_errors  # noqa: PLC0415 - only before a model call

        runs = run_verification(self.resolved, self.runner, base, steps)
        errors = tuple(error for one in runs for error in verification_errors(one, self.runner, files, self._is_users))
        if not errors:
            self._keep(key, runs)
        return errors

    def of_step(self, step: ProcessStep, *, runs: bool = False) -> BaseResult | None:
        """Return the result of a step on the base; None if it is not known. `runs`: the verification runs if needed.

        Raises:
            As `ProcessRunner.run`.
        """
        base, contents = self.resolved.base, self.runner.contents
        if not (base or runs) or contents.absent([entry.digest for entry in base.values()]):
            return None
        steps, files = process_steps(self.resolved), verified_files(self.resolved, base)
        if self._known(key := self._key(steps, files)) is None and runs:
            self._keep(key, run_verification(self.resolved, self.runner, base, steps))
        return self.read[key][steps.index(step)] if key in self.read else None

    def forgiven(self, step: ProcessStep, failure: Failure) -> tuple[str, ...]:
        """Return the failed tests and findings of a step, if `may_fail` names all and all failed on the base.

        Nothing is forgiven if a test that passed on the base was not run now, or no test passed: the step may have
        ended before its other tests.
        """
        named, run = self.resolved.stage.verify.may_fail, step_run(step, failure)
        # Without a base, most tests of a new file fail: a pattern would forgive them.
        named = named if self.resolved.base else tuple(one for one in named if not {*one} & {*"*?"})
        if not named or not run.failed or not failure.retryable:
            return ()
        if NOT_RUN in run.tests.values() or any(one.code not in _OF_TESTS for one in failure.diagnostics):
            return ()
        base = self.of_step(step, runs=True)
        if base is None or not run.failed <= failed_ids(base.tests):
            return ()
        lost = {name for name, outcome in base.tests.items() if outcome in _PASSED} - run.tests.keys()
        outcomes = {*run.tests.values()}
        if lost or not ("finding" in outcomes or outcomes & _PASSED):
            return ()
        return tuple(sorted(run.failed)) if all(_matches(one, named) for one in run.failed) else ()

    def apart(self, step: ProcessStep, failure: Failure) -> tuple[Failure, dict[str, tuple[str, ...]]]:
        """Return a failure that says what failed before and what the answer broke, and these tests by field of events.

        The failure is unchanged if that is not known.
        """
        base = self.of_step(step) if self.resolved.stage.step.asks_model else None
        if base is None:
            return failure, {}
        run = step_run(step, failure)
        before = run.failed & failed_ids(base.tests)
        broken = {name for name in run.failed - before if _passed(name, base.tests)}
        tests = {"failed_before": tuple(sorted(before)), "broken": tuple(sorted(broken))}
        tests = {name: found for name, found in tests.items() if found}
        lines = [f"{_TITLES[name]}: {join_first(found, _MOST)}" for name, found in tests.items()]
        if not run.failed:
            lines = [f"{_TITLES['broken']}: this step passed before" if base.passed else "Failed before: this step"]
        if not lines:
            return failure, {}
        text, feedback = "\n".join(lines), failure.feedback
        feedback = replace(feedback, excerpt=f"{text}\n\n{feedback.excerpt}")
        parts = (text, *failure.parts) if failure.parts else ()
        return replace(failure, feedback=feedback, parts=parts), tests

    def _without_outputs(self, steps: Sequence[ProcessStep], files: Files) -> tuple[ProcessStep, ...]:
        """Return the steps that do not name what the stage makes: they can be tried before its files are there."""
        stage = self.resolved.stage
        patterns = (*stage.outputs, *stage.fence.write, *stage.edits)
        if any(is_glob(one) or one.endswith("/") for one in patterns):
            return ()
        names = {name for path in patterns for name in _WORD.findall(path.rpartition("/")[2].partition(".")[0])}
        sizes = sum(entry.digest.size_bytes for entry in files.values())
        if len(files) > _MOST_FILES or sizes > _MOST_BYTES:
            return ()
        texts = [self.runner.tree.read(path, entry).decode("utf-8", "replace") for path, entry in files.items()]
        if any(names.intersection(_WORD.findall(text)) for text in texts):
            return ()
        return tuple(one for one in steps if not names.intersection(_WORD.findall(str(one.declared))))

    def _key(self, steps: Sequence[ProcessStep], files: Files) -> str:
        actions = [self.runner.action_of(one, files, verifies=True) for one in steps]
        ran: list[Json] = [[one.digest(), one.sandbox, one.timeout_s] for one in actions]
        declared: list[Json] = [[one.kind, one.declared, dict(one.judged_by)] for one in steps]
        facts = self.runner.facts
        return digest_json([declared, ran, facts.python, facts.pytest, dict(facts.tools), list(facts.plugins)])

    def _is_users(self, path: str) -> bool:
        """Return whether a file of the project is not a result."""
        entry = self.state.store.workspace.entry(path)
        return entry is not None and not self.state.ownership.is_known(path, entry)

    def _known(self, key: str) -> tuple[BaseResult, ...] | None:
        if key not in self.read:
            with suppress(ValueError):
                data = read_regular(self.state.store.base_runs / f"{key}.json") or b""
                self.read[key] = to_struct(self.state.store.key.decode(data), tuple[BaseResult, ...])
        return self.read.get(key)

    def _keep(self, key: str, runs: Sequence[StepRun]) -> None:
        self.read[key] = results = tuple(BaseResult(one.failure is None, dict(one.tests)) for one in runs)
        data = self.state.store.key.encode([from_struct(one) for one in results])
        write_atomic(self.state.store.base_runs / f"{key}.json", data, mode=PRIVATE_FILE_MODE, durable=False)
        failing = sorted({name for one in results for name in failed_ids(one.tests)})
        failed = sum(not one.passed for one in results)
        text = f"the verification ran on the base: {failed} of {len(results)} steps failed"
        text += f", {len(failing)} failed tests" if failing else ""
        self.runner.report.emit(BaseVerified(failing=tuple(failing)), text)


def _passed(name: str, tests: Mapping[str, str]) -> bool:
    """Return whether a test passed, or one of a file that cannot be collected now."""
    return tests.get(name) in _PASSED or any(
        one.startswith(f"{name}::") and outcome in _PASSED for one, outcome in tests.items()
    )


def _matches(name: str, patterns: Sequence[str]) -> bool:
    # Ids of pytest have brackets, which are not part of a pattern.
    return any(name == one or fnmatchcase(name, one.replace("[", "[[]")) for one in patterns)
