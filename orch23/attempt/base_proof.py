"""Show that the change of a stage is needed: with its tests, the steps of `verify` must fail on the base (ADR 96)."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from orch23.attempt.base_run import StepRun, run_verification
from orch23.attempt.failures import Failure, failure_of
from orch23.attempt.process_runner import Files, ProcessRunner
from orch23.execute.process import NOT_EXECUTABLE
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import digest_json
from orch23.model.paths import match_any
from orch23.model.patterns import lazy_pattern
from orch23.model.text import join_first, shorten_command
from orch23.resolve.commands import typed_command
from orch23.resolve.resolution import ResolvedStage
from orch23.verdict.verdict import NOT_COLLECTED

MOST_NAMED = 5
"""The most tests that a message or a record names."""

_CODE = "E329"
_PASSES_HINT = "test what the change corrects, so that the test fails without it"
_IMPORT_HINT = "import it inside the test: then the test runs without the change, and fails"
_NO_TEST_HINT = "write the test so that it runs without the change, and fails there by an assertion"
# The function or title of a test in its id: after the file or the package, without parameters and subtests.
_LEAF = lazy_pattern(r"(?:.*(?:::| > ))?([^\[/]+)")
# The exit codes of pytest if no test decided them: interrupted, an internal error, wrong usage, no tests.
_PYTEST = lazy_pattern(r"\bpytest\b")
_CRASHES = range(2, 6)


def prove_on_base(
    resolved: ResolvedStage,
    runner: ProcessRunner,
    tree: Files,
    passed: Sequence[StepRun],
    known: dict[str, tuple[StepRun, ...]],
) -> Failure | tuple[str, ...]:
    """Return what fails on the base and passes in the result, by name; or the failure, if nothing does.

    The steps that `passed` on the result run on the base, with the files of `fails_on_base` as the result has them. If
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
    passing = [(one.step, {name for name, how in one.tests.items() if how == "passed"}) for one in passed]
    named = [pair for pair, one in zip(passing, passed, strict=True) if one.tests]
    there = named or passing
    files = {**{path: entry for path, entry in base.items() if not match_any(patterns, path)}, **taken}
    entries = {path: str(entry) for path, entry in files.items()}
    key = digest_json([resolved.stage.name, resolved.key, [step.declared for step, _ in there], entries])
    if key not in known:
        known[key] = run_verification(resolved, runner, files, [step for step, _ in there])
    pairs = [(run, names) for run, (_, names) in zip(known[key], there, strict=True)]
    found = [name for run, names in pairs for name in sorted(run.failed & names)]
    if not named:
        found = [f"`{_command(one.failure)}`" for one, _ in pairs if one.failure and _fails(one.failure)]
    texts = _text(runner, base, changed), _text(runner, taken, changed)
    return tuple(dict.fromkeys(found)) or _failure([*_errors(pairs, *texts)], known[key])


def proof_text(found: Sequence[str]) -> str:
    """Return a sentence about what fails on the base and passes in the result."""
    verbs = "fails on the base, passes" if len(found) == 1 else "fail on the base, pass"
    return f"{join_first(found, MOST_NAMED)} {verbs} in the result"


def _command(failure: Failure) -> str:
    return shorten_command(typed_command(failure.feedback.command))


def _fails(failure: Failure) -> bool:
    """Return whether a step without named tests failed by itself: not by a timeout, a signal or a missing program."""
    code = failure.feedback.exit_code if failure.kind == "verify_failed" else None
    is_crash = code in _CRASHES and _PYTEST.search(failure.feedback.command)
    return code is not None and 0 < code < NOT_EXECUTABLE and not is_crash


def _text(runner: ProcessRunner, files: Files, paths: Sequence[str]) -> str:
    return "\n".join(runner.tree.read(one, files[one]).decode("utf-8", "replace") for one in paths if one in files)


def _errors(pairs: Sequence[tuple[StepRun, set[str]]], before: str, after: str) -> Iterator[Diagnostic]:
    """Yield why nothing is proved by these runs on the base; each with the tests that pass in the result.

    `before` and `after` are the texts of the changed files.
    """
    # Known failures fail there, too: then the results of the other tests say more than the failure.
    failed = [(run, run.failure) for run, names in pairs if run.failure and not (names and names <= run.tests.keys())]
    for run, failure in failed:
        broken = [one for one in failure.diagnostics if one.message.startswith(NOT_COLLECTED)]
        for one in broken:
            error = failure.verdict.error if failure.verdict and len(broken) == 1 else one.message.rpartition(" ")[2]
            message = f"{NOT_COLLECTED} without the change: {error}"
            yield Diagnostic(_CODE, message, hint=_IMPORT_HINT, subject=one.subject)
        if not broken:
            message = f"without the change, `{_command(failure) or run.step.kind}` did not fail by a test that passes"
            yield Diagnostic(_CODE, f"{message} with it: {failure.summary}", hint=_NO_TEST_HINT)
    outcomes = {name: run.tests.get(name, "not run") for run, names in pairs for name in names}
    if failed:
        return
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
