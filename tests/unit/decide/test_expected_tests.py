"""Which tests there must be, from the text of the staged files."""

import pytest

from orch23.decide.expected_tests import base_id, expected_tests, selects_tests

SOURCE = """
import pytest, unittest
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    def test_never(): ...
@pytest.fixture
def test_data(): return 1
@pytest.mark.parametrize("x", [1, 2])
def test_plain(x): ...
async def test_async(): ...
def helper(): ...
def test_gone(): ...
del test_gone
class TestOne:
    def test_in(self): ...
    @property
    def test_prop(self): ...
    class TestInner:
        def test_deep(self): ...
class TestMade:
    def __init__(self): ...
    def test_not(self): ...
class TestOff:
    __test__ = False
    def test_not(self): ...
class Other:
    def test_not(self): ...
class Case(unittest.TestCase):
    def test_case(self): ...
"""


def test_test_functions_are_found_in_the_text() -> None:
    names = ("test_plain", "test_async", "TestOne::test_in", "TestOne::TestInner::test_deep", "Case::test_case")
    files = {"t/test_m.py": SOURCE, "t/m.py": SOURCE, "t/conftest.py": SOURCE}
    assert expected_tests(files) == {f"t/test_m.py::{name}" for name in names}


def test_paths_choose_as_pytest_does() -> None:
    text = "def test_x(): ...\nclass TestK:\n    def test_y(self): ...\n"
    files = dict.fromkeys(
        ("test_a.py", "t/b_test.py", "t/u/test_c.py", "build/test_d.py", ".x/test_e.py", "t/odd.py"), text
    )
    both = lambda p: {f"{p}::test_x", f"{p}::TestK::test_y"}  # noqa: E731 - a table's short hand
    assert expected_tests(files) == both("test_a.py") | both("t/b_test.py") | both("t/u/test_c.py")
    assert expected_tests(files, ("./t/",)) == both("t/b_test.py") | both("t/u/test_c.py")
    assert expected_tests(files, ("build",)) == both("build/test_d.py")
    assert expected_tests(files, ("t/odd.py",)) == both("t/odd.py")
    assert expected_tests(files, ("test_a.py::TestK",)) == {"test_a.py::TestK::test_y"}
    assert expected_tests(files, ("test_a.py::test_x[1]",)) == {"test_a.py::test_x"}
    assert expected_tests(files, ("test_",)) == frozenset()


def test_a_file_that_does_not_parse_stands_for_itself() -> None:
    assert expected_tests({"test_a.py": "def broken(:", "test_b.py": "", "test_c.py": "\0"}) == {
        "test_a.py",
        "test_c.py",
    }


@pytest.mark.parametrize(
    ("args", "selects"),
    [
        (("-q",), False),
        (("-k", "x"), True),
        (("-kx",), True),
        (("-m", "slow"), True),
        (("--deselect=a",), True),
        (("--maxfail=1",), False),
    ],
)
def test_selecting_arguments(args: tuple[str, ...], selects: bool) -> None:
    assert selects_tests(args) is selects


def test_base_ids() -> None:
    assert base_id("t/test_a.py::K::test_x[a::b[c]]") == "t/test_a.py::K::test_x"
    assert base_id("odd[1]/test_a.py::test_x") == "odd[1]/test_a.py::test_x"
