"""Tracebacks of pytest without the frames of the library."""

import pytest

from orch23.verdict.traceback_frames import error_text, without_library_frames

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
    ],
)
def test_the_error_is_the_last_one_in_one_line(error: str, text: str, expected: str) -> None:
    assert error_text(error, text) == expected
