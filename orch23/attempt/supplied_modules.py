"""Decide which modules that tests import a model may supply: those that the pipeline names, and no dependencies."""

import posixpath
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from orch23.attempt.failures import E_SUPPLIED
from orch23.decide.project_state import ProjectState
from orch23.execute.interpreters import has_module, is_namespace
from orch23.model.diagnostic import Diagnostic, Location
from orch23.model.pipeline import ForeachStage, Stage, family_of
from orch23.plan.nodes import WriterIndex, declared_node, reads_of, writes_of
from orch23.plan.planner import depends_on_model
from orch23.steps.pytest.spec import PytestStep
from orch23.text.python_imports import (
    DEPENDENCY_FILES,
    dependencies,
    distribution_of,
    doctest_lines,
    imported_modules,
    loads_by_name,
    module_name,
    modules_in_texts,
)
from orch23.verdict.pytest_discovery import loaded_plugins
from orch23.verdict.unfixable_tests import may_be_module, module_levels


def planned_errors(state: ProjectState, stage: Stage, interpreter: Path) -> Iterator[Diagnostic]:
    """Yield the errors of all pytest steps of a stage that are certain before a model is called."""
    for step in (stage.step, *stage.verify.steps):
        if isinstance(step, PytestStep):
            yield from SuppliedModules(state, stage, step, interpreter).planned()


class SuppliedModules(Struct, frozen=True):
    """The rule for one pytest step of a stage, whose tests an interpreter runs."""

    state: ProjectState
    stage: Stage
    step: PytestStep
    interpreter: Path

    def made(
        self, makers: Mapping[str, str], known: Collection[str], texts: Mapping[str, str], folders: Collection[str]
    ) -> Iterator[Diagnostic]:
        """Yield an error for each module that a model made, that files of others import, and that it must not supply.

        `makers` has the stage of each Python file that a model made, `known` the modules of the user, `texts` the files
        that import modules, `folders` the directories of modules.
        """
        made: dict[str, list[tuple[str, str]]] = {}
        for path, maker in makers.items():
            for level in module_levels(path):
                made.setdefault(level.rpartition("/")[2], []).append((level, maker))
        # Not in a package: a text that is the name of a module in one imports nothing.
        files = makers.keys() | texts.keys()
        parents = {name: [f"{level.rpartition('/')[0]}/".lstrip("/") for level, _ in made[name]] for name in made}
        top = {name for name in made if any(at in folders or f"{at}__init__.py" not in files for at in parents[name])}
        is_loaded = any(map(loads_by_name, texts.values()))
        plugins = loaded_plugins((*(f"-p{name}" for name in self.step.plugins), *self.step.args))
        found = [(module, "", 0) for module in plugins]
        for path, text in sorted(texts.items()):
            if any(name in text for name in made):
                named = modules_in_texts(text, is_loaded=is_loaded)
                lines = {name: named[name] for name in top & named.keys()}
                lines |= imported_modules(doctest_lines(text)) | imported_modules(text)
                found += [(module, path, line) for module, line in sorted(lines.items())]
        for module, path, line in found:
            own = family_of(makers.get(path, ""))
            others = [one for one in made.get(module, ()) if family_of(one[1]) != own and module not in known]
            if others and (not has_module(self.interpreter, module) or is_namespace(self.interpreter, module)):
                is_named = all(level in self._named_by(maker) for level, maker in others)
                yield from self._errors(module, path, line, is_named=is_named)

    def planned(self) -> Iterator[Diagnostic]:
        """Yield the errors that are certain before a model is called: only a pattern of a model can have the module."""
        plan, workspace = self.state.plan, self.state.store.workspace
        upstream = [name for name in (self.stage.name, *plan.upstream[self.stage.name]) if name in plan.nodes]
        patterns: dict[bool, set[str]] = {True: set(), False: set()}
        for name in upstream:
            patterns[depends_on_model(plan, name)].update(writes_of(plan.nodes[name]))
        files = {path for pattern in reads_of(self.stage) for path in workspace.writable_files(pattern)}
        tests = (path for path in files if path.endswith(".py") and not self.state.declared.written.contains(path))
        for path in sorted(tests):
            for module, line in imported_modules(self._text(path), certainly=True).items():
                is_of_model = may_be_module(module, patterns[True]) and not may_be_module(module, patterns[False])
                if is_of_model and not has_module(self.interpreter, module):
                    written = (pattern for node in plan.all_nodes.values() for pattern in writes_of(node))
                    named = (level.rpartition("/")[2] for pattern in written for level in module_levels(pattern))
                    # A foreach that is not expanded yet may name it.
                    errors = self._errors(module, path, line, is_named=bool(plan.unexpanded) or module in named)
                    yield from (one for one in errors if not self._is_of_user(module))

    def _is_of_user(self, module: str) -> bool:
        """Return whether a file that is not the result of a stage alone may be a module."""
        workspace, ownership = self.state.store.workspace, self.state.ownership
        found = [*workspace.writable_files(f"**/{module}.py"), *workspace.writable_files(f"**/{module}/**")]
        entries = {path: workspace.entry(path) for path in found}
        return any(
            entry is None or not ownership.is_known(path, entry) or self.state.known_originals.get(path) is not None
            for path, entry in entries.items()
        )

    def _errors(self, module: str, path: str, line: int, *, is_named: bool) -> Iterator[Diagnostic]:
        """Yield why no model may supply a module that is not installed, if it is so."""
        part = "in part" if is_namespace(self.interpreter, module) else "not"
        wanted = f"imports `{module}`, which is {part} installed in the interpreter of stage `{self.stage.family}`"
        place = Location(path, line, 1) if path else None
        if (file := self._depending(module)) is not None:
            message = f"{wanted}; it is a dependency in `{file}`, so no model may supply it"
            yield Diagnostic(E_SUPPLIED, message, place, hint="install it", subject=path or "pytest.plugins")
        elif not is_named and module not in self.step.provides:
            listed = ", ".join((*self.step.provides, module))
            hint = f"install it; or, if the pipeline is to make it, write `pytest: {{provides: [{listed}]}}`"
            yield Diagnostic(E_SUPPLIED, f"{wanted}, and a model may supply it", place, hint=hint, subject=path)

    def _depending(self, module: str) -> str | None:
        """Return the file of the project that has the distribution of a module as a dependency, or None."""
        workspace, names = self.state.store.workspace, (module_name(module), module_name(distribution_of(module)))
        patterns = (posixpath.normpath(f"{at}/{one}") for at in (".", self.stage.cwd) for one in DEPENDENCY_FILES)
        files = (path for pattern in patterns for path in workspace.writable_files(pattern))
        found = dependencies({path: self._text(path) for path in files})
        return next((found[name] for name in names if name in found), None)

    def _text(self, path: str) -> str:
        return (self.state.store.workspace.read(path) or b"").decode("utf-8", errors="replace")

    def _named_by(self, name: str) -> set[str]:
        """Return the directories and modules that a stage names by what it writes."""
        plan = self.state.plan
        declared = declared_node(plan.pipeline, name)
        source = declared.foreach.source if isinstance(declared, ForeachStage) else None
        lists = WriterIndex(plan.all_nodes).writers_of(source) if source is not None else ()
        # The paths of items whose list a model made are the choice of the model.
        if name not in plan.nodes or any(depends_on_model(plan, one) for one in lists):
            return set()
        return {level for pattern in writes_of(plan.nodes[name]) for level in module_levels(pattern)}
