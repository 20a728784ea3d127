"""Explain edges and cycles of a plan: the lines that they come from, and what to remove."""

import posixpath
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic, Location, Related
from orch23.model.digest import Json
from orch23.model.fields import leaves
from orch23.model.paths import may_overlap, normalize_pattern, patterns_between
from orch23.model.pipeline import ForeachStage, Pipeline
from orch23.model.plan import Edge, Plan
from orch23.plan.nodes import Node, declared_node, placed_inputs, program_files_of

_EXPRESSION = "${{"
_NEEDS = "needs "
_MOST_REMOVALS = 5


class _Written(Struct, frozen=True):
    """A path or pattern as it is written in the pipeline, the pattern that it means, and its location."""

    text: str
    pattern: str
    place: Location | None
    key: str = "inputs"


def explain_edge(pipeline: Pipeline, producer: Node, reader: Node, why: str) -> Related:
    """Return why a reader comes after a producer. `why` is the reason of their edge."""
    a, b = producer.name, reader.name
    after = f"`{b}` comes after `{a}`"
    if why.startswith(_NEEDS):
        need = why.removeprefix(_NEEDS)
        position = reader.needs.index(need) if need in reader.needs else 0
        return Related(f"{after}: it needs `{need}`", pipeline.place_in(reader, "needs", position))
    read = _read(pipeline, reader, why)
    if read is None:
        return Related(f"{after} by {why}", pipeline.locate("stages", b))
    written = _output(pipeline, producer, read.pattern)
    if written is None:
        return Related(f"{after}: it reads `{read.text}`", read.place)
    line = f" (line {written.place.line})" if written.place else ""
    if written.text == read.text:
        return Related(f"{after}: it reads `{read.text}`, an output of `{a}`{line}", read.place)
    return Related(f"{after}: it reads `{read.text}`, which may be `{written.text}` of `{a}`{line}", read.place)


def removal_of_edge(pipeline: Pipeline, producer: Node, reader: Node, why: str) -> str:
    """Return what to remove in the reader so that it does not come after the producer; empty if that is not known."""
    read, found = _read(pipeline, reader, why), explain_edge(pipeline, producer, reader, why).location
    key = "needs" if why.startswith(_NEEDS) else read.key if read else ""
    text = why.removeprefix(_NEEDS) if key == "needs" else read.text if read else ""
    if found is None or not text or isinstance(reader, ForeachStage):
        return ""
    return f"`{text}` from `{key}` of `{reader.name}` (line {found.line})"


def conflict_error(pipeline: Pipeline, one: Node, other: Node, path: str, hint: str, more: str = "") -> Diagnostic:
    """Return the error about two nodes that may write the same file."""
    message = f"stages `{one.name}` and `{other.name}` may both write `{path}`{more}"
    related = Related(f"`{one.name}` writes here", place_of_output(pipeline, one, path))
    return Diagnostic("E821", message, place_of_output(pipeline, other, path), hint, related=(related,))


def place_of_output(pipeline: Pipeline, node: Node, path: str) -> Location | None:
    """Return the location of the output or write scope of a node that has a path, or else of the node."""
    written = _output(pipeline, node, normalize_pattern(path))
    return pipeline.locate("stages", node.name, "outputs") if written is None else written.place


def output_of(pipeline: Pipeline, node: Node, path: str) -> str | None:
    """Return the output or write scope of a node that has a path, as it is written, or None."""
    written = _output(pipeline, node, normalize_pattern(path))
    return None if written is None else written.text


def _movable(pipeline: Pipeline, steps: Sequence[tuple[Node, Node, str]]) -> str:
    """Return an input, or else an output, whose edge a new folder in front of it removes; empty if there is none."""
    found: list[tuple[int, str]] = []
    for producer, reader, why in steps:
        read = _read(pipeline, reader, why)
        written = _output(pipeline, producer, read.pattern) if read else None
        for rank, (one, other) in enumerate(((read, written), (written, read)) if read and written else ()):
            may_move = not may_overlap(f"\ue000/{one.pattern}", other.pattern)  # a folder that no project has
            if may_move and one.text != other.text and _EXPRESSION in one.text:
                found.append((rank, one.text))
    return min(found, default=(0, ""))[1]


def _read(pipeline: Pipeline, reader: Node, why: str) -> _Written | None:
    found = [one for one in _reads(pipeline, reader) if may_overlap(one.pattern, why)]
    return min(found, key=lambda one: one.pattern != normalize_pattern(why), default=None)


def _output(pipeline: Pipeline, producer: Node, pattern: str) -> _Written | None:
    return next((one for one in _writes(pipeline, producer) if may_overlap(one.pattern, pattern)), None)


def _reads(pipeline: Pipeline, node: Node) -> Iterator[_Written]:
    if isinstance(node, ForeachStage):
        yield from _texts(pipeline, node, ("inputs",), node.body.get("inputs"))
        yield from _texts(pipeline, node, (), node.body)
    else:
        for where, one in placed_inputs(node):
            yield _Written(one.text, normalize_pattern(one.pattern), pipeline.place_in(node, *where))
        for file in program_files_of(node):
            key = "read" if file in map(posixpath.normpath, getattr(node.step, "read", ())) else "command"
            yield _Written(file, normalize_pattern(file), pipeline.place_in(node, "llm", key), f"llm.{key}")
    family = declared_node(pipeline, node.name)
    if isinstance(family, ForeachStage) and family.foreach.source is not None:
        source = family.foreach.source
        yield _Written(source, normalize_pattern(source), pipeline.locate("stages", family.name, "foreach", "from"))


def _writes(pipeline: Pipeline, node: Node) -> Iterator[_Written]:
    if isinstance(node, ForeachStage):
        for key in ("outputs", "edits", "allowed_paths"):
            yield from _texts(pipeline, node, (key,), node.body.get(key))
        return
    scope = () if node.edits else node.fence.write
    places = (("edits",), node.edits), (("outputs",), node.required_outputs), (("allowed_paths", "write"), scope)
    for where, paths in places:
        for position, path in enumerate(paths):
            yield _Written(path, normalize_pattern(path), pipeline.place_in(node, *where, position))


def _texts(pipeline: Pipeline, stage: ForeachStage, at: tuple[str | int, ...], value: Json) -> Iterator[_Written]:
    """Yield all texts below a node of a foreach, each with the patterns of the paths that it may be."""
    for path, text in leaves(value, at):
        head, unknown, _ = text.partition(_EXPRESSION) if isinstance(text, str) else ("", "", "")
        tail = str(text).rpartition("}}")[2].partition("#")[0]
        for pattern in patterns_between(head, tail) if unknown else (head.partition("#")[0],):
            if pattern:
                yield _Written(str(text), normalize_pattern(pattern), pipeline.place_in(stage, *path))


def cycle_error(pipeline: Pipeline, nodes: Mapping[str, Node], edges: Sequence[Edge]) -> Diagnostic:
    """Return the error about a cycle, of which each edge begins where the one before it ends."""
    start = min(range(len(edges)), key=lambda n: edges[n].producer)
    steps = [(nodes[e.producer], nodes[e.reader], e.why) for e in (*edges[start:], *edges[:start])]
    path = [producer.name for producer, _, _ in steps]
    hint = _removals(pipeline, steps)
    if text := _movable(pipeline, steps):
        hint = f"`{text}` may be many paths: put a folder of its own in front of it, or remove one of these"
    return Diagnostic(
        "E820",
        "cycle: " + " -> ".join([*path, path[0]]),
        pipeline.locate("stages", path[0]),
        hint,
        related=tuple(explain_edge(pipeline, *step) for step in steps),
    )


def later_maker_error(plan: Plan, reader: str, path: str, makers: Collection[str]) -> Diagnostic | None:
    """Return the error that a stage reads a file of one of these stages that comes after it; None if none does."""
    way = _way(plan, reader, makers)
    return cycle_error(plan.pipeline, plan.nodes, (*way, Edge(way[-1].reader, reader, path))) if way else None


def _way(plan: Plan, first: str, goals: Collection[str]) -> list[Edge]:
    """Return the edges of the shortest way from a stage to one of these that are downstream of it; or none."""
    # Part of a plan has no edges, only their ends.
    why = {(edge.producer, edge.reader): edge.why for edge in plan.edges}
    before: dict[str, str] = {}
    waiting = deque([first])
    while waiting and (at := waiting.popleft()) not in goals:
        for after in plan.downstream.get(at, ()):
            if after not in before:
                before[after] = at
                waiting.append(after)
    at = next((goal for goal in sorted(goals) if goal in before), "")
    way: list[Edge] = []
    while at in before:
        way.insert(0, Edge(before[at], at, why.get((before[at], at), "other stages")))
        at = before[at]
    return way


def _removals(pipeline: Pipeline, steps: Sequence[tuple[Node, Node, str]]) -> str:
    found = [removal for step in steps if (removal := removal_of_edge(pipeline, *step))]
    if len(found) < len(steps) or len(found) > _MOST_REMOVALS:
        return "remove one of these inputs, outputs or needs"
    return f"remove {', or '.join(dict.fromkeys(found))}"
