"""The text of a failure: one form, and no longer than it may be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.pipeline import BriefLimits
from orch23.text.excerpt import (
    escape_text,
    fit_output,
    group_lines,
    normalise,
    shorten,
    shorten_tree_paths,
    without_equal_lines,
)


def test_shorten_is_exact() -> None:
    assert shorten("x" * 4000) == "x" * 4000
    cut = shorten("h" * 2501 + "t" * 1500)
    assert (len(cut), cut) == (3505, "h" * 2500 + "\n...\n" + "t" * 1000)
    assert shorten("abcdef", BriefLimits(5, 2, 0)) == "ab\n...\n"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("1 failed in 0.12s", "1 failed in N s"),
        ("== 1 failed in 75.31s (0:01:15) ==", "== 1 failed in N s =="),
        ("<a at 0x7f3b2c001200>", "<a at 0xADDRESS>"),
        ("<a at 0xabcd12>", "<a at 0xADDRESS>"),
        (
            "#0 0x00007ffff7dd1a2b in f, main.g(0xc000012345), addr=0x10a0 pc=0x48c1a5",
            "#0 0xADDRESS in f, main.g(0xADDRESS), addr=0xADDRESS pc=0xADDRESS",
        ),
        ("on address 0x602000000014 at pc 0x55e0c1d2a3b4", "on address 0xADDRESS at pc 0xADDRESS"),
        ("- 0xdeadbeef 0xcbf29ce484222325 0x1f600", "- 0xdeadbeef 0xcbf29ce484222325 0x1f600"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("/w/.orch23/rooms/0123456789abcdef/work/a.py:3", "/room/work/a.py:3"),
        (
            'File "/home/me/.pyenv/versions/3.11.7/lib/python3.11/json/__init__.py", line 3',
            'File "/python/json/__init__.py", line 3',
        ),
        ("/opt/venv/lib/python3.13t/site-packages/x.py:1: in f", "/python/site-packages/x.py:1: in f"),
        ("/w/lib/python3/x.py", "/w/lib/python3/x.py"),
        ("/home/me/proj/.venv/bin/python3.11: No module named app", "python: No module named app"),
        ("/w/bin/pythonic", "/w/bin/pythonic"),
        ("/room/tmp/pytest-of-root/pytest-12/test_x0", "/room/tmp/pytest-of-user/pytest-N/test_x0"),
        ("/tmp/tmpab12cd_x/file", "/tmp/TMP/file"),
        ("thread 'a::b' (31275) panicked at src/a.rs:7:5:", "thread 'a::b' panicked at src/a.rs:7:5:"),
        ("a\r\nb", "a\nb"),
        ("assert 0x10 == 16 and 3s", "assert 0x10 == 16 and 3s"),
    ],
)
def test_what_differs_from_run_to_run_has_one_form(text: str, form: str) -> None:
    assert normalise(text) == form
    assert normalise(form) == form


@given(st.text(alphabet="ab /=0x12.s\x1b[m\r\nin", max_size=80))
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        "h",
        "/rooms/",
        "= ",
        "pytest-of-",
        "/tmp/a",
        "\x1b]",
        "x/rooms/0123456789abcdef/",
        "/lib/python3.11/",
        "/bin/python ",
    ],
)
def test_a_line_without_an_end_costs_no_more_than_its_length(unit: str) -> None:
    """With the square of it, this would be minutes."""
    assert normalise(unit * (400_000 // len(unit)))


def test_the_path_of_a_sandbox_directory_is_replaced_from_its_start() -> None:
    room = "/home/me/.orch23/rooms/0123456789abcdef"
    text = f"in '{room}/a.py' and ({room}/b) and path={room}"
    assert normalise(text) == "in '/room/a.py' and (/room/b) and path=/room"
    assert normalise(f"{room}0/a.py") == f"{room}0/a.py", "no room has such a name"


@pytest.mark.parametrize(
    ("text", "cwd", "form"),
    [
        ("/room/work/src/a.py:3: x", ".", "src/a.py:3: x"),
        ("in '/room/work/ws/src/a.py'", "ws", "in 'src/a.py'"),
        ('File "/room/work/b.py", line 3', "ws/deep", 'File "../../b.py", line 3'),
        ("cd /room/work", "ws", "cd .."),
        ("at /room/work/ws, that", "ws", "at ., that"),
        ("/room/tmp/x /room/workers/a.py a/room/work/b", ".", "/room/tmp/x /room/workers/a.py a/room/work/b"),
    ],
)
def test_files_of_the_project_have_the_path_that_a_response_uses(text: str, cwd: str, form: str) -> None:
    assert shorten_tree_paths(text, cwd) == form
    assert shorten_tree_paths(form, cwd) == form


def test_a_text_from_outside_is_shown_escaped_and_bounded() -> None:
    assert escape_text("a\x1b[31m\u202e\ud800b") == "a\\x1b[31m\\u202e\\ud800b"
    assert escape_text("x" * 121) == "x" * 120 + "..."
    assert escape_text("x" * 120) == "x" * 120
    assert len(escape_text("\x00" * 1_000_000)) == 123


def test_a_failure_in_the_middle_of_a_long_output_is_shown() -> None:
    noise = "".join(f"ok {number} should be equal\n" for number in range(300))
    text = f"{noise}before it\nError: the sum is wrong\nafter it\n{noise}"
    limits = BriefLimits()
    shown = fit_output(text, limits)
    assert len(shown) <= limits.limit
    assert "before it\nError: the sum is wrong\nafter it\n" in shown
    assert fit_output(noise + noise, limits) == shorten(noise + noise, limits), "without a failure line as before"
    assert fit_output("Error: x\n", limits) == "Error: x\n"


def test_a_message_of_a_linter_for_many_places_is_one_line() -> None:
    lines = [f"a.py:{number}:80: E501 too long ({number + 79} > 79)" for number in range(1, 81)]
    text = "\n".join((*lines, "b.py:1:1: F401 unused", "Found 81 errors."))
    first, *others = group_lines(text).split("\n")
    assert first.startswith("a.py:1:80: E501 too long (80 > 79) (and 79 more such: a.py:2:80, a.py:3:80")
    assert others == ["b.py:1:1: F401 unused", "Found 81 errors."]
    assert group_lines("\n".join(lines[:3])) == "\n".join(lines[:3]), "three stay as they are"


def test_of_a_long_difference_only_the_lines_that_differ_are_shown() -> None:
    same = [f"E         'k{number}': {number}," for number in range(40)]
    text = "\n".join(("E     {", *same, "E   -     'x': 1,", "E   +     'x': 2,", *same, "", "t.py:3: AssertionError"))
    shown = without_equal_lines(text).split("\n")
    assert len(shown) == 16
    assert {"E   -     'x': 1,", "E   +     'x': 2,", "E  ... 36 equal lines ...", "t.py:3: AssertionError"} <= set(
        shown
    )
    assert without_equal_lines("\n".join(same)) == "\n".join(same), "no difference is left as it is"


def test_the_items_that_pytest_names_are_shown_above_the_difference() -> None:
    same = [f"E         'k{number}': {number}," for number in range(40)]
    named = ["E         Differing items:", "E         {'x': 2} != {'x': 1}"]
    text = "\n".join(("E     {", *same, *named, "E     ", *same, "E   -     'x': 1,", "E   +     'x': 2,", *same, ""))
    shown = without_equal_lines(text).split("\n")
    assert set(named) <= set(shown)
    assert len(shown) < 30
