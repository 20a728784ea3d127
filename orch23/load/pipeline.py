"""Load a pipeline file: a validated pipeline, or everything that is wrong with it."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from orch23.load.loaded import InvalidPipelineError, LoadedPipeline, ParsedPipeline
from orch23.load.overrides import NO_MODEL_OVERRIDE, ModelOverride, ModelOverrides, read_variables
from orch23.load.stage_bodies import LoadContext, read_stage
from orch23.load.stage_texts import StageTexts, are_valid_alone, edit_between, shift_locations
from orch23.load.yaml_text import PIPELINE_LIMITS, LazyLocations, ParsedText, decode_text, parse_yaml, too_large_error
from orch23.model.diagnostic import Diagnostic, Location, Severity, did_you_mean, errors
from orch23.model.digest import Digest, Json, digest_bytes
from orch23.model.errors import NotFoundError
from orch23.model.fields import Problem, Problems, given
from orch23.model.language import DISTRIBUTION_PATTERN, keys_of
from orch23.model.pipeline import LOCAL_EXECUTOR, ForeachStage, Pipeline, Price, SkippedStage, Stage, StopConditions
from orch23.model.plan import CompileCache
from orch23.model.plugins import missing_plugins
from orch23.resolve.pipeline_document import SettingsDocument
from orch23.resolve.reading import (
    CODES_OF_KEYS,
    E_NOT_EXACTLY_ONE,
    NO_NODES_BROKEN,
    NodeSet,
    form_errors,
    independent_problems,
    is_missing_kind,
    path_of_error,
    read_document,
)
from orch23.resolve.stage_fields import read_prices, read_run_limits
from orch23.steps.registry import decode_step as stored_step
from orch23.steps.registry import kinds_of
from orch23.store.safe_files import open_file, read_and_close

if TYPE_CHECKING:
    from orch23.resolve.schema_errors import SchemaError


_INSTALLED = re.compile(DISTRIBUTION_PATTERN)
_MARK_BYTES = 3  # of a byte order mark, which is no part of the text


class _Stored(Struct, frozen=True, array_like=True):
    """A sound pipeline with its text, the places of the nodes of its two upper levels, and where each var came from."""

    text: str
    pipeline: Pipeline
    upper: dict[str, Location]
    origins: Mapping[str, str]


def load_pipeline(
    path: Path,
    root: Path,
    *,
    sets: Mapping[str, str] | None = None,
    vars_file: Path | None = None,
    override: ModelOverride = NO_MODEL_OVERRIDE,
    text: str | None = None,
    cache: CompileCache | None = None,
) -> LoadedPipeline:
    """Read a pipeline of the project at `root`. `override` says who is asked in place of what it says itself.

    `text` is parsed in the place of the file's. `cache` are pipelines that were parsed before.

    Raises:
        NotFoundError: there is no such file, or the file of vars is missing.
        InvalidInputError: everything that is wrong with the pipeline (an InvalidPipelineError, with the texts).

    """
    file, found, digest, refused = _read(path, root)
    text = found if text is None else text
    sources, digests = {file: found}, {file: digest}
    vars_name, vars_text = "", None
    vars_refused: tuple[Diagnostic, ...] = ()
    if vars_file is not None:
        vars_name, vars_text, vars_digest, vars_refused = _read(vars_file, root)
        sources[vars_name], digests[vars_name] = vars_text, vars_digest
    if refused or vars_refused:
        raise InvalidPipelineError(*refused, *vars_refused, sources=sources)
    parsing = partial(
        parse_pipeline, file=file, sets=sets or {}, vars_text=vars_text, vars_name=vars_name, override=override
    )
    made_of = _made_of(sets or {}, vars_name, vars_text, override) if cache is not None else b""
    known = cache.get(file, made_of) if cache is not None and made_of else None
    stored = _decoded(known) if known is not None else None
    if stored is not None and stored.text != text:
        stored = _edited(stored, text, parsing)
        if cache is not None and stored is not None:
            cache.put(file, made_of, msgspec.msgpack.encode(stored))
    if stored is not None:
        pipeline = replace(stored.pipeline, locations=LazyLocations(text, file, stored.upper))
        return LoadedPipeline(pipeline, (), stored.origins, sources, digests)
    parsed = parsing(text)
    if parsed.pipeline is None:
        raise InvalidPipelineError(*parsed.diagnostics, sources=sources, parsed=parsed)
    if cache is not None and made_of and not parsed.diagnostics and not parsed.pipeline.plugins:
        stored = _Stored(text, replace(parsed.pipeline, locations={}), _upper(parsed.pipeline), parsed.origins)
        cache.put(file, made_of, msgspec.msgpack.encode(stored))
    return LoadedPipeline(parsed.pipeline, parsed.diagnostics, parsed.origins, sources, digests)


def _decoded(data: bytes) -> _Stored | None:
    """Return a stored pipeline, or None where another version of orch23 stored it in a form of its own."""
    try:
        return msgspec.msgpack.decode(data, type=_Stored, dec_hook=stored_step)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _edited(stored: _Stored, text: str, parsing: Callable[[str], ParsedPipeline]) -> _Stored | None:
    """Return a stored pipeline with another text of which only stages differ: these alone are read.

    None where more differs, a stage cannot be read by itself, or something is wrong or to be warned of. Promotion
    groups are checked as a whole, so a pipeline that names one is read as a whole.
    """
    edit = edit_between(stored.text, text)
    if edit is None:
        return None
    before, after, changed = edit.before, edit.after, edit.names
    known = {one.name: one for one in (*stored.pipeline.stages, *stored.pipeline.skipped)}
    if set(before.stages) != set(known) or 2 * len(changed) > len(known) or not are_valid_alone(after, changed):
        return None
    upper = shift_locations(stored.upper, before, after)
    if changed:
        alone = parsing(after.alone(changed))
        if alone.pipeline is None or alone.diagnostics:
            return None
        known |= {one.name: one for one in (*alone.pipeline.stages, *alone.pipeline.skipped)}
        only = StageTexts(after.head, {name: after.stages[name] for name in changed}, after.tail)
        of_stages = {path: place for path, place in _upper(alone.pipeline).items() if path.startswith("stages/")}
        upper |= shift_locations(of_stages, only, after)
    found = [known[name] for name in after.stages]
    if any(one.promote is not None for one in found):
        return None
    stages = tuple(one for one in found if not isinstance(one, SkippedStage))
    skipped = tuple(one for one in found if isinstance(one, SkippedStage))
    return _Stored(text, replace(stored.pipeline, stages=stages, skipped=skipped), upper, stored.origins)


def _upper(pipeline: Pipeline) -> dict[str, Location]:
    """Return the places that a sound pipeline has at hand."""
    return pipeline.locations.upper if isinstance(pipeline.locations, LazyLocations) else {}


def _made_of(sets: Mapping[str, str], vars_name: str, vars_text: str | None, override: ModelOverride) -> bytes:
    """Return all that a pipeline follows from besides its text; nothing where it cannot be written."""
    parts = (sorted(sets.items()), vars_name, vars_text, override.provider, override.model, sorted(override.unfit))
    try:
        return msgspec.msgpack.encode(parts)
    except UnicodeError:  # an argument that is not UTF-8
        return b""


def _read(path: Path, root: Path) -> tuple[str, str, Digest, tuple[Diagnostic, ...]]:
    """Return a file's name below the root, its text, the digest of its bytes, and what is wrong with them.

    A link in the project that leads to another place of it is followed once, here; what is opened is opened below the
    root without any, so that nothing that changes meanwhile leads out of it.
    """
    hint = "check the path, or make a pipeline with `orch23 init`"
    if "\0" in str(path):
        raise NotFoundError(Diagnostic("E862", f"no file is called `{path}`", hint=hint))
    try:
        whole, below = path.resolve(), root.resolve()
    except (OSError, RuntimeError):  # a link that leads to itself
        whole, below = path.parent.resolve() / path.name, root.resolve()
    try:
        name = whole.relative_to(below).as_posix()
    except ValueError:
        message = f"`{path}` is outside of the project `{root}`"
        elsewhere = "move it into the project, or choose the project with -C"
        raise NotFoundError(Diagnostic("E862", message, hint=elsewhere)) from None
    try:
        descriptor = open_file(below, name) if whole != below else None
        if descriptor is None:
            whole.lstat()
            raise NotFoundError(Diagnostic("E862", f"`{path}` is no regular file", hint=hint))
        data = read_and_close(descriptor, PIPELINE_LIMITS.size_bytes + _MARK_BYTES + 1)
    except OSError as error:
        what = "there is no file" if isinstance(error, FileNotFoundError) else "cannot read"
        reason = "" if isinstance(error, FileNotFoundError) else f" ({error.strerror})"
        raise NotFoundError(Diagnostic("E862", f"{what} `{path}`{reason}", hint=hint)) from None
    if len(data) > PIPELINE_LIMITS.size_bytes + _MARK_BYTES:
        return name, "", digest_bytes(data), (too_large_error(name, PIPELINE_LIMITS),)
    text, refused = decode_text(data, name)
    return name, text, digest_bytes(data), refused


def parse_pipeline(
    text: str,
    file: str,
    *,
    sets: Mapping[str, str] | None = None,
    vars_text: str | None = None,
    vars_name: str = "",
    override: ModelOverride = NO_MODEL_OVERRIDE,
) -> ParsedPipeline:
    """Turn the text of a pipeline into its value. Pure; never raises for a bad text."""
    parsed = parse_yaml(text, file, PIPELINE_LIMITS)
    tree = parsed.tree
    if not isinstance(tree, Mapping):
        return ParsedPipeline(None, parsed.diagnostics or (_no_mapping(parsed, file),))
    named, is_known = _plugins(tree)
    missing = missing_plugins(tuple(named))
    plugins = tuple(name for name in named if name not in missing)
    is_known = is_known and not missing  # else what they add to the language is not known
    without_kind = frozenset[str]() if is_known else _without_kind(tree, plugins)
    refused = form_errors(tree, plugins)
    found = tuple(one for one in refused if not is_missing_kind(one.code, path_of_error(one), without_kind))
    told = {one.location for one in parsed.diagnostics}
    broken = [
        Diagnostic(one.code, one.message, where, one.hint)
        for one in found
        if (where := parsed.location_of(one.path, one.key)) not in told  # one mistake, one complaint
    ]
    variables = read_variables(parsed, sets=sets or {}, file_text=vars_text, file_name=vars_name)
    context = LoadContext(
        parsed,
        variables.values,
        variables.broken,
        ModelOverrides(override),
        plugins=plugins,
        without_kind=without_kind,
        outside=variables.outside,
    )
    read = _stages(tree, _usable(tree.get("defaults"), refused), context, found)
    stages = tuple(one for one in read if not isinstance(one, SkippedStage))
    limits = _limits(tree, context, found)
    pools = tree.get("pools", {})
    if isinstance(pools, Mapping):
        _check_pools(pools, context)
    if len(read) == len(_declared(tree)):  # else a stage of the group may be among those that could not be read
        _check_groups(read, context)
    lacking = _not_installed(parsed, {name: named[name] for name in missing})
    noted = (
        *parsed.diagnostics,
        *lacking,
        *broken,
        *variables.diagnostics,
        *context.diagnostics,
        *context.overrides.notes(),
    )
    diagnostics = tuple(sorted(dict.fromkeys(noted), key=_order))
    name = tree.get("name")
    pipeline = Pipeline(
        name=name if isinstance(name, str) else _stem(file),
        file=file,
        stages=stages,
        skipped=tuple(one for one in read if isinstance(one, SkippedStage)),
        vars=variables.values,
        stop=limits.stop,
        prices=limits.prices,
        jobs=limits.jobs,
        pools=limits.pools,
        exit_codes=limits.exit_codes,
        plugins=plugins,
        executor=limits.executor,
        locations=parsed.positions,
    )
    if not errors(diagnostics):
        sound = replace(pipeline, locations=LazyLocations(text, file, parsed.positions))
        return ParsedPipeline(sound, diagnostics, variables.origins)
    if not is_known:  # nor what its names mean: of checks, of providers
        return ParsedPipeline(None, diagnostics, variables.origins)
    names = {stage.name for stage in read}
    rest = [body for key, body in _declared(tree).items() if key not in names]
    return ParsedPipeline(None, diagnostics, variables.origins, pipeline, tuple(_strings(rest)))


def _declared(tree: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the stages of a pipeline as they are written."""
    stages = tree.get("stages")
    return stages if isinstance(stages, Mapping) else {}


def _plugins(tree: Mapping[str, Json]) -> tuple[dict[str, int], bool]:
    """Return the plugins of a pipeline, each with its position in the list, and whether these are all that it names."""
    listed = tree.get("plugins", [])
    found: dict[str, int] = {}
    for number, name in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(name, str) and _INSTALLED.match(name):
            found.setdefault(name, number)
    return found, isinstance(listed, list) and all(name in found for name in map(str, listed))


def _without_kind(tree: Mapping[str, Json], plugins: tuple[str, ...]) -> frozenset[str]:
    """Return the paths of the mappings that may have a key of a plugin which is not installed."""
    kinds = frozenset(kinds_of(plugins))
    stages = _declared(tree).items()
    without = (f"stages/{name}" for name, body in stages if isinstance(body, Mapping) and kinds.isdisjoint(body))
    return frozenset(("defaults", *without))


def _not_installed(parsed: ParsedText, missing: Mapping[str, int]) -> tuple[Diagnostic, ...]:
    hint = "install it where orch23 is, or remove it from `plugins`"
    return tuple(
        Diagnostic("E844", f"the plugin `{name}` is not installed", parsed.location_of(f"plugins/{number}"), hint)
        for name, number in missing.items()
    )


def plugins_of(path: Path, root: Path) -> tuple[str, ...]:
    """Return the plugins that a pipeline file names; what else is wrong with it does not matter.

    Raises:
        NotFoundError: there is no such file.
        InvalidInputError: a plugin is not installed.

    """
    file, text, _, _ = _read(path, root)
    parsed = parse_yaml(text, file, PIPELINE_LIMITS)
    tree = parsed.tree
    named, _ = _plugins(tree) if isinstance(tree, Mapping) else ({}, True)
    if missing := missing_plugins(tuple(named)):
        problems = _not_installed(parsed, {name: named[name] for name in missing})
        raise InvalidPipelineError(*problems, sources={file: text})
    return tuple(named)


def _strings(value: Json) -> Iterator[str]:
    """Yield every string in a tree."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, Sequence):
        for one in value:
            yield from _strings(one)


def _no_mapping(parsed: ParsedText, file: str) -> Diagnostic:
    place = parsed.location_of("") or Location(file, 1, 1)
    what = "the file is empty" if parsed.tree is None else "a pipeline is a mapping"
    return Diagnostic("E811", what, place, "start with `version: 1` and `stages:`")


def _order(diagnostic: Diagnostic) -> tuple[str, int, int, str]:
    place = diagnostic.location
    return (place.file, place.line, place.column, diagnostic.code) if place is not None else ("", 0, 0, diagnostic.code)


def _stem(file: str) -> str:
    return file.rpartition("/")[2].partition(".")[0] or file


def _usable(defaults: Json, found: "Sequence[SchemaError]") -> Json:
    """Return the defaults without the nodes that are complained of already, or every stage would repeat it."""
    spoilt = {one.path if one.code in CODES_OF_KEYS else path_of_error(one) for one in found}
    return _without(defaults, "defaults", NodeSet.at(spoilt)) if isinstance(defaults, Mapping) else None


def _without(node: Mapping[str, Json], at: str, spoilt: NodeSet) -> dict[str, Json]:
    """Return a mapping without the nodes that are spoilt; of a list with such a node nothing is left."""
    out: dict[str, Json] = {}
    for key, value in node.items():
        path = f"{at}/{key}"
        if not spoilt.touches(path):
            out[key] = value
        elif isinstance(value, Mapping) and path not in spoilt.paths:
            out[key] = _without(value, path, spoilt)
    return out


def _stages(
    tree: Mapping[str, Json], defaults: Json, context: LoadContext, found: "Sequence[SchemaError]"
) -> tuple[Stage | ForeachStage | SkippedStage, ...]:
    """Return the sound stages. Of a stage with `found` errors of form, the other errors are noted."""
    broken: dict[str, set[str]] = {}
    for one in found:
        if one.path.startswith("stages/") and one.code != E_NOT_EXACTLY_ONE:
            broken.setdefault(one.path.split("/")[1], set()).add(path_of_error(one))
    stages: list[Stage | ForeachStage | SkippedStage] = []
    for name, raw in _declared(tree).items():
        if not isinstance(raw, Mapping):
            continue
        if name in broken:
            context.broken_nodes = NodeSet.at(broken[name])
            read_stage(name, raw, defaults, context)
            context.broken_nodes = NO_NODES_BROKEN
        elif (stage := read_stage(name, raw, defaults, context)) is not None:
            stages.append(stage)
    return tuple(stages)


class _Limits(Struct, frozen=True):
    """What the top level says beside the stages."""

    stop: StopConditions = field(default_factory=StopConditions)
    prices: Mapping[str, Price] = field(default_factory=dict)
    jobs: int | None = None
    pools: Mapping[str, int] = field(default_factory=dict)
    exit_codes: Mapping[str, int] = field(default_factory=dict)
    executor: str = LOCAL_EXECUTOR


def _limits(tree: Mapping[str, Json], context: LoadContext, found: "Sequence[SchemaError]") -> _Limits:
    """Return what the sound keys of the top level say, with errors noted beside the `found` ones of the form."""
    body = {key: tree[key] for key in keys_of(SettingsDocument) if key in tree}
    refused = [path_of_error(one) for one in found]
    context.broken_nodes = NodeSet.at(refused)
    rendered = context.render(body, "")
    context.report_expression_errors(rendered)
    settings, wrong = read_document(rendered.tree, SettingsDocument, "", rendered.failed)
    if settings is None:  # with an expression for a key
        settings = SettingsDocument()
    at = Problems("")
    limits = _Limits(
        stop=read_run_limits(settings, at),
        prices=read_prices(settings, at),
        jobs=given(settings.jobs, None),
        pools=given(settings.pools, {}),
        exit_codes=given(settings.exit_codes, {}),
        executor=settings.executor,
    )
    context.report_all(
        NodeSet.at(rendered.failed).unaffected((*wrong, *independent_problems(wrong, at.found))), rendered.moved
    )
    context.broken_nodes = NO_NODES_BROKEN
    broken = {path.partition("/")[0] for path in (*refused, *rendered.failed, *(one.path for one in wrong))}
    keys = {"stop": "stop_conditions"}
    return _Limits(
        **{name: getattr(limits, name) for name in _Limits.__struct_fields__ if keys.get(name, name) not in broken}
    )


def _check_groups(read: Sequence[Stage | ForeachStage | SkippedStage], context: LoadContext) -> None:
    """Warn of each promotion group that has one stage alone: most often its name is misspelt."""
    stages: dict[str, list[Stage | ForeachStage | SkippedStage]] = {}
    for stage in read:
        if stage.promote is not None:
            stages.setdefault(stage.promote, []).append(stage)
    for group, members in stages.items():
        if len(members) == 1 and not isinstance(members[0], ForeachStage):
            hint = did_you_mean(group, [other for other in stages if other != group]) or "name it at a second stage"
            message = f"the promotion group `{group}` has one stage, so that it has no effect"
            context.report(Problem(f"stages/{members[0].name}/promote", "W804", message, hint, Severity.WARNING))


def _check_pools(pools: Collection[str], context: LoadContext) -> None:
    """Complain of each pool that a stage names and the file does not have."""
    for path, name in context.named_pools:
        if name not in pools:
            listed = f"there are {', '.join(f'`{one}`' for one in pools)}" if pools else "the file has none"
            hint = did_you_mean(name, pools) or f"{listed}; write `pools: {{{name}: 1}}` at the top of the file"
            context.report(Problem(path, "E816", f"there is no pool `{name}`", hint))
