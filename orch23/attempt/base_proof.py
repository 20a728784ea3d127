"""Show that the change of a stage is needed: with its tests, the steps of `verify` must fail on the base (ADR 96)."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from orch23.attempt.base_run import StepRun, run_verification
from orch23.attempt.failures import Failure, command_failed, diagnostic_line
from orch23.attempt.process_runner import Files, ProcessRunner
from orch23.execute.process import NOT_EXECUTABLE
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import digest_json
from orch23.model.paths import match_any
from orch23.model.patterns import lazy_pattern
from orch23.model.text import join_first, shorten_command
from orch23.resolve.commands import typed_command
from orch23.resolve.resolution import ResolvedStage

MOST_NAMED = 5
"""The most tests that a message or a record names."""

_CODE = "E329"
_PASSES_HINT = "test what the change corrects, so that the test fails without it"
_IMPORT_HINT = "import it inside the test: then the test runs without the change, and fails"
_NO_TEST_HINT = "write the test so that it runs without the change, and fails there by an assertion"
_COLLECTED = "could not be collected"
# The function or title of a test in its id: after the file or the package, without parameters and subtests.
_LEAF = lazy_pattern(r"(?:.*(?:::| > ))?([^\[/]+)")
# The exit codes of pytest if no test decided them: interrupted, an internal error, wrong usage, no tests.
_PYTEST = lazy_pattern(r"\bpytest\b")
_PYTEST_CRASHES = frozenset((2, 3, 4, 5))


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
        hint = "add a test that fails without the change"
        return _failure([Diagnostic(_CODE, message, hint=hint)], ())
    named = [one for one in passed if "passed" in one.tests.values()]
    there = named or list(passed)
    files = {**{path: entry for path, entry in base.items() if not match_any(patterns, path)}, **taken}
    entries = {path: str(entry) for path, entry in files.items()}
    key = digest_json([resolved.stage.name, resolved.key, [one.step.declared for one in there], entries])
    if key not in known:
        known[key] = run_verification(resolved, runner, files, [one.step for one in there])
    runs = known[key]
    if named:
        found = [name for run, one in zip(runs, there, strict=True) for name in sorted(run.failed & _passed(one))]
    else:
        found = [f"`{_command(run.failure)}`" for run in runs if run.failure and _fails(run)]
    return tuple(dict.fromkeys(found)) or _failure([*_errors(runs, there, _texts(runner, base, taken, changed))], runs)


def proof_text(found: Sequence[str]) -> str:
    """Return a sentence about what fails on the base and passes in the result."""
    verbs = "fails on the base, passes" if len(found) == 1 else "fail on the base, pass"
    return f"{join_first(found, MOST_NAMED)} {verbs} in the result"


def _passed(run: StepRun) -> frozenset[str]:
    return frozenset(name for name, outcome in run.tests.items() if outcome == "passed")


def _command(failure: Failure) -> str:
    return shorten_command(typed_command(failure.feedback.command))


def _fails(run: StepRun) -> bool:
    """Return whether a step without named tests failed by itself: not by a timeout, a signal or a missing program."""
    failure, feedback = run.failure, run.failure.feedback if run.failure else None
    code = feedback.exit_code if feedback and failure and failure.kind == "verify_failed" else None
    is_crash = code in _PYTEST_CRASHES and _PYTEST.search(feedback.command if feedback else "")
    return code is not None and 0 < code < NOT_EXECUTABLE and not is_crash


def _texts(runner: ProcessRunner, base: Files, taken: Files, changed: Iterable[str]) -> tuple[str, str]:
    """Return the text of the changed files in the base and in the result."""
    before, after = (
        "\n".join(runner.tree.read(path, files[path]).decode("utf-8", "replace") for path in changed if path in files)
        for files in (base, taken)
    )
    return before, after


def _errors(runs: Sequence[StepRun], there: Sequence[StepRun], texts: tuple[str, str]) -> Iterator[Diagnostic]:
    pairs = [(run, run.failure, _passed(one)) for run, one in zip(runs, there, strict=True)]
    # Known failures fail there, too: then the results of the other tests say more than the failure.
    failed = [(run, why) for run, why, passed in pairs if why and not (passed and passed <= run.tests.keys())]
    for run, why in failed:
        yield from _of_failed(run, why)
    if failed:
        return
    if not any(passed for _, _, passed in pairs):
        hint = "add a test that fails without it"
        yield Diagnostic(_CODE, "the steps of `verify` pass without the change, too", hint=hint)
        return
    outcomes = {name: run.tests.get(name, "not run") for run, _, passed in pairs for name in passed}
    leaves = {name: leaf[1] for name in sorted(outcomes) if (leaf := _LEAF.match(name))}
    changed = [name for name, leaf in leaves.items() if leaf in texts[1]]
    new = [name for name in changed if leaves[name] not in texts[0]]
    shown = new or changed or sorted(outcomes)
    for name in shown[:MOST_NAMED]:
        state = "passes" if outcomes[name] == "passed" else f"was {outcomes[name]}"
        message = f"the {'new ' if new else ''}test {state} without the change"
        yield Diagnostic(_CODE, message, hint=_PASSES_HINT, subject=name)
    if (more := len(shown) - MOST_NAMED) > 0:
        yield Diagnostic(_CODE, f"{more} more tests do not fail without the change", hint=_PASSES_HINT)


def _of_failed(run: StepRun, failure: Failure) -> Iterator[Diagnostic]:
    """Yield why a step failed on the base without a test that counts."""
    verdict = failure.leftover.verdict if failure.leftover else None
    broken = [one for one in failure.diagnostics if one.message.startswith(_COLLECTED)]
    for one in broken:
        error = verdict.error if verdict and len(broken) == 1 else one.message.rpartition(" ")[2]
        yield Diagnostic(_CODE, f"{_COLLECTED} without the change: {error}", hint=_IMPORT_HINT, subject=one.subject)
    if not broken:
        command = _command(failure) or run.step.kind
        message = f"without the change, `{command}` did not fail by a test that passes with it: {failure.summary}"
        yield Diagnostic(_CODE, message, hint=_NO_TEST_HINT)


def _failure(errors: Sequence[Diagnostic], runs: Sequence[StepRun]) -> Failure:
    """Return the failure of the proof, with the output of what failed on the base."""
    failed = [run.failure for run in runs if run.failure is not None]
    lines = "\n".join(map(diagnostic_line, errors))
    texts = [f"without the change:\n{one.feedback.excerpt}" for one in failed]
    command, code = (failed[0].feedback.command, failed[0].feedback.exit_code) if failed else ("", None)
    failure = command_failed(
        "verify_failed", command, exit_code=code, output="\n\n".join((lines, *texts)), diagnostics=errors
    )
    return replace(
        failure,
        headline="no test fails without the change",
        parts=(lines, *texts),
        failed_tests=0,
        reason=f"verify: {failure.summary}",
        printed="\n".join(one.printed or "" for one in failed) if failed else None,
        action=failed[0].action if failed else None,
    )
