"""YAML syntax of a pytest step."""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from orch23.model.fields import Problems
from orch23.model.language import Document, Language, Path, Text, Word
from orch23.steps.pytest.spec import PytestStep


class PytestDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tests with options."""

    args: Annotated[tuple[Word, ...], Meta(description="Further arguments.")] = ()
    paths: Annotated[
        tuple[Path, ...], Meta(description="Files, directories or test ids to run, relative to `cwd`.")
    ] = ()
    config: Annotated[
        Text | UnsetType, Meta(description="A configuration file to use in place of orch23's own, which is empty.")
    ] = UNSET
    plugins: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A plugin's module name.")], ...],
        Meta(description="Plugins to load. No other plugins are loaded."),
    ] = ()
    pythonpath: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A directory.")], ...] | UnsetType,
        Meta(description="Directories for imports, relative to `cwd`. Default: `cwd` itself."),
    ] = UNSET
    expect: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A test id.")], ...],
        Meta(description="Ids of tests that must run and pass. Default: all test functions in the staged test files."),
    ] = ()
    trust: Annotated[
        tuple[Path, ...],
        Meta(
            description="Files to trust, as literal paths: `conftest.py` and configuration files that an llm stage, or "
            "a stage downstream of one, makes; modules that hide a module of a library."
        ),
    ] = ()
    provides: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A top-level module.")], ...],
        Meta(
            description="Modules that a model may make and tests import, if no literal output or directory names them."
        ),
    ] = ()
    report: Annotated[Text | UnsetType, Meta(description="A JSON report to write. It is an output of the stage.")] = (
        UNSET
    )
    must_fail: Annotated[
        bool,
        Meta(
            description="Every test must be collected, and must fail. Use it for new tests, before their code exists."
        ),
    ] = False


Pytest: TypeAlias = PytestDocument | Annotated[tuple[Word, ...], Meta(description="Arguments only.")]


def read_pytest(value: Pytest, at: Problems) -> PytestStep:
    """Return the step of its options or arguments."""
    if not isinstance(value, PytestDocument):
        return PytestStep(args=at.words("pytest", value))
    below = at.below("pytest")
    return PytestStep(
        args=below.words("args", value.args),
        paths=_paths(value.paths, below.below("paths")),
        config=below.file("config", value.config),
        plugins=value.plugins,
        pythonpath=PytestStep().pythonpath
        if value.pythonpath is UNSET
        else _paths(value.pythonpath, below.below("pythonpath")),
        expect=value.expect,
        trust=_paths(value.trust, below.below("trust")),
        provides=value.provides,
        report=below.file("report", value.report),
        must_fail=value.must_fail,
    )


def _paths(texts: Sequence[str], at: Problems) -> tuple[str, ...]:
    """Return literal files and directories relative to the stage's `cwd`; a test id may follow after `::`."""
    out = []
    for number, text in enumerate(texts):
        name, sign, test = text.partition("::")
        path = "." if name in (".", "./") else at.path_at(str(number), name, "place")
        if path is not None:
            out.append(f"{path}{sign}{test}")
    return tuple(out)


PYTEST_LANGUAGE = Language(
    form=Pytest,
    description="Run tests.",
    read=read_pytest,
    short="args",
    defaults=PytestDocument,
    verifies="Tests that must pass.",
)
