"""Failed tests are grouped by their cause, and each cause gets a fair share of the feedback."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.pipeline import BriefLimits
from orch23.text.excerpt import fit_parts
from orch23.verdict.run_results import ReportedFailure, error_text, group_failures, without_library_frames


def failed(test: str, text: str = "", *, error: str = "AssertionError", place: str = "") -> ReportedFailure:
    return ReportedFailure(f"test_a.py::{test}", error, place, text, "call")


def names(*failures: ReportedFailure) -> list[list[str]]:
    return [[name.partition("::")[2] for name in group.tests] for group in group_failures(failures)]


def test_one_message_is_one_cause_wherever_it_was_raised() -> None:
    text = "    import app\nE   ModuleNotFoundError: No module named 'app'"
    missing = [failed(f"t{n:02}", text, error="ModuleNotFoundError", place=f"test_a.py:{n}") for n in range(62)]
    other = failed("a", "E   assert 1 == 2", place="test_a.py:99")
    found = group_failures([other, *missing])
    assert [len(group.tests) for group in found] == [62, 1], "the largest first"
    assert found[0].text() == (
        "62 tests with this cause: test_a.py::t00 (call): ModuleNotFoundError\n"
        "likewise test_a.py::t01, test_a.py::t02, test_a.py::t03 and 58 more\n"
        f"{text}"
    )
    assert found[1].text() == "test_a.py::a (call): AssertionError\nE   assert 1 == 2"


def test_one_line_of_the_tested_code_is_one_cause() -> None:
    first = failed("t1", "E   KeyError: 'a'", error="KeyError", place="app.py:3")
    second = failed("t2", "E   KeyError: 'b'", error="KeyError", place="app.py:3")
    assert names(first, second) == [["t1", "t2"]]
    assert names(first, failed("t2", "E   ValueError: 'b'", error="ValueError", place="app.py:3")) == [["t1"], ["t2"]]


def test_a_line_of_the_tests_is_a_cause_only_for_parameters_of_one_test() -> None:
    one = [failed(f"t[{n}]", f"E   assert {n} == 2", place="test_a.py:3") for n in range(2)]
    assert names(*one) == [["t[0]", "t[1]"]]
    helper = [failed(f"t{n}", f"E   assert {n} == 2", place="test_a.py:3") for n in range(2)]
    assert names(*helper) == [["t0"], ["t1"]], "each has another difference"


def test_values_of_one_origin_are_one_cause() -> None:
    where = "E    +  where 3 = count('a b')"
    first = failed("t1", f"E   assert 3 == 2\n{where}", place="test_a.py:3")
    assert names(first, failed("t2", f"E   assert 3 == 9\n{where}", place="test_a.py:7")) == [["t1", "t2"]]
    more = f"E    +  where 3 = max([3])\n{where}"
    assert names(first, failed("t2", f"E   assert 3 == 9\n{more}", place="test_a.py:7")) == [["t1"], ["t2"]]
    mark = "E     ? ^"
    texts = [f"E   assert '{word}' == 'x'\n{mark}" for word in ("a", "b")]
    assert names(*(failed(f"t{n}", text) for n, text in enumerate(texts))) == [["t0"], ["t1"]]


def test_the_last_of_errors_that_led_to_each_other_is_the_cause() -> None:
    texts = [f"E   KeyError: {n}\n\nThe above exception was the cause\n\nE   app.Lost: no table" for n in range(2)]
    lost = [failed(f"t{n}", text, error="Lost", place=f"test_a.py:{n}") for n, text in enumerate(texts)]
    assert names(*lost) == [["t0", "t1"]]
    assert group_failures(lost)[0].error == "Lost: no table"


def test_a_test_that_failed_twice_counts_once() -> None:
    again = ReportedFailure("test_a.py::t", "AssertionError", "", "E   assert 0", "teardown")
    assert names(failed("t", "E   assert 0"), again) == [["t"]]


def test_groups_do_not_depend_on_the_order_of_the_report() -> None:
    made = [failed(f"t{n}", f"E   assert {n % 5} == 9", place=f"app.py:{n % 3}") for n in range(30)]
    shuffled = made.copy()
    random.Random(1).shuffle(shuffled)
    assert [one.text() for one in group_failures(made)] == [one.text() for one in group_failures(shuffled)]


def test_each_part_has_a_fair_share() -> None:
    parts = ["3 failed", "first\n" + "a" * 5000, "second\n" + "b" * 5000, "third\nshort"]
    text = fit_parts(parts, BriefLimits())
    assert len(text) <= 4000
    assert text.startswith("3 failed\n\nfirst\naaa")
    assert text.endswith("\n\nthird\nshort")
    assert abs(text.count("a") - text.count("b")) < 30


def test_a_part_that_is_too_long_keeps_its_error() -> None:
    source = "\n".join(f"    line {n} of the test that says nothing" for n in range(200))
    end = ">       assert f() == 2\nE       assert 1 == 2\n\ntest_a.py:3: AssertionError"
    text = fit_parts(["1 failed", f"test_a.py::t (call): AssertionError\n{source}\n{end}"], BriefLimits())
    assert text == (
        "1 failed\n\ntest_a.py::t (call): AssertionError\n"
        ">       assert f() == 2\nE       assert 1 == 2\ntest_a.py:3: AssertionError"
    )


def test_a_giant_line_does_not_push_the_others_out() -> None:
    text = fit_parts(["1 failed", f"t\n>   assert a == b\nE   {'x' * 9000}\nE   At index 7 diff"], BriefLimits())
    assert "At index 7 diff" in text
    assert len(text) < 500


def test_causes_without_a_share_are_named() -> None:
    text = fit_parts([f"cause {n}\n{'x' * 900}" for n in range(30)], BriefLimits())
    assert len(text) <= 4000
    assert "21 more" in text or "20 more" in text
    assert "cause 9" in text


@given(
    st.lists(st.text("ab >E\n", max_size=900), min_size=1, max_size=30),
    st.builds(BriefLimits, st.integers(1, 5000), st.integers(1, 500), st.integers(0, 99)),
)
def test_the_limit_holds_for_all_parts(parts: list[str], limits: BriefLimits) -> None:
    assert len(fit_parts(parts, limits)) <= max(limits.limit, limits.head + limits.tail + 5)


def test_parts_within_the_limit_are_unchanged() -> None:
    assert fit_parts(["a", "b"], BriefLimits(4, 1, 1)) == "a\n\nb"


SEPARATOR = "_ _ _ _ _ _ _ _ _ _"
COLLECT = """\
ImportError while importing test module 'tests/test_a.py'.
Hint: make sure your test modules/packages have valid Python names.
Traceback:
/python/importlib/__init__.py:126: in import_module
    return _bootstrap._gcd_import(name[level:], package, level)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
<frozen importlib._bootstrap>:690: in _load_unlocked
    ???
tests/test_a.py:1: in <module>
    import absent
E   ModuleNotFoundError: No module named 'absent'"""

LONG = f"""\
def test_a():
>       assert parse("{{bad")["a"] == 1

tests/test_a.py:5:
{SEPARATOR}
app.py:4: in parse
    return json.loads(text)
/python/json/__init__.py:346: in loads
    return _default_decoder.decode(s)
{SEPARATOR}

self = <json.decoder.JSONDecoder object at 0xADDRESS>, s = '{{bad', idx = 0

    def raw_decode(self, s, idx=0):
>           obj, end = self.scan_once(s, idx)
E           json.decoder.JSONDecodeError: Expecting property name

/python/json/decoder.py:353: JSONDecodeError"""


def test_frames_of_the_library_are_left_out_of_a_module_that_cannot_be_imported() -> None:
    assert without_library_frames(COLLECT) == (
        "ImportError while importing test module 'tests/test_a.py'.\n"
        "Traceback:\n"
        "tests/test_a.py:1: in <module>\n"
        "    import absent\n"
        "E   ModuleNotFoundError: No module named 'absent'"
    )


def test_of_a_frame_of_the_library_that_raised_only_the_error_is_left() -> None:
    assert without_library_frames(LONG) == (
        "def test_a():\n"
        '>       assert parse("{bad")["a"] == 1\n'
        "\n"
        "tests/test_a.py:5:\n"
        f"{SEPARATOR}\n"
        "app.py:4: in parse\n"
        "    return json.loads(text)\n"
        "E           json.decoder.JSONDecodeError: Expecting property name"
    )


@pytest.mark.parametrize(
    "text",
    [
        "    def test_a():\n>       assert f() == 1\nE       assert 2 == 1\n\ntests/test_a.py:3: AssertionError",
        "tests/python/a.py:3: in f\n    g()\nE   ValueError: x",
        "no traceback at all",
        "def test_a():\n\n\n>   x()\n\n",
        "",
        "/python/runpy.py:3: in run\n    exec()",
    ],
)
def test_frames_of_the_project_are_kept(text: str) -> None:
    assert without_library_frames(text) == text
    assert without_library_frames(without_library_frames(text)) == text


def test_a_long_line_is_searched_in_time() -> None:
    line = "a:1: " * 50_000
    assert without_library_frames(f"{line}\n" * 3)


LINE = "x" * 400


@pytest.mark.parametrize(
    ("error", "text", "expected"),
    [
        ("JSONDecodeError", LONG, "JSONDecodeError: Expecting property name"),
        ("AssertionError", "E       assert 2 == 1\nE        +  where 2 = f()", "AssertionError: assert 2 == 1"),
        ("AssertionError", "E       AssertionError: assert 2 == 1", "AssertionError: assert 2 == 1"),
        ("AssertionError", "E       AssertionError: too few\nE       assert 2 == 1", "AssertionError: too few"),
        ("B", "E   A: first\n\nE   x.B: second", "B: second"),
        ("NotImplementedError", "E   NotImplementedError", "NotImplementedError"),
        ("Failed", "", "Failed"),
        (
            "AssertionError",
            f"E   AssertionError: {LINE}\nE     At index 7 diff: 1 != 2",
            "AssertionError: At index 7 diff: 1 != 2",
        ),
        (
            "AssertionError",
            f"E   AssertionError: {LINE}\nE     Differing items:\nE     a != b",
            "AssertionError: Differing items: a != b",
        ),
        ("ValueError", f"E   ValueError: {LINE}", f"ValueError: {'x' * 188} ... {'x' * 95}"),
    ],
)
def test_the_error_is_the_last_one_in_one_line(error: str, text: str, expected: str) -> None:
    assert error_text(error, text) == expected
