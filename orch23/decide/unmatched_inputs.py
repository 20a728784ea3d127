"""Report patterns of inputs without their files: misspelt, or of content that git did not check out (ADR 63).

A pattern of `inputs` may match nothing, so this is a warning. It is an error if a model would be called without any
input, and a pattern with a similar name matches files. The files with a similar name, of a path that does not exist.
"""

import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Location, Severity, nearest_names, question, quoted_names
from orch23.model.paths import match, match_any, static_prefix
from orch23.model.pipeline import ForeachStage, GlobInput, Pipeline, Stage, family_of, written_path
from orch23.model.plan import Plan
from orch23.plan.nodes import Node, WriterIndex, may_overlap_unexcluded, placed_inputs, reads_of
from orch23.plan.planner import closure
from orch23.resolve.resolution import ResolvedStage
from orch23.steps.registry import is_llm
from orch23.store.lock_file import lock_path
from orch23.store.workspace import Workspace, left_out_error

W_UNMATCHED = "W822"
_SHOWN = 3
_AFTER_ALL = chr(sys.maxunicode)  # sorted after any character of a path


def unmatched_inputs(
    plan: Plan, resolved: Iterable[ResolvedStage], workspace: Workspace
) -> tuple[tuple[Diagnostic, ...], tuple[Diagnostic, ...]]:
    """Return the errors and the warnings about the patterns of these stages that match no file, each once."""
    found: dict[tuple[str, str], Diagnostic] = {}
    writers = None
    for one in resolved:
        if not one.unmatched:
            continue
        # A foreach as declared: today it may have no items.
        after = closure({one.stage.name}, plan.downstream)
        writers = writers or WriterIndex({**{stage.name: stage for stage in plan.pipeline.stages}, **plan.nodes})
        for where, pattern in one.unmatched:
            # A file that a stage may make may come later, or not be needed.
            if not writers.writers_of(pattern.pattern):
                near = _similar(pattern, workspace)
                # What the stage itself or one after it writes would be a cycle.
                near = None if near and not after.isdisjoint(writers.writers_of(near)) else near
                place = plan.pipeline.place_in(one.stage, *where)
                hint = "correct it, or remove it" if where[0] == "explore" else _hint(pattern, workspace)
                problem = _problem(one, place, pattern.text, near, hint)
                found.setdefault((problem.message, str(problem.location)), problem)
    errors = tuple(one for one in found.values() if one.severity is Severity.ERROR)
    return errors, tuple(one for one in found.values() if one.severity is not Severity.ERROR)


def has_patterns(stage: Stage) -> bool:
    """Return whether an input of a stage, or of its verification, is a pattern, or a model may look at files."""
    return bool(stage.explore) or any(isinstance(one, GlobInput) for one in (*stage.inputs, *stage.verify.inputs))


def _problem(one: ResolvedStage, place: Location | None, text: str, near: str | None, otherwise: str) -> Diagnostic:
    message = f"input `{text}` of stage `{one.stage.family}` matches no file"
    hint = otherwise if near is None else question((near,))
    if near is not None and is_llm(one.stage.step) and not one.given:
        message = f"{message}, so the prompt would have no input"
        return Diagnostic("E822", message, place, hint, fix=(text, near), otherwise=otherwise)
    return Diagnostic(W_UNMATCHED, message, place, hint, Severity.WARNING)


def _hint(pattern: GlobInput, workspace: Workspace) -> str:
    if pattern.exclude and (left := workspace.listing(pattern.pattern)):
        return f"the exclusions after it leave out all that it matches, such as {quoted_names(left[:_SHOWN])}"
    folder = static_prefix(pattern.pattern).rstrip("/")
    if folder and not workspace.is_folder(folder):
        return f"there is no directory `{folder}/`: create it, or correct the pattern"
    if ignored := workspace.writable_files(pattern.pattern):
        return f"`.gitignore` leaves out what matches, such as {quoted_names(ignored[:_SHOWN])}: list each by its name"
    files = sorted(workspace.neighbours(f"{folder}/x")) if folder else []
    have = f"; the directory has {quoted_names(files[:_SHOWN])}" if files else ""
    return f"correct it, or write `{{path: ..., optional: true}}` if there may be none{have}"


def _similar(pattern: GlobInput, workspace: Workspace) -> str | None:
    """Return a pattern in which one name is replaced by a similar one of the project, and that matches files."""
    others = (one for one in _candidates(pattern.text, workspace) if one != pattern.text)
    return next((one for one in others if _matches(one, pattern, workspace)), None)


def _matches(text: str, pattern: GlobInput, workspace: Workspace) -> bool:
    found = workspace.listing(f"{text}**" if text.endswith("/") else text)
    return any(not match_any(pattern.exclude, path) for path in found)


def _candidates(text: str, workspace: Workspace) -> Iterator[str]:
    """Yield patterns with a similar directory in place of the first one that does not exist, or a similar ending."""
    names = text.split("/")
    above = ""
    for at, name in enumerate(names[:-1]):
        if any(sign in name for sign in "*?["):
            break
        if not workspace.is_folder(f"{above}{name}"):
            for near in nearest_names(name, workspace.subfolders(above.rstrip("/"))):
                yield "/".join((*names[:at], near, *names[at + 1 :]))
            return
        above = f"{above}{name}/"
    head, sign, ending = text.rpartition("*.")
    if sign and ending.isalnum():
        present = {one.rpartition(".")[2] for one in workspace.neighbours(f"{above}x") if "." in one}
        same_kind = (one for pair in _SAME_KIND if ending in pair for one in pair)
        for near in (*nearest_names(ending, sorted(present)), *same_kind):
            yield f"{head}*.{near}"


_SAME_KIND = (("markdown", "md"), ("yaml", "yml"), ("htm", "html"), ("jpeg", "jpg"))


_MOST_FOLDERS = 100


def similar_paths(workspace: Workspace, path: str) -> list[str]:
    """Return paths that may be meant by one that does not exist: of files, or of directories if it ends in `/`.

    They are those in its directory, or, if that does not exist, in the one with the most similar name; and those of the
    same name at the root, or in a directory there.
    """
    *above, name = path.rstrip("/").split("/")
    folder = ""
    for part in above:
        others = [] if workspace.is_folder(f"{folder}{part}") else workspace.subfolders(folder.rstrip("/"))
        folder += f"{next(iter(nearest_names(part, others)), part)}/"
    folders = [one for one in workspace.subfolders("") if not one.startswith(".")]
    tops = ["", *(f"{one}/" for one in folders[:_MOST_FOLDERS])]
    if path.endswith("/"):
        beside = [f"{folder}{one}/" for one in workspace.subfolders(folder.rstrip("/"))]
        return [*beside, *(f"{top}{name}/" for top in tops if workspace.is_folder(f"{top}{name}"))]
    elsewhere = (f"{top}{name}" for top in tops)
    return [*workspace.neighbours(f"{folder}{name}"), *filter(workspace.is_file, elsewhere)]


def with_similar(problem: Diagnostic, path: str, workspace: Workspace) -> Diagnostic:
    """Return the error about a file that cannot be read; if there is none at its path, with one of a similar name."""
    others = similar_paths(workspace, path)
    near = nearest_names(path, others)
    if not near or path in others or workspace.is_folder(path):
        return problem
    return replace(problem, hint=question(near), fix=(path, *near), otherwise=problem.hint)


def left_out_errors(pipeline: Pipeline, nodes: Iterable[Node], left_out: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Return an error for each pattern of the nodes, and of the records, that includes a path that git left out."""
    found: dict[tuple[str, str], Diagnostic] = {}
    paths, folders = list(left_out), [path for path in left_out if path.endswith("/")]
    records = (
        str(lock_path(Path(), pipeline.file)),
        *(f"{folder}/**" for folder in pipeline.transcript_folders),
    )
    needs = chain((("the records", one, (), None) for one in records), *(_needs(pipeline, node) for node in nodes))
    for user, pattern, exclude, place in needs:
        above = static_prefix(pattern)
        near = paths[bisect_left(paths, above) : bisect_left(paths, f"{above}{_AFTER_ALL}")]
        lost = (path for path in near if match(pattern, path) and not match_any(exclude, path))
        under = (path for path in folders if may_overlap_unexcluded(pattern, exclude, f"{path}**"))
        if shown := tuple(islice(dict.fromkeys(chain(under, lost)), _SHOWN)):
            message = f"git has not checked out the content of {quoted_names(shown)}: `{pattern}` of {user} includes it"
            found.setdefault((user, pattern), left_out_error(message, map(left_out.__getitem__, shown), place))
    return tuple(found.values())


def _needs(pipeline: Pipeline, node: Node) -> Iterator[tuple[str, str, tuple[str, ...], Location | None]]:
    """Yield the patterns of the files that a node needs, each with its user, its exclusions and its place."""
    others = reads_of(node)
    if not isinstance(node, ForeachStage):
        for where, one in placed_inputs(node):
            place = pipeline.locate_written(written_path(node, *where))
            yield f"stage `{node.family}`", one.pattern, getattr(one, "exclude", ()), place
        others = (*node.outputs, *(one.path for one in node.requires), *node.author_files.values())
    family = family_of(node.name)
    for pattern in others:
        yield f"stage `{family}`", pattern, (), pipeline.locate("stages", family)
