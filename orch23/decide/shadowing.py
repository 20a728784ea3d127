"""Find the modules of a staged tree that would be imported in the place of a library's."""

import sys
from collections.abc import Collection, Iterable, Iterator

from orch23.decide.expected_tests import is_test_file

STANDARD = sys.stdlib_module_names - {"test"}
"""The standard library, without its own tests: many projects have a package `test`."""

TEST_LIBRARIES_TEXT = """
    pytest _pytest pluggy iniconfig exceptiongroup py xdist execnet pytest_timeout pytest_asyncio pytest_mock pytest_cov
    hypothesis _hypothesis_pytestplugin _hypothesis_ftz_detector sortedcontainers coverage mock nose nose2 testtools
    testfixtures freezegun time_machine responses respx requests_mock httpretty pytest_httpserver vcr betamax faker
    factory model_bakery polyfactory assertpy hamcrest sure expects syrupy snapshottest approvaltests inline_snapshot
    dirty_equals deepdiff parameterized ddt behave tavern schemathesis anyio trio twisted icontract crosshair
"""
TEST_LIBRARIES = frozenset(TEST_LIBRARIES_TEXT.split())
"""Libraries that judge, or that tests are built on."""

_CODE = (".py", ".pyc", ".so", ".pyd")


def modules_at(files: Iterable[str], folders: Collection[str]) -> Iterator[tuple[str, str]]:
    """Give the path and the name of each module that can be imported from these folders by its plain name.

    A package counts by its `__init__`: without one, a library of the name is preferred. Folders are "" or end with `/`.
    """
    for path in sorted(path for path in files if path.endswith(_CODE)):
        folder, _, name = path.rpartition("/")
        module = name.partition(".")[0]
        if module == "__init__":
            folder, _, module = folder.rpartition("/")
        if module and (f"{folder}/" if folder else "") in folders:
            yield path, module


def folders_of_tests(files: Collection[str]) -> frozenset[str]:
    """Return the folders that pytest puts before all others: those of test files, above their packages."""
    found = set()
    for path in files:
        name = path.rpartition("/")[2]
        if is_test_file(path) or name == "conftest.py":
            folder = path.removesuffix(name)
            while folder and f"{folder}__init__.py" in files:
                folder = folder.removesuffix("/").rpartition("/")[0]
                folder = f"{folder}/" if folder else ""
            found.add(folder)
    return frozenset(found)
