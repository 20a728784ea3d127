"""Refuse a build, before it starts, whose stages could not run in a sandbox."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from orch23.decide.dry_run import Preview
from orch23.decide.machine_facts import has_process
from orch23.model.action import NAMESPACES_TIER
from orch23.model.diagnostic import Diagnostic, Location, Related
from orch23.model.errors import ConfigurationError
from orch23.model.pipeline import ForeachStage, Pipeline, Stage, family_of
from orch23.model.plan import Expand, Maybe, Plan, Run, VerifyOnly
from orch23.steps.registry import is_llm


class SandboxPreflight(Struct, frozen=True, kw_only=True):
    """Checks that every stage of a build can run in a sandbox, or is allowed to run without.

    `missing` returns the error that this machine has no sandbox, or None; it is called only if a stage needs one.
    `refused` is the error of a stage with `sandbox: off`, and `weak` returns that of one with `sandbox: namespaces`, or
    None. `is_checked` returns whether it is orch23 that isolates the processes of a stage, and not the executor of a
    plugin; `is_here` whether they run on this machine.
    """

    pipeline: Pipeline
    allowed: bool
    missing: Callable[[], Diagnostic | None]
    refused: Diagnostic
    weak: Callable[[], Diagnostic | None]
    is_checked: Callable[[Stage | ForeachStage], bool] = lambda _: True
    is_here: Callable[[Stage | ForeachStage], bool] = lambda _: True

    def check(self, plan: Plan, look: Callable[[], Preview]) -> None:
        """Refuse a build in which a stage that runs, or may run, must not run like that.

        Whether a stage runs may depend on earlier stages, and on models that are paid for. `look` returns the preview
        of the build. It takes time, so it is called only if some stage could be refused.

        Raises:
            ConfigurationError: with every such stage.
        """
        nodes = list(filter(self._is_concerned, plan.nodes.values()))
        # A worker refuses an action that it has no sandbox for.
        missing = self.missing() if any(map(self.is_here, nodes)) else None
        weak = self.weak() if any(map(self._needs_namespaces, plan.nodes.values())) else None
        # The preview decides every stage; a build that cannot be refused must not pay for that.
        if (missing, weak) == (None, None) and all(isinstance(node, Stage) and node.sandbox for node in nodes):
            return
        if found := [*self._errors(look(), missing, weak)]:
            raise ConfigurationError(*grouped_errors(self.pipeline, found, self._place, "`{}` too"))

    def _is_concerned(self, node: Stage | ForeachStage) -> bool:
        return not self.allowed and may_have_process(node) and self.is_checked(node)

    def _needs_namespaces(self, node: Stage | ForeachStage) -> bool:
        """Return whether a stage requires namespaces of this machine. A worker checks the steps that it runs."""
        required = node.min_tier if isinstance(node, Stage) else node.body.get("sandbox")
        is_used = may_call_program(node) or (self.is_here(node) and may_have_process(node))
        return required == NAMESPACES_TIER and is_used

    def _place(self, name: str, one: Diagnostic) -> Location | None:
        is_key = one == self.refused or one == self.weak()
        return self.pipeline.locate("stages", name, *(("sandbox",) if is_key else ()))

    def _errors(
        self, seen: Preview, missing: Diagnostic | None, weak: Diagnostic | None
    ) -> Iterator[tuple[str, Diagnostic]]:
        """Yield each error with its stage; of a foreach that is not expanded only that there is no sandbox."""
        may_run = [name for name, one in seen.decisions.items() if isinstance(one, Run | VerifyOnly | Maybe | Expand)]
        for node in map(seen.plan.nodes.__getitem__, may_run):
            is_concerned = self._is_concerned(node)
            if is_concerned and isinstance(node, Stage) and not node.sandbox:
                yield node.family, self.refused
            elif missing is not None and is_concerned and self.is_here(node):
                yield family_of(node.name), missing
            elif weak is not None and self._needs_namespaces(node):
                yield family_of(node.name), weak


def may_have_process(node: Stage | ForeachStage) -> bool:
    """Return whether a stage runs processes, or the items of a foreach may."""
    if isinstance(node, Stage):
        return has_process(node)
    return node.starts_processes or "verify" in node.body


def may_call_program(node: Stage | ForeachStage) -> bool:
    """Return whether a stage calls a program as its model, or the items of a foreach may."""
    if isinstance(node, Stage):
        return is_llm(node.step) and bool(node.step.command)
    llm = node.body.get("llm")
    return isinstance(llm, Mapping) and "command" in llm


def may_use_sandbox(node: Stage | ForeachStage) -> bool:
    """Return whether a stage may use the sandbox: for a model program, or for processes without `sandbox: off`."""
    kept = node.sandbox if isinstance(node, Stage) else node.body.get("sandbox") != "off"
    return may_call_program(node) or (kept and may_have_process(node))


def grouped_errors(
    pipeline: Pipeline,
    found: Iterable[tuple[str, Diagnostic]],
    place: Callable[[str, Diagnostic], Location | None],
    also: str,
) -> Iterator[Diagnostic]:
    """Yield each error once, at its first stage, with the other stages as related places."""
    stages: dict[Diagnostic, dict[str, None]] = {}
    for name, one in found:
        stages.setdefault(one, {})[name] = None
    for one, (first, *others) in stages.items():
        at = one.location or place(first, one)
        # A value in `defaults` is at one place for all stages.
        places = {name: place(name, one) for name in others}
        own = {name: pipeline.locate("stages", name) if there == at else there for name, there in places.items()}
        related = tuple(Related(also.format(name), own[name]) for name in others)
        yield replace(one, location=at, subject=first, related=related)
