"""Judge a program by the results of tests that it reported, in any format, and by its exit code."""

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.patterns import lazy_pattern
from orch23.text.excerpt import normalise
from orch23.verdict.readers import go, junit, regex, sarif, tap
from orch23.verdict.run_results import PASSED, RunResults
from orch23.verdict.verdict import Verdict, verdict_of

_READERS: Final = {"junit": junit.read, "tap": tap.read, "go": go.read, "sarif": sarif.read}
# bats writes `t.bats, line 3`.
_PLACE = lazy_pattern(r"([\w./@+-]{1,300}\.\w{1,10})(?::|, line )(\d{1,7})\b")
_LOOKED_AT, _SHOWN = 4_000, 5
_READ_OUTPUT = "read the end of its output"
_HINT = "let the program run to its end, and write its report below `$TMPDIR/` or in a folder of `scratch`"


def own_format(output: str) -> str:
    """Return the format that an output begins with, if it is one that is read without a key; else an empty text."""
    return "tap" if tap.begins_with_tap(output) else "go" if go.begins_with_events(output) else ""


def read_reports(
    form: str, reports: Mapping[str, str], cwd: str = ".", missing: str = "", pattern: str = ""
) -> RunResults:
    """Return the results in reports by path ("": the output); `missing` is where one was expected if there is none."""
    results = RunResults(cwd=cwd)
    read = regex.reader_of(pattern) if form == "regex" else _READERS[form]
    for path, text in reports.items():
        read(text, results)
        if results.broken is not None:
            results.broken = f"`{path}`: {results.broken}" if path else results.broken
            break
    if not reports:
        results.broken = f"the step wrote no file `{missing}`"
    return results


def judge_results(exit_code: int, results: RunResults, output: str, files: Iterable[str], least: int = 0) -> Verdict:
    """Return the verdict. `files` are the staged paths, relative to the working directory.

    Passed: exit code 0, complete reports, no test failed, at least one passed, and not fewer than `least`, the number
    in the last result with the same tests.
    """
    if results.failures:
        staged = frozenset(files)
        names = Counter(map(posixpath.basename, staged))
        # go names a file without its folder
        known = {name: path for path in staged if names[name := posixpath.basename(path)] == 1}
        known |= {path: path for path in staged}
        results.failures = [
            replace(one, place=one.place or _place(f"{one.message}\n{one.text}", known)) for one in results.failures
        ]
    # The output explains what the results do not; a report in the output itself would only be repeated.
    more = normalise(results.rest).strip() if exit_code or results.broken else ""
    return verdict_of(results, tuple(_errors(exit_code, results, least)), more or output, more)


def _errors(exit_code: int, results: RunResults, least: int) -> Iterator[Diagnostic]:
    if results.failures:
        return
    if exit_code != 0 and not results.outcomes and not (results.are_findings and results.broken is None):
        why = f": {results.broken}" if results.broken else ""  # its output says more
        yield Diagnostic("E320", f"exited with {exit_code} before any result{why}", hint=_READ_OUTPUT)
    elif results.broken is not None:
        message = f"the results of the tests cannot be trusted: {results.broken} (exit code {exit_code})"
        yield Diagnostic("E308", message, hint=_HINT)
    elif exit_code != 0:
        skipped = [f"{one.name} ({one.reason})" if one.reason else one.name for one in results.skipped[:_SHOWN]]
        named = f"; skipped: {', '.join(skipped)}" if skipped else ""
        nothing = "it reported no error" if results.are_findings else "no test failed"
        message = f"exited with {exit_code}, and {nothing}{named}"
        yield Diagnostic("E320", message, hint=_READ_OUTPUT)
    elif not results.are_findings and not PASSED.intersection(results.outcomes.values()):
        number = len(results.outcomes)
        message = f"no test passed: {number} were skipped or failed as expected" if number else "no test was run"
        yield Diagnostic("E305", message, hint="let at least one run")
    elif (number := len(results.ids)) < least:
        message = f"{number} tests were reported, and {least} by the last result of this stage, with the same tests"
        yield Diagnostic("E305", message, hint="find out why tests are missing: one may have ended the program")


def _place(text: str, known: Mapping[str, str]) -> str:
    """Return `file:line` of the first staged file in a text, or an empty text; `known` has the paths as written."""
    places = ((known.get(posixpath.normpath(one[1])), one[2]) for one in _PLACE.finditer(text[:_LOOKED_AT]))
    return next((f"{path}:{line}" for path, line in places if path), "")
