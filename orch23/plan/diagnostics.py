"""Diagnostics of plans: missing inputs, unknown stages in `needs`, reasons of edges."""

import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic, Fix, Location, Related, Suggestions
from orch23.model.digest import Json
from orch23.model.fields import leaves
from orch23.model.paths import escape_pattern, is_glob, match, match_any, may_overlap, normalize_pattern
from orch23.model.pipeline import ForeachStage, GlobInput, Input, ListInput, OrderInput, Pipeline, SliceInput, Stage
from orch23.model.plan import Plan
from orch23.plan.nodes import Node, WriterIndex, declared_node, writes_of

_EXPRESSION = "${{"
_NEEDS = "needs "


# ---- edges ------------------------------------------------------------------------------------


class _Written(Struct, frozen=True):
    """A path or pattern as it is written in the pipeline, the pattern that it means, and its location."""

    text: str
    pattern: str
    place: Location | None


def explain_edge(pipeline: Pipeline, producer: Node, reader: Node, why: str) -> Related:
    """Return why a reader comes after a producer. `why` is the reason of their edge."""
    a, b = producer.name, reader.name
    after = f"`{b}` comes after `{a}`"
    if why.startswith(_NEEDS):
        need = why.removeprefix(_NEEDS)
        position = reader.needs.index(need) if need in reader.needs else 0
        return Related(f"{after}: it needs `{need}`", pipeline.locate("stages", b, "needs", position))
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
    if why.startswith(_NEEDS):
        need, key = why.removeprefix(_NEEDS), "needs"
        found = explain_edge(pipeline, producer, reader, why).location
    else:
        read = _read(pipeline, reader, why)
        need, key, found = ("", "", None) if read is None else (read.text, "inputs", read.place)
    if found is None or isinstance(reader, ForeachStage):
        return ""
    return f"`{need}` from `{key}` of `{reader.name}` (line {found.line})"


def place_of_output(pipeline: Pipeline, node: Node, path: str) -> Location | None:
    """Return the location of the output or write scope of a node that has a path, or else of the node."""
    written = _output(pipeline, node, normalize_pattern(path))
    return pipeline.locate("stages", node.name, "outputs") if written is None else written.place


def unbounded_output(pipeline: Pipeline, producer: Node, reader: Node, why: str) -> str:
    """Return the output, as it is written, by which an item may write any path; empty if the edge has none."""
    read = _read(pipeline, reader, why)
    written = None if read is None else _output(pipeline, producer, read.pattern)
    return written.text if written is not None and written.pattern == "**" and _EXPRESSION in written.text else ""


def _read(pipeline: Pipeline, reader: Node, why: str) -> _Written | None:
    return next((one for one in _reads(pipeline, reader) if one.pattern == normalize_pattern(why)), None)


def _output(pipeline: Pipeline, producer: Node, pattern: str) -> _Written | None:
    return next((one for one in _writes(pipeline, producer) if may_overlap(one.pattern, pattern)), None)


def _reads(pipeline: Pipeline, node: Node) -> Iterator[_Written]:
    """Yield what a node reads: its inputs first, then the list of its foreach, or all other texts of a foreach."""
    if isinstance(node, ForeachStage):
        yield from _texts(pipeline, node.name, ("inputs",), node.body.get("inputs"))
        yield from _texts(pipeline, node.name, (), node.body)
    else:
        for where, one in _inputs(node):
            yield _Written(one.text, normalize_pattern(one.pattern), pipeline.locate("stages", node.name, *where))
    family = declared_node(pipeline, node.name)
    if isinstance(family, ForeachStage) and family.foreach.source is not None:
        source = family.foreach.source
        yield _Written(source, normalize_pattern(source), pipeline.locate("stages", family.name, "foreach", "from"))


def _writes(pipeline: Pipeline, node: Node) -> Iterator[_Written]:
    if isinstance(node, ForeachStage):
        yield from _texts(pipeline, node.name, ("outputs",), node.body.get("outputs"))
        yield from _texts(pipeline, node.name, ("allowed_paths",), node.body.get("allowed_paths"))
        return
    for position, path in enumerate(node.outputs):
        yield _Written(path, normalize_pattern(path), pipeline.locate("stages", node.name, "outputs", position))
    for position, path in enumerate(node.fence.write):
        place = pipeline.locate("stages", node.name, "allowed_paths", "write", position)
        yield _Written(path, normalize_pattern(path), place)


def _texts(pipeline: Pipeline, stage: str, at: tuple[str | int, ...], value: Json) -> Iterator[_Written]:
    """Yield all texts below a node of a foreach; from the segment with an expression on, any path is possible."""
    for path, text in leaves(value, at):
        head, unknown, _ = text.partition(_EXPRESSION) if isinstance(text, str) else ("", "", "")
        pattern = head[: head.rfind("/") + 1] + "**" if unknown else head.partition("#")[0]
        if pattern:
            yield _Written(str(text), normalize_pattern(pattern), pipeline.locate("stages", stage, *path))


def unknown_stage_error(pipeline: Pipeline, name: str, position: int, need: str, known: Suggestions) -> Diagnostic:
    """Return the error about an entry of `needs` that is not the name of a stage."""
    wanted = need.removesuffix("[*]")
    return Diagnostic(
        "E827" if "@" in wanted else "E823",
        f"stage `{name}` needs `{wanted}`, which is not a stage of this pipeline",
        pipeline.locate("stages", name, "needs", position),
        known.hint(wanted) or "`needs` names stages",
    )


# ---- missing inputs ---------------------------------------------------------------------------

_Where: TypeAlias = tuple[str | int, ...]
IsFolder: TypeAlias = Callable[[str], bool]


def _no_folder(_path: str) -> bool:
    return False


Neighbours: TypeAlias = Callable[[str], Iterable[str]]
"""Return the paths that may be meant by one that does not exist, for suggestions."""


def _no_neighbours(_path: str) -> Iterable[str]:
    return ()


def _literal_reads(plan: Plan) -> tuple[str, ...]:
    """Return the required literal inputs, and file names such as `a#b` or `a[1]` that an input may mean, sorted."""
    stages = [node for node in plan.nodes.values() if isinstance(node, Stage)]
    inputs = [one for stage in stages for one in (*stage.inputs, *stage.verify.inputs)]
    required = list(filter(_is_required, inputs))
    globs = [one for one in inputs if isinstance(one, GlobInput)]
    paths = {*filter(_is_literal, map(_path, required)), *filter(None, map(_look_alike, (*required, *globs)))}
    return tuple(sorted(path for path in paths if not path.endswith("/")))


def missing_inputs_errors(
    plan: Plan,
    exists: Callable[[str], bool],
    is_folder: IsFolder = _no_folder,
    known: Collection[str] = (),
    neighbours: Neighbours = _no_neighbours,
) -> tuple[Diagnostic, ...]:
    """Return an error for each literal input that neither exists nor is made by a stage, or that is a folder.

    `exists` is asked only for inputs of which no stage upstream has the path as an output. The inputs of the `known`
    stages exist.
    """
    # One search for the whole plan: comparing each input with the writes of each stage upstream takes quadratic time.
    search = _MissingInputs(plan, exists, is_folder, neighbours)
    stages = (node for name, node in plan.nodes.items() if isinstance(node, Stage) and name not in known)
    return tuple(problem for stage in stages for problem in search.errors_of(stage))


class _MissingInputs(Struct, frozen=True, dict=True):
    """A search for missing inputs. Its other indices are built when first used: most inputs exist."""

    plan: Plan
    exists: Callable[[str], bool]
    is_folder: IsFolder
    neighbours: Neighbours

    @cached_property
    def makers(self) -> Mapping[str, tuple[str, ...]]:
        """The stages that have a path as an output, without patterns."""
        found: dict[str, tuple[str, ...]] = {}
        for name, node in self.plan.nodes.items():
            if isinstance(node, Stage):
                for path in node.literal_outputs:
                    found[path] = (*found.get(path, ()), name)
        return found

    @cached_property
    def writers(self) -> WriterIndex:
        return WriterIndex(self.plan.nodes)

    @cached_property
    def declared(self) -> WriterIndex:
        """Index the stages as declared: each foreach, and not its items, of which there may be none."""
        return WriterIndex({stage.name: stage for stage in self.plan.pipeline.stages})

    @cached_property
    def known_paths(self) -> Suggestions:
        """Suggest the patterns that stages write and the files that exist."""
        written = {pattern for node in self.plan.nodes.values() for pattern in writes_of(node)}
        return Suggestions(written.union(filter(self.exists, _literal_reads(self.plan))))

    def errors_of(self, stage: Stage) -> Iterator[Diagnostic]:
        inputs = _inputs(stage)
        for where, one in inputs:
            if _is_literal(_path(one)) and (problem := self._error(stage, where, one)) is not None:
                yield problem
        for where, one in inputs:
            if isinstance(one, GlobInput) and (name := _look_alike(one)) is not None and self.exists(name):
                message = (
                    f"input `{name}` of stage `{stage.name}` does not match the file of this name: `[...]` is a set"
                )
                place = self.plan.pipeline.locate("stages", stage.name, *where)
                yield Diagnostic("E822", message, place, f"for this file, write `{escape_pattern(name)}`")

    def _error(self, stage: Stage, where: _Where, one: Input) -> Diagnostic | None:
        path = _path(one)
        if path in self.makers and self._is_made(stage, path, self.makers[path]):
            return None
        if self.is_folder(path.rstrip("/")) if path.endswith("/") else self.exists(path):
            return None
        makers = self.writers.writers_of(path)
        if self._is_made(stage, path, makers):
            return None
        if not path.endswith("/") and self.is_folder(path):
            return _folder_error(self.plan.pipeline, stage.name, where, one)
        if not _is_required(one) or not set(makers).isdisjoint(self.plan.earlier_items(stage.name)):
            return None
        return self._missing(stage, where, one, makers)

    def _is_made(self, stage: Stage, path: str, makers: tuple[str, ...]) -> bool:
        """Return whether a stage that runs before this one may make a path, or may have made it in an earlier run."""
        yields_to = self.plan.upstream_of_chains.get(stage.name, frozenset())
        return (
            not set(makers).isdisjoint(self.plan.upstream[stage.name])
            or (stage.chain is not None and stage.name in makers)  # an earlier item of its chain may have made it
            or any(node.name in makers and node.name not in yields_to for node in self.plan.unexpanded)
            # A foreach without items today is not among the nodes, but it is what makes the folder.
            or (path.endswith("/") and bool(self.declared.writers_of(path)))
        )

    def _missing(self, stage: Stage, where: _Where, one: Input, makers: tuple[str, ...]) -> Diagnostic:
        name, path = stage.name, _path(one)
        place, fix = self.plan.pipeline.locate("stages", name, *where), None
        items = self.plan.chains.get(stage.chain.chain, ())[stage.chain.index + 1 :] if stage.chain is not None else ()
        later = next((item for item in items if item in makers), None)
        # A stage of a model may come after a reader of its file, which then reads the version before (ADR 19).
        stages = [maker for maker in makers if isinstance(self.plan.nodes.get(maker), Stage)]
        after = next((maker for maker in stages if name in self.plan.upstream[maker]), None)
        if later is None and after is not None:
            message = f"cycle: stage `{name}` reads `{path}`, and `{after}`, which makes it, runs after `{name}`"
            hint = f"remove `{name}` from `needs` of `{after}`, and what it makes from its `inputs`"
        elif later is None:
            message, hint, fix = _missing_text(self.plan.pipeline, stage, path, self.known_paths, self.neighbours)
        else:
            message = (
                f"input `{path}` of stage `{name}` does not exist: `{later}`, which makes it, comes later in its chain"
            )
            hint = f"put `{later}` before `{name}` in the list, or remove the input"
        whole = _look_alike(one)
        if whole is not None and self.exists(whole):
            literal = escape_pattern(whole)
            hint = f"`{whole}` means a part of the file `{path}`; for the file of this name, write `{literal}`"
            fix = (whole, literal)
        return Diagnostic("E822", message, place, hint, fix=fix)


def unmade_inputs_errors(
    pipeline: Pipeline,
    exists: Callable[[str], bool],
    is_folder: IsFolder = _no_folder,
    neighbours: Neighbours = _no_neighbours,
) -> tuple[Diagnostic, ...]:
    """Return an error for each literal input that does not exist and that no stage at all makes. It needs no plan."""
    known = Suggestions(pattern for node in pipeline.stages for pattern in writes_of(node))
    writers = WriterIndex({node.name: node for node in pipeline.stages})

    def exists_or_is_made(path: str) -> bool:
        there = is_folder(path.rstrip("/")) if path.endswith("/") else exists(path)
        return there or bool(writers.writers_of(path))

    def error(stage: Stage, where: _Where, one: Input) -> Diagnostic | None:
        name, path = stage.name, _path(one)
        if is_folder(path):
            return _folder_error(pipeline, name, where, one)
        if not _is_required(one):
            return None
        message, hint, fix = _missing_text(pipeline, stage, path, known, neighbours)
        return Diagnostic("E822", message, pipeline.locate("stages", name, *where), hint, fix=fix)

    stages = [stage for stage in pipeline.stages if isinstance(stage, Stage)]
    unmade = (
        error(stage, where, one)
        for stage in stages
        for where, one in _inputs(stage)
        if _is_literal(path := _path(one)) and not exists_or_is_made(path)
    )
    return tuple(filter(None, unmade))


def _missing_text(
    pipeline: Pipeline, stage: Stage, path: str, known: Suggestions, neighbours: Neighbours
) -> tuple[str, str, Fix | None]:
    """Return message, hint and change about an input that no stage makes."""
    message = f"input `{path}` of stage `{stage.name}` does not exist, and no stage makes it"
    skipped = next((one for one in pipeline.skipped if any(may_overlap(w, path) for w in one.writes)), None)
    if skipped is not None:
        return message, f"`{skipped.name}`, which makes it, is skipped: give this stage the same `if`", None
    # Not what the stage makes itself: as its input, that would be a cycle.
    own = writes_of(stage)
    others = sorted(one for one in neighbours(path) if not match_any(own, one.rstrip("/")))
    folder = posixpath.dirname(path.rstrip("/"))
    here = [one for one in others if posixpath.dirname(one.rstrip("/")) == folder and one != path]
    base = path.rstrip("/").rpartition("/")[2]
    # The path itself may be known, as an output of a stage that runs later.
    same = [one for one in others if one != path and one.rstrip("/").rpartition("/")[2] == base]
    if near := same[:1] or known.nearest(path, here, others, without=own):
        return message, f"did you mean `{near[0]}`?", (path, near[0])
    what = "`outputs` of the stage that makes it"
    if path.endswith("/"):
        return message, f"create it, add it to {what}, or write `{path}**`, which may match no file", None
    may_be_missing = f"`{{path: {path}, optional: true}}`"
    return message, f"create it, or add it to {what}; if it may be missing, write {may_be_missing}", None


def _folder_error(pipeline: Pipeline, name: str, where: _Where, one: Input) -> Diagnostic:
    path = _path(one)
    hint = f"write `{path}/` for all files below it, or name a file"
    if isinstance(one, SliceInput):
        hint = f"a slice is a part of one file: name a file below `{path}/`"
    message = f"input `{path}` of stage `{name}` is a folder"
    return Diagnostic("E822", message, pipeline.locate("stages", name, *where), hint)


def _inputs(stage: Stage) -> list[tuple[_Where, Input]]:
    """Return the inputs of a stage and of its verification, each with its path below the stage."""
    found: list[tuple[_Where, Input]] = [(("inputs", n), one) for n, one in enumerate(stage.inputs)]
    return found + [(("verify", "inputs", n), one) for n, one in enumerate(stage.verify.inputs)]


def _path(one: Input) -> str:
    """Return the path of a file, or of a folder with `/` at its end. Patterns stay patterns."""
    return one.path if isinstance(one, SliceInput) else one.text


def _is_literal(path: str) -> bool:
    """Return whether a path is that of one file or one folder."""
    return path.endswith("/") or not is_glob(path)


def _is_required(one: Input) -> bool:
    if isinstance(one, GlobInput):
        return one.folder and not one.optional
    return isinstance(one, OrderInput) or (not isinstance(one, ListInput) and not one.optional)


def _look_alike(one: Input) -> str | None:
    """Return the file name that an input looks like, where `#` or `[...]` in it mean something else."""
    if isinstance(one, SliceInput):
        return one.text
    if isinstance(one, GlobInput) and "[" in one.pattern and not match(one.pattern, one.pattern):
        return one.pattern
    return None
