"""Keep parsed pipelines between commands; after an edit read only the stages whose lines differ."""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from orch23.load.overrides import ModelOverride
from orch23.load.stage_texts import StageTexts, are_valid_alone, edit_between, shift_locations
from orch23.load.yaml_text import LazyLocations
from orch23.model.diagnostic import Location
from orch23.model.pipeline import ForeachStage, Pipeline, SkippedStage, Stage
from orch23.model.plan import CompileCache, ParsedPipeline
from orch23.steps.registry import decode_step

_NO_STAGES = ParsedPipeline(Pipeline(name="", file="", stages=()))


class _Stored(Struct, frozen=True, array_like=True):
    """A valid pipeline with its text, the locations of its two upper levels, and where each var came from."""

    text: str
    pipeline: Pipeline
    upper: dict[str, Location]
    origins: Mapping[str, str]


class StoredPipelines(Struct, frozen=True):
    """The stored pipeline of one file. `made_of` is everything besides the text that the pipeline depends on."""

    cache: CompileCache
    file: str
    made_of: bytes

    def get(self, text: str, parse: Callable[[str], ParsedPipeline]) -> ParsedPipeline | None:
        """Return the pipeline of a text, with the origins of its vars, or None.

        If the stored text differs from it in stages only, `parse` is called with the text of these stages.
        """
        data = self.cache.get(self.file, self.made_of)
        stored = _decoded(data) if data is not None else None
        if stored is not None and stored.text != text and (stored := _edited(stored, text, parse)) is not None:
            self._put(stored)
        if stored is None:
            return None
        pipeline = replace(stored.pipeline, locations=LazyLocations(text, self.file, stored.upper))
        return ParsedPipeline(pipeline, origins=stored.origins)

    def put(self, text: str, parsed: ParsedPipeline) -> None:
        """Store a pipeline that has no warnings, which would be lost, and no plugins, whose steps cannot be stored."""
        pipeline = parsed.pipeline
        # The index must not name code of a plugin to import (ADR 32).
        if pipeline is not None and not parsed.diagnostics and not pipeline.plugins:
            self._put(_Stored(text, replace(pipeline, locations={}), _upper(pipeline), parsed.origins))

    def _put(self, stored: _Stored) -> None:
        self.cache.put(self.file, self.made_of, msgspec.msgpack.encode(stored))


def stored_pipelines(
    cache: CompileCache | None,
    file: str,
    sets: Mapping[str, str],
    vars_name: str,
    vars_text: str | None,
    override: ModelOverride,
) -> StoredPipelines | None:
    """Return the stored pipelines of a file with these vars and this override; None without a cache."""
    if cache is None:
        return None
    parts = (sorted(sets.items()), vars_name, vars_text, override.provider, override.model, sorted(override.unfit))
    try:
        return StoredPipelines(cache, file, msgspec.msgpack.encode(parts))
    except UnicodeError:  # an argument that is not UTF-8
        return None


def _decoded(data: bytes) -> _Stored | None:
    """Return a stored pipeline, or None where another version of orch23 stored it in another form."""
    # Not `pickle`, which runs code that comes with a repository.
    try:
        return msgspec.msgpack.decode(data, type=_Stored, dec_hook=decode_step)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _edited(stored: _Stored, text: str, parse: Callable[[str], ParsedPipeline]) -> _Stored | None:
    """Return a stored pipeline with another text of which only stages differ: only these are parsed.

    None if more differs, if a stage cannot be parsed by itself, or if there is an error or a warning. A pipeline with
    promotion groups is parsed as a whole, because a group is checked over all of its stages.
    """
    edit = edit_between(stored.text, text)
    if edit is None:
        return None
    known = {one.name: one for one in (*stored.pipeline.stages, *stored.pipeline.skipped)}
    after, names = edit.after, edit.names
    # The lines of the text may show other stages than those that were read from it.
    if set(edit.before.stages) != set(known) or 2 * len(names) > len(known) or not are_valid_alone(after, names):
        return None  # also if most stages are edited
    parsed = parse(after.alone(names)) if names else _NO_STAGES
    pipeline = parsed.pipeline
    if pipeline is None or parsed.diagnostics:
        return None
    known |= {one.name: one for one in (*pipeline.stages, *pipeline.skipped)}
    found = [known[name] for name in after.stages]
    if any(one.promote is not None for one in found):
        return None
    only = StageTexts(after.head, {name: after.stages[name] for name in names}, after.tail)
    locations = {path: place for path, place in _upper(pipeline).items() if path.startswith("stages/")}
    upper = shift_locations(stored.upper, edit.before, after) | shift_locations(locations, only, after)
    stages, skipped = stages_and_skipped(found)
    return _Stored(text, replace(stored.pipeline, stages=stages, skipped=skipped), upper, stored.origins)


def stages_and_skipped(
    nodes: Sequence[Stage | ForeachStage | SkippedStage],
) -> tuple[tuple[Stage | ForeachStage, ...], tuple[SkippedStage, ...]]:
    """Return the stages, and those that their `if` switches off."""
    stages = tuple(node for node in nodes if not isinstance(node, SkippedStage))
    return stages, tuple(node for node in nodes if isinstance(node, SkippedStage))


def _upper(pipeline: Pipeline) -> dict[str, Location]:
    return pipeline.locations.upper if isinstance(pipeline.locations, LazyLocations) else {}
