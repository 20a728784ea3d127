"""Find the stages that will certainly fail, whatever models respond, before a call is paid."""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from orch23.attempt.attempt import unmet_conditions, unmet_error
from orch23.attempt.stage_outcomes import StageOutcome, stopped_by
from orch23.decide.dry_run import Preview
from orch23.decide.project_state import ProjectState
from orch23.decide.stage_view import StageTree
from orch23.model.diagnostic import Diagnostic
from orch23.model.paths import PatternSet, is_glob, normalize_pattern, static_prefix
from orch23.model.pipeline import Stage
from orch23.model.plan import Expand, Maybe, Run
from orch23.plan.nodes import Node, writes_of
from orch23.store.safe_files import unsafe_path_error


def foreseen_failures(seen: Preview) -> Mapping[str, tuple[Diagnostic, ...]]:
    """Return the errors of the stages that will certainly fail: unmet conditions, outputs that cannot be written."""
    base = _root_of(seen.state)
    return {name: errors for name in seen.decisions if (errors := tuple(_errors(seen, name, base)))}


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


def _errors(seen: Preview, name: str, base: Path) -> Iterator[Diagnostic]:
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
