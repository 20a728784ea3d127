"""Load a pipeline file: turn its text into a validated Pipeline, or into everything that is wrong with it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from orch23.load.loaded import InvalidPipelineError, Loaded, Parsed
from orch23.load.pieces import Pieces, are_whole, edit_between, moved
from orch23.load.stage_bodies import Reading, read_stage, try_expressions
from orch23.load.swap import NO_SWAP, Swap, Swapping
from orch23.load.variables import read_variables
from orch23.load.yaml_text import PIPELINE, ParsedText, UpperPlaces, decode, parse, too_large
from orch23.model.diagnostic import Diagnostic, Location, Severity, errors
from orch23.model.digest import Digest, Json, digest_bytes
from orch23.model.errors import NotFoundError
from orch23.model.fields import Problem, Problems, given
from orch23.model.language import keys_of
from orch23.model.pipeline import LOCAL, ForeachStage, Pipeline, Price, SkippedStage, Stage, StopConditions
from orch23.model.plan import Compiled
from orch23.model.plugins import not_installed
from orch23.resolve.document import SettingsDocument
from orch23.resolve.expressions import render_watched
from orch23.resolve.limits import read_prices, read_run_limits
from orch23.resolve.nearest import did_you_mean
from orch23.resolve.reading import Nodes, form_errors, read_document
from orch23.resolve.steps import declared_pools
from orch23.steps.registry import stored as stored_step
from orch23.store.beneath import open_file, read_all

if TYPE_CHECKING:
    from orch23.resolve.complaints import Complaint

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
    swap: Swap = NO_SWAP,
    text: str | None = None,
    compiled: Compiled | None = None,
) -> Loaded:
    """Read a pipeline of the project at `root`. `swap` says who is asked in place of what it says itself.

    `text` is parsed in the place of the file's. `compiled` are pipelines that were parsed before.

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
    parsing = partial(parse_pipeline, file=file, sets=sets or {}, vars_text=vars_text, vars_name=vars_name, swap=swap)
    made_of = _made_of(sets or {}, vars_name, vars_text, swap) if compiled is not None else b""
    known = compiled.get(file, made_of) if compiled is not None and made_of else None
    stored = msgspec.msgpack.decode(known, type=_Stored, dec_hook=stored_step) if known is not None else None
    if stored is not None and stored.text != text:
        stored = _edited(stored, text, parsing)
        if compiled is not None and stored is not None:
            compiled.put(file, made_of, msgspec.msgpack.encode(stored))
    if stored is not None:
        pipeline = replace(stored.pipeline, locations=UpperPlaces(text, file, stored.upper))
        return Loaded(pipeline, (), stored.origins, sources, digests)
    parsed = parsing(text)
    if parsed.pipeline is None:
        raise InvalidPipelineError(*parsed.diagnostics, sources=sources, parsed=parsed)
    if compiled is not None and made_of and not parsed.diagnostics and not parsed.pipeline.plugins:
        stored = _Stored(text, replace(parsed.pipeline, locations={}), _upper(parsed.pipeline), parsed.origins)
        compiled.put(file, made_of, msgspec.msgpack.encode(stored))
    return Loaded(parsed.pipeline, parsed.diagnostics, parsed.origins, sources, digests)


def _edited(stored: _Stored, text: str, parsing: Callable[[str], Parsed]) -> _Stored | None:
    """Return a stored pipeline with another text of which only stages differ: these alone are read.

    None where more differs, a stage cannot be read by itself, or something is wrong or to be warned of. Promotion
    groups are checked as a whole, so a pipeline that names one is read as a whole.
    """
    edit = edit_between(stored.text, text)
    if edit is None:
        return None
    before, after, changed = edit.before, edit.after, edit.names
    known = {one.name: one for one in (*stored.pipeline.stages, *stored.pipeline.skipped)}
    if set(before.stages) != set(known) or 2 * len(changed) > len(known) or not are_whole(after, changed):
        return None
    upper = moved(stored.upper, before, after)
    if changed:
        alone = parsing(after.alone(changed))
        if alone.pipeline is None or alone.diagnostics:
            return None
        known |= {one.name: one for one in (*alone.pipeline.stages, *alone.pipeline.skipped)}
        only = Pieces(after.head, {name: after.stages[name] for name in changed}, after.tail)
        of_stages = {path: place for path, place in _upper(alone.pipeline).items() if path.startswith("stages/")}
        upper |= moved(of_stages, only, after)
    found = [known[name] for name in after.stages]
    if any(one.promote is not None for one in found):
        return None
    stages = tuple(one for one in found if not isinstance(one, SkippedStage))
    skipped = tuple(one for one in found if isinstance(one, SkippedStage))
    return _Stored(text, replace(stored.pipeline, stages=stages, skipped=skipped), upper, stored.origins)


def _upper(pipeline: Pipeline) -> dict[str, Location]:
    """Return the places that a sound pipeline has at hand."""
    return pipeline.locations.upper if isinstance(pipeline.locations, UpperPlaces) else {}


def _made_of(sets: Mapping[str, str], vars_name: str, vars_text: str | None, swap: Swap) -> bytes:
    """Return all that a pipeline follows from besides its text; nothing where it cannot be written."""
    parts = (sorted(sets.items()), vars_name, vars_text, swap.provider, swap.model, sorted(swap.unfit))
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
        data = read_all(descriptor, PIPELINE.size_bytes + _MARK_BYTES + 1)
    except OSError as error:
        what = "there is no file" if isinstance(error, FileNotFoundError) else "cannot read"
        reason = "" if isinstance(error, FileNotFoundError) else f" ({error.strerror})"
        raise NotFoundError(Diagnostic("E862", f"{what} `{path}`{reason}", hint=hint)) from None
    if len(data) > PIPELINE.size_bytes + _MARK_BYTES:
        return name, "", digest_bytes(data), (too_large(name, PIPELINE),)
    text, refused = decode(data, name)
    return name, text, digest_bytes(data), refused


def parse_pipeline(
    text: str,
    file: str,
    *,
    sets: Mapping[str, str] | None = None,
    vars_text: str | None = None,
    vars_name: str = "",
    swap: Swap = NO_SWAP,
) -> Parsed:
    """Turn the text of a pipeline into its value. Pure; never raises for a bad text."""
    parsed = parse(text, file, PIPELINE)
    tree = parsed.tree
    if not isinstance(tree, Mapping):
        return Parsed(None, parsed.diagnostics or (_no_mapping(parsed, file),))
    plugins = _plugins(tree)
    if missing := not_installed(plugins):  # what they add to the language is not known
        hint = "install it where orch23 is, or remove it from `plugins`"
        places = {one: parsed.place(f"plugins/{plugins.index(one)}") for one in missing}
        lacking = [Diagnostic("E844", f"the plugin `{one}` is not installed", places[one], hint) for one in missing]
        return Parsed(None, (*parsed.diagnostics, *lacking))
    found = form_errors(tree, plugins)
    told = {one.location for one in parsed.diagnostics}
    broken = [
        Diagnostic(one.code, one.message, where, one.hint)
        for one in found
        if (where := parsed.place(one.path, one.key)) not in told  # one mistake, one complaint
    ]
    variables = read_variables(parsed, sets=sets or {}, file_text=vars_text, file_name=vars_name)
    reading = Reading(parsed, variables.values, variables.broken, Swapping(swap), plugins=plugins)
    read = _stages(tree, _usable(tree.get("defaults"), found), reading, found)
    stages = tuple(one for one in read if not isinstance(one, SkippedStage))
    refused_keys = {(one.path or one.key or "").split("/")[0] for one in found}
    limits = _limits(tree, reading, refused_keys)
    if limits.pools is not None:
        _check_pools(stages, limits.pools, reading)
    _check_groups(read, reading)
    noted = (*parsed.diagnostics, *broken, *variables.diagnostics, *reading.diagnostics, *reading.swapping.notes())
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
        pools=limits.pools or {},
        exit_codes=limits.exit_codes,
        plugins=plugins,
        executor=limits.executor,
        locations=parsed.positions,
    )
    if not errors(diagnostics):
        sound = replace(pipeline, locations=UpperPlaces(text, file, parsed.positions))
        return Parsed(sound, diagnostics, variables.origins)
    names = {stage.name for stage in read}
    declared = tree.get("stages")
    rest = [body for key, body in declared.items() if key not in names] if isinstance(declared, Mapping) else []
    return Parsed(None, diagnostics, variables.origins, pipeline, tuple(_strings(rest)))


def _plugins(tree: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the plugins of a pipeline, which decide what else it may say."""
    found = tree.get("plugins")
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, Sequence) else ()


def plugins_of(path: Path, root: Path) -> tuple[str, ...]:
    """Return the plugins that a pipeline file names; what else is wrong with it does not matter.

    Raises:
        NotFoundError: there is no such file.
        InvalidInputError: a plugin is not installed.

    """
    file, text, _, _ = _read(path, root)
    tree = parse(text, file, PIPELINE).tree
    plugins = _plugins(tree) if isinstance(tree, Mapping) else ()
    if not_installed(plugins):
        raise InvalidPipelineError(*parse_pipeline(text, file).diagnostics, sources={file: text})
    return plugins


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
    place = parsed.place("") or Location(file, 1, 1)
    what = "the file is empty" if parsed.tree is None else "a pipeline is a mapping"
    return Diagnostic("E811", what, place, "start with `version: 1` and `stages:`")


def _order(diagnostic: Diagnostic) -> tuple[str, int, int, str]:
    place = diagnostic.location
    return (place.file, place.line, place.column, diagnostic.code) if place is not None else ("", 0, 0, diagnostic.code)


def _stem(file: str) -> str:
    return file.rpartition("/")[2].partition(".")[0] or file


def _usable(defaults: Json, found: "Sequence[Complaint]") -> Json:
    """Return the defaults without what is complained of already, or every stage would repeat it."""
    if not isinstance(defaults, Mapping):
        return None
    spoilt = {f"{one.path}/{one.key}" if one.key is not None else one.path for one in found}
    return {key: v for key, v in defaults.items() if not any(f"{p}/".startswith(f"defaults/{key}/") for p in spoilt)}


def _stages(
    tree: Mapping[str, Json], defaults: Json, reading: Reading, found: "Sequence[Complaint]"
) -> tuple[Stage | ForeachStage | SkippedStage, ...]:
    """Return the sound stages. Of a stage with `found` errors of form, the other errors are noted."""
    declared = tree.get("stages")
    if not isinstance(declared, Mapping):
        return ()
    broken: dict[str, set[str]] = {}
    for one in found:
        if one.path.startswith("stages/"):
            path = one.path if one.key is None else f"{one.path}/{one.key}"
            broken.setdefault(path.split("/")[1], set()).add(path)
    stages: list[Stage | ForeachStage | SkippedStage] = []
    for name, raw in declared.items():
        if not isinstance(raw, Mapping):
            continue
        if name in broken:
            try_expressions(name, raw, reading)
            reading.broken_nodes = Nodes.at(broken[name])
            read_stage(name, raw, defaults, reading)
            reading.broken_nodes = None
        elif (stage := read_stage(name, raw, defaults, reading)) is not None:
            stages.append(stage)
    return tuple(stages)


class _Limits(Struct, frozen=True):
    """What the top level says beside the stages. `pools` is None where what it says of them is not sound."""

    stop: StopConditions = field(default_factory=StopConditions)
    prices: Mapping[str, Price] = field(default_factory=dict)
    jobs: int | None = None
    pools: Mapping[str, int] | None = None
    exit_codes: Mapping[str, int] = field(default_factory=dict)
    executor: str = LOCAL


def _limits(tree: Mapping[str, Json], reading: Reading, refused: set[str]) -> _Limits:
    body = {key: tree[key] for key in keys_of(SettingsDocument) if key in tree and key not in refused}
    if reading.spoils(body):
        return _Limits()
    rendered = render_watched(body, {"vars": reading.variables}, "")
    for error in rendered.errors:
        reading.note(Problem(error.path.lstrip("/"), error.code, error.message, error.hint))
    if rendered.errors:
        return _Limits()
    settings, wrong = read_document(rendered.tree, SettingsDocument, "")
    at = Problems("")
    if settings is None or wrong:
        settings = SettingsDocument()
    limits = _Limits(
        stop=read_run_limits(settings, at),
        prices=read_prices(settings, at),
        jobs=given(settings.jobs, None),
        pools=None if wrong or "pools" in refused else given(settings.pools, {}),
        exit_codes=given(settings.exit_codes, {}),
        executor=settings.executor,
    )
    for problem in (*wrong, *at.found):
        reading.note(problem)
    return limits


def _check_groups(read: Sequence[Stage | ForeachStage | SkippedStage], reading: Reading) -> None:
    """Warn of each promotion group that has one stage alone: most often its name is misspelt."""
    stages: dict[str, list[Stage | ForeachStage | SkippedStage]] = {}
    for stage in read:
        if stage.promote is not None:
            stages.setdefault(stage.promote, []).append(stage)
    for group, members in stages.items():
        if len(members) == 1 and not isinstance(members[0], ForeachStage):
            hint = did_you_mean(group, [other for other in stages if other != group]) or "name it at a second stage"
            message = f"the promotion group `{group}` has one stage, so that it has no effect"
            reading.note(Problem(f"stages/{members[0].name}/promote", "W804", message, hint, Severity.WARNING))


def _check_pools(stages: Sequence[Stage | ForeachStage], pools: Mapping[str, int], reading: Reading) -> None:
    """Complain of each pool that a stage names and the file does not have."""
    for stage in stages:
        named = stage.pools if isinstance(stage, Stage) else declared_pools(stage)
        for number, name in enumerate(named):
            if name not in pools:
                listed = f"there are {', '.join(f'`{one}`' for one in pools)}" if pools else "the file has none"
                hint = did_you_mean(name, pools) or f"{listed}; write `pools: {{{name}: 1}}` at the top of the file"
                at = f"stages/{stage.name}/pools/{number}"
                reading.note(Problem(at, "E816", f"there is no pool `{name}`", hint))
