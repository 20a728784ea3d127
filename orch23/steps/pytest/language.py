"""YAML syntax of a pytest step."""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta, UnsetType

from orch23.model.fields import Problems
from orch23.model.language import Document, File, Key, Language, Path, Word, Words, item, read_fields
from orch23.steps.pytest.spec import PytestStep


def _read_tests(at: Problems, key: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return literal files and directories relative to the stage's `cwd`; a test id may follow after `::`."""
    out = []
    for number, text in enumerate(texts):
        name, sign, test = text.partition("::")
        path = "." if name in (".", "./") else at.path_at(f"{key}/{number}", name, "place")
        if path is not None:
            out.append(f"{path}{sign}{test}")
    return tuple(out)


class PytestDocument(Document):
    """Tests with options."""

    args: Words = Key("[-x, --maxfail=3]", default=()).doc("Further arguments.")
    paths: tuple[Path, ...] = Key("[tests, 'tests/test_app.py::test_names']", default=(), read=_read_tests).doc("""
        Files, directories or test ids to run, relative to `cwd`.""")
    config: File | UnsetType = Key("tests/pytest.ini").doc("""
        A configuration file to use in place of orch23's own, which is empty.""")
    plugins: tuple[Annotated[str, item("A plugin's module name.")], ...] = Key("[pytest_asyncio]", default=()).doc("""
        Plugins to load. No other plugins are loaded.""")
    pythonpath: tuple[Annotated[str, item("A directory.")], ...] | UnsetType = Key("[src]", read=_read_tests).doc("""
        Directories for imports, relative to `cwd`. Default: `cwd` itself.""")
    expect: tuple[Annotated[str, item("A test id.")], ...] = Key("['tests/test_app.py::test_names']", default=()).doc(
        "Ids of tests that must run and pass. Default: all test functions in the staged test files."
    )
    trust: tuple[Path, ...] = Key("[tests/conftest.py]", default=(), read=_read_tests).doc("""
        Files to trust, as literal paths: `conftest.py` and configuration files that an llm stage, or a stage downstream
        of one, makes; modules that hide a module of a library.""")
    provides: tuple[Annotated[str, item("A top-level module.")], ...] = Key("[app]", default=()).doc("""
        Modules that a model may make and tests import, if no literal output or directory names them.""")
    report: File | UnsetType = Key("build/report.json").doc("A JSON report to write. It is an output of the stage.")
    must_fail: bool = Key("true", default=False).doc("""
        Every test must be collected, and must fail. Use it for new tests, before their code exists.""")


_ARGUMENTS = Meta(description="Arguments only.", extra_json_schema={"x-example": "pytest: [-x, tests]"})
Pytest: TypeAlias = PytestDocument | Annotated[tuple[Word, ...], _ARGUMENTS]


def read_pytest(value: Pytest, at: Problems) -> PytestStep:
    """Return the step of its options or arguments."""
    if not isinstance(value, PytestDocument):
        return PytestStep(args=at.words("pytest", value))
    return PytestStep(**read_fields(value, at.below("pytest")))


PYTEST_LANGUAGE = Language(
    form=Pytest,
    description="Run tests.",
    read=read_pytest,
    short="args",
    defaults=PytestDocument,
    verifies="Tests that must pass.",
    example="{paths: [tests], pythonpath: [src]}",
    example_of_defaults="{pythonpath: [src]}",
    example_of_verify="{paths: [tests]}",
)
