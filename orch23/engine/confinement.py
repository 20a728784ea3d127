"""Before the first stage starts: refuse stages whose processes could run, and can not, or may not, as they are."""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from orch23.engine.appraise import Appraised
from orch23.engine.facts import has_process
from orch23.engine.preview import Preview
from orch23.model.decision import Expand, Maybe, Run, VerifyOnly
from orch23.model.diagnostic import Diagnostic, Related
from orch23.model.errors import ConfigurationError
from orch23.model.pipeline import ForeachStage, Pipeline, Stage
from orch23.model.plan import Plan
from orch23.steps.registry import is_llm


class Confinement(Struct, frozen=True, kw_only=True):
    """What is known of the sandbox of a build.

    `missing` gives the complaint that this machine has none, or None; it is asked only if something would be confined.
    `refused` is the complaint of a stage that wants none. What runs `is_elsewhere` is confined there, or not.
    """

    pipeline: Pipeline
    allowed: bool
    missing: Callable[[], Diagnostic | None]
    refused: Diagnostic
    is_elsewhere: bool = False

    def check(self, plan: Plan, look: Callable[[], Preview]) -> None:
        """Refuse a build in which a stage would run, or may, that may not run like that.

        Whether it will may depend on others that run before, and models that are paid for. `look` gives the preview of
        the build. It is asked for only where some stage could be refused.

        Raises:
            ConfigurationError: with every such stage.

        """
        nodes = [node for node in plan.nodes.values() if may_have_process(node)]
        if self.allowed or self.is_elsewhere or not nodes:
            return
        missing = self.missing()
        if missing is None and all(isinstance(node, Stage) and node.sandbox for node in nodes):
            return
        complaints: dict[Diagnostic, list[str]] = {}
        for family, one in self._complaints(look(), missing):
            names = complaints.setdefault(one, [])
            if family not in names:
                names.append(family)
        if complaints:
            raise ConfigurationError(*(self._told(one, names) for one, names in complaints.items()))

    def _complaints(self, seen: Preview, missing: Diagnostic | None) -> Iterator[tuple[str, Diagnostic]]:
        """Give each stage with a complaint of it; of one that is not expanded yet only that there is no sandbox."""
        for name, decision in seen.decisions.items():
            appraised = seen.appraised.get(name)
            if isinstance(decision, Expand):
                if missing is not None and may_have_process(seen.plan.nodes[name]):
                    yield name, missing
            elif appraised is not None and _may_run_process(appraised):
                stage = appraised.resolved.stage
                if not stage.sandbox:
                    yield stage.family, self.refused
                elif missing is not None:
                    yield stage.family, missing

    def _told(self, one: Diagnostic, names: list[str]) -> Diagnostic:
        """Return a complaint at the first stage that it is of, with the others beside it."""
        places = {
            name: self.pipeline.locate("stages", name, *(("sandbox",) if one == self.refused else ())) for name in names
        }
        related = tuple(Related(f"`{name}` too", places[name]) for name in names[1:])
        return replace(one, location=places[names[0]], subject=names[0], related=related)


def may_have_process(node: Stage | ForeachStage) -> bool:
    """Say whether a stage runs processes, or one that is not expanded yet may."""
    if isinstance(node, Stage):
        return has_process(node)
    return node.starts_processes or "verify" in node.body


def may_run_program(node: Stage | ForeachStage) -> bool:
    """Return whether a stage asks a program for answers, or one that is not expanded yet may."""
    if isinstance(node, Stage):
        return is_llm(node.step) and bool(node.step.command)
    llm = node.body.get("llm")
    return isinstance(llm, Mapping) and "command" in llm


def may_use_sandbox(node: Stage | ForeachStage) -> bool:
    """Return whether something that a stage starts runs in the sandbox: all but the processes of `sandbox: off`."""
    kept = node.sandbox if isinstance(node, Stage) else node.body.get("sandbox") != "off"
    return may_run_program(node) or (kept and may_have_process(node))


def _may_run_process(appraised: Appraised) -> bool:
    """Return whether a stage may run a process, also one that has not got all its inputs yet."""
    return isinstance(appraised.decision, Run | VerifyOnly | Maybe) and has_process(appraised.resolved.stage)
