"""Read the report of orch23's pytest plugin."""

from collections.abc import Iterator
from typing import TypeAlias, assert_never

from msgspec import Struct, ValidationError, convert, field

from orch23.model.parsing import parse_json
from orch23.text.excerpt import normalise
from orch23.verdict.pytest_discovery import id_without_parameters
from orch23.verdict.run_results import NOT_RUN, ReportedFailure, ReportedSkip, RunResults


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


class PytestReport(RunResults):
    """The state after all lines of a report of pytest."""

    begun: bool = False
    status: int | None = None
    collected: list[str] = field(default_factory=list)
    deselected: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
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
