"""The verdict over pytest's report, as a pure function of it."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.verdict.pytest_discovery import id_without_parameters
from orch23.verdict.verdict import Verdict, judge_failing, judge_pytest, report_json

X, Y = "test_a.py::test_x", "test_a.py::test_y"


def reported(name: str, when: object = "call", outcome: object = "passed", **more: object) -> dict[str, object]:
    event = {"event": "test", "id": name, "when": when, "outcome": outcome, "made": outcome, "raised": ""}
    return {**event, "place": "", "text": "", "xfail": False, **more}


def passed(name: str) -> list[dict[str, object]]:
    return [reported(name), reported(name, "teardown")]


def failed(name: str, **more: object) -> list[dict[str, object]]:
    fields: dict[str, object] = {"raised": "AssertionError", "place": "test_a.py:3", "text": "assert 1 == 2", **more}
    return [reported(name, outcome="failed", **fields), reported(name, "teardown")]


def skipped(name: str, place: str = "test_a.py:3", **more: object) -> list[dict[str, object]]:
    fields: dict[str, object] = {"raised": "Skipped", "place": place, **more}
    return [reported(name, "setup", "skipped", **fields), reported(name, "teardown")]


def report(*events: Mapping[str, object], ids: tuple[str, ...] = (X, Y), status: int = 0) -> bytes:
    whole: list[Mapping[str, object]] = [
        {"event": "start", "pytest": "8"},
        {"event": "collected", "ids": list(ids)},
        *events,
    ]
    return lines(*whole, {"event": "finish", "status": status})


def lines(*events: Mapping[str, object]) -> bytes:
    return b"".join(json.dumps(e).encode() + b"\n" for e in events)


GREEN = report(*passed(X), *passed(Y))


def codes(verdict: Verdict) -> list[str]:
    return [d.code for d in verdict.diagnostics]


def test_green() -> None:
    verdict = judge_pytest(0, GREEN, {X, Y}, "2 passed in 0.01s")
    assert verdict == Verdict(passed=True, counts={"passed": 2}, tests={X: "passed", Y: "passed"})


def test_red_names_test_error_place_and_text() -> None:
    verdict = judge_pytest(1, report(*passed(X), *failed(Y), status=1), {X, Y}, "")
    assert not verdict.passed
    assert verdict.failing == (f"{Y} AssertionError",)
    assert str(verdict.diagnostics[0]) == f"test_a.py:3:1: error[E301]: {Y}: failed with AssertionError"
    assert verdict.counts == {"failed": 1, "passed": 1}
    assert "assert 1 == 2" in verdict.excerpt


def test_half_of_a_surrogate_pair_in_a_failure_is_reported() -> None:
    verdict = judge_pytest(1, report(*passed(X), *failed(Y, text="assert '\ud800'"), status=1), {X, Y}, "")
    assert codes(verdict) == ["E301"]
    assert "\ud800" in verdict.excerpt


def test_the_exit_code_alone_is_not_enough() -> None:
    assert codes(judge_pytest(0, None, {X}, "2 passed")) == ["E308"]
    assert codes(judge_pytest(0, b"", (), "2 passed")) == ["E308"]
    assert codes(judge_pytest(0, report(*passed(X), *failed(Y), status=1), {X, Y}, "")) == ["E308", "E301"]


def test_an_exit_code_without_a_report_is_no_forgery_but_a_failure() -> None:
    verdict = judge_pytest(4, None, {X}, "ERROR: unknown option --foo\n")
    assert codes(verdict) == ["E320"]
    assert "unknown option" in verdict.excerpt


def test_a_whole_report_with_another_exit_code_is_a_failure() -> None:
    assert codes(judge_pytest(3, GREEN, {X, Y}, "")) == ["E320"]


@pytest.mark.parametrize(
    "untrue",
    [
        lines({"event": "start"}, {"event": "collected", "ids": [X]}, *passed(X)),
        lines(*passed(X), {"event": "finish", "status": 0}),
        GREEN + lines(*passed(X)),
        GREEN + b"not json\n",
        GREEN + b"[1]\n",
        GREEN + lines({"event": "other"}),
        GREEN + b'{"event": "\\ud800"}\n',
        report(*passed(X), *passed(Y), reported(Y, "setup", outcome=0)),
        report(*passed(X), *passed(Y), reported(Y, "setup", more=1)),
        report(*passed(X), *passed(Y), {"event": "collected"}),
        report(*passed(X), *passed(Y), {"event": "foreign", "modules": [["one"]]}),
        GREEN.replace(b'"pytest": "8"}\n', b'"pytest": "8"}\n{"event": "start"}\n'),
        GREEN + lines({"event": "forged", "line": 7}),
        GREEN + lines({"event": "too_long", "limit": 1}),
        report(*passed(X), reported(Y)),
        report(*passed(X)),
        report(*passed(X), *passed(Y), *passed("test_a.py::test_z")),
        report(*passed(X), reported(Y, made="failed"), reported(Y, "teardown")),
        report(*passed(X), reported(Y, raised="AssertionError"), reported(Y, "teardown")),
        report(*passed(X), reported(Y, made=""), reported(Y, "teardown")),
        report(*passed(X), *skipped(Y, made="failed")),
        report(*passed(X), *passed(Y), status=1),
    ],
)
def test_a_report_that_cannot_be_believed(untrue: bytes) -> None:
    verdict = judge_pytest(0, untrue, {X}, "2 passed")
    assert not verdict.passed
    assert codes(verdict) == ["E308"]


def test_expected_tests_must_be_collected() -> None:
    verdict = judge_pytest(0, GREEN, {X, "test_a.py::test_z", "test_b.py::test_z"}, "")
    assert [(d.code, d.subject) for d in verdict.diagnostics] == [
        ("E305", "test_a.py::test_z"),
        ("E305", "test_b.py::test_z"),
    ]


def test_a_deselected_test_is_reported() -> None:
    only = lines(
        {"event": "start"},
        {"event": "deselected", "ids": [f"{Y}[1]"]},
        {"event": "collected", "ids": [X]},
        *passed(X),
        {"event": "finish", "status": 0},
    )
    verdict = judge_pytest(0, only, {X, Y}, "")
    assert [d.message for d in verdict.diagnostics] == ["was deselected"]


def test_an_expected_file_or_class_means_what_is_in_it() -> None:
    ids = ("test_a.py::TestK::test_x[1]",)
    assert judge_pytest(0, report(*passed(ids[0]), ids=ids), {"test_a.py::TestK", "test_a.py"}, "").passed
    assert not judge_pytest(0, report(*passed(ids[0]), ids=ids), {"test_a.py::TestKK"}, "").passed


def test_nothing_collected_and_all_skipped_are_failures() -> None:
    assert codes(judge_pytest(5, report(ids=(), status=5), (), "")) == ["E305"]
    assert codes(judge_pytest(0, report(ids=()), (), "")) == ["E305"]
    assert codes(judge_pytest(0, report(*skipped(X), *skipped(Y)), {X, Y}, "")) == ["E305"]


def test_a_skip_by_the_test_itself_is_its_own_affair_one_by_the_code_is_not() -> None:
    for place in ("test_a.py:3", "tests/conftest.py:9", ""):
        assert judge_pytest(0, report(*passed(X), *skipped(Y, place)), {X, Y}, "").passed
    verdict = judge_pytest(0, report(*passed(X), *skipped(Y, "todo/models.py:7")), {X, Y}, "")
    assert codes(verdict) == ["E305"]
    xfail = report(*passed(X), *skipped(Y, "todo/models.py:7", xfail=True))
    assert codes(judge_pytest(0, xfail, {X, Y}, "")) == ["E305"]


def skipped_module(name: str = "test_a.py", place: str = "test_a.py:2", **more: str) -> dict[str, object]:
    return {"event": "collect", "id": name, "outcome": "skipped", "place": place, "reason": "no server", **more}


B = "test_b.py::test_b"
OTHER = [*passed(B)]


def test_a_module_that_skips_itself_is_its_authors_decision() -> None:
    green = report(skipped_module(), *OTHER, ids=(B,))
    assert judge_pytest(0, green, {X, Y, B}, "").passed
    assert judge_pytest(0, green, {X, Y, B}, "", is_generated=lambda path: path == "test_b.py").passed
    made = judge_pytest(0, green, {X, Y, B}, "", is_generated=lambda path: path == "test_a.py")
    assert codes(made) == ["E305", "E305"]
    for place in ("todo/models.py:7", ""):
        verdict = judge_pytest(0, report(skipped_module(place=place), *OTHER, ids=(B,)), {X, Y, B}, "")
        assert codes(verdict) == ["E305", "E305"]
        assert {d.subject for d in verdict.diagnostics} == {X, Y}


@pytest.mark.parametrize("whole", [True, False])
def test_importorskip_counts_only_for_modules_that_no_stage_makes(*, whole: bool) -> None:
    one = [skipped_module(module="todo")] if whole else skipped(X, module="todo", reason="no todo")
    events = report(*one, *OTHER, ids=(B,) if whole else (X, B))
    assert judge_pytest(0, events, {X, B}, "", lambda _module: False).passed
    assert codes(judge_pytest(0, events, {X, B}, "", lambda module: module == "todo")) == ["E305"]


def test_a_run_that_fails_by_a_skip_reports_the_test_and_the_reason_without_the_summary() -> None:
    events = report(*passed(X), *skipped(Y, "todo/models.py:7", reason="Nah"))
    verdict = judge_pytest(0, events, {X, Y}, "1 passed, 1 skipped in 0.01s")
    assert Y in verdict.excerpt
    assert "at `todo/models.py:7`, which is not in a test file: Nah" in verdict.excerpt
    assert "1 passed" not in verdict.excerpt
    both = judge_pytest(0, report(*skipped(X, reason="later"), *skipped(Y)), {X, Y}, "2 skipped in 0.01s")
    assert f"{X} (later)" in both.excerpt
    assert "2 skipped" not in both.excerpt


def test_of_many_skips_the_first_are_named_and_the_others_counted() -> None:
    ids = tuple(f"test_a.py::test_{n}" for n in range(30))
    events = report(*OTHER, *(e for i in ids for e in skipped(i, "m.py:1")), ids=(B, *ids))
    verdict = judge_pytest(0, events, {B, *ids}, "")
    assert len(verdict.diagnostics) == 11
    assert verdict.diagnostics[-1].message == "20 more tests were skipped"


def test_an_expected_failure_counts_as_such() -> None:
    verdict = judge_pytest(0, report(*passed(X), *skipped(Y, xfail=True)), {X, Y}, "")
    assert (verdict.passed, verdict.counts) == (True, {"passed": 1, "xfailed": 1})


def test_errors_in_setup_teardown_and_collection() -> None:
    setup = reported(X, "setup", "failed", raised="ValueError")
    events = report(
        setup, reported(X, "teardown"), reported(Y), reported(Y, "teardown", "failed", raised="OSError"), status=1
    )
    verdict = judge_pytest(1, events, {X, Y}, "")
    assert verdict.failing == (f"{X} ValueError", f"{Y} OSError")
    assert verdict.counts == {"error": 2}
    collect = {"event": "collect", "id": "test_a.py", "outcome": "failed", "error": "ImportError", "text": "E   boom"}
    verdict = judge_pytest(2, report(collect, ids=(), status=2), {X, Y}, "")
    assert (codes(verdict), verdict.failing) == (["E301"], ("test_a.py ImportError",))


def test_a_module_from_elsewhere_fails_a_green_run() -> None:
    foreign = {"event": "foreign", "modules": [["todo", "/elsewhere/todo/__init__.py"]]}
    verdict = judge_pytest(0, report(*passed(X), *passed(Y), foreign), {X, Y}, "")
    assert [(d.code, d.subject) for d in verdict.diagnostics] == [("E307", "todo")]


def test_the_same_failure_gives_the_same_bytes() -> None:
    def red(address: str, seconds: str) -> Verdict:
        text = f"<f at 0x{address}> in /tmp/pytest-of-me/pytest-{address[-1]}/x took {seconds}s"
        return judge_pytest(1, report(*passed(X), *failed(Y, text=text), status=1), {X, Y}, f"in {seconds}s")

    assert red("7f00aa11", "0.12") == red("7f00bb12", "0.12")


def test_the_artifact_is_the_same_bytes_and_readable() -> None:
    red = judge_pytest(1, report(*passed(X), *failed(Y), status=1), {X, Y}, "1 failed in 0.33s")
    again = judge_pytest(1, report(*failed(Y), *passed(X), ids=(Y, X), status=1), {X, Y}, "1 failed in 7.00s")
    assert report_json(red) == report_json(again)
    assert json.loads(report_json(red))["tests"] == {X: "passed", Y: "failed"}
    assert report_json(red).endswith(b"}\n")


@given(st.binary())
def test_no_bytes_make_it_raise_or_pass(data: bytes) -> None:
    assert not judge_pytest(0, data, (), "").passed


@given(st.integers(0, 9))
def test_no_line_of_a_green_report_can_be_left_out(number: int) -> None:
    whole = GREEN.splitlines(keepends=True)
    if number < len(whole):
        assert not judge_pytest(0, b"".join(whole[:number] + whole[number + 1 :]), {X, Y}, "").passed


# ---- new tests, without the code that they test ---------------------------------------------------


def test_new_tests_pass_if_each_of_them_fails() -> None:
    in_setup = [reported(Y, "setup", "failed", raised="NotImplementedError"), reported(Y, "teardown")]
    verdict = judge_failing(1, report(*failed(X), *in_setup, status=1), {X, Y}, "2 failed")
    assert verdict.passed
    assert verdict.excerpt == ""
    assert verdict.counts == {"error": 1, "failed": 1}


INSTEAD = {
    "passed": (passed(Y), "passed without the code"),
    "was skipped": (skipped(Y), "was skipped without the code"),
    "is expected to fail": (
        [reported(Y, outcome="skipped", raised="AssertionError", xfail=True), reported(Y, "teardown")],
        "is marked as an expected failure",
    ),
    "passed although it is expected to fail": (
        [reported(Y, xfail=True), reported(Y, "teardown")],
        "passed without the code",
    ),
    "failed after its end alone": (
        [reported(Y), reported(Y, "teardown", "failed", raised="E")],
        "passed without the code",
    ),
    "was not run": ([], "was not run"),
}


@pytest.mark.parametrize("how", INSTEAD)
def test_a_new_test_that_does_not_fail_is_named(how: str) -> None:
    events, said = INSTEAD[how]
    verdict = judge_failing(1, report(*failed(X), *events, status=1), {X, Y}, "output")
    assert not verdict.passed
    assert [(d.code, d.subject) for d in verdict.diagnostics] == [("E322", Y)]
    assert said in verdict.diagnostics[0].message
    assert len(verdict.failing) == 1
    assert verdict.failing[0].startswith(Y)
    assert said in verdict.excerpt
    assert X not in verdict.excerpt


def test_each_case_of_a_new_test_has_to_fail() -> None:
    one, two = f"{X}[1]", f"{X}[2]"
    verdict = judge_failing(1, report(*failed(one), *passed(two), ids=(one, two), status=1), {X}, "")
    assert [d.subject for d in verdict.diagnostics] == [two]


def test_a_module_of_new_tests_that_skips_itself_proves_nothing() -> None:
    skip = {"event": "collect", "id": "test_a.py", "outcome": "skipped", "place": "test_a.py:2", "reason": "later"}
    other = "test_b.py::test_z"
    events = report(skip, *failed(other), ids=(other,), status=1)
    verdict = judge_failing(1, events, {X, other}, "")
    assert [(d.code, d.subject) for d in verdict.diagnostics] == [("E322", X)]


@pytest.mark.parametrize(
    ("exit_code", "events", "code"),
    [
        (
            2,
            report(
                {"event": "collect", "id": "test_a.py", "outcome": "failed", "error": "ImportError"}, ids=(), status=2
            ),
            "E301",
        ),
        (1, report(*failed(X), ids=(X,), status=1), "E305"),
        (5, report(ids=(), status=5), "E305"),
        (
            1,
            lines({"event": "start", "pytest": "8"}, {"event": "collected", "ids": [X, Y]}, *failed(X), *failed(Y)),
            "E308",
        ),
        (1, None, "E320"),
        (3, report(*failed(X), *failed(Y), status=3), "E320"),
        (1, report(*failed(X), *failed(Y), {"event": "forged", "line": 3}, status=1), "E308"),
    ],
)
def test_new_tests_have_to_be_collected_and_reported_as_others_are(
    exit_code: int, events: bytes | None, code: str
) -> None:
    verdict = judge_failing(exit_code, events, {X, Y}, "the output")
    assert not verdict.passed
    assert code in codes(verdict)
    assert verdict.excerpt


def test_many_new_tests_that_pass_are_summarized() -> None:
    names = tuple(f"test_a.py::test_{n:02}" for n in range(14))
    verdict = judge_failing(0, report(*(e for n in names for e in passed(n)), ids=names), set(names), "")
    assert len([d for d in verdict.diagnostics if d.code == "E322"]) == 11
    assert "4 more tests" in verdict.excerpt
    assert len(verdict.failing) == 14


@pytest.mark.parametrize(
    "line",
    [
        b'{"event": "finish", "status": 1, "status": 0}',
        b'{"event": "test", "event": "finish", "status": 0}',
        b'{"event": "finish", "status": 0} {}',
        b'{"event": "finish", "status": NaN}',
        b'{"event": "finish", "status": 0, "x": ' + b"[" * 100_000,
        b'{"event": "finish", "status": 0, "x": ' + b"[" * 100 + b"]" * 100 + b"}",
        b'\xef\xbb\xbf{"event": "finish", "status": 0}',
        '{"event": "finish", "status": 0}'.encode("utf-16"),
    ],
)
def test_a_line_that_is_not_strict_json_breaks_the_report(line: bytes) -> None:
    *before, _, _ = GREEN.split(b"\n")
    verdict = judge_pytest(0, b"\n".join((*before, line, b"")), {X, Y}, "")
    assert not verdict.passed
    assert codes(verdict) == ["E308"]
    assert "is not valid: not JSON" in verdict.diagnostics[0].message


def test_a_text_of_a_test_may_hold_half_of_a_surrogate_pair() -> None:
    name = "tests/test_a.py::test_x[\udcff]"
    whole = report(*passed(name), ids=(name,))
    assert b"\\udcff" in whole
    assert judge_pytest(0, whole, {id_without_parameters(name)}, "").passed


# ---- subtests ------------------------------------------------------------------------------------


def with_subtests(name: str, *labels: str, parent: str = "passed", **more: object) -> list[dict[str, object]]:
    """Return the events of a test whose subtests with these labels fail, at one line."""
    fields: dict[str, object] = {"raised": "AssertionError", "place": "test_a.py:3", "text": "E  assert 1", **more}
    return [
        *(reported(name, outcome="failed", subtest=label, **fields) for label in labels),
        reported(name, outcome=parent, made="passed"),
        reported(name, "teardown"),
    ]


def test_a_failed_subtest_fails_its_test_whatever_the_exit_code_says() -> None:
    for exit_code in (0, 1):
        verdict = judge_pytest(exit_code, report(*with_subtests(X, "(n=1)"), *passed(Y), status=exit_code), {X, Y}, "")
        assert not verdict.passed
        assert (verdict.headline, verdict.counts) == ("1 failed, 1 passed", {"failed": 1, "passed": 1})
        assert verdict.tests == {X: "failed", Y: "passed"}
        assert verdict.subtests == {f"{X} (n=1)": "failed"}


@pytest.mark.parametrize("parent", ["passed", "failed", "skipped"])
def test_the_end_of_a_test_does_not_hide_its_subtests(parent: str) -> None:
    """pytest 9 fails the test itself at some places (with xdist), and passes it at others."""
    verdict = judge_pytest(1, report(*with_subtests(X, "(n=1)", parent=parent), ids=(X,), status=1), {X}, "")
    assert verdict.tests == {X: "failed"}
    assert verdict.failing == (f"{X} AssertionError",)


def test_each_failed_subtest_is_named() -> None:
    labels = [f"(n={n:02})" for n in range(14)]
    verdict = judge_pytest(1, report(*with_subtests(X, *labels), ids=(X,), status=1), {X}, "")
    assert all(f"{X} {label}" in verdict.excerpt for label in labels), "also if they have one cause"
    assert len(verdict.diagnostics) == 1
    assert verdict.diagnostics[0].message.endswith(
        "in the subtests (n=00), (n=01), (n=02), (n=03), (n=04), (n=05), (n=06), (n=07), (n=08), (n=09) and 4 more"
    )


def test_a_label_is_the_same_in_every_run() -> None:
    events = with_subtests(X, "(o=<object object at 0x7f00aa11bb22>)")
    assert [*judge_pytest(1, report(*events, ids=(X,), status=1), {X}, "").subtests] == [
        f"{X} (o=<object object at 0xADDRESS>)"
    ]


def test_skips_and_expected_failures_of_subtests_are_in_the_report_and_do_not_change_their_test() -> None:
    skips = [
        reported(X, outcome="skipped", raised="Skipped", place="test_a.py:3", subtest="(n=1)"),
        reported(X, outcome="skipped", raised="XFailed", place="test_a.py:4", subtest="(n=2)", xfail=True),
    ]
    verdict = judge_pytest(0, report(*skips, *passed(X), ids=(X,)), {X}, "")
    assert verdict.passed
    assert verdict.tests == {X: "passed"}
    assert json.loads(report_json(verdict))["subtests"] == {f"{X} (n=1)": "skipped", f"{X} (n=2)": "xfailed"}


def test_the_code_under_test_cannot_skip_a_subtest() -> None:
    skip = reported(X, outcome="skipped", raised="Skipped", place="app.py:3", subtest="(n=1)")
    verdict = judge_pytest(0, report(skip, *passed(X), ids=(X,)), {X}, "")
    assert codes(verdict) == ["E305"]
    assert verdict.diagnostics[0].subject == f"{X} (n=1)"


def test_a_test_that_is_expected_to_fail_fails_by_its_subtests() -> None:
    """pytest reports the test as passed unexpectedly: then a run without any test that passes would be green."""
    failure = reported(X, outcome="skipped", raised="AssertionError", place="test_a.py:3", subtest="(n=1)", xfail=True)
    end = [reported(X, xfail=True), reported(X, "teardown")]
    verdict = judge_pytest(0, report(failure, *end, ids=(X,)), {X}, "")
    assert verdict.tests == {X: "xfailed"}
    assert codes(verdict) == ["E305"]


def test_a_new_test_that_fails_by_its_subtests_fails() -> None:
    assert judge_failing(1, report(*with_subtests(X, "(n=1)"), ids=(X,), status=1), {X}, "").passed


def test_a_report_without_subtests_is_as_before() -> None:
    assert "subtests" not in json.loads(report_json(judge_pytest(0, GREEN, {X, Y}, "")))
