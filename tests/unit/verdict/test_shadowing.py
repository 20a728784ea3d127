"""The modules of a tree that would be imported in the place of a library's."""

import pytest

from orch23.verdict.pytest_discovery import STDLIB_MODULES, import_folders, importable_modules


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("src/statistics.py", "statistics"),
        ("src/statistics.pyc", "statistics"),
        ("src/_json.abi3.so", "_json"),
        ("src/json/__init__.py", "json"),
        ("src/json/__init__.cpython-312-x86_64-linux-gnu.so", "json"),
    ],
)
def test_modules_that_are_imported_by_their_plain_name(path: str, module: str) -> None:
    assert list(importable_modules([path], {"src/"})) == [(path, module)]
    assert list(importable_modules([path.removeprefix("src/")], {""})) == [(path.removeprefix("src/"), module)]
    assert not list(importable_modules([path], {"lib/", ""}))


@pytest.mark.parametrize(
    "path", ["src/json/decoder.py", "src/a/json.py", "src/json.txt", "src/a/b/__init__.py", "json.py"]
)
def test_files_that_are_not(path: str) -> None:
    assert not list(importable_modules([path], {"src/"}))


def test_the_tests_of_the_standard_library_may_be_hidden() -> None:
    assert "statistics" in STDLIB_MODULES
    assert "test" not in STDLIB_MODULES


def test_the_folders_that_pytest_puts_first() -> None:
    files = ["t/test_a.py", "p/q/__init__.py", "p/q/b_test.py", "p/__init__.py", "c/conftest.py", "src/a.py"]
    assert import_folders(files) == {"t/", "", "c/"}
