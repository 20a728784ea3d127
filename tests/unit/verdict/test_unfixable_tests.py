"""The errors of collection that no response of a model can correct, and those that one can."""

import pytest

from orch23.verdict.run_results import ReportedFailure
from orch23.verdict.unfixable_tests import collection_error, may_be_module, unfound_file

TEST = "tests/test_app.py"


def failure(text: str, error: str, when: str = "collect") -> ReportedFailure:
    return ReportedFailure(TEST, error, "", text, when)


def found(text: str, error: str, fixed: dict[str, str], *, outputs: tuple[str, ...] = ("src/app.py",)) -> str:
    one = collection_error(
        [failure(text, error)], fixed, ".", lambda name: may_be_module(name, outputs), lambda _: None
    )
    return "" if one is None else f"{one.location} {one.code} {one.message}"


def syntax(path: str) -> str:
    marked = "E       def (\nE           ^\nE   SyntaxError: bad"
    return f'{TEST}:1: in <module>\n    import x\nE     File "{path}", line 3\n{marked}'


def no_module(name: str, place: str = f"{TEST}:1: in <module>") -> str:
    return f"Traceback:\n{place}\n    import x\nE   ModuleNotFoundError: No module named '{name}'"


def no_name(name: str, module: str, file: str) -> str:
    text = f"E   ImportError: cannot import name '{name}' from '{module}' ({file})"
    return f"Traceback:\n{TEST}:1: in <module>\n    from x import y\n{text}"


def test_a_syntax_error_in_a_file_that_the_stage_cannot_write() -> None:
    path = "/room/work/lib/helper.py"
    assert found(syntax(path), "SyntaxError", {"lib/helper.py": ""}).startswith("lib/helper.py:3:1 E325 has a syntax")
    assert found(syntax(path), "SyntaxError", {}) == ""  # it is an output
    assert found(syntax("<unknown>"), "SyntaxError", {"lib/helper.py": ""}) == ""
    assert found(syntax(path), "ValueError", {"lib/helper.py": ""}) == ""


def test_only_errors_of_collection_count() -> None:
    one = failure(syntax("/room/work/lib/helper.py"), "SyntaxError", "call")
    assert collection_error([one], {"lib/helper.py": ""}, ".", lambda _name: False, lambda _: None) is None


def test_paths_are_those_of_the_project() -> None:
    one = failure(syntax("/room/work/ws/lib/helper.py"), "SyntaxError")
    error = collection_error([one], {"lib/helper.py": ""}, "ws", lambda _name: False, lambda _: None)
    assert error is not None
    assert error.subject == "ws/lib/helper.py"


@pytest.mark.parametrize(
    "source", ["import nothing", "import nothing.at.all", "import os, nothing", "from nothing import a"]
)
def test_a_missing_module_that_the_stage_cannot_write(source: str) -> None:
    assert "imports `nothing`" in found(no_module("nothing"), "ModuleNotFoundError", {TEST: source})


@pytest.mark.parametrize(
    ("source", "outputs"),
    [
        ("import nothing", ("nothing.py",)),
        ("import nothing", ("src/nothing/core.py",)),
        ("import nothing", ("src/**",)),
        ("import nothing", ("src/",)),
        ("import other", ("src/app.py",)),  # another line of the file imported it
        ("from . import nothing", ("src/app.py",)),
        ("try:\n    import nothing\nfinally:\n    pass", ("src/app.py",)),
        ("if True: import nothing", ("src/app.py",)),
        ("def (", ("src/app.py",)),
    ],
)
def test_a_missing_module_that_may_be_the_stages_fault(source: str, outputs: tuple[str, ...]) -> None:
    assert found(no_module("nothing"), "ModuleNotFoundError", {TEST: source}, outputs=outputs) == ""


def test_a_module_that_a_file_of_the_stage_imports_is_its_fault() -> None:
    text = no_module("nothing", f"{TEST}:1: in <module>\n    import app\nsrc/app.py:1: in <module>")
    assert found(text, "ModuleNotFoundError", {TEST: "import nothing"}) == ""
    inside = no_module("nothing", f"{TEST}:1: in load")
    assert found(inside, "ModuleNotFoundError", {TEST: "import nothing"}) == ""


@pytest.mark.parametrize(
    ("text", "is_certain"),
    [
        ("less = 1\n", True),
        ("from app import *\n", False),
        ("from app import other as more\n", False),
        ("def __getattr__(name):\n    return 1\n", False),
        ("globals()['mo' + 're'] = 1\n", False),
    ],
)
def test_a_name_that_a_file_lacks(text: str, is_certain: bool) -> None:
    fixed = {TEST: "from helper import more", "lib/helper.py": text}
    error = found(no_name("more", "helper", "/room/work/lib/helper.py"), "ImportError", fixed)
    assert ("imports `more` from `helper`" in error) is is_certain


def test_a_name_that_an_output_or_a_library_lacks() -> None:
    fixed = {TEST: "from app import more"}
    assert found(no_name("more", "app", "/room/work/src/app.py"), "ImportError", fixed) == ""
    library = no_name("more", "json", "/python/json/__init__.py")
    assert "`json`" in found(library, "ImportError", {TEST: "from json import more"})


@pytest.mark.parametrize(
    ("patterns", "staged", "file"),
    [
        (("src/app.py",), ["src/app.py"], "src/app.py"),
        (("src/app.py", "notes.md"), ["src/app.py"], "src/app.py"),
        (("src/app.py",), [], None),
        (("src/app.py", "lib/app.py"), ["src/app.py"], None),
        (("src/app.py", "src/**"), ["src/app.py"], None),
        (("src/app.py", "tests/conftest.py"), ["src/app.py", "tests/conftest.py"], None),
    ],
)
def test_a_file_is_unfound_only_if_the_stage_can_write_no_other_one(
    patterns: tuple[str, ...], staged: list[str], file: str | None
) -> None:
    assert unfound_file("app", patterns, staged) == file
