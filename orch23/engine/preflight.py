"""Find, before a build, the stages that could not run: no sandbox, unmet conditions, outputs that cannot be written."""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from orch23.attempt.attempt import unmet_conditions, unmet_error
from orch23.attempt.stage_outcomes import StageOutcome, stopped_by
from orch23.decide.dry_run import Preview
from orch23.decide.machine_facts import has_process
from orch23.decide.project_state import ProjectState
from orch23.decide.stage_view import StageTree
from orch23.model.action import NAMESPACES_TIER
from orch23.model.diagnostic import Diagnostic, Location, Related
from orch23.model.errors import ConfigurationError
from orch23.model.parsing import as_mapping
from orch23.model.paths import PatternSet, is_glob, normalize_pattern, static_prefix
from orch23.model.pipeline import ForeachStage, Pipeline, Stage, family_of
from orch23.model.plan import Expand, Maybe, Plan, Run, VerifyOnly
from orch23.model.record import Facts
from orch23.plan.nodes import Node, writes_of
from orch23.steps.registry import is_llm
from orch23.store.safe_files import unsafe_path_error


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
    return node.starts_processes or not {"format", "verify"}.isdisjoint(node.body)


def may_call_program(node: Stage | ForeachStage) -> bool:
    """Return whether a stage calls a program as its model, or the items of a foreach may."""
    if isinstance(node, Stage):
        return is_llm(node.step) and bool(node.step.command)
    return "command" in as_mapping(node.body.get("llm"))


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


def check_tools(pipeline: Pipeline, nodes: Iterable[Stage | ForeachStage], facts_of: Callable[[Stage], Facts]) -> None:
    """Check the tools with a version or a path, before a stage runs.

    Raises:
        ConfigurationError: with all that are missing, have another version, or may not be seen by steps.
    """
    stages = [one for one in nodes if isinstance(one, Stage) and any(tool.path or tool.version for tool in one.tools)]
    found = [*tool_errors((one for one in stages if not one.once), facts_of)]
    if found:
        places = {name: pipeline.locate_written(f"stages/{name}/tools") for name, _ in found}
        raise ConfigurationError(*grouped_errors(pipeline, found, lambda name, _: places[name], "`{}` needs it too"))


def tool_errors(stages: Iterable[Stage], facts_of: Callable[[Stage], Facts]) -> Iterator[tuple[str, Diagnostic]]:
    """Yield what is wrong with the tools of stages, with the name that the pipeline has of each."""
    for stage in stages:
        try:
            facts_of(stage)
        except ConfigurationError as error:
            yield from ((stage.family, one) for one in error.diagnostics)


def foreseen_failures(seen: Preview) -> Mapping[str, tuple[Diagnostic, ...]]:
    """Return the errors of the stages that will certainly fail: unmet conditions, outputs that cannot be written."""
    base = _root_of(seen.state)
    return {name: errors for name in seen.decisions if (errors := tuple(_errors_of(seen, name, base)))}


def certain_failures(state: ProjectState, look: Callable[[], Preview]) -> Mapping[str, StageOutcome]:
    """Return the ends of these stages if models are called. `look` is called if some path suggests that there are any.

    It returns the preview of the build.
    """
    nodes, base = state.plan.nodes.values(), _root_of(state)
    if not any(node.kind == "llm" for node in nodes):
        return {}
    needs = (one for node in nodes if isinstance(node, Stage) for one in node.requires)
    is_unmet = any(os.path.lexists(base / one.path) == (one.kind == "file_absent") for one in needs)
    if not (is_unmet or any(True for node in nodes for _ in place_errors(state, node, base))):
        return {}
    seen = look()
    decided = {name: one.resolved.key for name, one in seen.decided_stages.items()}
    ends = {name: stopped_by(decided.get(name, ""), *errors) for name, errors in foreseen_failures(seen).items()}
    return {name: replace(end, kind="preflight") for name, end in ends.items()}


def _root_of(state: ProjectState) -> Path:
    return Path(os.path.realpath(state.store.root))


def place_errors(state: ProjectState, node: Node, base: Path | None = None) -> Iterator[Diagnostic]:
    """Yield an error for each output of a node that cannot be written. A former output may be in the way of it.

    `base` is the real path of the root, if it is known.
    """
    base, former = base or _root_of(state), state.former.get(node.name)
    for output in map(normalize_pattern, node.outputs if isinstance(node, Stage) else node.writes):
        place = base / (static_prefix(output) if is_glob(output) else output)
        there = next(filter(os.path.lexists, (place, *place.parents)))
        path, is_file = os.path.relpath(there, base), there == place and not is_glob(output)
        fault = 0 if os.access(there.parent if is_file else there, os.W_OK | os.X_OK) else errno.EACCES
        if os.path.realpath(there) != str(there):
            yield from unsafe_path_error(path).diagnostics
            continue
        if not (there.is_file() if is_file else there.is_dir()):
            own = former.outputs if former is not None else ()
            fault = 0 if any(PurePosixPath(one).is_relative_to(path) for one in own) else errno.EEXIST
        if fault:
            hint = "move away what is there, or give this user permission, or name another path"
            yield Diagnostic("E650", f"{os.strerror(fault)}: {path}", hint=f"no model was called; {hint}")


def _errors_of(seen: Preview, name: str, base: Path) -> Iterator[Diagnostic]:
    decision, node = seen.decisions[name], seen.plan.nodes[name]
    found = list[tuple[Diagnostic, str]]()
    if isinstance(decision, Run | Maybe | Expand):
        found += ((error, "outputs") for error in place_errors(seen.state, node, base))
    if isinstance(decision, Run) and isinstance(node, Stage) and node.requires:
        made = PatternSet(path for up in seen.unsettled(name) for path in writes_of(seen.plan.nodes[up]))
        unmet = (one for one in unmet_conditions(seen.decided_stages[name].resolved) if not made.may_overlap(one.path))
        found += ((unmet_error(one, StageTree(seen.state, name)), "requires") for one in unmet)
    for error, key in found:
        yield replace(error, location=seen.plan.pipeline.place_in(node, key), subject=name)
