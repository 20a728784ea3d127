"""Refuse files that may not decide a run of tests: settings that a model made, modules that hide a library's."""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from orch23.engine.failure import below
from orch23.engine.world import World
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import FileEntry
from orch23.model.pipeline import ForeachStage
from orch23.model.plan import Plan
from orch23.plan.writers import Writers
from orch23.resolve.resolution import Resolved
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.steps.pytest.spec import PytestStep

_CONFTEST = "conftest.py"


class Trust(Struct, frozen=True):
    """What one resolved stage may believe of the files in its rooms. `plan` is that of the time it started at."""

    world: World
    resolved: Resolved
    plan: Plan

    def refused(self, step: "PytestStep", files: Mapping[str, FileEntry]) -> tuple[Diagnostic, ...]:
        """Return an error for each setting of pytest that a model made, and each module that hides one of a library."""
        return (*self._settings(step, files), *self._shadows(step, files))

    def may_be_written(self, pattern: str) -> bool:
        """Return whether some stage of the pipeline may write a path that the pattern matches."""
        return bool(Writers(self.plan.all_nodes).meeting(pattern))

    def _shadows(self, step: "PytestStep", files: Mapping[str, FileEntry]) -> Iterator[Diagnostic]:
        from orch23.engine.shadowing import shadowing  # noqa: PLC0415 - for steps of pytest alone

        asks = cache(partial(of_a_model, self.world.plan))
        yield from shadowing(
            step,
            self.resolved.stage.cwd,
            files.keys(),
            interpreter=Path(self.resolved.facts.interpreter),
            is_of_model=lambda path: (maker := self._maker(path, files[path])) is not None and asks(maker),
        )

    def _settings(self, step: "PytestStep", files: Mapping[str, FileEntry]) -> Iterator[Diagnostic]:
        cwd = self.resolved.stage.cwd
        for path, entry in sorted(files.items()):
            if cwd != "." and not path.startswith(f"{cwd}/"):
                continue
            name = below(path, cwd)
            if (name.rpartition("/")[2] != _CONFTEST and name != step.config) or name in step.trust:
                continue
            maker = self._maker(path, entry)
            if maker is not None and of_a_model(self.world.plan, maker):
                message = f"is made by `{maker}`, which is a model's work, and would configure the tests that judge it"
                hint = f"leave it out, or name it: `pytest: {{trust: [{name}]}}`"
                yield Diagnostic("E321", message, hint=hint, subject=path)

    def _maker(self, path: str, entry: FileEntry) -> str | None:
        """Return the stage that made what a room holds at a path, None if a person did."""
        one = self.resolved
        given = (one.base, one.files, one.verify_files, one.parts, one.verify_parts)
        if all(files.get(path) != entry for files in given):
            return self.resolved.stage.name
        name = self.resolved.stage.name
        if path in self.world.starts.get(name, {}):  # a base that has moved: a user's bytes, or what a run left there
            ownership = self.world.ownership
            return name if ownership.is_known(path, entry) and not ownership.is_accepted(path, entry) else None
        if path in self.resolved.base and self.world.originals().get(path) == entry:
            return None
        return self.world.maker(name, path)


def of_a_model(plan: Plan, name: str) -> bool:
    """Say whether a stage asks a model, or comes after one that does."""
    seen, open_ = {name}, [name]
    while open_:
        node = plan.nodes.get(open_.pop())
        if node is None:
            continue
        if isinstance(node, ForeachStage):
            if "llm" in node.body:
                return True
        elif is_llm(node.step):
            return True
        for above in plan.upstream.get(node.name, ()):
            if above not in seen:
                seen.add(above)
                open_.append(above)
    return False
