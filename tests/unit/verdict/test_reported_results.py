"""Reports of real runners (`tests/golden/reports`), and broken ones: the verdict, and the tests that it names."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orch23.verdict.reported_results import judge_results, own_format, read_reports
from orch23.verdict.verdict import Verdict

REPORTS = Path(__file__).parents[2] / "golden" / "reports"
FORMS = {".tap": "tap", ".xml": "junit", ".json": "go", ".txt": "regex", ".sarif": "sarif"}
FILES = (
    "t.test.js",
    "t.test.mjs",
    "s.js",
    "sub.go",
    "sub_test.go",
    "t.bats",
    "t.cc",
    "test_a.py",
    "sub.c",
    "lib.rs",
    "SubTest.java",
)
CARGO = "^test (?P<id>.+) [.]{3} (?P<outcome>.+)"


def judged(form: str, text: str, exit_code: int = 0, least: int = 0) -> Verdict:
    results = read_reports(form, {"": text}, pattern=CARGO)
    return judge_results(exit_code, results, "the output", FILES, least)


def of_runner(name: str) -> Verdict:
    value = json.loads((REPORTS / f"{name}.json").read_text())
    return judged(FORMS[Path(name).suffix], "\n".join(value["report"]), value["exit_code"])


def named(verdict: Verdict) -> list[str]:
    """Return each failed test with its place; of an error that names no test, the code."""
    named = [one for one in verdict.diagnostics if one.subject]
    places = [
        f"{one.subject} @{one.location.file}:{one.location.line}" if one.location else one.subject for one in named
    ]
    return [str(one) for one in places] + [one.code for one in verdict.diagnostics if not one.subject]


VERDICTS: dict[str, Sequence[str]] = {
    "node-test-red.tap": ["subtract > small numbers @t.test.js:4"],
    # The runner says that the file passed. Only the number of tests shows that one ended it.
    "node-test-exit.tap": [],
    "node-test-alone-exit.tap": ["E308"],
    "node24-test-red.tap": ["subtract > small numbers @t.test.js:4"],
    "node24-test-exit.tap": [],
    "node24-test-alone-exit.tap": ["E308"],
    "node-test-long.tap": ["a @t.test.js:4"],
    "tape-long.tap": ["a > should be deeply equivalent @t.test.js:4"],
    "tape-red.tap": ["small numbers > should be strictly equal @t.test.js:3"],
    "tape-green.tap": [],
    "tape-exit.tap": ["zero > test exited without ending: zero @t.test.js:4"],
    "ava-red.tap": ["small numbers"],
    # The plan is 1..3, and there are four results.
    "ava-extra.tap": ["Error: later @t.test.js:5", "small numbers", "t.test.js exited with a non-zero exit code: 1"],
    "ava-timeout.tap": ["E320"],
    "mocha-red.xml": ["subtract > small numbers @t.test.js:3"],
    # Two failed hooks, and skipped="-2".
    "mocha-hooks.xml": ['s > "after each" hook for "a" @t.test.js:2', 'u > "after all" hook for "a" @t.test.js:3'],
    # The first run of a test, which failed, is not in the report.
    "playwright-flaky.xml": [],
    "jest-red.xml": ["subtract small numbers @t.test.js:3"],
    "jest-exit.xml": ["E308"],
    "maven-red.xml": ["SubTest > smallNumbers @SubTest.java:4"],
    "vitest-flaky.xml": [],
    "cargo-red.txt": ["tests::small"],
    # Three failures in one case.
    "pytest-subtests.xml": ["test_a > test_cases @test_a.py:4"],
    # The first attempt, which failed, is a case without an outcome.
    "pytest-reruns.xml": [],
    "eslint-red.sarif": ["a.js:1 @a.js:1"],
    "eslint-suppressed.sarif": [],
    "eslint-syntax.sarif": ["a.js:1 @a.js:1"],
    "gtest-red.xml": ["Sub > Small @t.cc:5"],
    "gtest-green.xml": [],
    "gtest-exit.xml": ["E308"],
    "pytest-collection.xml": ["test_a @test_a.py:1"],
    "bats-red.tap": ["printed", "small numbers @t.bats:2"],
    "bats-printed.tap": ["printed"],
    "ctest-green.xml": [],
    "ctest-fail.xml": ["small @sub.c:3"],
    "ctest-missing-program.xml": ["small"],
    "ctest-failed-fixture.xml": ["setup", "small"],
    "go-green.json": [],
    "go-red.json": ["example.org/sub > TestSmall/one @sub_test.go:4"],
    "go-no-newline.json": [],
    "go-printed.json": [],
    # gotestsum takes a printed line for a test; in `go test -json`, it is seen that none of this name began.
    "gotestsum-printed.xml": ["example.org/sub > TestOther"],
    "go-does-not-compile.json": ["example.org/sub @sub_test.go:5"],
    "go-exit.json": ["example.org/sub > TestZero @sub_test.go:5"],
    "ruff-red.sarif": ["a.py:1 @a.py:1", "a.py:2 @a.py:2"],
    "ruff-green.sarif": [],
    "ruff-syntax.sarif": ["a.py:2 @a.py:2"],
}


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_the_verdict_on_what_a_real_runner_reported(name: str) -> None:
    verdict = of_runner(name)
    assert (named(verdict), verdict.passed) == (VERDICTS[name], not VERDICTS[name]), verdict


def test_every_report_has_a_verdict() -> None:
    assert {path.stem for path in REPORTS.glob("*.json")} == VERDICTS.keys()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("tape-long.tap", ["name_17: { value: 17000 ...", "name_17: { value: 3 ..."]),
        ("node-test-long.tap", ["name_17:\n    value: 17000\n...", "+     value: 3\n  -     value: 17000"]),
    ],
)
def test_of_two_long_values_only_what_differs_is_shown(name: str, shown: list[str]) -> None:
    excerpt = of_runner(name).excerpt
    assert [one for one in shown if one not in excerpt] == [], excerpt
    assert "name_30" not in excerpt
    assert len(excerpt) < 1_500


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("maven-red.xml", "\tat SubTest.smallNumbers(SubTest.java:4)"),
        ("jest-red.xml", "    at Object.strictEqual (t.test.js:3:65)"),
        ("tape-red.tap", "        at Test.<anonymous> (t.test.js:3:34)"),
        ("node24-test-red.tap", "  TestContext.<anonymous> (t.test.js:4:63)"),
    ],
)
def test_of_a_stack_trace_the_frames_of_the_project_are_shown(name: str, frame: str) -> None:
    lines = of_runner(name).excerpt.splitlines()
    assert lines[-1] == frame
    assert [line for line in lines if "junit." in line or "node:" in line or "node_modules" in line] == []


def test_a_stack_trace_without_a_frame_of_the_project_stays() -> None:
    trace = "\tat org.junit.A.b(A.java:1)\n\tat java.base/java.util.C.d(C.java:2)"
    failure = f"<failure message='x'>{trace}</failure>"
    excerpt = judged("junit", f"<testsuite><testcase name='a'>{failure}</testcase></testsuite>").excerpt
    assert trace in excerpt


def test_the_error_of_node_names_the_lines_that_differ() -> None:
    assert (
        of_runner("node-test-long.tap").error == "Expected values to be strictly deep-equal: + value: 3 - value: 17000"
    )


CASE = '<testcase classname="a" name="b"/>'


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("junit", "", ["E308"]),
        ("junit", "<testsuite>", ["E308"]),
        ("junit", "<testsuite/>", ["E305"]),
        ("junit", f'<testsuite failures="1">{CASE}</testsuite>', ["E308"]),
        ("junit", f'<testsuite tests="9" skipped="-2">{CASE}</testsuite>', []),
        ("junit", f'<!DOCTYPE x [<!ENTITY e "x">]><testsuite>{CASE}</testsuite>', ["E308"]),
        ("junit", f"<a>{'<b>' * 200}", ["E308"]),
        ("junit", '<testsuite><testcase name="a"><skipped/></testcase></testsuite>', ["E305"]),
        (
            "junit",
            "<testsuite><testcase name='a'><failure>x</failure><failure>y</failure></testcase></testsuite>",
            ["a"],
        ),
        ("junit", "<testsuite><testcase name='a'><flakyFailure>x</flakyFailure></testcase></testsuite>", []),
        ("tap", "", ["E308"]),
        ("tap", "TAP version 13\nok 1 a\n", ["E308"]),
        ("tap", "TAP version 13\n1..3\nok 1 a\nok 2 b\n", ["E308"]),
        ("tap", "TAP version 13\n1..1\nok 1 a\nok 2 b\n", []),
        ("tap", "TAP version 13\n1..0 # skip none\n", ["E305"]),
        ("tap", "TAP version 13\n1..1\nok 1 a\nBail out! no disk\n", ["E308"]),
        ("tap", "1..2\nnot ok 1 a # TODO later\nok 2 b # SKIP no\n", ["E305"]),
        ("tap", "1..2\nok 1 a \\# TODO\nnot ok 2 a \\# TODO\n", ["a # TODO (2)"]),
        ("tap", "1..2\nok 1 - a {\n    not ok 1 - x\n    1..1\n}\nok 2\n", ["#2 > x"]),
        ("go", "", ["E305"]),
        ("go", "not JSON\n" + "[" * 100_000, ["E305"]),
        ("go", '{"Action":"run","Package":"p","Test":"T"}\n{"Action":"pass","Package":"p","Test":"T"}', ["E308"]),
        ("sarif", "", ["E308"]),
        ("sarif", "{}", ["E308"]),
        ("sarif", "[" * 1_000, ["E308"]),
        ("sarif", '{"runs": [{"results": [7, {"message": 7, "locations": 7}], "tool": null}]}', []),
        ("sarif", '{"runs": [{"invocations": [{"executionSuccessful": false}]}]}', ["E308"]),
        ("regex", "nothing", ["E305"]),
        ("regex", "test a ... ok\ntest b ... unheard of", ["b"]),
    ],
)
def test_what_is_not_whole_is_red_and_numbers_alone_prove_nothing(form: str, text: str, expected: list[str]) -> None:
    verdict = judged(form, text)
    assert (named(verdict), verdict.passed) == (expected, not expected), verdict


def test_a_green_report_with_another_exit_code_is_red_and_shows_the_output() -> None:
    verdict = judged("junit", f"<testsuite>{CASE}</testsuite>", 7)
    assert named(verdict) == ["E320"]
    assert "the output" in verdict.excerpt


@pytest.mark.parametrize(
    ("form", "text"), [("junit", "<testsuite>"), ("tap", "> nyc tape\n"), ("sarif", ""), ("regex", "")]
)
def test_a_program_that_failed_before_any_test_is_not_called_untrustworthy(form: str, text: str) -> None:
    """Its output has the cause: a program that cannot write its cache, a setting that is missing."""
    verdict = judged(form, text, 1)
    assert named(verdict) == ["E320"]
    assert verdict.excerpt.startswith("error[E320]: exited with 1 before any result")
    assert "the output" in verdict.excerpt


def test_failures_without_a_message_are_one_part_with_their_names() -> None:
    lines = [f"test k::t{number} ... FAILED" for number in range(11)]
    verdict = judged("regex", "\n".join((*lines, "test x ... ok", "panicked at src/a.rs:3:1")), 101)
    names = ", ".join(sorted(f"k::t{number}" for number in range(11)))
    assert verdict.parts == (f"failed: {names}", "panicked at src/a.rs:3:1")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("test a ... FAILED", "failed: a"),
        ("--- FAILED: a (0.00s)", "failed: a"),
        ("test a ... FAILED at t.c:3", "a: test a ... FAILED at t.c:3"),
        ("test a ... FAILED it takes too long", "a: test a ... FAILED it takes too long"),
    ],
)
def test_a_line_is_the_message_if_it_says_more_than_name_and_outcome(line: str, shown: str) -> None:
    pattern = r"(?:test |--- FAILED: )?(?P<id>\w+)[.() 0-9s]*(?P<outcome>(?:FAILED)?)"
    results = read_reports("regex", {"": line}, pattern=pattern)
    assert judge_results(1, results, "the output", FILES).parts[0] == shown


def test_fewer_tests_than_before_are_red() -> None:
    text = f"<testsuite>{CASE}{CASE.replace('b', 'c')}</testsuite>"
    assert judged("junit", text, least=2).passed
    assert named(judged("junit", text, least=3)) == ["E305"]
    again = f"<testsuite>{CASE}{CASE}</testsuite>"
    assert named(judged("junit", again, least=2)) == ["E305"], "a test that ran twice is one test"


def test_equal_findings_are_one_part_with_their_places() -> None:
    def finding(line: int) -> dict[str, Any]:
        place = {"artifactLocation": {"uri": "file:///room/work/s/a.py"}, "region": {"startLine": line}}
        message = {"text": "too long"}
        return {"ruleId": "E1", "level": "error", "message": message, "locations": [{"physicalLocation": place}]}

    results = [*map(finding, range(1, 81)), {"level": "note", "message": {"text": "x"}}]
    verdict = judged("sarif", json.dumps({"runs": [{"results": results}]}))
    assert verdict.headline == "80 findings, 1 note"
    assert len(verdict.parts) == 1
    assert verdict.parts[0].startswith("80 findings with this cause: s/a.py:1: E1 too long\nlikewise s/a.py:10")


@pytest.mark.parametrize("text", ["TAP version 13\n", "\n> p@1.0.0 test\n> tape t.js\n\nTAP version 13\nok 1\n"])
def test_tap_is_read_without_a_key_only_at_the_beginning(text: str) -> None:
    assert own_format(text) == "tap"
    assert own_format(f"something\n{text}") == ""
    assert own_format("TAPestry") == own_format('{"Action": "run"}') == own_format("") == ""
    assert own_format('{"Time":"x","Action":"start","Package":"p"}\n') == "go"


MANY = 500
REPORTS_OF_MANY = {
    "junit": ("".join(f'<testcase classname="a" name="{n}" time="0"/>\n' for n in range(MANY)), 4),
    "tap": ("".join(f"ok {n} - a\n" for n in range(MANY)), 7),
    "go": (
        "".join(
            f'{{"Action":"{action}","Package":"p","Test":"T{n}"}}\n' for n in range(MANY) for action in ("run", "pass")
        ),
        5,
    ),
}


@pytest.mark.parametrize("form", sorted(REPORTS_OF_MANY))
def test_a_passed_test_of_a_report_takes_few_calls(form: str) -> None:
    """A runner takes 0.1 ms for an empty test, and reading its result may take 5 % of that."""
    tests, most = REPORTS_OF_MANY[form]
    text = {"junit": f"<testsuite>{tests}</testsuite>", "tap": f"TAP version 13\n{tests}1..{MANY}"}.get(form, tests)
    judged(form, text)  # what is imported and compiled is so
    calls = 0

    def note(_frame: object, event: str, _more: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        judged(form, text)
    finally:
        sys.setprofile(before)
    assert calls / MANY < most + 0.5
