"""Which tests there must be, from the text of the staged files."""

import subprocess
import sys
from pathlib import Path

import pytest

from orch23.verdict.pytest_discovery import expected_tests, id_without_parameters, selects_tests

SOURCE = """
import builtins, functools, pytest, typing, unittest
from typing import TYPE_CHECKING
T = typing.TypeVar("T")
if TYPE_CHECKING:
    def test_never(): ...
@pytest.fixture
def test_data(): return 1
@pytest.fixture()
def test_called(): return 1
def property(function): return function
@pytest.mark.parametrize("x", [1, 2])
def test_plain(x): ...
async def test_async(): ...
def helper(): ...
@property
def test_decorated(): ...
def test_gone(): ...
class TestGone:
    def test_not(self): ...
others = {"one": 1}
del test_gone, TestGone, others["one"]
class TestOne(typing.Generic[T]):
    limit, least = 1, 0
    def test_in(self): ...
    @builtins.property
    def test_prop(self): ...
    @functools.cached_property
    def test_cached(self): ...
    @classmethod
    def test_of_class(cls): ...
    class TestInner:
        def test_deep(self): ...
class TestMade:
    def __init__(self): ...
    def test_not(self): ...
class TestNew:
    def __new__(cls): return object.__new__(cls)
    def test_not(self): ...
class TestOn:
    __test__ = True
    def test_on(self): ...
class TestOff:
    __test__ = False
    def test_not(self): ...
class Other:
    def test_not(self): ...
class Case(unittest.TestCase):
    def test_case(self): ...
"""


NAMES = (
    *("test_plain", "test_decorated", "test_async", "TestOne::test_in", "TestOne::test_of_class"),
    *("TestOne::TestInner::test_deep", "TestOn::test_on", "Case::test_case"),
)


def test_test_functions_are_found_in_the_text() -> None:
    files = {"t/test_m.py": SOURCE, "t/m.py": SOURCE, "t/conftest.py": SOURCE}
    assert expected_tests(files) == {f"t/test_m.py::{name}" for name in NAMES}


@pytest.mark.slow
def test_pytest_collects_the_same(tmp_path: Path) -> None:
    (tmp_path / "test_m.py").write_text(SOURCE)
    quiet = ("-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".")
    argv = [sys.executable, "-m", "pytest", "--collect-only", *quiet]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    collected = {id_without_parameters(line) for line in done.stdout.splitlines() if line.startswith("test_m.py::")}
    assert collected == {f"test_m.py::{name}" for name in NAMES}


def test_paths_choose_as_pytest_does() -> None:
    text = "def test_x(): ...\nclass TestK:\n    def test_y(self): ...\n"
    files = dict.fromkeys(
        ("test_a.py", "t/b_test.py", "t/u/test_c.py", "build/test_d.py", ".x/test_e.py", "t/odd.py"), text
    )
    both = lambda p: {f"{p}::test_x", f"{p}::TestK::test_y"}  # noqa: E731 - a table's short hand
    assert expected_tests(files) == both("test_a.py") | both("t/b_test.py") | both("t/u/test_c.py")
    assert expected_tests(files, ("./t/",)) == both("t/b_test.py") | both("t/u/test_c.py")
    assert expected_tests(files, ("./",)) == expected_tests(files, (".",)) == expected_tests(files)
    assert expected_tests(files, ("build",)) == both("build/test_d.py")
    assert expected_tests(files, ("t/odd.py",)) == both("t/odd.py")
    assert expected_tests(files, ("test_a.py::TestK",)) == {"test_a.py::TestK::test_y"}
    assert expected_tests(files, ("test_a.py::test_x[1]",)) == {"test_a.py::test_x"}
    assert expected_tests(files, ("test_",)) == frozenset()


@pytest.mark.parametrize(
    ("given", "path", "reached"),
    [
        ("t", "t/test_a.py", True),
        ("t", "t/u/test_a.py", True),
        ("t", "t/build/test_a.py", False),
        ("t", "t/u/.x/test_a.py", False),
        ("t", "tt/test_a.py", False),
        ("build", "build/u/test_a.py", True),
        ("t/build", "t/build/test_a.py", True),
        ("t/build", "t/build/dist/test_a.py", False),
        (".", "t/dist/u/test_a.py", False),
        (".", "t/dist.py/test_a.py", True),
        ("t/build/test_a.py", "t/build/test_a.py", True),
        ("t/build/test_a.py::test_x", "t/build/test_a.py", True),
        ("t/test_a.py", "t/test_a.py/test_b.py", True),
        ("t/test_a.py::test_x", "t/test_a.py/test_b.py", False),
    ],
)
def test_a_path_leads_to_files_below_it_but_not_through_some_folders(given: str, path: str, reached: object) -> None:
    found = expected_tests({path: "def test_x(): ..."}, (given,))
    assert found == ({f"{path}::test_x"} if reached else frozenset())


def test_the_path_of_a_file_that_does_not_parse_is_its_id() -> None:
    assert expected_tests({"test_a.py": "def broken(:", "test_b.py": "", "test_c.py": "\0"}) == {
        "test_a.py",
        "test_c.py",
    }
    assert expected_tests({"test_a.py": "def broken(:"}, ("test_a.py::test_x",)) == {"test_a.py"}


@pytest.mark.parametrize(
    ("args", "selects"),
    [
        (("-q",), False),
        (("-k", "x"), True),
        (("-kx",), True),
        (("-m", "slow"), True),
        (("-mslow",), True),
        (("--deselect=a",), True),
        (("--maxfail=1",), False),
    ],
)
def test_selecting_arguments(args: tuple[str, ...], selects: bool) -> None:
    assert selects_tests(args) is selects


def test_base_ids() -> None:
    assert id_without_parameters("t/test_a.py::K::test_x[a::b[c]]") == "t/test_a.py::K::test_x"
    assert id_without_parameters("odd[1]/test_a.py::test_x") == "odd[1]/test_a.py::test_x"
