"""Decide which files may configure the tests of a pytest step: models must not make their own tests pass."""

import os.path
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from orch23.engine.outcomes import relative_path
from orch23.engine.project_state import ProjectState
from orch23.engine.stage_view import StageView
from orch23.execute.interpreters import has_installed_module
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.pipeline import ForeachStage
from orch23.model.plan import Plan
from orch23.plan.nodes import WriterIndex
from orch23.plan.planner import closure
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.steps.pytest.spec import PytestStep


_CONFTEST = "conftest.py"


class TestTrust(Struct, frozen=True):
    """What one stage may trust of the files in its sandbox directories. `plan` is the one at its start."""

    state: ProjectState
    resolved: ResolvedStage
    plan: Plan

    def refused(self, step: "PytestStep", files: Mapping[str, FileEntry]) -> tuple[Diagnostic, ...]:
        """Return an error for each pytest setting that a model made, and each module that hides a library's."""
        return (*self._settings(step, files), *self._shadows(step, files))

    def may_be_written(self, pattern: str) -> bool:
        """Return whether a stage of the pipeline may write a path that the pattern matches."""
        return bool(WriterIndex(self.plan.all_nodes).writers_of(pattern))

    def _shadows(self, step: "PytestStep", files: Mapping[str, FileEntry]) -> Iterator[Diagnostic]:
        # Many modules of one tree have the same maker.
        is_of_model = cache(partial(_depends_on_model, self.state.plan))

        def is_made_by_model(path: str) -> bool:
            maker = self._maker(path, files[path])
            return maker is not None and is_of_model(maker)

        yield from _shadowing_errors(step, self.resolved, files.keys(), is_made_by_model)

    def _settings(self, step: "PytestStep", files: Mapping[str, FileEntry]) -> Iterator[Diagnostic]:
        cwd = self.resolved.stage.cwd
        for path, entry in sorted(files.items()):
            if cwd != "." and not path.startswith(f"{cwd}/"):
                continue
            name = relative_path(path, cwd)
            if (name.rpartition("/")[2] != _CONFTEST and name != step.config) or name in step.trust:
                continue
            maker = self._maker(path, entry)
            if maker is not None and _depends_on_model(self.state.plan, maker):
                message = f"is made by `{maker}`, which is a model's work, and would configure the tests that judge it"
                hint = f"leave it out, or name it: `pytest: {{trust: [{name}]}}`"
                yield Diagnostic("E321", message, hint=hint, subject=path)

    def _maker(self, path: str, entry: FileEntry) -> str | None:
        """Return the stage that made the file at a path of the sandbox directory; None if the user did."""
        one = self.resolved
        given = (one.base, one.files, one.verify_files, one.parts, one.verify_parts)
        name = one.stage.name
        if all(files.get(path) != entry for files in given):
            return name
        # A base that has moved: a user's bytes, or what a run left there.
        if path in self.state.moved_bases.get(name, {}):
            ownership = self.state.ownership
            return name if ownership.is_known(path, entry) and not ownership.is_accepted(path, entry) else None
        if path in one.base and self.state.known_originals.get(path) == entry:
            return None
        return StageView(self.state, name).maker(path)


def _shadowing_errors(
    step: "PytestStep", stage: ResolvedStage, files: Collection[str], is_of_model: Callable[[str], bool]
) -> Iterator[Diagnostic]:
    """Yield an error for each module that shadows another one and is not listed in `pytest.trust`.

    In a folder of `pythonpath`, no module may have the name of one of the standard library or of an installed test
    library. A module that a model wrote may not shadow any installed module, nor one that no model wrote. This holds
    for modules beside the tests too: pytest puts the folder of a test first in `sys.path`.
    """
    from orch23.decide.pytest_discovery import (  # noqa: PLC0415 - for steps of pytest alone
        import_folders,
        importable_modules,
        is_test_file,
        shadowed_library,
    )

    cwd = stage.stage.cwd
    is_installed = partial(has_installed_module, Path(stage.facts.interpreter))
    folders = {os.path.normpath(f"{cwd}/{folder}") for folder in step.pythonpath}
    declared = {"" if folder == "." else f"{folder}/" for folder in folders}
    in_declared = frozenset(importable_modules(files, declared))
    found = dict.fromkeys((*sorted(in_declared), *importable_modules(files, import_folders(files) - declared)))
    of_models = frozenset(path for path, _ in found if is_of_model(path))
    others = {module: f"`{path}`" for path, module in found if path not in of_models}
    for path, module in found:
        of_model = path in of_models
        hidden = shadowed_library(module, is_installed, is_of_model=of_model, is_declared=(path, module) in in_declared)
        if of_model and not is_test_file(path):
            hidden = hidden or others.get(module)
        name = relative_path(path, cwd)
        if hidden is not None and name not in step.trust:
            message = f"would be imported instead of {hidden}, which the tests may rely on"
            hint = f"rename it; or, if this is intended, list it: `pytest: {{trust: [{name}]}}`"
            yield Diagnostic("E324", message, hint=hint, subject=path)


def _depends_on_model(plan: Plan, name: str) -> bool:
    """Return whether a stage or one of its upstream stages calls a model."""
    nodes = (plan.nodes[one] for one in closure({name}, plan.upstream) if one in plan.nodes)
    return any("llm" in node.body if isinstance(node, ForeachStage) else is_llm(node.step) for node in nodes)
