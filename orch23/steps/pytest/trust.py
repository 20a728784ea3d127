"""Refuse modules that would be imported instead of a library's: they could make any test pass."""

import os.path
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orch23.decide.pytest_discovery import (
    STDLIB_MODULES,
    TEST_LIBRARIES,
    import_folders,
    importable_modules,
    is_test_file,
)
from orch23.engine.outcomes import relative_path
from orch23.execute.interpreters import has_installed_module
from orch23.model.diagnostic import Diagnostic

if TYPE_CHECKING:
    from orch23.steps.pytest.spec import PytestStep


_NOT_LIBRARIES = frozenset({"test", "tests"})
"""Packages that badly packed distributions install too; no test imports those."""


def shadowing_errors(
    step: "PytestStep", cwd: str, files: Collection[str], *, interpreter: Path, is_of_model: Callable[[str], bool]
) -> Iterator[Diagnostic]:
    """Give an error for each module that hides another and that `pytest.trust` does not name.

    In a folder of `pythonpath` these are modules with the name of one of the standard library or of an installed test
    library. What a model made may hide no installed module at all, nor one that it did not make, also beside the tests,
    which pytest imports first.
    """
    declared = {_folder(os.path.normpath(f"{cwd}/{folder}")) for folder in step.pythonpath}
    everyone = frozenset(importable_modules(files, declared))
    found = dict.fromkeys((*sorted(everyone), *importable_modules(files, import_folders(files) - declared)))
    of_models = frozenset(path for path, _ in found if is_of_model(path))
    others = {module: path for path, module in found if path not in of_models}
    for path, module in found:
        name = relative_path(path, cwd)
        if name in step.trust:
            continue
        of_model = path in of_models
        whose = _library(module, interpreter, is_of_model=of_model, is_declared=(path, module) in everyone)
        if whose is None and of_model and module in others and not is_test_file(path):
            whose = f"`{others[module]}`"
        if whose is not None:
            message = f"would be imported instead of {whose}, which the tests may rely on"
            hint = f"rename it; or, if this is meant, name it: `pytest: {{trust: [{name}]}}`"
            yield Diagnostic("E324", message, hint=hint, subject=path)


def _library(module: str, interpreter: Path, *, is_of_model: bool, is_declared: bool) -> str | None:
    """Return which module of a library is hidden, None where none is or where that is the user's own decision."""
    if module in _NOT_LIBRARIES or not (is_of_model or is_declared):
        return None
    if module in STDLIB_MODULES:
        return f"the standard library's `{module}`"
    if (is_of_model or module in TEST_LIBRARIES) and has_installed_module(interpreter, module):
        return f"the installed `{module}`"
    return None


def _folder(path: str) -> str:
    return "" if path == "." else f"{path}/"
