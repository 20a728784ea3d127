"""Diagnostics of plans: missing inputs, unknown stages in `needs`, reasons of edges."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Location, Related, did_you_mean
from orch23.model.digest import Json
from orch23.model.paths import escape_pattern, is_glob, match, may_overlap, normalize_pattern
from orch23.model.pipeline import ForeachStage, GlobInput, Input, ListInput, OrderInput, Pipeline, SliceInput, Stage
from orch23.model.plan import Plan
from orch23.plan.nodes import WriterIndex, writes_of

_ITEM = "${{"
_NEEDS = "needs "


class _Written(Struct, frozen=True):
    """A path or pattern as it is written, the pattern that it stands for, and where it is."""

    text: str
    pattern: str
    place: Location | None


def explain_edge(pipeline: Pipeline, producer: Stage | ForeachStage, reader: Stage | ForeachStage, why: str) -> Related:
    """Return why a reader comes after a producer. `why` is the reason of their edge."""
    a, b = producer.name, reader.name
    after = f"`{b}` comes after `{a}`"
    need = why.removeprefix(_NEEDS)
    if need != why:
        position = reader.needs.index(need) if need in reader.needs else 0
        return Related(f"{after}: it needs `{need}`", pipeline.locate("stages", b, "needs", position))
    read = _read(pipeline, reader, why)
    if read is None:
        return Related(f"{after} by {why}", pipeline.locate("stages", b))
    written = _output(pipeline, producer, read.pattern)
    if written is None or written.text == read.text:
        return Related(f"{after}: it reads `{read.text}`", read.place)
    return Related(f"{after}: it reads `{read.text}`, which may be `{written.text}` of `{a}`", read.place)


def unbounded_output(pipeline: Pipeline, producer: Stage | ForeachStage, reader: Stage | ForeachStage, why: str) -> str:
    """Return the output, as it is written, by which an item may write any path that is read; else an empty text."""
    read = _read(pipeline, reader, why)
    written = None if read is None else _output(pipeline, producer, read.pattern)
    return written.text if written is not None and written.pattern == "**" and _ITEM in written.text else ""


def _read(pipeline: Pipeline, reader: Stage | ForeachStage, why: str) -> _Written | None:
    return next((one for one in _reads(pipeline, reader) if one.pattern == normalize_pattern(why)), None)


def _output(pipeline: Pipeline, producer: Stage | ForeachStage, pattern: str) -> _Written | None:
    return next((one for one in _writes(pipeline, producer) if may_overlap(one.pattern, pattern)), None)


def _reads(pipeline: Pipeline, node: Stage | ForeachStage) -> Iterator[_Written]:
    """Give what a node reads: its inputs first, then the list of its family, and all other texts of a foreach."""
    if isinstance(node, ForeachStage):
        yield from _texts(pipeline, node.name, ("inputs",), node.body.get("inputs"))
        yield from _texts(pipeline, node.name, (), node.body)
    else:
        for where, declared in ((("inputs",), node.inputs), (("verify", "inputs"), node.verify.inputs)):
            for position, one in enumerate(declared):
                place = pipeline.locate("stages", node.name, *where, position)
                yield _Written(
                    _shown(one), normalize_pattern(one.pattern if isinstance(one, _PATTERNS) else one.path), place
                )
    family = next((one for one in pipeline.stages if one.name == node.name.partition("@")[0]), node)
    if isinstance(family, ForeachStage) and family.foreach.source is not None:
        source = family.foreach.source
        yield _Written(source, normalize_pattern(source), pipeline.locate("stages", family.name, "foreach", "from"))


def _writes(pipeline: Pipeline, node: Stage | ForeachStage) -> Iterator[_Written]:
    if isinstance(node, ForeachStage):
        yield from _texts(pipeline, node.name, ("outputs",), node.body.get("outputs"))
        yield from _texts(pipeline, node.name, ("allowed_paths",), node.body.get("allowed_paths"))
        return
    for position, path in enumerate(node.outputs):
        yield _Written(path, normalize_pattern(path), pipeline.locate("stages", node.name, "outputs", position))
    for path in node.fence.write:
        yield _Written(path, normalize_pattern(path), pipeline.locate("stages", node.name, "allowed_paths"))


_PATTERNS = (GlobInput, ListInput)


def _shown(one: Input) -> str:
    if isinstance(one, GlobInput) and one.folder:
        return one.pattern.removesuffix("**")
    if isinstance(one, _PATTERNS):
        return one.pattern
    return f"{one.path}#{one.selector}" if isinstance(one, SliceInput) else one.path


def _texts(pipeline: Pipeline, stage: str, at: tuple[str | int, ...], value: Json) -> Iterator[_Written]:
    """Give all texts below a node of a foreach; from the segment that the item decides on, any path is possible."""
    if isinstance(value, str):
        head, unknown, _ = value.partition(_ITEM)
        path = head[: head.rfind("/") + 1] + "**" if unknown else head.partition("#")[0]
        if path:
            yield _Written(value, normalize_pattern(path), pipeline.locate("stages", stage, *at))
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _texts(pipeline, stage, (*at, key), below)
    elif isinstance(value, Sequence):
        for position, below in enumerate(value):
            yield from _texts(pipeline, stage, (*at, position), below)


def unknown_stage_error(pipeline: Pipeline, name: str, position: int, need: str, known: list[str]) -> Diagnostic:
    """Return the error about an entry of `needs` that is not the name of a stage."""
    wanted = need.removesuffix("[*]")
    return Diagnostic(
        "E827" if "@" in wanted else "E823",
        f"stage `{name}` needs `{wanted}`, which is no stage of this pipeline",
        pipeline.locate("stages", name, "needs", position),
        did_you_mean(wanted, known) or "`needs` names stages",
    )


IsFolder: TypeAlias = Callable[[str], bool]


def _no_folder(_path: str) -> bool:
    return False


def missing_inputs_errors(
    plan: Plan, exists: Mapping[str, bool], is_folder: IsFolder = _no_folder
) -> tuple[Diagnostic, ...]:
    """Complain of each literal input that neither exists nor is made, or is a folder.

    `exists` answers for `literal_reads`.
    """
    names = sorted(
        {path for node in plan.nodes.values() for path in writes_of(node)} | {p for p, is_ in exists.items() if is_}
    )
    writers: WriterIndex | None = None  # made when it is first needed: most inputs exist, or are made right before
    problems = []
    for name, node in plan.nodes.items():
        if isinstance(node, ForeachStage):
            continue
        for where, position, one in _literals(node):
            path = _path(one)
            if path.endswith("/") and is_folder(path.rstrip("/")):
                continue
            if exists.get(path) or _is_made(plan, name, path) or _own_base(node, path) or _above_made(plan, name, path):
                continue
            if not path.endswith("/") and is_folder(path):
                problems.append(_folder(plan.pipeline, name, (*where, position), one))
                continue
            if not _is_required(one):
                continue
            writers = writers or WriterIndex(plan.nodes)
            makers = writers.writers_of(path)
            if not set(makers).isdisjoint(plan.earlier_items(name)):
                continue
            later = _made_later(plan, node, makers)
            missing = _missing(plan.pipeline, name, (*where, position), path, names, later)
            whole = _name(one)
            if whole is not None and exists.get(whole):
                literal = escape_pattern(whole)
                hint = f"`{whole}` means a part of the file `{path}`; for the file of this name, write `{literal}`"
                missing = replace(missing, hint=hint)
            problems.append(missing)
        problems += _misread(plan, node, exists)
    return tuple(problems)


def unmade_inputs_errors(
    pipeline: Pipeline, exists: Callable[[str], bool], is_folder: IsFolder = _no_folder
) -> tuple[Diagnostic, ...]:
    """Complain of each literal input that is not there and that no stage at all makes: what is sure without a plan."""
    patterns = sorted({pattern for node in pipeline.stages for pattern in writes_of(node)})
    writers = WriterIndex({node.name: node for node in pipeline.stages})
    return tuple(
        _folder(pipeline, stage.name, (*where, position), one)
        if is_folder(_path(one))
        else _missing(pipeline, stage.name, (*where, position), _path(one), patterns)
        for stage in pipeline.stages
        if isinstance(stage, Stage)
        for where, position, one in _literals(stage)
        if not writers.writers_of(_path(one)) and not _is_there(_path(one), exists, is_folder)
        if _is_required(one) or is_folder(_path(one))
    )


def _is_there(path: str, exists: Callable[[str], bool], is_folder: IsFolder) -> bool:
    return is_folder(path.rstrip("/")) if path.endswith("/") else exists(path)


def literal_reads(plan: Plan) -> tuple[str, ...]:
    """Return the literal paths of files that must exist or be made, and the names that an input may be meant as."""
    stages = [node for node in plan.nodes.values() if isinstance(node, Stage)]
    paths = {_path(one) for stage in stages for _, _, one in _literals(stage) if _is_required(one)}
    needed = (
        one for stage in stages for _, _, one in _declared(stage) if isinstance(one, GlobInput) or _is_required(one)
    )
    names = {name for one in needed if (name := _name(one)) is not None}
    return tuple(sorted(path for path in paths | names if not path.endswith("/")))


def _made_later(plan: Plan, stage: Stage, makers: tuple[str, ...]) -> str | None:
    """Return the first later item of the stage's chain that is among the makers of a file."""
    items = plan.chains.get(stage.chain.chain, ())[stage.chain.index + 1 :] if stage.chain is not None else ()
    return next((item for item in items if item in makers), None)


def _missing(
    pipeline: Pipeline,
    name: str,
    where: tuple[str | int, ...],
    path: str,
    names: list[str],
    later: str | None = None,
) -> Diagnostic:
    off = [one.name for one in pipeline.skipped if any(may_overlap(pattern, path) for pattern in one.writes)]
    place = pipeline.locate("stages", name, *where)
    if later is not None:
        message = (
            f"input `{path}` of stage `{name}` does not exist: `{later}`, which makes it, comes later in its chain"
        )
        return Diagnostic("E822", message, place, f"put `{later}` before `{name}` in the list, or remove the input")
    others = [one for one in names if one != path]  # a hint that repeats the path helps nobody
    create = f"create it, or write `{path}**`, which may match no file"
    make = "give it to the outputs of the stage that makes it"
    otherwise = did_you_mean(path, others) or (create if path.endswith("/") else make)
    return Diagnostic(
        "E822",
        f"input `{path}` of stage `{name}` does not exist, and no stage makes it",
        place,
        f"`{off[0]}`, which makes it, is skipped: give this stage the same `if`" if off else otherwise,
    )


def _folder(pipeline: Pipeline, name: str, where: tuple[str | int, ...], one: Input) -> Diagnostic:
    path = _path(one)
    hint = f"write `{path}/` for all files below it, or name a file"
    if isinstance(one, SliceInput):
        hint = f"a slice is a part of one file: name a file below `{path}/`"
    message = f"input `{path}` of stage `{name}` is a folder"
    return Diagnostic("E822", message, pipeline.locate("stages", name, *where), hint)


def _literals(stage: Stage) -> Iterator[tuple[tuple[str, ...], int, Input]]:
    """Yield where it is listed, at which position, and the input, for each that is a literal path or a folder."""
    for where, position, one in _declared(stage):
        path = _path(one)
        if path.endswith("/") or not is_glob(path):
            yield where, position, one


def _declared(stage: Stage) -> Iterator[tuple[tuple[str, ...], int, Input]]:
    for where, declared in ((("inputs",), stage.inputs), (("verify", "inputs"), stage.verify.inputs)):
        for position, one in enumerate(declared):
            yield where, position, one


def _name(one: Input) -> str | None:
    """Return the name of the file that an input reads like, where its signs mean something else."""
    if isinstance(one, SliceInput):
        return f"{one.path}#{one.selector}"
    if isinstance(one, GlobInput) and "[" in one.pattern and not match(one.pattern, one.pattern):
        return one.pattern
    return None


def _misread(plan: Plan, stage: Stage, exists: Mapping[str, bool]) -> Iterator[Diagnostic]:
    """Complain of each pattern with a set of characters where a file has that very name."""
    for where, position, one in _declared(stage):
        if isinstance(one, GlobInput) and (name := _name(one)) is not None and exists.get(name):
            message = f"input `{name}` of stage `{stage.name}` does not mean the file of this name: `[...]` is a set"
            place = plan.pipeline.locate("stages", stage.name, *where, position)
            yield Diagnostic("E822", message, place, f"for this file, write `{escape_pattern(name)}`")


def _path(one: Input) -> str:
    """Return what is to be there: the path of a file, or of a folder with `/` at its end. Patterns stay patterns."""
    if isinstance(one, ListInput):
        return one.pattern
    if isinstance(one, GlobInput):
        return one.pattern.removesuffix("**") if one.folder else one.pattern
    return one.path


def _is_required(one: Input) -> bool:
    if isinstance(one, GlobInput):
        return one.folder
    return isinstance(one, OrderInput) or (not isinstance(one, ListInput) and not one.optional)


def _is_made(plan: Plan, name: str, path: str) -> bool:
    if path.endswith("/") and any(
        may_overlap(pattern, path) for node in plan.pipeline.stages for pattern in writes_of(node)
    ):
        return True  # by items of which there may be none
    return any(may_overlap(pattern, path) for up in plan.upstream[name] for pattern in writes_of(plan.nodes[up]))


def _own_base(stage: Stage, path: str) -> bool:
    """Say whether the path is one that the stage's own chain writes: it may come from an earlier item."""
    return stage.chain is not None and any(may_overlap(pattern, path) for pattern in writes_of(stage))


def _above_made(plan: Plan, name: str, path: str) -> bool:
    """Say whether an unexpanded foreach that the stage stands upstream of might hold the path."""
    return any(
        node.name not in plan.upstream_of_chains.get(name, ()) and any(may_overlap(w, path) for w in node.writes)
        for node in plan.unexpanded
    )
