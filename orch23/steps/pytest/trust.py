"""Refuse modules that shadow a library module: they could make any test pass."""

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


# Package names that some distributions install by mistake; no test imports them.
_NOT_LIBRARIES = frozenset({"test", "tests"})


def shadowing_errors(
    step: "PytestStep", cwd: str, files: Collection[str], *, interpreter: Path, is_of_model: Callable[[str], bool]
) -> Iterator[Diagnostic]:
    """Yield an error for each module that shadows another one and is not listed in `pytest.trust`.

    In a folder of `pythonpath`, no module may have the name of one of the standard library or of an installed test
    library. A module that a model wrote may not shadow any installed module, nor one that no model wrote. This holds
    for modules beside the tests too: pytest puts the folder of a test first in `sys.path`.
    """
    folders = {os.path.normpath(f"{cwd}/{folder}") for folder in step.pythonpath}
    declared = {"" if folder == "." else f"{folder}/" for folder in folders}
    in_declared = frozenset(importable_modules(files, declared))
    found = dict.fromkeys((*sorted(in_declared), *importable_modules(files, import_folders(files) - declared)))
    of_models = frozenset(path for path, _ in found if is_of_model(path))
    others = {module: f"`{path}`" for path, module in found if path not in of_models}
    for path, module in found:
        of_model = path in of_models
        hidden = _library(module, interpreter, is_of_model=of_model, is_declared=(path, module) in in_declared)
        if of_model and not is_test_file(path):
            hidden = hidden or others.get(module)
        name = relative_path(path, cwd)
        if hidden is not None and name not in step.trust:
            message = f"would be imported instead of {hidden}, which the tests may rely on"
            hint = f"rename it; or, if this is intended, list it: `pytest: {{trust: [{name}]}}`"
            yield Diagnostic("E324", message, hint=hint, subject=path)


def _library(module: str, interpreter: Path, *, is_of_model: bool, is_declared: bool) -> str | None:
    """Return the library module that a module shadows; None if it shadows none, or may do so."""
    if module in _NOT_LIBRARIES or not (is_of_model or is_declared):
        return None
    if module in STDLIB_MODULES:
        return f"the standard library's `{module}`"
    if (is_of_model or module in TEST_LIBRARIES) and has_installed_module(interpreter, module):
        return f"the installed `{module}`"
    return None
