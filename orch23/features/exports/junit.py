"""Write a build as JUnit XML: to stdout as the output format `junit`, to a file with `--junit`."""

import re
from typing import Final
from xml.etree import ElementTree as ET

from orch23.features.exports.document_sink import document
from orch23.model.event import FinishedStage
from orch23.model.event_data import LikelyCause
from orch23.model.run_facts import EndedRun
from orch23.model.text import visible
from orch23.report.failures import cause_name, failed_tests, yaml_line
from orch23.report.formats import Fanout, Format, sink_observer
from orch23.report.live import PLAIN

# Characters that XML 1.0 forbids, also as an escape: a parser would reject the whole report.
_ILLEGAL: Final = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_text(name: str, run: EndedRun) -> str:
    """Return a run as JUnit XML: a case for each stage, and one for each failed or forgiven test of a stage."""
    ends, failures = run.stages, len(run.failures)
    tests = [(end.name, one, "failure") for end in run.failures for one in failed_tests(end.data)]
    tests += [(end.name, one, "flakyFailure") for end in ends for one in run.facts.stages[end.name].flaky.values()]
    known = [(end.name, one) for end in ends for one in end.data.forgiven or ()]
    suite = ET.Element(
        "testsuite",
        name=_legal(name),
        id=run.run_id,
        tests=str(len(ends) + len(tests) + len(known)),
        failures=str(failures + [kind for *_, kind in tests].count("failure")),
        errors="0",
        skipped=str(sum(not end.status.has_result for end in ends) - failures + len(known)),
        time=f"{sum(end.data.duration_s or 0.0 for end in ends):.3f}",
    )
    for end in ends:
        _add_stage(suite, name, end)
    for stage, test, kind in tests:
        case = _add_case(suite, stage, test.subject or "")
        outcome = ET.SubElement(case, kind, message=_legal(test.message), type="test")
        if kind == "flakyFailure":  # required by the schema of Surefire
            ET.SubElement(outcome, "stackTrace").text = _legal(test.message)
        if test.location:
            case.set("file", _legal(test.location.file))
            case.set("line", str(test.location.line))
    for stage, test_id in known:
        ET.SubElement(_add_case(suite, stage, test_id), "skipped", message="known failure, allowed by `may_fail`")
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _add_case(suite: ET.Element, group: str, name: str, duration_s: float | None = None) -> ET.Element:
    time = f"{duration_s or 0.0:.3f}"
    return ET.SubElement(suite, "testcase", classname=_legal(group), name=_legal(name), time=time)


def _add_stage(suite: ET.Element, name: str, end: FinishedStage) -> None:
    case = _add_case(suite, name, end.name, end.data.duration_s)
    first = _legal(end.message.partition("\n")[0])
    if end.status.is_failure:
        failure = ET.SubElement(case, "failure", message=first, type=end.data.failure_kind or end.status.value)
        cause = f"\n{cause_name(end.data.cause)}: {_cause_summary(end.data.cause)}" if end.data.cause else ""
        failure.text = _legal(f"{end.data.failure or end.message}{cause}")
    elif not end.status.has_result:
        ET.SubElement(case, "skipped", message=first or end.status.value)


def _cause_summary(cause: LikelyCause) -> str:
    """Return a cause with its change in one text, where there is no place for an excerpt."""
    key = f"; write `{yaml_line(cause)}`" if cause.key else ""
    return f"{cause.text}{key}{f' ({cause.hint})' if cause.hint else ''}"


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", "\n".join(map(visible, text.split("\n"))))


junit_document = document(junit_text)
JUNIT = Format(make=lambda view: Fanout(PLAIN.make(view), sink_observer(junit_document(view), view.clock)))
