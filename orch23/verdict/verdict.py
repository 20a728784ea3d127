"""Verdicts on runs of tests. A run of pytest is judged by its report and the expected tests, not by its exit code."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Severity, location_of_line
from orch23.model.text import join_first
from orch23.text.excerpt import normalise, shorten_tree_paths
from orch23.verdict.pytest_discovery import id_without_parameters, is_of_tests
from orch23.verdict.pytest_report import PytestReport, read_report
from orch23.verdict.run_results import NOT_RUN, ReportedFailure, ReportedSkip, RunResults, group_failures

_FAILED = "E301"
_SHOWN = 10
_TESTS_FAILED, _NO_TESTS_COLLECTED = 1, 5
_INSTEAD = {
    "skipped": "was skipped",
    "xfailed": "is marked as an expected failure",
    NOT_RUN: "was not run",
}
_NOUNS = ("finding", "warning", "note")
_OTHERS = (*_NOUNS, "flaky", "passed", "skipped", "xfailed", "xpassed", NOT_RUN)
_PASSED_HINT = "call the code in the test and assert what it returns or raises, so that it fails without the code"
_SKIP_HINT = "make it run: only its own file may skip a test. Or list the tests that must run in `expect`"
_LOST_HINT = "let pytest collect it, or list the tests that must run in `expect`"
_STAGE_HINT = "stage the test files as inputs of the step"


class Verdict(Struct, frozen=True, kw_only=True):
    """The verdict on a run of tests: `tests` has the outcome of each test, `counts` the number of each outcome.

    `failing` are sorted texts `id ErrorName`: two failures with the same text count as the same failure. `headline` has
    the counts as a text, `parts` what you or a model should read: each cause once, the most frequent first. `error` is
    the most frequent one, in one line. `uncollected` are the files whose tests could not be collected, with the error.
    """

    passed: bool
    diagnostics: tuple[Diagnostic, ...] = ()
    failing: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    headline: str = ""
    parts: tuple[str, ...] = ()
    tests: Mapping[str, str] = field(default_factory=dict)
    subtests: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    uncollected: Mapping[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The headline with the most frequent error: `7 failed, 1 passed: KeyError: 'a'`; empty if no test failed.

        One failed test is named in place of the headline.
        """
        named = {one.subject for one in self.diagnostics if one.code == _FAILED}
        name = named.pop() if len(named) == 1 else None
        return f"{name or self.headline}: {self.error}" if self.headline and self.error else ""

    @property
    def excerpt(self) -> str:
        """The headline and all parts as one text."""
        return "\n\n".join(part for part in (self.headline, *self.parts) if part) + "\n" if self.parts else ""


def judge_pytest(
    exit_code: int,
    report: bytes | None,
    expected: Collection[str],
    output: str,
    can_be_generated: Callable[[str], bool] = lambda _module: True,
    is_generated: Callable[[str], bool] = lambda _path: False,
) -> Verdict:
    """Return the verdict. `expected` are test ids without parameters; the id of a file or a class means all its tests.

    Passed: exit code 0, a complete report of a finished session, every expected test collected, none of them failed,
    at least one passed, none skipped by the code under test, and no module of the project loaded from elsewhere.

    A skip that a test file raises itself is the decision of its author. `pytest.importorskip` is one only if
    `can_be_generated` says that no stage can make the module: otherwise code could skip its tests by not being written.
    A test file that a stage makes (`is_generated`) cannot skip itself as a whole, since no one would notice that it
    has no tests.
    """
    # The exit code is not enough: code under test can end the process with 0.
    result = read_report(report)
    # The output of pytest adds nothing to these errors but the number of tests that passed.
    explained = (*_skip_errors(result, expected, can_be_generated, is_generated), *_foreign_modules(result))
    found = (*_report_errors(result, exit_code), *_failures(result), *_missing_tests(result, expected), *explained)
    if not found and exit_code != 0:
        found = (_other_exit(exit_code),)
    return _with_headline(result, found, output if set(found) - set(explained) else "")


def verdict_of(results: RunResults, errors: tuple[Diagnostic, ...], output: str, rest: str = "") -> Verdict:
    """Return the verdict on results of any runner: passed if no test failed, without other errors.

    `output` is shown if no test failed, `rest` also with failed tests.
    """
    return _with_headline(results, (*_failures(results), *errors), output, rest)


def _with_headline(results: RunResults, found: tuple[Diagnostic, ...], output: str, rest: str = "") -> Verdict:
    failing = sorted({f"{failure.test} {failure.error}" for failure in results.failures})
    verdict = _verdict(results, found, failing, output)
    if not results.failures:
        return verdict
    first, *others = group_failures(results.failures)
    more = f" (and {len(others)} more {'causes' if others[1:] else 'cause'})" if others else ""
    error, parts = f"{shorten_tree_paths(first.error, '')}{more}", (*verdict.parts, *filter(None, [rest]))
    return replace(verdict, headline=_headline(results, verdict.counts), error=error, parts=parts)


def judge_failing(exit_code: int, report: bytes | None, expected: Collection[str], output: str) -> Verdict:
    """Return the verdict on new tests that were run without the code that they test.

    Passed: a complete report of a finished session, every expected test collected, and each of them failed, in its
    setup or its call. A test that passes there would pass whatever the code does; a skipped one proves nothing.
    """
    result = read_report(report)
    untrusted = tuple(_report_errors(result, exit_code))
    failed = frozenset(failure.test for failure in result.failures if failure.when in {"setup", "call"})
    result.failures = [failure for failure in result.failures if failure.when == "collect"]
    passed = [] if untrusted or not result.begun else list(_not_failed(result, failed, expected))
    found: tuple[Diagnostic, ...] = (
        *untrusted,
        *_failures(result),
        *_missing_tests(result, expected),
        *_listed(
            [
                Diagnostic("E322", f"{what} without the code that it tests", hint=_PASSED_HINT, subject=name)
                for name, what in passed
            ],
            "tests did not fail without the code that they test",
        ),
        *_foreign_modules(result),
    )
    if not found and exit_code != _TESTS_FAILED:
        found = (_other_exit(exit_code),)
    verdict = _verdict(result, found, [f"{name} {what}" for name, what in passed], output if untrusted else "")
    return replace(verdict, headline=f"{len(passed)} did not fail, {len(failed)} failed") if passed else verdict


def _headline(report: RunResults, counts: Mapping[str, int]) -> str:
    numbers = [
        (counts.get("failed", 0), "failed"),
        (counts.get("error", 0), "failed in setup or teardown"),
        (len(report.uncollected), "not collected"),
        *((counts.get(outcome, 0), outcome) for outcome in _OTHERS),
    ]
    return ", ".join(f"{number} {what}{'s' * (number > 1 and what in _NOUNS)}" for number, what in numbers if number)


def _verdict(report: RunResults, found: tuple[Diagnostic, ...], failing: list[str], output: str) -> Verdict:
    return Verdict(
        passed=not found,
        diagnostics=found,
        failing=tuple(failing),
        counts=dict(sorted(Counter(report.outcomes.values()).items())),
        parts=_parts(report, found, output) if found else (),
        tests=dict(sorted(report.outcomes.items())),
        subtests=dict(sorted(report.subtests.items())),
        uncollected=report.uncollected,
    )


def report_json(verdict: Verdict) -> bytes:
    """Return the `report:` artifact: the same bytes for the same outcomes, without times and names of machines."""
    value = {
        "version": 1,
        "passed": verdict.passed,
        "counts": dict(verdict.counts),
        "tests": dict(verdict.tests),
        # Only if there are any, so that reports of tests without subtests stay the same.
        **({"subtests": dict(verdict.subtests)} if verdict.subtests else {}),
        "failing": list(verdict.failing),
        "diagnostics": [{"code": d.code, "message": d.message} for d in verdict.diagnostics],
    }
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _listed(found: Sequence[Diagnostic], others: str) -> Iterator[Diagnostic]:
    yield from found[:_SHOWN]
    if len(found) > _SHOWN:
        yield Diagnostic(found[0].code, f"{len(found) - _SHOWN} more {others}", hint=found[0].hint)


# ---- errors of a report -----------------------------------------------------------------------


def _report_errors(report: PytestReport, exit_code: int) -> Iterator[Diagnostic]:
    if report.broken is None and not report.begun and exit_code != 0:
        yield Diagnostic("E320", f"pytest exited with {exit_code} before any test", hint="read the end of its output")
    elif (why := _untrusted(report, exit_code)) is not None:
        message = f"the report of pytest cannot be trusted: {why} (exit code {exit_code})"
        yield Diagnostic("E308", message, hint="let pytest finish; the end of its output says what stopped it")


def _untrusted(report: PytestReport, exit_code: int) -> str | None:
    """Return why a report cannot be trusted. Code under test can end the process early, also with exit code 0."""
    if report.broken is not None:
        return report.broken
    if not report.begun:
        return "it is missing"
    if report.status is None:
        return "it ends before the session does"
    if exit_code != 0:
        return None
    if report.status != 0:
        return f"the session ended with {report.status}, the process with 0"
    unfinished = [name for name in report.collected if name not in report.ended or report.outcomes[name] == NOT_RUN]
    return f"{unfinished[0]} was collected and did not run to its end" if unfinished else None


def _failures(report: RunResults) -> Iterator[Diagnostic]:
    first = {failure.test: failure for failure in reversed(report.failures)}
    labels: dict[str, dict[str, None]] = {name: {} for name in first}
    for one in report.failures:
        labels[one.test] |= {one.subtest: None} if one.subtest else {}
    found = [
        Diagnostic("E301", f"{_how(one)}{_in_subtests([*labels[name]])}", location_of_line(one.place), subject=name)
        for name, one in sorted(first.items())
    ]
    are_findings = any(one.error == "finding" for one in first.values())
    yield from _listed(found, "findings" if are_findings else "tests failed")


def _how(failure: ReportedFailure) -> str:
    if not failure.when:
        kind = "failed" if failure.error != "finding" else ""
        return ": ".join(filter(None, (kind, failure.message))) or "was reported"
    named = {"collect": "could not be collected", "call": "failed"}
    return f"{named.get(failure.when, f'failed in {failure.when}')} with {failure.error}"


def _in_subtests(found: Sequence[str]) -> str:
    # Not as subjects: these are in the identity of a retry, and so in the fingerprint of its request.
    return f" in the subtest{'s' * (len(found) > 1)} {join_first(found, _SHOWN)}" if found else ""


def _missing_tests(report: PytestReport, expected: Iterable[str]) -> Iterator[Diagnostic]:
    if not report.begun:
        return  # E308 explains it
    lost = _lost(report, expected)
    if not (report.collected or lost or report.failures or report.skipped_modules):
        yield Diagnostic("E305", "no test was collected", hint=_STAGE_HINT)
    found = [
        Diagnostic(
            "E305",
            "was deselected" if name in report.deselected else "is expected, and was not collected",
            hint=_LOST_HINT,
            subject=name,
        )
        for name in lost
        if _module_skip(name, report) is None
    ]
    yield from _listed(found, "expected tests were not collected")


def _lost(report: PytestReport, expected: Iterable[str]) -> list[str]:
    """Return the expected tests that were not collected, sorted, without those of files that failed to be collected."""
    have = {id_without_parameters(name) for name in report.collected}
    broken_files = {name.partition("::")[0] for name in report.uncollected}
    return sorted(
        name
        for name in set(expected)
        if name.partition("::")[0] not in broken_files and not any(_covers(name, one) for one in have)
    )


def _not_failed(report: PytestReport, failed: frozenset[str], expected: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name, outcome in sorted(report.outcomes.items()):
        if name not in failed:
            yield name, _INSTEAD.get(outcome, "passed")
    for name in _lost(report, expected):
        if _module_skip(name, report) is not None:
            yield name, "was skipped with its whole module"


def _foreign_modules(report: PytestReport) -> Iterator[Diagnostic]:
    hint = "uninstall it from that interpreter, set `pytest.pythonpath`, or rename the module"
    for name, file in report.foreign[:_SHOWN]:
        yield Diagnostic("E307", f"was loaded from {file}, not from the tree under test", hint=hint, subject=name)


def _other_exit(exit_code: int) -> Diagnostic:
    if exit_code == _NO_TESTS_COLLECTED:
        return Diagnostic("E305", "no test was collected", hint=_STAGE_HINT)
    return Diagnostic("E320", f"pytest exited with {exit_code}", hint="read the end of its output")


# ---- skips ------------------------------------------------------------------------------------


def _skip_errors(
    report: PytestReport,
    expected: Iterable[str],
    can_be_generated: Callable[[str], bool],
    is_generated: Callable[[str], bool],
) -> Iterator[Diagnostic]:
    if not report.begun:
        return  # E308 explains it
    lost = _lost(report, expected)
    whole = [(name, skip) for name in lost if (skip := _module_skip(name, report)) is not None]
    refused = [(skip.name, skip, _refused_skip(skip, can_be_generated)) for skip in report.skipped]
    refused += [(name, skip, _refused_module_skip(skip, can_be_generated, is_generated)) for name, skip in whole]
    found = [
        Diagnostic("E305", why, location_of_line(skip.place), hint=_SKIP_HINT, subject=name)
        for name, skip, why in refused
        if why
    ]
    yield from _listed(found, "tests were skipped")
    may_be_green = not report.failures and not found and len(whole) == len(lost)
    if may_be_green and (report.collected or report.skipped_modules):
        yield from _nothing_passed(report, [*((skip.name, skip) for skip in report.skipped), *whole])


def _nothing_passed(report: PytestReport, skips: list[tuple[str, ReportedSkip]]) -> Iterator[Diagnostic]:
    if not {"passed", "xpassed"} & set(report.outcomes.values()):
        reasons = [f"{name} ({skip.reason})" for name, skip in skips if skip.reason]
        listed = f": {', '.join(reasons[:_SHOWN])}" if reasons else ""
        message = f"no test passed: all were skipped or failed as expected{listed}"
        yield Diagnostic("E305", message, hint="let at least one run")


def _refused_skip(skip: ReportedSkip, can_be_generated: Callable[[str], bool], skipped: str = "was skipped") -> str:
    """Return why a skip does not count; an empty text if it is the decision of the test's author."""
    reason = f": {skip.reason}" if skip.reason else ""
    if skip.module and can_be_generated(skip.module):
        return f"{skipped}{reason}. A stage of this pipeline may make `{skip.module}`: without it, tests fail"
    path = skip.place.rpartition(":")[0]
    if path and not is_of_tests(path):  # a file of the code under test
        return f"{skipped} at `{skip.place}`, which is not in a test file{reason}"
    return ""


def _refused_module_skip(
    skip: ReportedSkip, can_be_generated: Callable[[str], bool], is_generated: Callable[[str], bool]
) -> str:
    skipped = "was skipped with its whole module"
    if why := _refused_skip(skip, can_be_generated, skipped):
        return why
    reason = f": {skip.reason}" if skip.reason else ""
    if not skip.place:
        return f"{skipped}{reason}. Where the skip comes from is not known"
    if is_generated(skip.place.rpartition(":")[0]):
        return f"{skipped}{reason}. A stage of this pipeline makes that file"
    return ""


def _module_skip(name: str, report: PytestReport) -> ReportedSkip | None:
    return next((skip for skip in report.skipped_modules if _covers(skip.name, name)), None)


def _covers(expected: str, collected: str) -> bool:
    return collected == expected or collected.startswith((f"{expected}::", f"{expected}/"))


def _parts(report: RunResults, found: tuple[Diagnostic, ...], output: str) -> tuple[str, ...]:
    """Return what you or a model should read: the text of each cause, else the errors and the output."""
    parts = [group.text() for group in group_failures(report.failures)]
    others = [str(replace(d, severity=Severity.ERROR)) for d in found if d.code != _FAILED]
    if not parts:
        others.append(normalise(output).strip())
    return tuple(part for part in (*parts, *others) if part)
