"""Judge a pytest run by its report and the expected tests, not by its exit code alone."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.decide.excerpt import normalise
from orch23.decide.pytest_discovery import id_without_parameters, is_test_file
from orch23.decide.pytest_report import (
    NOT_RUN,
    PytestReport,
    ReportedFailure,
    ReportedSkip,
    read_report,
)
from orch23.model.diagnostic import Diagnostic, Location, Severity

_SHOWN = 10
_TESTS_FAILED, _NO_TESTS_COLLECTED = 1, 5
_INSTEAD = {
    "skipped": "was skipped",
    "xfailed": "is marked as an expected failure",
    NOT_RUN: "was not run",
}
_GREEN_HINT = (
    "call the code in the test and assert what it returns or raises, so that it fails as long as there is none"
)
_SKIP_HINT = "make it run; a test may be skipped only by its own file. Or name in `expect` the tests that must run"


class Verdict(Struct, frozen=True, kw_only=True):
    """What a run of pytest is worth. `tests` is the outcome of each collected test, `counts` how many of each.

    `failing` are sorted `id ErrorName`, the part of a failure that must be the same for it to be the same failure.
    """

    passed: bool
    diagnostics: tuple[Diagnostic, ...] = ()
    failing: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    excerpt: str = ""
    tests: Mapping[str, str] = field(default_factory=dict)


def judge_pytest(
    exit_code: int,
    report: bytes | None,
    expected: Collection[str],
    output: str,
    may_be_made: Callable[[str], bool] = lambda _module: True,
    is_made: Callable[[str], bool] = lambda _path: False,
) -> Verdict:
    """Return the verdict. `expected` are test ids without parameters; one of a file or a class means what is in it.

    Passed = exit code 0, a whole report of a finished session, every expected test collected and none of them
    failed, at least one passed, none skipped by the code under test, and no module of the project from elsewhere.
    A skip that a test file raises itself is the decision of its author. `pytest.importorskip` is one only if
    `may_be_made` says of the module that no stage can make it: else code could skip its tests by not being there. A
    file of tests that a stage makes, by `is_made`, cannot skip itself as a whole: nobody would notice that it is empty.
    """
    folded = read_report(report)
    known = (*_skips(folded, expected, may_be_made, is_made), *_foreign(folded))
    diagnostics = (
        *_untrue(folded, exit_code),
        *_red(folded),
        *_missing(folded, expected),
        *known,
    )
    if not diagnostics and exit_code != 0:
        diagnostics = (_other_exit(exit_code),)
    failing = tuple(sorted({f"{f.test} {f.error}" for f in folded.failures}))
    # What is known to be wrong says all; the output of pytest would only add that so many tests passed.
    shown = output if set(diagnostics) - set(known) else ""
    return Verdict(
        passed=not diagnostics,
        diagnostics=diagnostics,
        failing=failing,
        counts=dict(sorted(Counter(folded.outcomes.values()).items())),
        excerpt="" if not diagnostics else _excerpt(folded, diagnostics, shown),
        tests=dict(sorted(folded.outcomes.items())),
    )


def judge_failing(exit_code: int, report: bytes | None, expected: Collection[str], output: str) -> Verdict:
    """Return the verdict on new tests that were run without the code that they test.

    Passed = a whole report of a finished session, every expected test collected, and each of them failed, in its setup
    or its call. A test that passes there would pass whatever the code does; one that is skipped proves nothing.
    """
    folded = read_report(report)
    unbelievable = tuple(_untrue(folded, exit_code))
    folded.failures, failed = _split(folded.failures)
    green = () if unbelievable or not folded.begun else tuple(_not_failed(folded, failed, expected))
    diagnostics = (*unbelievable, *_red(folded), *_missing(folded, expected), *_green(green), *_foreign(folded))
    if not diagnostics and exit_code != _TESTS_FAILED:
        diagnostics = (_other_exit(exit_code),)
    return Verdict(
        passed=not diagnostics,
        diagnostics=diagnostics,
        failing=tuple(f"{name} {what}" for name, what in green),
        counts=dict(sorted(Counter(folded.outcomes.values()).items())),
        excerpt="" if not diagnostics else _excerpt(folded, diagnostics, output if unbelievable else ""),
        tests=dict(sorted(folded.outcomes.items())),
    )


def report_json(verdict: Verdict) -> bytes:
    """Return the `report:` artifact: the same bytes for the same outcomes, with no times and no names of machines."""
    value = {
        "version": 1,
        "passed": verdict.passed,
        "counts": dict(verdict.counts),
        "tests": dict(verdict.tests),
        "failing": list(verdict.failing),
        "diagnostics": [{"code": d.code, "message": d.message} for d in verdict.diagnostics],
    }
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


# ---- reading the report -----------------------------------------------------------------------


def _is_of_code(place: str) -> bool:
    """Say whether a place is in the code under test: what a test skips itself is its own affair."""
    path = place.rpartition(":")[0]
    return bool(path) and not is_test_file(path) and path.rpartition("/")[2] != "conftest.py"


def _split(failures: list[ReportedFailure]) -> tuple[list[ReportedFailure], frozenset[str]]:
    """Return the failures to collect, and the names of the tests that failed before or in their call."""
    failed = frozenset(one.test for one in failures if one.when in {"setup", "call"})
    return [one for one in failures if one.when == "collect"], failed


def _not_failed(folded: PytestReport, failed: frozenset[str], expected: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the name of each test that did not fail, and what it did instead."""
    for name, outcome in sorted(folded.outcomes.items()):
        if name not in failed:
            yield name, _INSTEAD.get(outcome, "passed")
    for name in _lost(folded, expected):
        if _skipped_with(name, folded) is not None:
            yield name, "was skipped with its whole module"


def _green(tests: tuple[tuple[str, str], ...]) -> Iterator[Diagnostic]:
    for name, what in tests[:_SHOWN]:
        yield Diagnostic("E322", f"{what} without the code that it tests", hint=_GREEN_HINT, subject=name)
    if len(tests) > _SHOWN:
        more = f"{len(tests) - _SHOWN} more tests did not fail without the code that they test"
        yield Diagnostic("E322", more, hint=_GREEN_HINT)


# ---- what speaks against it -------------------------------------------------------------------


def _untrue(folded: PytestReport, exit_code: int) -> Iterator[Diagnostic]:
    why = folded.broken
    if why is None and not folded.begun and exit_code != 0:
        yield Diagnostic("E320", f"pytest ended with {exit_code} before any test", hint="its last output says why")
        return
    cut_short = [i for i in folded.collected if i not in folded.ended or folded.outcomes[i] == NOT_RUN]
    if why is None and not folded.begun:
        why = "there is none"
    if why is None and folded.status is None:
        why = "it breaks off before the session's end"
    if why is None and exit_code == 0 and folded.status != 0:
        why = f"the session ended with {folded.status}, the process with 0"
    if why is None and exit_code == 0 and cut_short:
        why = f"{cut_short[0]} was collected and did not run to its end"
    if why is not None:
        message = f"the report of pytest cannot be believed: {why} (exit code {exit_code})"
        yield Diagnostic("E308", message, hint="let pytest end by itself; its last output says what stopped it")


def _red(folded: PytestReport) -> Iterator[Diagnostic]:
    names = sorted({f.test for f in folded.failures})
    if not names:
        return
    first = {f.test: f for f in reversed(folded.failures)}
    for name in names[:_SHOWN]:
        failure = first[name]
        what = {"collect": "could not be collected", "call": "failed"}.get(failure.when, f"failed in {failure.when}")
        yield Diagnostic("E301", f"{what} with {failure.error}", _location(failure.place), subject=name)
    if len(names) > _SHOWN:
        yield Diagnostic("E301", f"{len(names) - _SHOWN} more tests failed")


def _location(place: str) -> Location | None:
    path, _, line = place.rpartition(":")
    return Location(path, int(line), 1) if path and line.isdecimal() else None


def _missing(folded: PytestReport, expected: Iterable[str]) -> Iterator[Diagnostic]:
    if not folded.begun:
        return  # E308 says it all
    lost = _lost(folded, expected)
    if not folded.collected and not lost and not folded.failures and not folded.skipped_modules:
        yield Diagnostic("E305", "no test was collected", hint="stage the test files as inputs of the step")
    lost = [name for name in lost if _skipped_with(name, folded) is None]
    for name in lost[:_SHOWN]:
        yield Diagnostic(
            "E305", _why_lost(name, folded), hint="collect it, or name what is meant in `expect`", subject=name
        )
    if len(lost) > _SHOWN:
        more = f"{len(lost) - _SHOWN} more expected tests were not collected"
        yield Diagnostic("E305", more, hint="collect them, or name what is meant in `expect`")


def _lost(folded: PytestReport, expected: Iterable[str]) -> list[str]:
    """Return the expected tests that were not collected, sorted, but for those of files that cannot be."""
    have = {id_without_parameters(i) for i in folded.collected}
    broken_files = {f.test.partition("::")[0] for f in folded.failures if f.when == "collect"}
    return sorted(
        e for e in set(expected) if e.partition("::")[0] not in broken_files and not any(_covers(e, h) for h in have)
    )


def _skips(
    folded: PytestReport,
    expected: Iterable[str],
    may_be_made: Callable[[str], bool],
    is_made: Callable[[str], bool],
) -> Iterator[Diagnostic]:
    """Yield an error for each expected test whose skip does not count, and one if no test has passed at all."""
    if not folded.begun:
        return  # E308 says it all
    lost = _lost(folded, expected)
    whole = [(name, skip) for name in lost if (skip := _skipped_with(name, folded)) is not None]
    refused = [(one.name, one, why) for one in folded.skipped if (why := _against(one, may_be_made))]
    refused += [(name, one, why) for name, one in whole if (why := _against_whole(one, may_be_made, is_made))]
    for name, skip, why in refused[:_SHOWN]:
        yield Diagnostic("E305", why, _location(skip.place), hint=_SKIP_HINT, subject=name)
    if len(refused) > _SHOWN:
        yield Diagnostic("E305", f"{len(refused) - _SHOWN} more tests were skipped", hint=_SKIP_HINT)
    if folded.failures or refused or len(whole) < len(lost):
        return
    if (folded.collected or folded.skipped_modules) and not {"passed", "xpassed"} & set(folded.outcomes.values()):
        reasons = [
            f"{name} ({one.reason})" for name, one in [*((s.name, s) for s in folded.skipped), *whole] if one.reason
        ]
        told = f": {', '.join(reasons[:_SHOWN])}" if reasons else ""
        message = f"no test passed: all were skipped or failed as expected{told}"
        yield Diagnostic("E305", message, hint="let one run at least")


def _against(skip: ReportedSkip, may_be_made: Callable[[str], bool], *, whole: bool = False) -> str:
    """Return why a skip does not count, or an empty string where it is the decision of the test's author."""
    reason = f": {skip.reason}" if skip.reason else ""
    skipped = "was skipped with its whole module" if whole else "was skipped"
    if skip.module and may_be_made(skip.module):
        return f"{skipped}{reason}. A stage of this pipeline may make `{skip.module}`: without it, tests fail"
    if _is_of_code(skip.place):
        return f"{skipped} at `{skip.place}`, which is not in a test file{reason}"
    return ""


def _against_whole(skip: ReportedSkip, may_be_made: Callable[[str], bool], is_made: Callable[[str], bool]) -> str:
    """Return why the skip of a whole module does not count, or an empty string."""
    why = _against(skip, may_be_made, whole=True)
    reason = f": {skip.reason}" if skip.reason else ""
    if not why and not skip.place:
        return f"was skipped with its whole module{reason}. Where the skip comes from is not known"
    if not why and is_made(skip.place.rpartition(":")[0]):
        return f"was skipped with its whole module{reason}. A stage of this pipeline makes that file"
    return why


def _skipped_with(name: str, folded: PytestReport) -> ReportedSkip | None:
    """Return the skip of the whole module that a test is in."""
    return next((one for one in folded.skipped_modules if _covers(one.name, name)), None)


def _covers(expected: str, collected: str) -> bool:
    return collected == expected or collected.startswith((f"{expected}::", f"{expected}/"))


def _why_lost(name: str, folded: PytestReport) -> str:
    if name in folded.deselected:
        return "was deselected"
    return "is expected, and was not collected"


def _foreign(folded: PytestReport) -> Iterator[Diagnostic]:
    for name, file in folded.foreign[:_SHOWN]:
        yield Diagnostic(
            "E307",
            f"was loaded from {file}, not from the tree under test",
            hint="uninstall it from that interpreter, set `pytest.pythonpath`, or rename the module",
            subject=name,
        )


def _other_exit(exit_code: int) -> Diagnostic:
    if exit_code == _NO_TESTS_COLLECTED:
        return Diagnostic("E305", "no test was collected", hint="stage the test files as inputs of the step")
    return Diagnostic("E320", f"pytest ended with {exit_code}", hint="its last output says why")


def _excerpt(folded: PytestReport, diagnostics: tuple[Diagnostic, ...], output: str) -> str:
    """Return what a person or a model should read: each failure's own text, else the complaints and the output."""
    parts = [f"{f.test} ({f.when}): {f.error}\n{f.text}".rstrip() for f in sorted(folded.failures, key=_by_test)]
    others = [str(replace(d, severity=Severity.ERROR)) for d in diagnostics if d.code != "E301"]
    if not parts:
        others.append(normalise(output).strip())
    return "\n\n".join(part for part in (*parts, *others) if part) + "\n"


def _by_test(failure: ReportedFailure) -> tuple[str, str]:
    return failure.test, failure.when
