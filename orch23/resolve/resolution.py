"""Resolve a stage: its manifest, with the files and texts that determine its result.

Pure: files are seen through a `Tree`, facts about the machine come as values.
"""

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, assert_never

from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry, Json, digest_bytes, digest_json
from orch23.model.file_policy import secret_file_reason
from orch23.model.paths import match_any
from orch23.model.pipeline import (
    CheckStep,
    CommandsStep,
    Condition,
    EnsuresStep,
    GlobInput,
    Input,
    ListInput,
    OrderInput,
    PathInput,
    SliceInput,
    Stage,
)
from orch23.model.record import ACTION_FORMAT, Facts, Manifest, core_of, key_of
from orch23.model.step import ProcessStep, VerifyStep
from orch23.resolve import prompts
from orch23.resolve.commands import command_steps, resolve_commands
from orch23.resolve.prompts import AuthorTexts, PromptInput
from orch23.resolve.slices import Slice, SliceError, YamlReader, compose_slices, take_slice
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


class VisibleFiles(Protocol):
    """The files a stage may see: sources as on disk, outputs of others as their records say, chains by version."""

    def entry(self, path: str) -> FileEntry | None:
        """Return what is at a path for this stage, or None."""

    def matching(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the sorted paths that a glob means for this stage; of those that are excluded no link is followed."""

    def listed(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the sorted paths of a listing: without what this pipeline made. `exclude` is as for `matching`."""

    def versions(self) -> dict[str, FileEntry]:
        """Return the base of a stage in a chain: the newest earlier version, or version 0, of each of its outputs."""

    def read(self, path: str, entry: FileEntry) -> bytes:
        """Return the bytes of an entry.

        Raises:
            MissingBytesError: neither the store nor the disk has them any more.

        """


_Slices: TypeAlias = Mapping[str, Sequence[Slice]]

_SHOWN_INPUTS = 10  # of those that are too many; the rest is counted


class ResolvedStage(Struct, frozen=True, kw_only=True):
    """A stage with all that its result depends on.

    `files` are the inputs of its room, `unkeyed` the inputs for order only, which its step alone is given, `base` the
    versions it starts from, `verify_files` what its verification sees besides; all by path. `parts` and `verify_parts`
    are the files of which its step and its verification are given slices alone; `composed` are their bytes, which no
    file of the project has. `given` is what a prompt or template sees, in declared order. `listings` are the paths of
    each listing by its pattern, as the verification sees it. `texts` is the digest of what the prompt is rendered from
    besides the contents of its inputs.
    """

    stage: Stage
    manifest: Manifest
    key: str
    core: str
    facts: Facts
    files: Mapping[str, FileEntry]
    base: Mapping[str, FileEntry]
    verify_files: Mapping[str, FileEntry]
    given: tuple[PromptInput, ...]
    rendered: bytes | None = None
    broken: tuple[Diagnostic, ...] = ()
    listings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    texts: str = ""
    parts: Mapping[str, FileEntry] = field(default_factory=dict)
    verify_parts: Mapping[str, FileEntry] = field(default_factory=dict)
    composed: tuple[bytes, ...] = ()
    unkeyed: Mapping[str, FileEntry] = field(default_factory=dict)


class _Shown(Struct, frozen=True):
    """A tree as a model may be shown it: no pattern leads to a file that holds secrets, a literal path does."""

    tree: VisibleFiles

    def entry(self, path: str) -> FileEntry | None:
        return self.tree.entry(path)

    def matching(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        found = (path for path in self.tree.matching(pattern, exclude) if not match_any(exclude, path))
        return tuple(path for path in found if not self._is_private(path))

    def listed(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        return tuple(path for path in self.tree.listed(pattern, exclude) if secret_file_reason(path) is None)

    def _is_private(self, path: str) -> bool:
        """Return whether a file holds secrets by its name, or is a link to one that does."""
        if secret_file_reason(path) is not None:
            return True
        entry = self.tree.entry(path)
        return entry is not None and bool(entry.link) and secret_file_reason(entry.link) is not None

    def versions(self) -> dict[str, FileEntry]:
        return self.tree.versions()

    def read(self, path: str, entry: FileEntry) -> bytes:
        return self.tree.read(path, entry)


class _Gathered(Struct):
    """Aspects and files while they are collected."""

    aspects: dict[str, Json] = field(default_factory=dict)
    files: dict[str, FileEntry] = field(default_factory=dict)
    unkeyed: dict[str, FileEntry] = field(default_factory=dict)
    given: list[PromptInput] = field(default_factory=list)
    slices: dict[str, list[Slice]] = field(default_factory=dict)
    listings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    broken: list[Diagnostic] = field(default_factory=list)


def resolve_stage(
    stage: Stage,
    tree: VisibleFiles,
    facts: Facts,
    sources: AuthorTexts,
    *,
    variables: Mapping[str, Json],
    read_yaml: YamlReader,
) -> ResolvedStage:
    """Return the stage with its manifest. What is wrong with its inputs is in `broken`, and then it must not run."""
    step = stage.step
    asks = step.asks_model
    shows = asks or bool(step.renders)
    inputs = _gather(stage.inputs, _Shown(tree) if asks else tree, read_yaml, prefix="", given=shows)
    verify = _gather(stage.verify.inputs, tree, read_yaml, prefix="verify.", given=False)
    base = dict(sorted(tree.versions().items())) if stage.chain else {}
    if asks:
        base = {path: entry for path, entry in base.items() if path in stage.outputs or not secret_file_reason(path)}
    given = [*inputs.given, *_given_base(base, inputs.files, tree)]
    parts, keys = _parts(inputs.slices if step.starts_processes else {}, inputs.files, prefix="")
    both = _joined(inputs.slices, verify.slices) if _is_verified_on_files(stage) else {}
    verify_parts, verify_keys = _parts(both, {**inputs.files, **verify.files}, prefix="verify.")
    stage, refused = resolve_commands(stage, {(one.path, one.slice): one.text for one in verify.given if one.slice})
    aspects = _declared(stage, facts)
    aspects |= inputs.aspects | verify.aspects | keys | verify_keys
    aspects |= {f"base:{path}": str(entry) for path, entry in base.items()}
    aspects |= {f"requires:{c.kind}:{c.path}": _holds(c, tree) for c in stage.requires}
    broken = [*inputs.broken, *verify.broken, *refused]
    rendered = None
    texts = ""
    if is_llm(step):
        prompt, system, problems = prompts.key_texts(stage, step, tuple(given), sources, variables)
        aspects["prompt"] = digest_bytes(prompt.encode()).sha256
        aspects["system"] = digest_bytes(system.encode()).sha256
        texts = prompts.texts_digest(step, tuple(given), sources, variables)
        broken += problems
        broken += _context_limits(stage.name, step, given)
        if step.schema is not None:
            text, problem = sources.text(step.schema)
            aspects["schema"] = digest_bytes((text or "").encode()).sha256
            broken += [problem] if problem else []
        if step.answers is not None:
            aspects["answers"] = _answers_aspect(stage, step.answers, sources, read_yaml)
    elif step.renders:
        template = getattr(step, step.renders)
        text_or_none, problems = prompts.render_template(stage, template, tuple(given), sources, variables)
        broken += problems
        rendered = (text_or_none or "").encode()
        aspects["prompt"] = digest_bytes(rendered).sha256
    manifest = dict(sorted((a, v) for a, v in aspects.items() if v is not None))
    return ResolvedStage(
        stage=stage,
        manifest=manifest,
        key=key_of(manifest),
        core=core_of(manifest),
        facts=facts,
        files=inputs.files,
        base=base,
        verify_files=verify.files,
        given=tuple(given),
        rendered=rendered,
        broken=tuple(broken),
        listings=inputs.listings | verify.listings,
        texts=texts,
        parts=_entries(parts),
        verify_parts=_entries(verify_parts),
        composed=(*parts.values(), *verify_parts.values()),
        unkeyed=inputs.unkeyed,
    )


def _declared(stage: Stage, facts: Facts) -> dict[str, Json]:
    """Return the aspects that follow from the pipeline and the machine alone."""
    fence = stage.fence
    aspects: dict[str, Json] = {
        "action_format": ACTION_FORMAT,
        "outputs": list(stage.outputs),
        "fence": {"write": list(fence.write), "protect": list(fence.protect), "delete": list(fence.delete)},
        "cwd": stage.cwd,
        "scratch": list(stage.scratch),
        "network": stage.network or None,
        "item": stage.item.value if stage.item else None,
        "salt": stage.salt,
    }
    if facts.plugins:
        aspects["plugins"] = list(facts.plugins)
    aspects |= stage.step.aspects(facts)
    if stage.retry.escalate:
        aspects["model"] = stage.retry.escalate[0]  # that is who is asked first; llm.model is never
    aspects |= {f"env:{name}": value for name, value in stage.env.items()}
    aspects |= {f"tool:{name}": identity for name, identity in facts.tools.items()}
    if stage.verify.steps:
        aspects["verify"] = [_verify_aspect(step, facts) for step in stage.verify.steps]
        aspects["verify.all"] = stage.verify.run_all or None
        processes = _processes_of(stage)
        if processes:
            aspects["verify.python"] = facts.python
        if any(step.kind == "pytest" for step in processes):
            aspects["verify.pytest"] = facts.pytest
    if stage.ensures:
        aspects["ensures"] = [f"{c.kind}:{c.path}" for c in stage.ensures]
    return aspects


def _processes_of(stage: Stage) -> tuple[ProcessStep, ...]:
    """Return the processes of a stage's verification, with those that commands stand for."""
    found: list[ProcessStep] = []
    for step in stage.verify.steps:
        if isinstance(step, ProcessStep):
            found.append(step)
        elif isinstance(step, CommandsStep):
            found += command_steps(step)
    return tuple(found)


def _verify_aspect(step: VerifyStep, facts: Facts) -> Json:
    match step:
        case CheckStep():
            return {"check": step.name, "with": dict(step.options), "revision": facts.checks.get(step.name)}
        case ProcessStep():
            plugin = facts.verify_plugins.get(step.kind)
            return {step.kind: step.declared, **({"plugin": plugin} if plugin else {})}
        case EnsuresStep():
            return {"ensures": [f"{c.kind}:{c.path}" for c in step.conditions]}
        case CommandsStep():
            return {"commands": [one.words for one in command_steps(step)]}
        case _:
            message = f"BUG: {step} verifies nothing"
            raise TypeError(message)


def _gather(
    declared: tuple[Input, ...], tree: VisibleFiles, read_yaml: YamlReader, *, prefix: str, given: bool
) -> _Gathered:
    out = _Gathered()
    for one in declared:
        match one:
            case PathInput() | OrderInput():
                _add_path(out, one, tree, prefix=prefix, given=given)
            case GlobInput():
                for path in tree.matching(one.pattern, one.exclude):
                    found = None if match_any(one.exclude, path) else tree.entry(path)
                    if found is not None:
                        _add_file(out, path, found, tree, prefix=prefix, given=given)
            case ListInput():
                listed = tree.listed(one.pattern, one.exclude)
                paths = tuple(path for path in listed if not match_any(one.exclude, path))
                out.aspects[f"{prefix}list:{one.pattern}"] = list(paths)
                out.listings[one.pattern] = paths
                text = "".join(f"{path}\n" for path in paths)
                out.given.append(_given_text(one.pattern, "list", text))
            case SliceInput():
                _add_slice(out, one, tree, read_yaml, prefix)
            case _ as never:
                assert_never(never)
    return out


def _add_path(out: _Gathered, one: PathInput | OrderInput, tree: VisibleFiles, *, prefix: str, given: bool) -> None:
    entry = tree.entry(one.path)
    if entry is None:
        if isinstance(one, OrderInput) or not one.optional:
            out.broken.append(_missing(one.path))
    elif isinstance(one, OrderInput):
        out.unkeyed[one.path] = entry
    else:
        _add_file(out, one.path, entry, tree, prefix=prefix, given=given)


def _add_file(out: _Gathered, path: str, entry: FileEntry, tree: VisibleFiles, *, prefix: str, given: bool) -> None:
    if path in out.files:
        return
    out.files[path] = entry
    out.aspects[f"{prefix}input:{path}"] = str(entry)
    if given:
        out.given.append(PromptInput(path, "", entry.digest.sha256, lambda: _text(tree.read(path, entry))))


def _add_slice(out: _Gathered, one: SliceInput, tree: VisibleFiles, read_yaml: YamlReader, prefix: str) -> None:
    entry = tree.entry(one.path)
    if entry is None:
        if not one.optional:
            out.broken.append(_missing(one.path))
        return
    try:
        part = take_slice(_text(tree.read(one.path, entry)), one.path, one.selector, read_yaml)
    except SliceError as error:
        out.broken.append(Diagnostic("E833", f"`{one.path}#{one.selector}`: {error}", hint=error.hint))
        return
    digest = digest_bytes(part.text.encode())
    out.aspects[f"{prefix}slice:{one.path}#{one.selector}"] = digest.sha256
    out.slices.setdefault(one.path, []).append(part)
    out.given.append(_given_text(one.path, one.selector, part.text, digest))


def _is_verified_on_files(stage: Stage) -> bool:
    """Return whether more than checks verify a stage: these are given whole files alone, which they name in `with`."""
    return bool(stage.ensures) or any(not isinstance(step, CheckStep) for step in stage.verify.steps)


def _joined(one: _Slices, other: _Slices) -> _Slices:
    return {path: (*one.get(path, ()), *other.get(path, ())) for path in {**one, **other}}


def _parts(slices: _Slices, whole: Container[str], *, prefix: str) -> tuple[dict[str, bytes], dict[str, Json]]:
    """Return the files that are given in slices and not as a whole, and what they rest on besides the slices' texts."""
    given = {path: ones for path, ones in slices.items() if path not in whole}
    named = ((f"{prefix}keys:{path}#{one.selector}", one) for path, ones in given.items() for one in ones)
    keys: dict[str, Json] = {aspect: list(one.keys) for aspect, one in named if one.keys}
    return {path: compose_slices(ones) for path, ones in given.items()}, keys


def _entries(files: Mapping[str, bytes]) -> dict[str, FileEntry]:
    return {path: FileEntry(digest_bytes(data)) for path, data in files.items()}


def _given_text(path: str, part: str, text: str, digest: Digest | None = None) -> PromptInput:
    return PromptInput(path, part, (digest or digest_bytes(text.encode())).sha256, lambda: text)


def _given_base(base: Mapping[str, FileEntry], files: Mapping[str, FileEntry], tree: VisibleFiles) -> list[PromptInput]:
    """Return what a model is shown of the versions it starts from, but for those that are inputs anyway."""
    shown = []
    for path, entry in base.items():
        if path not in files:
            shown.append(PromptInput(path, "", entry.digest.sha256, _reader(tree, path, entry), base=True))
    return shown


def _reader(tree: VisibleFiles, path: str, entry: FileEntry) -> prompts.ReadText:
    return lambda: _text(tree.read(path, entry))


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _holds(condition: Condition, tree: VisibleFiles) -> bool:
    """Say whether a condition holds; of a directory, whether there is a file below it."""
    path = condition.path
    there = bool(tree.matching(path)) if path.endswith("/") else tree.entry(path) is not None
    return there == (condition.kind == "file_exists")


def _context_limits(stage: str, step: "LLMStep", given: list[PromptInput]) -> list[Diagnostic]:
    """Hold what is given to a model to its limits, and name what was counted: the largest first."""
    sizes = sorted(((len(one.text.encode()), _counted(one)) for one in given), key=lambda pair: (-pair[0], pair[1]))
    size = sum(size for size, _ in sizes)
    names = ", ".join(f"{name} ({size:,})" for size, name in sizes[:_SHOWN_INPUTS])
    counted = names if len(sizes) <= _SHOWN_INPUTS else f"{names} and {len(sizes) - _SHOWN_INPUTS} more"
    problems = []
    if len(given) > step.max_files:
        text = f"{len(given)} inputs are given to the model, the limit is {step.max_files}: {counted}"
        hint = "narrow the inputs, or raise llm.context.max_files"
        problems.append(Diagnostic("E834", text, hint=hint, subject=stage))
    if size > step.max_bytes:
        text = f"{size:,} bytes of inputs are given to the model, the limit is {step.max_bytes:,}: {counted}"
        hint = "give a slice (`file.md#Heading`) instead of a file, or raise llm.context.max_bytes"
        problems.append(Diagnostic("E834", text, hint=hint, subject=stage))
    return problems


def _counted(one: PromptInput) -> str:
    return f"{one.path}#{one.slice}" if one.slice else one.path


def _missing(path: str) -> Diagnostic:
    return Diagnostic("E822", f"input `{path}` does not exist", hint="create it, or write {path: ..., optional: true}")


def _answers_aspect(stage: Stage, path: str, sources: AuthorTexts, read_yaml: YamlReader) -> Json:
    """Return the digest of what a file of scripted answers has for a stage; of all of it where that cannot be told."""
    text = sources.text(path)[0] or ""
    try:
        value = read_yaml(text)
    except ValueError:
        value = text
    own = value.get(stage.name, value.get(stage.family)) if isinstance(value, Mapping) else value
    return digest_json(own)
