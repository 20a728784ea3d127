"""A build as JUnit XML: a test case a stage, in the form that CI servers read."""

from xml.etree import ElementTree as ET

from orch23.features.exports.document_sink import DocumentSink
from orch23.features.exports.junit import junit_text
from orch23.model.event import Event, parse_event
from orch23.report.formats import sink_observer


def document(*events: Event) -> ET.Element:
    written: list[str] = []
    report = sink_observer(DocumentSink("de\x1bmo", written.append, junit_text), float)
    for event in (parse_event("run_started", "", data={"run_id": "r1"}), *events):
        report.notice(event)
    assert written == []
    report.notice(parse_event("run_finished", "", data={"status": "failed"}))
    (text,) = written
    return ET.fromstring(text)


def ended(name: str, status: str, message: str = "", **data: object) -> Event:
    return parse_event("stage_finished", message, name, data={"status": status, **data})


def test_a_forgiven_test_is_a_skipped_case() -> None:
    suite = document(ended("a", "built", forgiven=["t.py::test_old"]), ended("b", "built"))[0]
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["3", "0", "1"]
    case = suite[2]
    assert (case.get("classname"), case.get("name"), [child.tag for child in case]) == (
        "a",
        "t.py::test_old",
        ["skipped"],
    )
    assert case[0].get("message") == "known failure, allowed by `may_fail`"


def test_each_stage_is_a_case_and_how_it_ended_is_counted() -> None:
    suite = document(
        ended("a", "built", duration_s=1.5),
        ended("b", "fresh"),
        ended("c", "failed", "exited with 3\nmore", failure="$ make\nno rule", kind="exception", duration_s=0.25),
        ended("d", "edited", "edited by hand: d.txt"),
        ended("e", "blocked", "blocked by c"),
        ended("f", "skipped", "`if` is false"),
    )[0]
    assert suite.attrib == {
        "name": "de\\x1bmo",
        "id": "r1",
        "tests": "6",
        "failures": "2",
        "errors": "0",
        "skipped": "2",
        "time": "1.750",
    }
    assert [(case.get("name"), [child.tag for child in case]) for case in suite] == [
        ("a", []),
        ("b", []),
        ("c", ["failure"]),
        ("d", ["failure"]),
        ("e", ["skipped"]),
        ("f", ["skipped"]),
    ]
    failure = suite[2][0]
    assert (failure.get("message"), failure.get("type"), failure.text) == (
        "exited with 3",
        "exception",
        "$ make\nno rule",
    )
    assert suite[3][0].text == "edited by hand: d.txt"


def test_a_stage_that_ended_twice_is_reported_as_it_ended_last() -> None:
    suite = document(ended("a", "failed", "no"), ended("a", "built"))[0]
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")


def test_characters_that_xml_forbids_are_replaced() -> None:
    failure = document(ended("a", "failed", "x", failure="nul \x00 escape \x1b half \ud800 <tag> & \uffff"))[0][0][0]
    assert failure.text is not None
    assert "\x00" not in failure.text
    assert "<tag> &" in failure.text


def test_each_failed_test_is_a_case_of_its_stage() -> None:
    place = {"file": "t.js", "line": 7, "column": 1}
    problems = [
        {"code": "E301", "message": "failed: no", "subject": "sum", "location": place},
        {"code": "E301", "message": "3 more tests failed"},
        {"code": "E305", "message": "was skipped", "subject": "other"},
    ]
    suite = document(ended("a", "failed", "sum: no", problems=problems), ended("b", "built", problems=problems))[0]
    assert (suite.get("tests"), suite.get("failures")) == ("3", "2")
    case = suite[2]
    assert (case.get("classname"), case.get("name"), case.get("file"), case.get("line")) == ("a", "sum", "t.js", "7")
    assert (case[0].tag, case[0].get("message")) == ("failure", "failed: no")
