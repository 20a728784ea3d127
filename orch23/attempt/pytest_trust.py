"""Decide which files may configure the tests of a pytest step: models must not make their own tests pass."""

import os.path
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from orch23.attempt.failures import relative_path
from orch23.decide.project_state import ProjectState
from orch23.decide.stage_view import StageTree
from orch23.execute.interpreters import has_installed_module
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.pipeline import Stage
from orch23.model.plan import Plan
from orch23.plan.nodes import WriterIndex
from orch23.plan.planner import depends_on_model
from orch23.resolve.resolution import ResolvedStage

if TYPE_CHECKING:
    from orch23.steps.pytest.spec import PytestStep


_CONFTEST = "conftest.py"


class TestTrust(Struct, frozen=True, dict=True):
    """What one stage may trust of the files in its sandbox directories. `plan` is the one at its start."""

    state: ProjectState
    resolved: ResolvedStage
    plan: Plan

    def refused(self, step: "PytestStep", files: Mapping[str, FileEntry]) -> tuple[Diagnostic, ...]:
        """Return an error for each pytest setting of a model, and each module that hides or supplies a library's."""
        from orch23.verdict.pytest_discovery import CODE_SUFFIXES  # noqa: PLC0415 - for steps of pytest alone

        # Many files of one tree have the same maker.
        is_of_model = cache(partial(depends_on_model, self.state.plan))
        read = (path for path in sorted(files) if path.endswith((*CODE_SUFFIXES, step.config or _CONFTEST)))
        makers = {path: maker for path in read if (maker := self._maker(path, files[path])) and is_of_model(maker)}
        shadows = _shadowing_errors(step, self.resolved, files.keys(), makers.keys())
        code = {path: maker for path, maker in makers.items() if path.endswith(CODE_SUFFIXES)}
        return (*self._settings(step, makers), *shadows, *self._supplied(step, files, code))

    def makers_of(self, pattern: str) -> tuple[str, ...]:
        """Return the stages of the pipeline that may write a path that the pattern matches."""
        return self._writers.writers_of(pattern)

    def may_make_module(self, module: str, folders: Iterable[str]) -> bool:
        """Return whether a stage may write a module in one of these folders, which are relative to `cwd`."""
        top, cwd = module.partition(".")[0], self.resolved.stage.cwd
        places = {os.path.normpath(f"{cwd}/{folder}/{top}") for folder in folders}
        return any(self.makers_of(f"{place}{end}") for place in places for end in (".py", "/**"))

    @cached_property
    def _writers(self) -> WriterIndex:
        return WriterIndex(self.plan.all_nodes)

    def _supplied(
        self, step: "PytestStep", files: Mapping[str, FileEntry], makers: Mapping[str, str]
    ) -> Iterator[Diagnostic]:
        makers = {path: maker for path, maker in makers.items() if not self._was_users(path)}
        if not makers:
            return
        from orch23.attempt.supplied_modules import SuppliedModules  # noqa: PLC0415 - likewise
        from orch23.verdict.pytest_discovery import (  # noqa: PLC0415 - for steps of pytest alone
            import_folders,
            importable_modules,
            is_of_tests,
            may_have_doctests,
        )

        view = StageTree(self.state, self.resolved.stage.name)
        folders = _declared_folders(step, self.resolved.stage) | import_folders(files)
        known = importable_modules(files.keys() - makers.keys(), folders)
        # The imports of what a model made count if it is a test: another stage may have to pass it.
        read = [path for path in files if path.endswith(".py") and (path not in makers or is_of_tests(path))]
        for path, entry in files.items():
            if may_have_doctests(relative_path(path, self.resolved.stage.cwd), step.args, step.paths):
                maker = self._maker(path, entry)
                read += [] if maker and depends_on_model(self.state.plan, maker) else [path]
        texts = {path: view.read(path, files[path]).decode("utf-8", errors="replace") for path in read}
        rule = SuppliedModules(self.state, self.resolved.stage, step, Path(self.resolved.facts.interpreter))
        yield from rule.made(makers, {module for _, module in known}, texts, folders)

    def _was_users(self, path: str) -> bool:
        """Return whether a path had a file of the user, which a stage has edited."""
        base = self.resolved.base.get(path)
        is_own = base is not None and not self.state.ownership.is_known(path, base)
        return is_own or self.state.known_originals.get(path) is not None

    def _settings(self, step: "PytestStep", makers: Mapping[str, str]) -> Iterator[Diagnostic]:
        cwd = self.resolved.stage.cwd
        for path, maker in makers.items():
            name = relative_path(path, cwd)
            is_setting = name.rpartition("/")[2] == _CONFTEST or name == step.config
            if is_setting and name not in step.trust and (cwd == "." or path.startswith(f"{cwd}/")):
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
        return StageTree(self.state, name).maker(path)


def _shadowing_errors(
    step: "PytestStep", stage: ResolvedStage, files: Collection[str], of_models: Collection[str]
) -> Iterator[Diagnostic]:
    """Yield an error for each module that shadows another one and is not listed in `pytest.trust`.

    In a folder of `pythonpath`, no module may have the name of one of the standard library or of an installed test
    library. A module that a model wrote may not shadow any installed module, nor one that no model wrote. This holds
    for modules beside the tests too: pytest puts the folder of a test first in `sys.path`.
    """
    from orch23.verdict.pytest_discovery import (  # noqa: PLC0415 - for steps of pytest alone
        import_folders,
        importable_modules,
        is_test_file,
        shadowed_library,
    )

    cwd, declared = stage.stage.cwd, _declared_folders(step, stage.stage)
    is_installed = partial(has_installed_module, Path(stage.facts.interpreter))
    in_declared = frozenset(importable_modules(files, declared))
    found = dict.fromkeys((*sorted(in_declared), *importable_modules(files, import_folders(files) - declared)))
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


def _declared_folders(step: "PytestStep", stage: Stage) -> frozenset[str]:
    """Return the directories of modules that the pipeline names: "" for the root, or with `/` at the end."""
    paths = (*step.pythonpath, *filter(None, stage.env.get("PYTHONPATH", "").split(os.pathsep)))
    folders = {os.path.normpath(f"{stage.cwd}/{path}") for path in paths}
    return frozenset("" if folder == "." else f"{folder}/" for folder in folders)
