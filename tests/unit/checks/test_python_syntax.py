"""`python_syntax` finds what does not parse, with its place, and names that are not there."""

import warnings
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.checks.check import CheckInput
from orch23.checks.python_syntax import PYTHON_SYNTAX
from orch23.model.diagnostic import Diagnostic, Location, Severity
from orch23.model.digest import Json


def _check(outputs: Mapping[str, str | bytes], **options: Json) -> tuple[Diagnostic, ...]:
    data = {path: text.encode() if isinstance(text, str) else text for path, text in outputs.items()}
    return PYTHON_SYNTAX.run(CheckInput(outputs=data, options=options))


def test_python_that_parses_has_no_error() -> None:
    assert (
        _check({"a.py": "x = 1\n", "b/c.py": "", "d.py": "# -*- coding: latin-1 -*-\ns = '\xe9'\n".encode("latin-1")})
        == ()
    )


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [
        ("x = 1\ny = (\n", 2, 5),
        ("def f(:\n    pass\n", 1, 7),
        ("def f():\npass\n", 2, 1),
        ("a = 1\nb = 'open\n", 2, 5),
        ("if x:\n\ty\n        z\n", 3, 1),
        (b"x = 1\n\ny\x00 = 2\n", 3, 2),
        (b"x = '\xff'\n", 1, None),
        ("# coding: nothing\n", 1, 1),
        ("return 1", None, None),
        ("```python\nx = 1\n```\n", 1, 1),
        ("x" + "(" * 5000, 1, None),
        ("-" * 100_000 + "1", 1, 1),
    ],
)
def test_python_that_does_not_parse_is_an_error_at_its_place(
    source: str | bytes, line: int | None, column: int | None
) -> None:
    found = _check({"good.py": "x = 1\n", "bad.py": source, "text.md": "(("})
    if line is None:
        assert found == ()  # the parser takes it; only the compiler would not
        return
    (only,) = found
    assert (only.code, only.subject, only.severity) == ("E311", "bad.py", Severity.ERROR)
    assert isinstance(only.location, Location)
    assert (only.location.file, only.location.line) == ("bad.py", line)
    assert column is None or only.location.column == column
    assert only.hint


def test_every_bad_file_is_reported_at_once() -> None:
    assert [d.subject for d in _check({"b.py": "(", "a.py": ")", "c.py": "1"})] == ["a.py", "b.py"]


def test_a_warning_about_the_code_is_neither_shown_nor_an_error() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert _check({"a.py": 's = "\\d"\nif 1 is 1: pass\n'}) == ()
    assert seen == []


SOURCE = """
import os.path
import json as j
from a import b as c, d
X, (Y, *Z) = 1, (2, 3)
W: int = 4
V += 1
class K:
    inside = 1
    def method(self): local = 2
async def f():
    hidden = (walrus_inside := 1)
if X:
    IN_IF = 1
elif Y:
    IN_ELIF = 1
else:
    IN_ELSE = 1
try:
    IN_TRY = 1
except ValueError as e:
    IN_EXCEPT = 1
finally:
    IN_FINALLY = 1
with open("x") as HANDLE:
    IN_WITH = 1
for LOOP in ():
    IN_FOR = 1
match X:
    case 1:
        IN_CASE = 1
(WALRUS := 5)
"""
BOUND = """os j c d X Y Z W V K f IN_IF IN_ELIF IN_ELSE IN_TRY IN_EXCEPT IN_FINALLY HANDLE IN_WITH LOOP IN_FOR
IN_CASE WALRUS"""


@pytest.mark.parametrize("name", BOUND.split())
def test_a_name_bound_at_the_top_level_is_defined(name: str) -> None:
    assert _check({"a.py": SOURCE}, defines={"a.py": [name]}) == ()


@pytest.mark.parametrize("name", ["inside", "method", "local", "hidden", "walrus_inside", "b", "json", "self", "path"])
def test_a_name_bound_elsewhere_is_missing(name: str) -> None:
    (only,) = _check({"a.py": SOURCE}, defines={"a.py": [name]})
    assert (only.code, only.subject) == ("E312", "a.py")
    assert f"`{name}`" in only.message


def test_a_missing_name_that_is_nearly_there_is_guessed() -> None:
    (only,) = _check({"a.py": "def slugfy(): pass\n"}, defines={"a.py": ["slugify"]})
    assert "slugfy" in (only.hint or "")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"define": {}}, "`defines`"),
        ({"zzz": 1}, "`defines`"),
        ({"defines": ["f"]}, "mapping"),
        ({"defines": {"a.py": "f"}}, "list of names"),
        ({"defines": {"a.py": [1]}}, "list of names"),
        ({"defines": {"b.py": ["f"]}}, "not a Python output"),
    ],
)
def test_a_wrong_option_is_reported(options: dict[str, Json], said: str) -> None:
    (only,) = _check({"a.py": "f = 1\n"}, **options)
    assert only.code == "E315"
    assert said in str(only)


def test_no_python_at_all_is_worth_a_warning() -> None:
    (only,) = _check({"a.html": "<p>"})
    assert (only.code, only.severity) == ("W310", Severity.WARNING)


@given(st.one_of(st.binary(max_size=60), st.text("()[]{}:='\"\\\n\t \x00defclassif#", max_size=60).map(str.encode)))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    assert all(found.code == "E311" for found in _check({"a.py": data}))
