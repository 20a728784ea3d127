"""Read the report of orch23's pytest plugin, and collect its events."""

from collections.abc import Iterator
from typing import TypeAlias, assert_never

from msgspec import Struct, ValidationError, convert, field

from orch23.decide.excerpt import normalise
from orch23.decide.pytest_discovery import id_without_parameters
from orch23.model.parsing import parse_json

NOT_RUN = "not run"


class ReportedFailure(Struct, frozen=True):
    """A test that failed: its error, the place of it, the shortened text, and the phase (`when`)."""

    test: str
    error: str
    place: str
    text: str
    when: str


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


class _Collect(Struct, frozen=True, tag_field="event", tag="collect", forbid_unknown_fields=True):
    """A module or another collector that did not pass."""

    id: str
    outcome: str
    error: str = ""
    place: str = ""
    reason: str = ""
    module: str = ""
    text: str = ""


class _Test(Struct, frozen=True, tag_field="event", tag="test", forbid_unknown_fields=True):
    """A phase of a test. `made` is the outcome that pytest gave it, `outcome` what it was at the end."""

    id: str
    when: str
    outcome: str
    made: str = ""
    raised: str = ""
    xfail: bool = False
    place: str = ""
    reason: str = ""
    module: str = ""
    text: str = ""


class _Foreign(Struct, frozen=True, tag_field="event", tag="foreign", forbid_unknown_fields=True):
    """Modules that came from elsewhere: their names and files."""

    modules: tuple[tuple[str, str], ...]


class _Finish(Struct, frozen=True, tag_field="event", tag="finish", forbid_unknown_fields=True):
    status: int


class _Forged(Struct, frozen=True, tag_field="event", tag="forged", forbid_unknown_fields=True):
    """Put there by the reader of the report: a line that the plugin did not write."""

    line: int


class _TooLong(Struct, frozen=True, tag_field="event", tag="too_long", forbid_unknown_fields=True):
    """Put there by the reader of the report: it is over a limit of bytes."""

    limit: int


_Event: TypeAlias = _Start | _Collected | _Deselected | _Collect | _Test | _Foreign | _Finish | _Forged | _TooLong
"""A line of a report, as `orch23_reporter` and `report_channel` write it."""


class PytestReport(Struct):
    """The lines of a report, folded."""

    begun: bool = False
    status: int | None = None
    broken: str | None = None
    collected: list[str] = field(default_factory=list)
    deselected: set[str] = field(default_factory=set)
    outcomes: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    failures: list[ReportedFailure] = field(default_factory=list)
    skipped: list[ReportedSkip] = field(default_factory=list)
    skipped_modules: list[ReportedSkip] = field(default_factory=list)
    foreign: list[tuple[str, str]] = field(default_factory=list)


def read_report(report: bytes | None) -> PytestReport:
    """Return what the lines of a report say together. Without a report nothing ran."""
    folded = PytestReport()
    for event in _events(report, folded):
        if folded.status is not None and not isinstance(event, _Forged | _TooLong):
            folded.broken = "it goes on after its end"
            break
        _take(folded, event)
    return folded


def _events(report: bytes | None, folded: PytestReport) -> Iterator[_Event]:
    for line in (report or b"").split(b"\n"):
        if not line:
            continue
        try:
            # Texts of tests may hold halves of surrogate pairs: names of files that are not UTF-8, for one.
            yield convert(parse_json(line, max_bytes=None, lone_surrogates=True), _Event)
        except ValueError as error:
            why = str(error) if isinstance(error, ValidationError) else "no JSON"
            folded.broken = f"a line of it is not valid: {why}"
            return


def _take(folded: PytestReport, event: _Event) -> None:  # noqa: C901 - one a kind of event
    match event:
        case _Start():
            if folded.begun:
                folded.broken = "it begins twice"
            folded.begun = True
        case _Collected(ids):
            new = [name for name in ids if name not in folded.outcomes]
            folded.collected.extend(new)
            folded.outcomes.update(dict.fromkeys(new, NOT_RUN))
        case _Deselected(ids):
            folded.deselected.update(map(id_without_parameters, ids))
        case _Collect():
            _take_collect(folded, event)
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


def _take_collect(folded: PytestReport, event: _Collect) -> None:
    if event.outcome == "failed":
        folded.failures.append(_failure(event, event.error, "collect"))
    else:
        folded.skipped_modules.append(_skip_of(event))


def _skip_of(event: _Collect | _Test) -> ReportedSkip:
    return ReportedSkip(event.id, event.place, " ".join(normalise(event.reason).split()), event.module)


def _failure(event: _Collect | _Test, error: str, when: str) -> ReportedFailure:
    return ReportedFailure(event.id, error or "Failed", event.place, normalise(event.text), when)


def _take_test(folded: PytestReport, event: _Test) -> None:
    name, when, outcome = event.id, event.when, event.outcome
    if name not in folded.outcomes:
        folded.broken = f"{name} was never collected, and yet it ran"
    elif not event.made:
        folded.broken = f"the outcome of {name} was not made by pytest"
    elif event.made == "failed" != outcome or (outcome == "passed" and event.raised and not event.xfail):
        folded.broken = f"{name} raised {event.raised or 'an error'}, and its outcome was changed to {outcome}"
    if outcome == "failed":
        folded.failures.append(_failure(event, event.raised, when))
        folded.outcomes[name] = "failed" if when == "call" else "error"
    elif outcome == "skipped":
        folded.outcomes[name] = "xfailed" if event.xfail else "skipped"
        folded.skipped.append(_skip_of(event))
    elif when == "call" and outcome == "passed":
        folded.outcomes[name] = "xpassed" if event.xfail else "passed"
    if when == "teardown":
        folded.ended.add(name)
