"""Read the report of orch23's pytest plugin, collect its events, and group failed tests by cause."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, assert_never

from msgspec import Struct, ValidationError, convert, field

from orch23.model.parsing import parse_json
from orch23.model.patterns import lazy_pattern
from orch23.model.text import join_first
from orch23.text.excerpt import normalise
from orch23.verdict.pytest_discovery import id_without_parameters, is_test_file

NOT_RUN = "not run"


class ReportedFailure(Struct, frozen=True):
    """A test that failed: its error, the place of it, the shortened text, the phase, the label of a subtest."""

    test: str
    error: str
    place: str
    text: str
    when: str
    subtest: str = ""

    @property
    def name(self) -> str:
        """The id of the test with the label of the subtest: `test_a.py::test_x (case='y')`."""
        return f"{self.test} {self.subtest}".rstrip()


class ReportedSkip(Struct, frozen=True):
    """A test or a whole module that was skipped: where the skip was raised, why, and what `importorskip` wanted."""

    name: str
    place: str = ""
    reason: str = ""
    module: str = ""


class _Start(Struct, frozen=True, tag_field="event", tag="start", forbid_unknown_fields=True):
    pytest: str = ""


class _Collected(Struct, frozen=True, tag_field="event", tag="collected", forbid_unknown_fields=True):
    ids: tuple[str, ...]


class _Deselected(Struct, frozen=True, tag_field="event", tag="deselected", forbid_unknown_fields=True):
    ids: tuple[str, ...]


class _Outcome(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    outcome: str
    place: str = ""
    reason: str = ""
    module: str = ""
    text: str = ""


class _Collect(_Outcome, frozen=True, kw_only=True, tag_field="event", tag="collect"):
    """A module or another collector that did not pass."""

    error: str = ""


class _Test(_Outcome, frozen=True, kw_only=True, tag_field="event", tag="test"):
    """A phase of a test, or a subtest. `made` is the outcome that pytest computed, `outcome` the reported one."""

    when: str
    made: str = ""
    raised: str = ""
    xfail: bool = False
    subtest: str = ""


class _Foreign(Struct, frozen=True, tag_field="event", tag="foreign", forbid_unknown_fields=True):
    """Modules that were not loaded from the tree under test: names and files."""

    modules: tuple[tuple[str, str], ...]


class _Finish(Struct, frozen=True, tag_field="event", tag="finish", forbid_unknown_fields=True):
    status: int


class _Forged(Struct, frozen=True, tag_field="event", tag="forged", forbid_unknown_fields=True):
    """Added by the reader of the report: a line that the plugin did not write."""

    line: int


class _TooLong(Struct, frozen=True, tag_field="event", tag="too_long", forbid_unknown_fields=True):
    """Added by the reader of the report: it is over a limit of bytes."""

    limit: int


# A line of a report, as `orch23_reporter` and `report_channel` write it.
_Event: TypeAlias = _Start | _Collected | _Deselected | _Collect | _Test | _Foreign | _Finish | _Forged | _TooLong


class PytestReport(Struct):
    """The state after all lines of a report. `broken` says why the report cannot be trusted.

    `subtests` has the outcome of each subtest that did not pass, by the id of its test and its label.
    """

    begun: bool = False
    status: int | None = None
    broken: str | None = None
    collected: list[str] = field(default_factory=list)
    deselected: set[str] = field(default_factory=set)
    outcomes: dict[str, str] = field(default_factory=dict)
    subtests: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    failures: list[ReportedFailure] = field(default_factory=list)
    skipped: list[ReportedSkip] = field(default_factory=list)
    skipped_modules: list[ReportedSkip] = field(default_factory=list)
    foreign: list[tuple[str, str]] = field(default_factory=list)


def read_report(report: bytes | None) -> PytestReport:
    """Return the state after all lines of a report. Without a report nothing ran."""
    folded = PytestReport()
    for event in _events(report, folded):
        if folded.status is not None and not isinstance(event, _Forged | _TooLong):
            folded.broken = "it continues after its end"
            break
        _take(folded, event)
    return folded


def _events(report: bytes | None, folded: PytestReport) -> Iterator[_Event]:
    for line in (report or b"").split(b"\n"):
        if not line:
            continue
        try:
            # Names of files that are not UTF-8 put halves of surrogate pairs into texts of tests.
            yield convert(parse_json(line, max_bytes=None, lone_surrogates=True), _Event)
        except ValueError as error:
            why = str(error) if isinstance(error, ValidationError) else "not JSON"
            folded.broken = f"a line of it is not valid: {why}"
            return


def _take(folded: PytestReport, event: _Event) -> None:  # noqa: C901 - one case for each kind of event
    match event:
        case _Start():
            folded.broken = "it starts twice" if folded.begun else folded.broken
            folded.begun = True
        case _Collected(ids):
            new = [name for name in ids if name not in folded.outcomes]
            folded.collected.extend(new)
            folded.outcomes.update(dict.fromkeys(new, NOT_RUN))
        case _Deselected(ids):
            folded.deselected.update(map(id_without_parameters, ids))
        case _Collect(outcome="failed"):
            folded.failures.append(_failure(event, event.error, "collect"))
        case _Collect():
            folded.skipped_modules.append(_skip_of(event))
        case _Test():
            _take_test(folded, event)
        case _Foreign(modules):
            folded.foreign.extend(modules)
        case _Finish(status):
            folded.status = status
        case _Forged(line):
            folded.broken = f"line {line} of it was not written by the plugin"
        case _TooLong(limit):
            folded.broken = f"it is over {limit} bytes"
        case _:
            assert_never(event)


def _skip_of(event: _Collect | _Test, name: str = "") -> ReportedSkip:
    return ReportedSkip(name or event.id, event.place, " ".join(normalise(event.reason).split()), event.module)


def _failure(event: _Collect | _Test, error: str, when: str, subtest: str = "") -> ReportedFailure:
    return ReportedFailure(event.id, error or "Failed", event.place, normalise(event.text), when, subtest)


def _take_test(folded: PytestReport, event: _Test) -> None:
    name, when, subtest = event.id, event.when, normalise(event.subtest).strip()
    folded.broken = _untrusted_outcome(folded, event) or folded.broken
    before, outcome = folded.outcomes.get(name), "xfailed" if event.xfail else "skipped"
    match event.outcome:
        case "failed" if (before, event.made, subtest) == ("failed", "passed", ""):
            pass  # pytest fails a test because of its subtests, which were reported before it
        case "failed":
            outcome = "failed" if when == "call" else "error"
            folded.failures.append(_failure(event, event.raised, when, subtest))
            folded.outcomes[name] = outcome
        case "skipped":
            folded.skipped.append(_skip_of(event, f"{name} {subtest}".rstrip()))
            folded.outcomes[name] = before if before == "failed" else outcome
        case "passed" if when == "call" and not (before == "failed" or (event.xfail and before == "xfailed")):
            folded.outcomes[name] = "xpassed" if event.xfail else "passed"
    if subtest and event.outcome != "passed":
        folded.subtests[f"{name} {subtest}"] = outcome
    if when == "teardown":
        folded.ended.add(name)


def _untrusted_outcome(folded: PytestReport, event: _Test) -> str | None:
    """Return why an outcome cannot be trusted: code under test can replace pytest's hooks and change outcomes."""
    if event.id not in folded.outcomes:
        return f"{event.id} ran and was never collected"
    if not event.made:
        return f"the outcome of {event.id} was not made by pytest"
    if "." in event.made:
        return f"`{event.made}` was replaced, so that its tests may not have run"
    changed = event.made == "failed" and event.outcome != "failed"
    if changed or (event.outcome == "passed" and event.raised and not event.xfail):
        return f"{event.id} raised {event.raised or 'an error'}, and its outcome was changed to {event.outcome}"
    return None


# A frame in the short form: its place, then its lines, which are indented.
_SHORT_FRAME = lazy_pattern(r"(\S[^\n]{0,1000}?):\d+: in \S.*")
# The end of a frame in the long form: its lines come before it.
_END_OF_FRAME = lazy_pattern(r"(\S[^\n]{0,1000}?):\d+: ?[\w.]*")
_BETWEEN_FRAMES = lazy_pattern(r"(?:_ )+_? ?")
_LIBRARY = ("/python/", "<frozen ")
_ERROR_LINE = "E  "
_ADVICE = "Hint: make sure your test modules/packages have valid Python names."
_NAMED, _NAMED_SUBTESTS = 3, 20
_WHERE = lazy_pattern(r"\+ +(?:where|and) ")


def without_library_frames(text: str) -> str:
    """Return a normalised traceback without the frames of the library; all of it if it has no other frame or error.

    A text without such frames stays as it is: the prompts of retries have it, and recorded responses are found by them.
    """
    if not any(mark in text for mark in _LIBRARY):
        return text
    kept = [line for line in _kept(text.split("\n")) if line != _ADVICE]
    if not any(line.startswith(_ERROR_LINE) or _END_OF_FRAME.fullmatch(line) for line in kept):
        return text
    lines: list[str] = []
    for line in kept:
        # No mark at the beginning, and one between two frames. No two empty lines.
        if _BETWEEN_FRAMES.fullmatch(line) and (not lines or _BETWEEN_FRAMES.fullmatch(lines[-1])):
            continue
        if line.startswith(_ERROR_LINE) and lines and _BETWEEN_FRAMES.fullmatch(lines[-1]):
            lines.pop()  # of a frame of the library, only its error is left
        if line or (lines and lines[-1]):
            lines.append(line)
    while lines and (not lines[-1] or _BETWEEN_FRAMES.fullmatch(lines[-1])):
        lines.pop()
    return "\n".join(lines)


def _kept(lines: list[str]) -> Iterator[str]:
    frame: list[str] = []
    skips = False
    for line in lines:
        if found := _SHORT_FRAME.fullmatch(line):
            yield from frame
            frame = []
            skips = found[1].startswith(_LIBRARY)
            if not skips:
                yield line
        elif skips and line.startswith(" "):
            continue
        elif _BETWEEN_FRAMES.fullmatch(line):
            yield from (*frame, line)
            frame, skips = [], False
        elif (found := _END_OF_FRAME.fullmatch(line)) and not line.startswith(_ERROR_LINE):
            is_library = found[1].startswith(_LIBRARY)
            yield from (one for one in (*frame, line) if not is_library or one.startswith(_ERROR_LINE))
            frame, skips = [], False
        else:
            frame.append(line)
            skips = False
    yield from frame


def error_text(error: str, text: str) -> str:
    """Return the error of a traceback in one line: `AssertionError: assert 3 == 2`.

    `error` is the name of its class. The last such error counts: those before it are its causes.
    """
    lines = [line[1:].strip() for line in text.splitlines() if line.startswith(_ERROR_LINE)]
    named = [line for line in lines if line.partition(":")[0].rpartition(".")[2].strip() == error]
    if named:
        line = named[-1]
        return line[line.index(error) :].strip()
    asserted = next((line for line in lines if line.startswith("assert ")), "")
    return f"{error}: {asserted}" if asserted else error


class FailureGroup(Struct, frozen=True):
    """Failures with one cause: the ids of their tests, sorted, and the failure that describes them."""

    tests: tuple[str, ...]
    first: ReportedFailure

    def text(self) -> str:
        """Return the group as text: its tests, and the text of its first failure."""
        failure = self.first
        head = f"{failure.name} ({failure.when}): {failure.error}"
        shown = without_library_frames(failure.text)
        if others := self.tests[1:]:
            named = join_first(others, _NAMED_SUBTESTS if failure.subtest else _NAMED)
            head = f"{len(self.tests)} tests with this cause: {head}\nlikewise {named}"
        return f"{head}\n{shown}".rstrip()

    @property
    def error(self) -> str:
        """The error of all of its tests in one line: `AssertionError: assert 3 == 2`."""
        return error_text(self.first.error, self.first.text)


def group_failures(failures: Iterable[ReportedFailure]) -> tuple[FailureGroup, ...]:
    """Return the groups, the largest first, then by the name of their first test.

    Two failures have one cause if they raised the same error with the same message, or with the same last line of its
    explanation, or at the same line: a line of the tested code, or of one test with other parameters. A line of a test
    helper does not count.
    """
    ordered = sorted(failures, key=lambda one: (one.name, one.when))
    groups: list[list[ReportedFailure]] = []
    known: dict[tuple[str, ...], list[ReportedFailure]] = {}
    for failure in ordered:
        causes = _causes(failure)
        mine = next((known[cause] for cause in causes if cause in known), None)
        if mine is None:
            mine = []
            groups.append(mine)
        mine.append(failure)
        for cause in causes:
            known.setdefault(cause, mine)
    found = [FailureGroup(tuple(dict.fromkeys(one.name for one in group)), group[0]) for group in groups]
    return tuple(sorted(found, key=lambda group: (-len(group.tests), group.tests[0], group.first.when)))


def _causes(failure: ReportedFailure) -> Sequence[tuple[str, ...]]:
    """Return what two failures with one cause share: the message of an error, its line; else the whole text."""
    path = failure.place.rpartition(":")[0]
    lines = [line for line in failure.text.splitlines() if line.startswith(_ERROR_LINE)]
    causes: list[tuple[str, ...]] = [("message", failure.error, "\n".join(lines))] if lines else []
    explained = [line[1:].strip() for line in lines]
    # Where the values come from (`where 3 = count('a b')`), or the last of errors that led to each other.
    if explained[1:] and all(map(_WHERE.match, explained[1:])):
        causes.append(("where", failure.error, *explained[1:]))
    elif explained and explained[-1].partition(":")[0].rpartition(".")[2] == failure.error:
        causes.append(("last", failure.error, explained[-1]))
    if path:
        test = (id_without_parameters(failure.test),) if is_test_file(path) else ()
        causes.append(("place", failure.error, failure.place, *test))
    return causes or [("text", failure.error, failure.text)]
