"""Diagnostics of plans: missing inputs, and names that are not stages, in `needs` and on the command line."""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TypeAlias

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic, Fix, Suggestions, nearest_names, question, quoted_names
from orch23.model.digest import FileEntry
from orch23.model.errors import NotFoundError
from orch23.model.paths import escape_pattern, is_glob, match, match_any
from orch23.model.pipeline import (
    ForeachStage,
    GlobInput,
    Input,
    ListInput,
    OrderInput,
    Pipeline,
    SliceInput,
    Stage,
    family_of,
)
from orch23.model.plan import Decision, Plan
from orch23.plan.nodes import Node, Where, WriterIndex, grouped, placed_inputs, writes_of

_LIKE_A_PATH = re.compile(r"[./*]")


IsFolder: TypeAlias = Callable[[str], bool]
Neighbours: TypeAlias = Callable[[str], Iterable[str]]
"""Return the paths that may be meant by one that does not exist, for suggestions."""
_MOST_LISTED = 12
_MOST_READINGS = 3


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
    is_folder: IsFolder = lambda _path: False,
    known: Collection[str] = (),
    neighbours: Neighbours = lambda _path: (),
    is_result: Callable[[str], bool] = lambda _path: False,
) -> tuple[Diagnostic, ...]:
    """Return an error for each literal input that neither exists nor is made by a stage, or that is a folder.

    `exists` is asked only for inputs of which no stage upstream has the path as an output. The inputs of the `known`
    stages exist. `is_result` returns whether a file exists only because a stage made it: a stage that comes before that
    stage does not see it.
    """
    # One search for the whole plan: comparing each input with the writes of each stage upstream takes quadratic time.
    search = _MissingInputs(plan, exists, is_folder, neighbours, is_result)
    stages = (node for name, node in plan.nodes.items() if isinstance(node, Stage) and name not in known)
    return tuple(problem for stage in stages for problem in search.errors_of(stage))


class _MissingInputs(Struct, frozen=True, dict=True):
    """A search for missing inputs. Its other indices are built when first used: most inputs exist."""

    plan: Plan
    exists: Callable[[str], bool]
    is_folder: IsFolder
    neighbours: Neighbours
    is_result: Callable[[str], bool]

    @cached_property
    def makers(self) -> Mapping[str, Sequence[str]]:
        stages = ((name, node) for name, node in self.plan.nodes.items() if isinstance(node, Stage))
        return grouped((path, name) for name, stage in stages for path in stage.literal_outputs)

    @cached_property
    def writers(self) -> WriterIndex:
        return WriterIndex(self.plan.nodes)

    @cached_property
    def declared(self) -> WriterIndex:
        """Index the stages as declared: each foreach, and not its items, of which there may be none."""
        return WriterIndex(self.stages)

    @cached_property
    def known_paths(self) -> Suggestions:
        written = {pattern for node in self.plan.nodes.values() for pattern in writes_of(node)}
        return Suggestions(written.union(filter(self.exists, _literal_reads(self.plan))))

    @cached_property
    def stages(self) -> Mapping[str, Stage | ForeachStage]:
        return {stage.name: stage for stage in self.plan.pipeline.stages}

    @cached_property
    def joined_outputs(self) -> Mapping[str, tuple[Stage, int]]:
        """Outputs whose names are several paths with spaces between them, by each of the paths."""
        found: dict[str, tuple[Stage, int]] = {}
        for stage in (one for one in self.stages.values() if isinstance(one, Stage)):
            for position, output in enumerate(stage.outputs):
                words = _split(output)
                for word in words if len(words) > 1 else ():
                    found.setdefault(word, (stage, position))
        return found

    @cached_property
    def skipped(self) -> WriterIndex:
        return WriterIndex({stage.name: stage for stage in self.plan.pipeline.skipped}, attrgetter("writes"))

    def errors_of(self, stage: Stage) -> Iterator[Diagnostic]:
        inputs = placed_inputs(stage)
        for where, one in inputs:
            if _is_literal(_path(one)) and (problem := self._error(stage, where, one)) is not None:
                yield problem
        for where, one in inputs:
            if isinstance(one, GlobInput) and (name := _look_alike(one)) is not None and self.exists(name):
                message = (
                    f"input `{name}` of stage `{stage.name}` does not match the file of this name: `[...]` is a set"
                )
                place = self.plan.pipeline.place_in(stage, *where)
                yield Diagnostic("E822", message, place, f"for this file, write `{escape_pattern(name)}`")

    def _error(self, stage: Stage, where: Where, one: Input) -> Diagnostic | None:
        path = _path(one)
        if path in self.makers and self._is_made(stage, path, self.makers[path]):
            return None
        is_folder = path.endswith("/")
        if self.is_folder(path.rstrip("/")) if is_folder else self.exists(path):
            may_be_unseen = stage.name in self.plan.upstream_of_chains and _is_required(one) and not is_folder
            makers = self.writers.writers_of(path) if may_be_unseen and self.is_result(path) else ()
            return self._cycle(stage.name, path, makers)
        makers = self.writers.writers_of(path)
        if self._is_made(stage, path, makers):
            return None
        if not path.endswith("/") and self.is_folder(path):
            hint = f"write `{path}/` for all files below it, or name a file"
            if isinstance(one, SliceInput):
                hint = f"a slice is a part of one file: name a file below `{path}/`"
            message = f"input `{path}` of stage `{stage.name}` is a folder"
            return Diagnostic("E822", message, self.plan.pipeline.place_in(stage, *where), hint)
        if not _is_required(one) or not set(makers).isdisjoint(self.plan.earlier_items(stage.name)):
            return None
        return self._missing(stage, where, one, makers)

    def is_there(self, path: str) -> bool:
        found = self.is_folder(path.rstrip("/")) if path.endswith("/") else self.exists(path)
        return found or bool(self.writers.writers_of(path))

    def _is_made(self, stage: Stage, path: str, makers: Sequence[str]) -> bool:
        yields_to = self.plan.upstream_of_chains.get(stage.name, {})
        return (
            not set(makers).isdisjoint(self.plan.upstream[stage.name])
            # An earlier item of its chain may have made it. What a stage edits is not for itself to make; if it is done
            # (`once`), you may have removed the file, and the error is that of a run.
            or (stage.chain is not None and stage.name in makers and (stage.once or not match_any(stage.edits, path)))
            or any(node.name in makers and node.name not in yields_to for node in self.plan.unexpanded)
            # A foreach without items today is not among the nodes, but it is what makes the folder.
            or (path.endswith("/") and bool(self.declared.writers_of(path)))
        )

    def _cycle(self, name: str, path: str, makers: tuple[str, ...]) -> Diagnostic | None:
        """Return the error that a stage reads a path of a stage that comes after it, if one of the makers does."""
        # A stage of a model may come after a reader of its file, which then reads the version before (ADR 19).
        if not (stages := {maker for maker in makers if isinstance(self.plan.nodes.get(maker), Stage)}):
            return None
        from orch23.plan.edge_reasons import later_maker_error  # noqa: PLC0415 - only for errors

        return later_maker_error(self.plan, name, path, stages)

    def _missing(self, stage: Stage, where: Where, one: Input, makers: tuple[str, ...]) -> Diagnostic:
        name, path = stage.name, _path(one)
        place, fix, otherwise = self.plan.pipeline.place_in(stage, *where), None, None
        items = self.plan.chains.get(stage.chain.chain, ())[stage.chain.index + 1 :] if stage.chain is not None else ()
        later = next((item for item in items if item in makers), None)
        if later is None and (cycle := self._cycle(name, path, makers)) is not None:
            return cycle
        if later is None:
            message, hint, fix, otherwise = _missing_text(self, stage, path)
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
        return Diagnostic("E822", message, place, hint, fix=fix, otherwise=otherwise)


def unmade_inputs_errors(
    pipeline: Pipeline,
    exists: Callable[[str], bool],
    is_folder: IsFolder = lambda _path: False,
    neighbours: Neighbours = lambda _path: (),
) -> tuple[Diagnostic, ...]:
    """Return an error for each literal input that does not exist and that no stage at all makes. It needs no plan."""
    nodes = {node.name: node for node in pipeline.stages}
    writers = WriterIndex(nodes)
    unordered = Plan(pipeline=pipeline, nodes=nodes, order=(), upstream=dict.fromkeys(nodes, ()), downstream={})
    return missing_inputs_errors(
        unordered, lambda path: exists(path) or bool(writers.writers_of(path)), is_folder, (), neighbours
    )


def _missing_text(search: _MissingInputs, stage: Stage, path: str) -> tuple[str, str, Fix | None, str | None]:
    """Return the message about an input that does not exist, its hint, its fix, and the hint without the fix."""
    message = f"input `{path}` of stage `{stage.name}` does not exist, and no stage makes it"
    if skipped := search.skipped.writers_of(path):
        return message, f"`{skipped[0]}`, which makes it, is skipped: give this stage the same `if`", None, None
    if (words := _words(path, search.is_there)) is not None:
        hint = f"did you mean {' and '.join(f'`{word}`' for word in words)}? Write each as an entry of its own"
        return message, hint, (path, ", ".join(words)), None
    if path != stage.name and (named := search.stages.get(path)) is not None:
        is_stage = f"`{path}` is a stage; `inputs` are files"
        made = next(iter(getattr(named, "outputs", ())), None)
        hint = f"{is_stage}: write one that it makes, or `needs: [{path}]` for the order only"
        return (message, hint, (path, made), is_stage) if made else (message, is_stage, None, None)
    if (joined := search.joined_outputs.get(path)) is not None:
        return message, _joined_output(search.plan.pipeline, *joined), None, None
    # Not what the stage makes itself: as its input, that would be a cycle.
    own = writes_of(stage)
    others = sorted(one for one in search.neighbours(path) if not match_any(own, one.rstrip("/")))
    folder = posixpath.dirname(path.rstrip("/"))
    here = [one for one in others if posixpath.dirname(one.rstrip("/")) == folder and one != path]
    base = path.rstrip("/").rpartition("/")[2]
    # The path itself may be known, as an output of a stage that runs later.
    same = dict.fromkeys(one for one in others if one != path and one.rstrip("/").rpartition("/")[2] == base)
    what = "`outputs` of the stage that makes it"
    otherwise = f"create it, add it to {what}, or write `{path}**`, which may match no file"
    if not path.endswith("/"):
        may_be_missing = f"`{{path: {path}, optional: true}}`"
        otherwise = f"create it, or add it to {what}; if it may be missing, write {may_be_missing}"
    if near := list(same)[:_MOST_READINGS] or search.known_paths.nearest(path, here, others, without=own):
        return message, question(near), (path, *near), otherwise
    return message, otherwise, None, None


def _words(path: str, is_there: Callable[[str], bool]) -> list[str] | None:
    """Return the paths that a text means with spaces between them, as in make, if one of them is there; else None."""
    words = _split(path)
    is_list = len(words) > 1 and all(_LIKE_A_PATH.search(word) for word in words)
    return words if is_list and any(map(is_there, words)) else None


def _joined_output(pipeline: Pipeline, stage: Stage, position: int) -> str:
    """Return the hint about an output whose name is several paths, with spaces between them."""
    output, place = stage.outputs[position], pipeline.place_in(stage, "outputs", position)
    line = f" (line {place.line})" if place else ""
    listed = ", ".join(_split(output))
    return f"the output `{output}` of `{stage.name}`{line} is one name with spaces: write `{listed}` there"


def _split(path: str) -> list[str]:
    """Return the words of a path with spaces."""
    return [word.removesuffix(",") for word in path.split()]


def _path(one: Input) -> str:
    return one.path if isinstance(one, SliceInput) else one.text


def _is_literal(path: str) -> bool:
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


def missing_outputs(stage: Stage, result: Mapping[str, FileEntry]) -> Iterator[Diagnostic]:
    """Yield an error for each declared output that a result lacks: a file, or any file of a directory."""
    cause = "prompt" if stage.step.asks_model else "command"
    hint = f"a stage must write every path of its `outputs`: fix the {cause}, or remove the path from `outputs`"
    for pattern in stage.required_outputs:
        if is_glob(pattern) and not any(match_any((pattern,), path) for path in result):
            yield Diagnostic("E303", f"nothing was written below `{pattern}`", hint=hint)
        elif not is_glob(pattern) and pattern not in result:
            yield Diagnostic("E303", f"`{pattern}` was not written", hint=hint)


def unknown_need_error(pipeline: Pipeline, node: Node, position: int, need: str, known: Suggestions) -> Diagnostic:
    """Return the error about an entry of `needs` that is not the name of a stage."""
    name, wanted = node.name, need.removesuffix("[*]")
    stages = [one for one in pipeline.stages if isinstance(one, Stage)] if "." in wanted or "/" in wanted else []
    maker = next((one.name for one in stages if wanted.removeprefix("./") in one.outputs), None)
    near = [maker] if maker else known.nearest(wanted, without=(name, family_of(name)))
    near = [one for one in near if ("@" in one) == ("@" in wanted)]
    otherwise = _listed([one.name for one in pipeline.stages if one.name != family_of(name)])
    return Diagnostic(
        "E827" if "@" in wanted else "E823",
        f"stage `{name}` needs `{wanted}`, which is not a stage of this pipeline",
        pipeline.place_in(node, "needs", position),
        f"`{wanted}` is made by `{maker}`: write `{maker}`" if maker else question(near) if near else otherwise,
        fix=(wanted, *near) if near else None,
        otherwise=otherwise,
    )


def unknown_target_error(plan: Plan, name: str, known: Sequence[str]) -> Diagnostic:
    """Return the error about a name on the command line, with the stage or the file that is probably meant."""
    message = f"no stage is named `{name}`"
    stages = (node for node in plan.nodes.values() if isinstance(node, Stage))
    maker = next((stage.name for stage in stages if name.removeprefix("./") in stage.outputs), None)
    near = nearest_names(name, [one for one in known if ("@" in one) == ("@" in name)]) or (
        [] if maker else nearest_names(name, [plan.pipeline.file])
    )
    if near:
        return Diagnostic("E823", message, hint=question(near), fix=(name, *near))
    if maker:
        hint = f"`{name}` is an output of the stage `{maker}`: name that stage"
        return Diagnostic("E823", message, hint=hint, fix=(name, maker))
    items = [one for one in known if "@" in name and family_of(one) == family_of(name) and "@" in one]
    return Diagnostic("E823", message, hint=_listed(items or [one.name for one in plan.pipeline.stages]))


def check_items(plan: Plan, decisions: Mapping[str, Decision], names: Iterable[str], last: Collection[str]) -> None:
    """Check names of items of lists that are not known yet: until then, only the `last` items count.

    Raises:
        NotFoundError: some are not among these.
    """
    found = []
    for name, family in ((one, family_of(one)) for one in names if "@" in one and one not in last):
        if isinstance(plan.nodes.get(family), ForeachStage):
            decision, before = decisions.get(family), [one for one in last if family_of(one) == family][:_MOST_LISTED]
            makers = getattr(decision, "waiting_on", ()) or getattr(decision, "by", ())
            hint = f"the items of `{family}` are known after {quoted_names(makers)} has run"
            more = f"the last ones are {quoted_names(before)}" if before else f"plan `{family}`, or build these first"
            found.append(Diagnostic("E823", f"no stage is named `{name}`", hint=f"{hint}; {more}"))
    if found:
        raise NotFoundError(*found)


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "the pipeline has no other stage"
    more = len(names) - _MOST_LISTED
    others = f" and {more:,} more; `orch23 status --all` lists all" if more > 0 else ""
    listed = f"{quoted_names(names[:_MOST_LISTED])}{others}"
    return f"{'the stages are' if len(names) > 1 else 'there is the stage'} {listed}"
