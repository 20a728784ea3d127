"""Say why one stage comes after another, in the words and at the place of the pipeline's author."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from orch23.model.diagnostic import Location, Related
from orch23.model.digest import Json
from orch23.model.paths import meets, normal
from orch23.model.pipeline import ForeachStage, GlobInput, Input, ListInput, Pipeline, SliceInput, Stage

_ITEM = "${{"
_NEEDS = "needs "


class _Written(Struct, frozen=True):
    """A path or pattern as it is written, the pattern that it stands for, and where it is."""

    text: str
    pattern: str
    place: Location | None


def because(pipeline: Pipeline, producer: Stage | ForeachStage, reader: Stage | ForeachStage, why: str) -> Related:
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
    return next((one for one in _reads(pipeline, reader) if one.pattern == normal(why)), None)


def _output(pipeline: Pipeline, producer: Stage | ForeachStage, pattern: str) -> _Written | None:
    return next((one for one in _writes(pipeline, producer) if meets(one.pattern, pattern)), None)


def _reads(pipeline: Pipeline, node: Stage | ForeachStage) -> Iterator[_Written]:
    """Give what a node reads: its inputs first, then the list of its family, and all other texts of a foreach."""
    if isinstance(node, ForeachStage):
        yield from _texts(pipeline, node.name, ("inputs",), node.body.get("inputs"))
        yield from _texts(pipeline, node.name, (), node.body)
    else:
        for where, declared in ((("inputs",), node.inputs), (("verify", "inputs"), node.verify.inputs)):
            for position, one in enumerate(declared):
                place = pipeline.locate("stages", node.name, *where, position)
                yield _Written(_shown(one), normal(one.pattern if isinstance(one, _PATTERNS) else one.path), place)
    family = next((one for one in pipeline.stages if one.name == node.name.partition("@")[0]), node)
    if isinstance(family, ForeachStage) and family.foreach.source is not None:
        source = family.foreach.source
        yield _Written(source, normal(source), pipeline.locate("stages", family.name, "foreach", "from"))


def _writes(pipeline: Pipeline, node: Stage | ForeachStage) -> Iterator[_Written]:
    if isinstance(node, ForeachStage):
        yield from _texts(pipeline, node.name, ("outputs",), node.body.get("outputs"))
        yield from _texts(pipeline, node.name, ("allowed_paths",), node.body.get("allowed_paths"))
        return
    for position, path in enumerate(node.outputs):
        yield _Written(path, normal(path), pipeline.locate("stages", node.name, "outputs", position))
    for path in node.fence.write:
        yield _Written(path, normal(path), pipeline.locate("stages", node.name, "allowed_paths"))


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
            yield _Written(value, normal(path), pipeline.locate("stages", stage, *at))
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _texts(pipeline, stage, (*at, key), below)
    elif isinstance(value, Sequence):
        for position, below in enumerate(value):
            yield from _texts(pipeline, stage, (*at, position), below)
