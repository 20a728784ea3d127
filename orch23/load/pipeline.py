"""Load a pipeline file: a validated pipeline, or everything that is wrong with it."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from orch23.language.pipeline_document import SettingsDocument
from orch23.language.reading import (
    CODES_OF_KEYS,
    E_NOT_EXACTLY_ONE,
    NO_NODES_BROKEN,
    NodeSet,
    form_errors,
    independent_problems,
    is_missing_kind,
    is_misspelt,
    meant_keys,
    path_of_error,
    read_document,
)
from orch23.language.stage_fields import read_pools
from orch23.load.overrides import NO_MODEL_OVERRIDE, ModelOverride, ModelOverrides, read_variables
from orch23.load.stage_bodies import LoadContext, read_stage
from orch23.load.stored_pipelines import stages_and_skipped, stored_pipelines
from orch23.load.value_errors import brace_warnings, with_fix
from orch23.load.yaml_errors import PIPELINE_LIMITS, decode_text, too_large_error
from orch23.load.yaml_text import LazyLocations, ParsedText, parse_yaml
from orch23.model.diagnostic import (
    Diagnostic,
    Location,
    Severity,
    did_you_mean,
    errors,
    nearest_names,
    question,
    quoted_names,
)
from orch23.model.digest import Digest, Json, digest_bytes
from orch23.model.errors import NotFoundError
from orch23.model.fields import Problem, Problems
from orch23.model.language import DISTRIBUTION_PATTERN, keys_of, read_fields
from orch23.model.parsing import as_mapping, strings_in
from orch23.model.pipeline import ForeachStage, Pipeline, SkippedStage, Stage
from orch23.model.plan import CompileCache, InvalidPipelineError, LoadedPipeline, ParsedPipeline
from orch23.model.plugins import missing_plugins
from orch23.steps.registry import OF_FEATURES, kinds_of, missing_kind
from orch23.store.safe_files import open_file, read_and_close

if TYPE_CHECKING:
    from orch23.language.schema_errors import SchemaError


_INSTALLED = re.compile(DISTRIBUTION_PATTERN)
_MOST_NAMED = 5
_MARK_BYTES = 3  # the length of a byte order mark, which is not part of the text


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
    """Read a pipeline of the project at `root`. `override` replaces the provider and the model of its stages.

    `text` is parsed instead of the text of the file. `cache` has pipelines that were parsed before.

    Raises:
        NotFoundError: the pipeline file or the vars file does not exist.
        InvalidInputError: everything that is wrong with the pipeline (an InvalidPipelineError, with the texts).
    """
    files = [_read(one, root) for one in (path, vars_file) if one is not None]
    sources = {one.name: one.text for one in files}
    digests = {one.name: one.digest for one in files}
    if refused := [diagnostic for one in files for diagnostic in one.diagnostics]:
        raise InvalidPipelineError(*refused, sources=sources)
    file = files[0].name
    text = files[0].text if text is None else text
    vars_name, vars_text = ("", None) if vars_file is None else (files[1].name, files[1].text)
    parse = partial(parse_pipeline, file=file, sets=sets, vars_text=vars_text, vars_name=vars_name, override=override)
    # With a stored pipeline, a command does not import PyYAML (ADR 31).
    stored = stored_pipelines(cache, file, sets or {}, vars_name, vars_text, override)
    known = None if stored is None else stored.get(text, parse)
    parsed = known or parse(text)
    if parsed.pipeline is None:
        raise InvalidPipelineError(*parsed.diagnostics, sources=sources, parsed=parsed)
    if stored is not None and known is None:
        stored.put(text, parsed)
    return LoadedPipeline(parsed.pipeline, parsed.diagnostics, parsed.origins, sources, digests)


class _SourceFile(Struct, frozen=True):
    """A file below the root: its name there, its text, the digest of its bytes, and what is wrong with them."""

    name: str
    text: str
    digest: Digest
    diagnostics: tuple[Diagnostic, ...] = ()


def _read(path: Path, root: Path) -> _SourceFile:
    """Return a file of the project.

    A link in the project to another of its files is followed once, here. The file is then opened below the root
    without following links: a link that is created in between cannot lead out of the project.
    """
    hint = "check the path, or create a pipeline with `orch23 init`"
    if "\0" in str(path):
        raise NotFoundError(Diagnostic("E862", f"`{path}` contains a null character", hint=hint))
    try:
        whole, below = path.resolve(), root.resolve()
    except (OSError, RuntimeError):  # a cycle of links
        whole, below = path.parent.resolve() / path.name, root.resolve()
    if not whole.is_relative_to(below):
        message = f"`{path}` is outside of the project `{root}`"
        raise NotFoundError(Diagnostic("E862", message, hint="move it into the project, or choose the project with -C"))
    name = whole.relative_to(below).as_posix()
    try:
        descriptor = open_file(below, name) if whole != below else None
        if descriptor is None:
            whole.lstat()
            raise NotFoundError(Diagnostic("E862", f"`{path}` is not a regular file", hint=hint))
        # One byte more than the limit, to notice a larger file.
        data = read_and_close(descriptor, PIPELINE_LIMITS.size_bytes + _MARK_BYTES + 1)
    except FileNotFoundError:
        raise NotFoundError(_missing_file(path, name, root.resolve())) from None
    except OSError as error:
        message = f"cannot read `{path}` ({error.strerror})"
        raise NotFoundError(Diagnostic("E862", message, hint=hint)) from None
    if len(data) > PIPELINE_LIMITS.size_bytes + _MARK_BYTES:
        return _SourceFile(name, "", digest_bytes(data), (too_large_error(name, PIPELINE_LIMITS),))
    text, refused = decode_text(data, name)
    return _SourceFile(name, text, digest_bytes(data), refused)


def _missing_file(path: Path, name: str, root: Path) -> Diagnostic:
    message = f"the file `{name}` does not exist"
    place = Path(os.path.normpath(path))
    if near := _near(place) or _near(_in_similar_folder(place)) or _above(place, root):
        shown = near.relative_to(root).as_posix() if near.is_relative_to(root) else str(near)
        return Diagnostic("E862", message, hint=question((shown,)), fix=(str(place), str(near)))
    found = sorted(one.name for one in place.parent.glob("*.y*ml") if one.is_file())[:_MOST_NAMED]
    have = f"the directory has {quoted_names(found)}" if found else "check the path"
    return Diagnostic("E862", message, hint=f"{have}, or create a pipeline with `orch23 init`")


def _near(place: Path) -> Path | None:
    names = {one.name for one in place.parent.glob("*.y*ml") if one.is_file()}
    near = [place.name] if place.name in names else nearest_names(place.name, sorted(names))
    return place.with_name(near[0]) if near else None


def _in_similar_folder(place: Path) -> Path:
    for folder in reversed(place.parents):
        if not folder.is_dir():
            near = nearest_names(folder.name, sorted(one.name for one in folder.parent.glob("*/")))
            return folder.with_name(near[0]) / place.relative_to(folder) if near else place
    return place


def _above(place: Path, root: Path) -> Path | None:
    """Return the file of this name in the nearest directory above or, up to the root, one of a similar name."""
    for folder in place.parents[1:]:
        if (folder / place.name).is_file():
            return folder / place.name
        if folder.is_relative_to(root) and (near := _near(folder / place.name)):
            return near
    return None


def parse_pipeline(
    text: str,
    file: str,
    *,
    sets: Mapping[str, str] | None = None,
    vars_text: str | None = None,
    vars_name: str = "",
    override: ModelOverride = NO_MODEL_OVERRIDE,
) -> ParsedPipeline:
    """Turn the text of a pipeline into its value. Pure; errors of the text are returned, not raised."""
    parsed = parse_yaml(text, file, PIPELINE_LIMITS)
    tree = parsed.tree
    if not isinstance(tree, Mapping):
        what, place = "the file is empty" if tree is None else "a pipeline must be a mapping", parsed.location_of("")
        wrong = Diagnostic("E811", what, place or Location(file, 1, 1), "start with `version: 1` and `stages:`")
        return ParsedPipeline(None, parsed.diagnostics or (wrong,))
    if lacking := tuple(_lacking_kinds(parsed, tree)):
        return ParsedPipeline(None, _in_order(*parsed.diagnostics, *lacking))
    # First, since plugins decide which keys and step kinds are valid (ADR 32).
    plugins = _plugins_in(tree)
    without_kind = frozenset[str]() if plugins.are_complete else _without_kind(tree, plugins.installed)
    refused = form_errors(tree, plugins.installed)
    # A missing plugin may declare the unknown keys, so only the missing plugin is reported.
    found = tuple(one for one in refused if not is_missing_kind(one.code, path_of_error(one), without_kind))
    variables = read_variables(parsed, sets=sets or {}, file_text=vars_text, file_name=vars_name)
    context = LoadContext(
        parsed,
        variables.values,
        variables.broken,
        ModelOverrides(override),
        plugins=plugins.installed,
        without_kind=without_kind,
        outside=variables.outside,
        meant=meant_keys(found),
    )
    # Every stage would repeat the errors of the defaults.
    broken = NodeSet.at(one.path if one.code in CODES_OF_KEYS else path_of_error(one) for one in refused)
    defaults = tree.get("defaults")
    usable = _without(defaults, "defaults", broken) if isinstance(defaults, Mapping) else None
    read = _stages(tree, usable, context, found)
    settings = _settings(tree, context, found)
    _check_pools(tree.get("pools", {}), settings.get("pool_executors", {}), context)
    declared = as_mapping(tree.get("stages"))
    if len(read) == len(declared):  # else a stage of the group may be among those that could not be read
        _check_groups(read, context)
    diagnostics = _in_order(
        *parsed.diagnostics,
        *_missing_plugin_errors(parsed, plugins),
        *_form_diagnostics(parsed, found),
        *variables.diagnostics,
        *context.diagnostics,
        *context.overrides.notes(),
        *brace_warnings(parsed, text),
    )
    stem = file.rpartition("/")[2].partition(".")[0] or file
    name = tree.get("name", stem)
    stages, skipped = stages_and_skipped(read)
    pipeline = Pipeline(
        name=name if isinstance(name, str) else stem,
        file=file,
        stages=stages,
        skipped=skipped,
        vars=variables.values,
        plugins=plugins.installed,
        locations=parsed.positions,
        **settings,
    )
    if not errors(diagnostics):
        sound = replace(pipeline, locations=LazyLocations(text, file, parsed.positions))
        return ParsedPipeline(sound, diagnostics, variables.origins)
    # Without a plugin, the names of its checks and providers are unknown: more errors would only follow from that.
    if not plugins.are_complete:
        return ParsedPipeline(None, diagnostics, variables.origins)
    names = {stage.name for stage in read}
    rest = [body for key, body in declared.items() if key not in names]
    return ParsedPipeline(None, diagnostics, variables.origins, pipeline, tuple(strings_in(rest)))


def _form_diagnostics(parsed: ParsedText, found: "Sequence[SchemaError]") -> Iterator[Diagnostic]:
    """Yield errors of form, but not where the YAML reader reported one: both have the same cause."""
    if not found:
        return
    reported, meant = {one.location for one in parsed.diagnostics}, meant_keys(found)
    for one in found:
        place = parsed.location_of(one.path, one.key)
        if place not in reported and not is_misspelt(one.code, one.path, one.message, meant):
            problem = Diagnostic(one.code, one.message, place, one.hint, otherwise=one.otherwise)
            yield with_fix(problem, parsed, (one.write, *one.others), "" if one.key else one.path)


class _Plugins(Struct, frozen=True):
    """The plugins that a pipeline names; `missing` ones have their position. `are_complete`: all keys are known."""

    installed: tuple[str, ...] = ()
    missing: Mapping[str, int] = {}
    are_complete: bool = True


def _plugins_in(tree: Mapping[str, Json]) -> _Plugins:
    # The names are literal, without expressions: they decide which other keys are valid (ADR 32).
    listed = tree.get("plugins", [])
    if not isinstance(listed, list):
        return _Plugins(are_complete=False)
    named = [name for name in listed if isinstance(name, str) and _INSTALLED.match(name)]
    missing = missing_plugins(tuple(dict.fromkeys(named)))
    return _Plugins(
        tuple(name for name in dict.fromkeys(named) if name not in missing),
        {name: listed.index(name) for name in missing},
        are_complete=not missing and len(named) == len(listed),
    )


def _lacking_kinds(parsed: ParsedText, tree: Mapping[str, Json]) -> Iterator[Diagnostic]:
    """Yield an error for each stage whose step kind is of a feature that is not a part of this installation."""
    for name, body in as_mapping(tree.get("stages")).items():
        for kind in OF_FEATURES.keys() & as_mapping(body).keys():
            if (missing := missing_kind(kind)) is not None:
                yield replace(missing, location=parsed.location_of(f"stages/{name}/{kind}"))


def _without_kind(tree: Mapping[str, Json], plugins: tuple[str, ...]) -> frozenset[str]:
    """Return the paths of the mappings that may have a key of a plugin which is not installed."""
    kinds = frozenset(kinds_of(plugins))
    stages = as_mapping(tree.get("stages")).items()
    without = (f"stages/{name}" for name, body in stages if isinstance(body, Mapping) and kinds.isdisjoint(body))
    return frozenset(("defaults", *without))


def _missing_plugin_errors(parsed: ParsedText, plugins: _Plugins) -> tuple[Diagnostic, ...]:
    hint = "install it where orch23 is, or remove it from `plugins`"
    missing = ((f"the plugin `{name}` is not installed", f"plugins/{at}") for name, at in plugins.missing.items())
    return tuple(Diagnostic("E844", message, parsed.location_of(path), hint) for message, path in missing)


def plugins_of(path: Path, root: Path) -> tuple[str, ...]:
    """Return the plugins that a pipeline file names; other errors of the file are ignored.

    Raises:
        NotFoundError: the file does not exist.
        InvalidInputError: a plugin is not installed.
    """
    source = _read(path, root)
    parsed = parse_yaml(source.text, source.name, PIPELINE_LIMITS)
    plugins = _plugins_in(parsed.tree) if isinstance(parsed.tree, Mapping) else _Plugins()
    if problems := _missing_plugin_errors(parsed, plugins):
        raise InvalidPipelineError(*problems, sources={source.name: source.text})
    return plugins.installed


def _in_order(*diagnostics: Diagnostic) -> tuple[Diagnostic, ...]:
    def order(one: Diagnostic) -> tuple[str, int, int, str, str]:
        place = one.location or Location("", 0, 0)
        return place.file, place.line, place.column, one.code, one.message

    first = {(one.code, one.message, one.location, one.subject): one for one in reversed(diagnostics)}
    return tuple(sorted(first.values(), key=order))


def _without(node: Mapping[str, Json], at: str, broken: NodeSet) -> dict[str, Json]:
    """Return a mapping without its broken nodes; a list with a broken node is left out as a whole."""
    out: dict[str, Json] = {}
    for key, value in node.items():
        path = f"{at}/{key}"
        if not broken.touches(path):
            out[key] = value
        elif isinstance(value, Mapping) and path not in broken.paths:
            out[key] = _without(value, path, broken)
    return out


def _stages(
    tree: Mapping[str, Json], defaults: Json, context: LoadContext, found: "Sequence[SchemaError]"
) -> tuple[Stage | ForeachStage | SkippedStage, ...]:
    """Return the valid stages. A stage with `found` errors of form is read too, to report its other errors."""
    broken: dict[str, set[str]] = {}
    for one in found:
        if one.path.startswith("stages/") and one.code != E_NOT_EXACTLY_ONE:
            broken.setdefault(one.path.split("/")[1], set()).add(path_of_error(one))
    stages: list[Stage | ForeachStage | SkippedStage] = []
    for name, raw in as_mapping(tree.get("stages")).items():
        if not isinstance(raw, Mapping):
            continue
        if name in broken:
            # Read all the same: the user sees all errors of the stage in one run (ADR 29).
            context.broken_nodes = NodeSet.at(broken[name])
            read_stage(name, raw, defaults, context)
            context.broken_nodes = NO_NODES_BROKEN
        elif (stage := read_stage(name, raw, defaults, context)) is not None:
            stages.append(stage)
    return tuple(stages)


def _settings(tree: Mapping[str, Json], context: LoadContext, found: "Sequence[SchemaError]") -> dict[str, Any]:
    """Return the fields of a Pipeline that the top level sets, without those that have an error, and report these."""
    body = {key: tree[key] for key in keys_of(SettingsDocument) if key in tree}
    refused = [path_of_error(one) for one in found]
    context.broken_nodes = NodeSet.at(refused)
    rendered = context.render(body, "")
    context.report_expression_errors(rendered)
    settings, wrong = read_document(rendered.tree, SettingsDocument, "", rendered.failed)
    settings = settings or SettingsDocument()  # None with an expression for a key
    at = Problems("")
    fields = {**read_fields(settings, at), **read_pools(settings, at)}
    name = PurePosixPath(fields.get("run_log") or "").stem.partition("@")[0]
    if name in {"state.json", *as_mapping(tree.get("stages"))}:
        at.add("run_log", "E850", f"the run writes `{name}` itself, beside the log", "rename it, as to `log.txt.j2`")
    problems = NodeSet.at(rendered.failed).unaffected((*wrong, *independent_problems(wrong, at.found)))
    context.report_all(problems, rendered.moved)
    context.broken_nodes = NO_NODES_BROKEN
    every = NodeSet.at((*refused, *rendered.failed, *(one.path for one in wrong)))
    # Each executor is checked, also beside a pool with an error.
    for name in [one for one in fields["pool_executors"] if every.touches(f"pools/{one}/executor")]:
        del fields["pool_executors"][name]
    broken = {path.partition("/")[0] for path in every.paths}
    keys = {"stop": "stop_conditions", "pool_resources": "pools"}
    return {name: value for name, value in fields.items() if keys.get(name, name) not in broken}


def _check_groups(read: Sequence[Stage | ForeachStage | SkippedStage], context: LoadContext) -> None:
    """Warn of each promotion group with a single stage: most often its name is misspelt."""
    sizes = Counter(stage.promote for stage in read if stage.promote is not None)
    for stage in read:
        group = stage.promote
        if group is not None and sizes[group] == 1 and not isinstance(stage, ForeachStage):
            hint = did_you_mean(group, sizes.keys() - {group}, "name it at a second stage")
            message = f"the promotion group `{group}` has one stage, so that it has no effect"
            context.report(Problem(f"stages/{stage.name}/promote", "W804", message, hint, Severity.WARNING))


def _check_pools(pools: Json, executors: Mapping[str, str], context: LoadContext) -> None:
    """Report each pool of a stage that is not defined, or whose executor is not that of another pool of the stage."""
    if not isinstance(pools, Mapping):  # this is an error of form
        return
    first: dict[str, str] = {}
    for path, name in context.named_pools:
        if (executor := executors.get(name)) is not None:
            other = first.setdefault(path.rpartition("/")[0], name)
            if executor != executors[other]:
                message = f"the pool `{name}` runs steps with `{executor}`, and `{other}` with `{executors[other]}`"
                hint = "name one of them, or a pool without `executor`"
                context.report(Problem(path, "E817", message, hint))
        if name not in pools:
            way = f"defined are {quoted_names(pools)}; add `{name}: 1` to `pools`" if pools else ""
            way = way or f"write `pools: {{{name}: 1}}`"
            meant = did_you_mean(name, pools, f"{way} at the top of the file")
            context.report(Problem(path, "E816", f"the pool `{name}` is not defined", meant))
