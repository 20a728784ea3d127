"""Refuse modules of a tested tree that would be imported in the place of a library's: they could make any test pass."""

import os.path
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from orch23.decide.shadowing import STANDARD, TEST_LIBRARIES, folders_of_tests, modules_at
from orch23.engine.failure import below
from orch23.execute.interpreters import installed_module
from orch23.model.diagnostic import Diagnostic
from orch23.model.pipeline import PytestStep

_NOT_LIBRARIES = frozenset({"test", "tests"})
"""Packages that badly packed distributions install too; no test imports those."""


def shadowing(
    step: PytestStep, cwd: str, files: Collection[str], *, interpreter: Path, is_of_model: Callable[[str], bool]
) -> Iterator[Diagnostic]:
    """Give an error for each module that hides one of a library and that `pytest.trust` does not name.

    In a folder of `pythonpath` these are modules with the name of one of the standard library or of an installed test
    library. What a model made may hide no installed module at all, also beside the tests, which pytest imports first.
    """
    declared = {_folder(os.path.normpath(f"{cwd}/{folder}")) for folder in step.pythonpath}
    beside = folders_of_tests(files) - declared
    hiding = dict.fromkeys((*modules_at(files, declared), *modules_at(files, beside)))
    everyone = frozenset(modules_at(files, declared))
    for path, module in hiding:
        name = below(path, cwd)
        if name in step.trust or module in _NOT_LIBRARIES:
            continue
        whose = _hidden(module, interpreter, is_of_model=is_of_model(path), is_declared=(path, module) in everyone)
        if whose is not None:
            message = f"would be imported instead of {whose} `{module}`, which the tests may rely on"
            hint = f"rename it; or, if this is meant, name it: `pytest: {{trust: [{name}]}}`"
            yield Diagnostic("E324", message, hint=hint, subject=path)


def _hidden(module: str, interpreter: Path, *, is_of_model: bool, is_declared: bool) -> str | None:
    """Return whose module is hidden, None where none is or where that is the user's own decision."""
    if not (is_of_model or is_declared):
        return None
    if module in STANDARD:
        return "the standard library's"
    if (is_of_model or module in TEST_LIBRARIES) and installed_module(interpreter, module):
        return "the installed"
    return None


def _folder(path: str) -> str:
    return "" if path == "." else f"{path}/"
