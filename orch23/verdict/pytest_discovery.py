"""Find the tests and the importable modules of a file tree, as pytest finds them."""

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

_FILES = ("test_*.py", "*_test.py")
_NOT_ENTERED = ("*.egg", ".*", "_darcs", "build", "CVS", "dist", "node_modules", "venv", "{arch}")  # norecursedirs
_SELECTING = (
    "-k",
    "-m",
    "--deselect",
    "--ignore",
    "--ignore-glob",
    "--lf",
    "--ff",
    "--last-failed",
    "--sw",
    "--stepwise",
)


def is_test_file(path: str) -> bool:
    """Return whether pytest treats a file as a test file, by its name."""
    name = path.rpartition("/")[2]
    return any(fnmatchcase(name, pattern) for pattern in _FILES)


def is_of_tests(path: str) -> bool:
    """Return whether a file is a test file or a conftest.py."""
    return is_test_file(path) or path.rpartition("/")[2] == "conftest.py"


def id_without_parameters(node: str) -> str:
    """Return a test's id without its parameters: `test_a.py::test_x` of `test_a.py::test_x[1-2]`."""
    path, separator, rest = node.partition("::")
    return f"{path}{separator}{rest.partition('[')[0]}"


def expected_tests(files: Mapping[str, str], paths: tuple[str, ...] = ()) -> frozenset[str]:
    """Return the ids, without parameters, of the tests in the staged test files.

    `files` are texts by path, relative to the directory in which pytest runs; `paths` are its arguments: files,
    directories or ids. Only unconditional definitions count. For a file that does not parse, its path is the id.
    """
    plain = {_plain(path) for path in paths} or {"."}
    found: set[str] = set()
    for path, text in files.items():
        wanted = [one for one in plain if _reaches(one, path)]
        if wanted and (is_test_file(path) or path in plain):
            found.update(test for test in _tests(path, text) if any(_selects(one, test) for one in wanted))
    return frozenset(found)


def selects_tests(args: tuple[str, ...]) -> bool:
    """Return whether arguments of pytest select tests, so that the files do not determine the expected tests."""
    return any(arg.partition("=")[0] in _SELECTING or arg[:2] in ("-k", "-m") for arg in args)


def loaded_plugins(words: Iterable[str]) -> list[str]:
    """Return the modules that arguments make pytest load: `-p a`, `-pa`, `-o addopts=-p a`."""
    return re.findall(r"(?:^|[\s=\"'])-p[\s\"']*(?!no:)(\w+)", " ".join(words))


def may_have_doctests(path: str, args: tuple[str, ...], paths: tuple[str, ...]) -> bool:
    """Return whether pytest runs the examples in a text file: it is an argument, or matches a pattern."""
    globs = re.findall(r"--doctest-glob[\s=]+[\"']?([^\s\"']+)", " ".join(args)) or ["test*.txt"]
    is_named = path in map(_plain, (*args, *paths))
    return is_named or any(fnmatchcase(path.rpartition("/")[2], glob.rpartition("/")[2]) for glob in globs)


def _plain(path: str) -> str:
    path = path.removeprefix("./").rstrip("/") or "."
    return id_without_parameters(path)


def _reaches(wanted: str, path: str) -> bool:
    """Return whether pytest, given one path, finds a file. It does not enter some directories by itself."""
    if wanted.partition("::")[0] == path:
        return True
    if wanted != "." and not path.startswith(f"{wanted}/"):
        return False
    folders = path.split("/")[:-1][0 if wanted == "." else wanted.count("/") + 1 :]
    return not any(fnmatchcase(folder, pattern) for folder in folders for pattern in _NOT_ENTERED)


def _selects(wanted: str, test: str) -> bool:
    return "::" not in wanted or test == wanted or test.startswith(f"{wanted}::") or wanted.startswith(f"{test}::")


def _tests(path: str, text: str) -> Iterator[str]:
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield path
        return
    gone = {t.id for s in body if isinstance(s, ast.Delete) for t in s.targets if isinstance(t, ast.Name)}
    yield from _tests_in(body, path, inside=False, gone=frozenset(gone))


def _tests_in(body: list[ast.stmt], prefix: str, *, inside: bool, gone: frozenset[str] = frozenset()) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test") and name not in gone and not _is_no_test(statement, inside=inside):
                    yield f"{prefix}::{name}"
            case ast.ClassDef(name=name) if name not in gone and _is_test_class(statement):
                yield from _tests_in(statement.body, f"{prefix}::{name}", inside=True)
            case _:
                continue


def _is_no_test(function: ast.FunctionDef | ast.AsyncFunctionDef, *, inside: bool) -> bool:
    names = {_last_name(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list}
    return "fixture" in names or (inside and bool(names & {"property", "cached_property"}))


def _is_test_class(node: ast.ClassDef) -> bool:
    assigned = {
        target.id: statement.value
        for statement in node.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    flag = assigned.get("__test__")
    if isinstance(flag, ast.Constant) and not flag.value:
        return False
    if any(_last_name(base).endswith("TestCase") for base in node.bases):
        return True
    made = {s.name for s in node.body if isinstance(s, ast.FunctionDef)}
    return node.name.startswith("Test") and not made & {"__init__", "__new__"}


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


# The standard library without its own tests: many projects have a package `test`.
STDLIB_MODULES = sys.stdlib_module_names - {"test"}

_TEST_LIBRARIES_TEXT = """
    pytest _pytest pluggy iniconfig exceptiongroup py xdist execnet pytest_timeout pytest_asyncio pytest_mock pytest_cov
    hypothesis _hypothesis_pytestplugin _hypothesis_ftz_detector sortedcontainers coverage mock nose nose2 testtools
    testfixtures freezegun time_machine responses respx requests_mock httpretty pytest_httpserver vcr betamax faker
    factory model_bakery polyfactory assertpy hamcrest sure expects syrupy snapshottest approvaltests inline_snapshot
    dirty_equals deepdiff parameterized ddt behave tavern schemathesis anyio trio twisted icontract crosshair
"""
# Test runners, and libraries that tests use. A module of the project must not shadow them.
_TEST_LIBRARIES = frozenset(_TEST_LIBRARIES_TEXT.split())

CODE_SUFFIXES = (".py", ".pyc", ".so", ".pyd")
# Package names that some distributions install by mistake; no test imports them.
_NOT_LIBRARIES = frozenset({"test", "tests"})


def importable_modules(files: Iterable[str], folders: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each top-level module that can be imported from these directories.

    A package needs its `__init__`: without one, Python prefers a library of that name. Folders are "" or end with `/`.
    """
    for path in sorted(path for path in files if path.endswith(CODE_SUFFIXES)):
        folder, _, name = path.rpartition("/")
        module = name.partition(".")[0]
        if module == "__init__":
            folder, _, module = folder.rpartition("/")
        if module and (f"{folder}/" if folder else "") in folders:
            yield path, module


def import_folders(files: Collection[str]) -> frozenset[str]:
    """Return the directories that pytest puts first on `sys.path`: those of test files, above their packages."""
    found = set()
    for path in files:
        if is_of_tests(path):
            folder = path.removesuffix(path.rpartition("/")[2])
            while folder and f"{folder}__init__.py" in files:
                folder = folder.removesuffix("/").rpartition("/")[0]
                folder = f"{folder}/" if folder else ""
            found.add(folder)
    return frozenset(found)


def shadowed_library(
    module: str, is_installed: Callable[[str], bool], *, is_of_model: bool, is_declared: bool
) -> str | None:
    """Return the library module that a module shadows; None if it shadows none, or may do so.

    `is_declared`: it is in a folder of `pythonpath`, and not only beside a test.
    """
    if module in _NOT_LIBRARIES or not (is_of_model or is_declared):
        return None
    if module in STDLIB_MODULES:
        return f"the standard library's `{module}`"
    if (is_of_model or module in _TEST_LIBRARIES) and is_installed(module):
        return f"the installed `{module}`"
    return None
