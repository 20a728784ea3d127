"""Resolve a stage: its manifest, with the files and texts that determine its result.

Pure: files are read through `VisibleFiles`, facts about the machine come as values.
"""

import json
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, fix_of_hint
from orch23.model.digest import FileEntry, Json, digest_bytes
from orch23.model.errors import SafetyError
from orch23.model.file_policy import secret_file_reason
from orch23.model.parsing import YamlReader
from orch23.model.paths import escape_pattern, match, match_any
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
    Pipeline,
    SliceInput,
    Stage,
)
from orch23.model.record import ACTION_FORMAT, PROGRAM_ASPECT, Facts, KeyTexts, Manifest, core_of, identity_of, key_of
from orch23.model.step import ProcessStep, VerifyStep
from orch23.resolve.commands import command_steps, missing_programs, resolve_commands
from orch23.steps.registry import is_llm

if TYPE_CHECKING:
    from orch23.resolve.prompt_inputs import AuthorTexts, PromptInput
    from orch23.resolve.slices import Slice


class VisibleFiles(Protocol):
    """The files that a stage may see: sources on disk, outputs of other stages by their records, chains by version."""

    def entry(self, path: str) -> FileEntry | None:
        """Return what is at a path for this stage, or None."""

    def matching(self, pattern: str, exclude: tuple[str, ...] = ()) -> Mapping[str, FileEntry]:
        """Return the files that a glob matches for this stage, sorted by path, without those that `exclude` matches.

        Links that `exclude` matches are not followed.
        """

    def listed(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the sorted paths of a listing, without what this pipeline made. `exclude` is as for `matching`."""

    def links(self, pattern: str, /) -> tuple[str, ...]:
        """Return the links on disk, also broken ones, that a pattern matches."""

    def versions(self) -> dict[str, FileEntry]:
        """Return the base of a stage in a chain: the newest earlier version, or version 0, of each of its outputs."""

    def read(self, path: str, entry: FileEntry) -> bytes:
        """Return the bytes of an entry.

        Raises:
            MissingBytesError: neither the store nor the disk has them.
        """


MATCHED = "matched"
"""The aspect of a stage with a depfile that has the names of all files that its patterns match (ADR 99)."""
_LISTINGS = ".orch23/listings/"
_Slices: TypeAlias = "Mapping[str, Sequence[Slice]]"


class ResolvedStage(Struct, frozen=True, kw_only=True):
    """A stage with everything that its result depends on.

    By path: `files` are its inputs, `unkeyed` the inputs for order only, which only its step gets, `base` the versions
    that it starts from, `verify_files` the further inputs of its verification. `parts` and `verify_parts` are the files
    of which its step and its verification get only slices, and those of listings; `composed` are their bytes, which are
    not on the disk. `given` are the inputs of a prompt or template, in declared order. `listings` are the paths of each
    listing by its pattern, for the verification. `texts` is the digest of everything that the prompt is rendered from,
    except the contents of its inputs. `unmatched` are the patterns that match no file, though they are not optional,
    each with its path in the stage. `earlier_key` is the key of earlier versions, without the program: if no record
    names another program, a result with it counts as made by this one (ADR 65).
    """

    stage: Stage
    manifest: Manifest
    key: str
    core: str
    identity: str
    facts: Facts
    files: Mapping[str, FileEntry]
    base: Mapping[str, FileEntry]
    verify_files: Mapping[str, FileEntry]
    given: "tuple[PromptInput, ...]"
    rendered: bytes | None = None
    broken: tuple[Diagnostic, ...] = ()
    listings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    texts: str = ""
    parts: Mapping[str, FileEntry] = field(default_factory=dict)
    verify_parts: Mapping[str, FileEntry] = field(default_factory=dict)
    composed: tuple[bytes, ...] = ()
    earlier_key: str = ""
    unkeyed: Mapping[str, FileEntry] = field(default_factory=dict)
    unmatched: tuple[tuple[tuple[str | int, ...], GlobInput], ...] = ()

    def base_without(self, deleted: Container[str]) -> dict[str, FileEntry]:
        """Return the base without the files that a result deleted."""
        return {path: entry for path, entry in self.base.items() if path not in deleted}

    def verified_files(self, tree: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
        """Return what verification gets: its inputs, those of the stage, and the files of the stage and its base."""
        inputs = {**self.verify_parts, **self.files, **self.verify_files}
        # A file that the stage starts from is taken from its result: the stage may have changed or deleted it.
        return {path: entry for path, entry in inputs.items() if path not in self.base} | dict(tree)


def resolve_stage(
    stage: Stage, tree: VisibleFiles, facts: Facts, sources: "AuthorTexts", *, pipeline: Pipeline, read_yaml: YamlReader
) -> ResolvedStage:
    """Return the stage with its manifest. Errors in its inputs are in `broken`; with any, it must not run.

    Of the pipeline, its vars count, and the patterns of files that no model is shown.
    """
    step = stage.step
    asks = step.asks_model
    shows, never_send = asks or bool(step.renders), pipeline.never_send if asks else ()
    inputs = _Inputs(tree, read_yaml, prefix="", shows_files=shows, is_sent=asks, never_send=never_send)
    inputs.add_all(stage.inputs, stage.own_inputs)
    verify = _Inputs(tree, read_yaml, prefix="verify.")
    verify.add_all(stage.verify.inputs)
    base = _base_of(stage, tree, never_send)
    # A program that responds in place of a model gets the files of `read` besides its request.
    program = replace(step, command=()) if never_send and is_llm(step) and step.command else None
    read = {one: tree.entry(one) for one in program.program_files(tree.matching)} if program else {}
    files = {**dict.fromkeys(stage.author_files.values() if never_send else ()), **read, **base}
    named = (never_sent_error(never_send, path, entry) for path, entry in files.items())
    # A model that edits a large file is shown the slices of it that are inputs, and not the whole file besides.
    in_part = inputs.slices if is_llm(step) and step.returns == "edits" else {}
    shown = {path: entry for path, entry in base.items() if not is_discovered(stage, f"base:{path}")}
    # The versions that a model starts from, without those that are inputs anyway.
    more = {path: entry for path, entry in shown.items() if path not in inputs.files and path not in in_part}
    started = ((path, "", one.digest.sha256, _reader(tree, path, one)) for path, one in more.items())
    given = (*inputs.given, *(_prompt_input(*one, base=True) for one in started))
    parts, keys = _parts(inputs.slices if step.starts_processes else {}, inputs.files, prefix="")
    # A check gets only the whole files named in its `with`.
    on_files = bool(stage.ensures or stage.format) or any(
        not isinstance(step, CheckStep) for step in stage.verify.steps
    )
    every = {**inputs.slices, **verify.slices} if on_files else {}
    both = {path: (*inputs.slices.get(path, ()), *verify.slices.get(path, ())) for path in every}
    verify_parts, verify_keys = _parts(both, {**inputs.files, **verify.files}, prefix="verify.")
    parts |= _listing_files(inputs.lists if step.starts_processes else ())
    verify_parts |= _listing_files((*inputs.lists, *verify.lists) if on_files else ())
    stage, refused = resolve_commands(stage, {(one.path, one.slice): one.text for one in verify.given if one.slice})
    staged = (inputs.files, inputs.slices, inputs.unkeyed, base, verify.files, verify.slices)
    programs = missing_programs(stage, lambda path: any(path in some for some in staged))
    wrong = (Diagnostic("E812", message, hint=hint) for _, message, hint in programs)
    # The aspects are contents, not keys of stages upstream: otherwise one reworded response would make everything after
    # it stale, and two machines would never agree (ADR 3).
    texts = KeyTexts()
    if asks or step.renders:
        from orch23.resolve.prompt_files import key_texts  # noqa: PLC0415 - only for stages that render

        texts = key_texts(stage, given, sources, pipeline.vars, read_yaml, facts.accepts)
    aspects = _declared(stage, facts) | inputs.aspects | verify.aspects | keys | verify_keys | texts.aspects
    aspects |= _numbered(inputs, prefix="") if step.starts_processes else {}
    aspects |= _numbered(inputs, verify, prefix="verify.") if on_files else {}
    aspects |= {f"base:{path}": str(entry) for path, entry in shown.items()}
    aspects |= _program(stage, tree)
    aspects |= {f"requires:{c.kind}:{c.path}": _holds(c, tree) for c in stage.requires}
    if stage.depfile is not None:
        matched = sorted(inputs.files.keys() - stage.literal_inputs)
        aspects |= {"depfile": list(stage.depfile), MATCHED: matched}
    # An aspect that is None is left out, so a new aspect does not change the key of a stage that does not use it.
    manifest = {aspect: aspects[aspect] for aspect in sorted(aspects) if aspects[aspect] is not None}
    key = key_of(manifest)
    return ResolvedStage(
        stage=stage,
        manifest=manifest,
        key=key,
        core=core_of(manifest, key),
        identity=identity_of(manifest),
        facts=facts,
        files=inputs.files,
        base=base,
        verify_files=verify.files,
        given=given,
        rendered=texts.rendered,
        broken=(*inputs.broken, *filter(None, named), *verify.broken, *refused, *texts.broken, *wrong),
        listings=inputs.listings | verify.listings,
        texts=texts.digest,
        parts=_entries(parts),
        verify_parts=_entries(verify_parts),
        composed=(*parts.values(), *verify_parts.values()),
        unkeyed=inputs.unkeyed,
        unmatched=(
            *((("inputs", at), one) for at, one in inputs.unmatched),
            *((("verify", "inputs", at), one) for at, one in verify.unmatched),
            *(
                (("explore", at), GlobInput(one))
                for at, one in enumerate(stage.explore)
                if not explored_files(one, tree)
            ),
        ),
    )


def explored_files(pattern: str, tree: VisibleFiles) -> Mapping[str, FileEntry]:
    """Return the files that a pattern of `explore` matches, by path. It cannot exclude links."""
    try:
        return tree.matching(pattern)
    except SafetyError:  # a link leads out of the project, or in a circle
        return tree.matching(pattern, tuple(map(escape_pattern, tree.links(pattern))))


def is_discovered(stage: Stage, aspect: str) -> bool:
    """Return whether a record names an aspect since its run found it: `resolve.discovered` adds it (ADR 87)."""
    prefix, _, path = aspect.partition(":")
    # A model is not shown the files that match a pattern: only those that it changed count. A program may read all.
    is_base = prefix == "base" and stage.discovers and path not in stage.edits
    return prefix == "explored" or (is_base and match_any(stage.edits, path))


# ---- aspects of the pipeline and the machine --------------------------------------------------


def _program(stage: Stage, tree: VisibleFiles) -> dict[str, Json]:
    if not is_llm(stage.step) or not stage.step.command:
        return {}
    own = (*stage.outputs, *stage.fence.write)
    found = dict.fromkeys(path for path in stage.step.program_files(tree.matching) if not match_any(own, path))
    return {f"{PROGRAM_ASPECT}{path}": str(entry) for path in found if (entry := tree.entry(path)) is not None}


def _declared(stage: Stage, facts: Facts) -> dict[str, Json]:
    scope = stage.fence
    # Timeouts, limits and prices are not aspects: they do not change a result (ADR 8).
    aspects: dict[str, Json] = {
        "action_format": ACTION_FORMAT,
        "outputs": list(stage.outputs),
        "edits": list(stage.edits) or None,
        "explore": list(stage.explore) or None,
        "fence": {"write": list(scope.write), "protect": list(scope.protect), "delete": list(scope.delete)},
        "cwd": stage.cwd,
        "scratch": list(stage.scratch),
        "network": stage.network or None,
        "item": stage.item.value if stage.item else None,
        "salt": stage.salt,
        # Another version of a plugin may give another result (ADR 32).
        "plugins": list(facts.plugins) or None,
        "ensures": [f"{c.kind}:{c.path}" for c in stage.ensures] or None,
    }
    # If models of attempts are listed, no attempt uses the model of the step.
    step = stage.step.of_attempt(stage.retry, 1) if is_llm(stage.step) else stage.step
    aspects |= step.aspects(facts)
    # By name, so that the reason of a run names the variable or the tool that differs.
    aspects |= {f"env:{name}": value for name, value in stage.env.items()}
    aspects |= {f"tool:{name}": identity for name, identity in facts.tools.items()}
    return aspects | (_verification(stage, facts) if stage.verify.steps or stage.format else {})


def _verification(stage: Stage, facts: Facts) -> dict[str, Json]:
    steps = chain.from_iterable(
        command_steps(one) if isinstance(one, CommandsStep) else (one,) for one in (*stage.format, *stage.verify.steps)
    )
    processes = [one for one in steps if isinstance(one, ProcessStep)]
    return {
        "verify": [_verify_aspect(step, facts) for step in stage.verify.steps] or None,
        "verify.format": [_verify_aspect(step, facts) for step in stage.format] or None,
        "verify.all": stage.verify.run_all or None,
        "verify.may_fail": sorted(stage.verify.may_fail) or None,
        "verify.fails_on_base": list(stage.verify.fails_on_base) or None,
        # Without processes, another Python cannot change the verdict.
        "verify.python": facts.python if processes else None,
        "verify.pytest": facts.pytest if any(step.kind == "pytest" for step in processes) else None,
    }


def _verify_aspect(step: VerifyStep, facts: Facts) -> Json:
    match step:
        # A new revision of a check may judge the same outputs differently.
        case CheckStep():
            return {"check": step.name, "with": dict(step.options), "revision": facts.checks.get(step.name)}
        case ProcessStep():
            plugin = facts.verify_plugins.get(step.kind)
            return {step.kind: step.declared, **step.judged_by, **({"plugin": plugin} if plugin else {})}
        case EnsuresStep():
            return {"ensures": [f"{c.kind}:{c.path}" for c in step.conditions]}
        case CommandsStep():
            return {"commands": [one.words for one in command_steps(step)]}
        case _:
            message = f"BUG: {step} verifies nothing"
            raise TypeError(message)


# ---- aspects of files -------------------------------------------------------------------------


class _Inputs(Struct):
    """The files, aspects and errors of a list of inputs, while they are collected.

    `prefix` is put before the names of the aspects. With `shows_files`, a prompt or template sees whole files. With
    `is_sent`, a model sees them: then a pattern matches no file that may have secrets; a literal path may name one.
    `never_send` are patterns of files that it must not see, also by a literal path. `is_own`: not all items of the
    foreach have the input that is being added.
    """

    tree: VisibleFiles
    read_yaml: YamlReader
    prefix: str
    shows_files: bool = False
    is_sent: bool = False
    never_send: tuple[str, ...] = ()
    aspects: dict[str, Json] = field(default_factory=dict)
    files: dict[str, FileEntry] = field(default_factory=dict)
    unkeyed: dict[str, FileEntry] = field(default_factory=dict)
    given: "list[PromptInput]" = field(default_factory=list)
    slices: "dict[str, list[Slice]]" = field(default_factory=dict)
    listings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lists: list[tuple[str, ...]] = field(default_factory=list)
    broken: list[Diagnostic] = field(default_factory=list)
    unmatched: list[tuple[int, GlobInput]] = field(default_factory=list)
    is_own: bool = False

    def add_all(self, declared: tuple[Input, ...], own: tuple[int, ...] = ()) -> None:
        for at, one in enumerate(declared):
            self.is_own = at in own
            match one:
                case PathInput() | OrderInput() | SliceInput():
                    self._add_literal(one)
                case GlobInput():
                    if not self._add_glob(one) and not one.optional:
                        self.unmatched.append((at, one))
                case ListInput():
                    self._add_list(one)
                case _ as never:
                    assert_never(never)

    def _add_literal(self, one: PathInput | OrderInput | SliceInput) -> None:
        entry = self.tree.entry(one.path)
        if entry is None:
            if isinstance(one, OrderInput) or not one.optional:
                hint = "create it, or write {path: ..., optional: true}"
                self.broken.append(Diagnostic("E822", f"input `{one.path}` does not exist", hint=hint))
        elif refused := never_sent_error(self.never_send, one.path, entry):
            self.broken.append(refused)
        elif isinstance(one, OrderInput):
            # Not part of the key: the digest that the step declares defines the output (ADR 32).
            self.unkeyed[one.path] = entry
        elif isinstance(one, SliceInput):
            self._add_slice(one, entry)
        else:
            self._add_files({one.path: entry})

    def _add_files(self, found: Mapping[str, FileEntry]) -> None:
        new = {path: entry for path, entry in found.items() if path not in self.files}
        self.files |= new
        # `input_value`, without a call for each of many files.
        self.aspects |= {
            f"{self.prefix}input:{path}": str(one) if one.executable or one.link else one.digest.sha256
            for path, one in new.items()
        }
        for path, entry in new.items() if self.shows_files else ():
            read, read_bytes = _reader(self.tree, path, entry), partial(self.tree.read, path, entry)
            digest = entry.digest.sha256
            self.given.append(_prompt_input(path, "", digest, read, own=self.is_own, read_bytes=read_bytes))

    def _add_glob(self, one: GlobInput) -> bool:
        found = self.tree.matching(one.pattern, one.exclude)
        if self.is_sent:
            found = {path: one for path, one in found.items() if not self._is_withheld(path, one)}
        self._add_files(found)
        return bool(found)

    def _is_withheld(self, path: str, entry: FileEntry | None = None) -> bool:
        """Return whether a pattern leaves a file out for a model: one with secrets, or never sent, or a link to one."""
        places = (path, entry.link if entry is not None else "")
        is_secret = any(secret_file_reason(one) is not None for one in places if one)
        return is_secret or never_sent_error(self.never_send, path, entry) is not None

    def _add_list(self, one: ListInput) -> None:
        listed = self.tree.listed(one.pattern, one.exclude)
        shown = (path for path in listed if not (self.is_sent and self._is_withheld(path)))
        paths = tuple(path for path in shown if not match_any(one.exclude, path))
        self.aspects[f"{self.prefix}list:{one.pattern}"] = list(paths)
        self.listings[one.pattern] = paths
        self.lists.append(paths)
        text = "".join(f"{path}\n" for path in paths)
        digest = digest_bytes(text.encode()).sha256
        self.given.append(_prompt_input(one.pattern, "list", digest, lambda: text, own=self.is_own))

    def _add_slice(self, one: SliceInput, entry: FileEntry) -> None:
        from orch23.resolve.slices import take_slice  # noqa: PLC0415 - few stages have slices
        from orch23.resolve.text_slices import SliceError  # noqa: PLC0415 - as above

        try:
            part = take_slice(_text(self.tree.read(one.path, entry)), one.path, one.selector, self.read_yaml)
        except SliceError as error:
            fix = None if one.selector.startswith("/") else fix_of_hint(one.selector, error.hint)
            self.broken.append(Diagnostic("E833", f"`{one.text}`: {error}", hint=error.hint, fix=fix))
            return
        digest = digest_bytes(part.text.encode()).sha256
        self.aspects[f"{self.prefix}slice:{one.text}"] = digest
        self.slices.setdefault(one.path, []).append(part)
        self.given.append(_prompt_input(one.path, one.selector, digest, lambda: part.text, own=self.is_own))


def input_value(entry: FileEntry) -> str:
    """Return the value of an input in a manifest."""
    return str(entry) if entry.executable or entry.link else entry.digest.sha256


NEVER_SENT = "E604"


def never_sent_error(patterns: tuple[str, ...], path: str, entry: FileEntry | None = None) -> Diagnostic | None:
    """Return the error of a file, or of the target of a link, that matches a pattern of `never_send`; else None."""
    for place in (path, entry.link if entry is not None else ""):
        found = next((pattern for pattern in patterns if match(pattern, place)), None) if place else None
        if found is not None:
            hint = "remove it from the stage, or correct `never_send` of the pipeline or of orch23.toml"
            target = "" if place == path else f" links to `{place}` and"
            return Diagnostic(NEVER_SENT, f"`{path}`{target} is never sent to a model: `{found}` matches it", hint=hint)
    return None


def _base_of(stage: Stage, tree: VisibleFiles, never_send: tuple[str, ...]) -> dict[str, FileEntry]:
    """Return the versions that a stage in a chain starts from; for a model, no files that are withheld from it."""
    versions = sorted(tree.versions().items()) if stage.chain else ()
    return {
        path: entry
        for path, entry in versions
        if not stage.step.asks_model
        or path in stage.outputs
        or not (secret_file_reason(path) or match_any(never_send, path))
    }


def _parts(slices: _Slices, whole: Container[str], *, prefix: str) -> tuple[dict[str, bytes], dict[str, Json]]:
    """Return the files of which only slices are inputs, and the aspects of how pointers lead to these slices."""
    # A composed file is made of selectors and texts, which are in the key already. Only a step such as `0` leaves open
    # whether it is a key of a mapping or a position in a list; then the key says it.
    given = {path: ones for path, ones in slices.items() if path not in whole}
    named = ((f"{prefix}keys:{path}#{one.selector}", one) for path, ones in given.items() for one in ones)
    keys: dict[str, Json] = {aspect: list(one.keys) for aspect, one in named if one.keys}
    if not given:
        return {}, keys
    from orch23.resolve.slices import compose_slices  # noqa: PLC0415 - as above

    return {path: compose_slices(ones) for path, ones in given.items()}, keys


def listing_line(path: str) -> str:
    """Return the line of a path: a JSON string if it has a line break or begins with a quote."""
    return json.dumps(path) if path.splitlines() != [path] or path[0] == '"' else path


def _listing_files(lists: Sequence[tuple[str, ...]]) -> dict[str, bytes]:
    """Return the files of listings, one path a line."""
    lines = (map(listing_line, paths) for paths in lists)
    return {f"{_LISTINGS}{n}": "".join(f"{line}\n" for line in some).encode() for n, some in enumerate(lines, 1)}


def _numbered(*inputs: _Inputs, prefix: str) -> dict[str, Json]:
    """Return the aspects of listings by the files that programs read; none if `list:PATTERN` determines the numbers."""
    if all([*one.listings] == sorted(one.listings) and len(one.lists) == len(one.listings) for one in inputs):
        return {}
    lists = [paths for one in inputs for paths in one.lists]
    return {f"{prefix}list:{_LISTINGS}{n}": list(paths) for n, paths in enumerate(lists, 1)}


def _entries(files: Mapping[str, bytes]) -> dict[str, FileEntry]:
    return {path: FileEntry(digest_bytes(data)) for path, data in files.items()}


def _prompt_input(*values: Any, **more: Any) -> "PromptInput":
    from orch23.resolve.prompt_inputs import PromptInput  # noqa: PLC0415 - few stages have a prompt or a template

    return PromptInput(*values, **more)


def _reader(tree: VisibleFiles, path: str, entry: FileEntry) -> Callable[[], str]:
    return lambda: _text(tree.read(path, entry))


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _holds(condition: Condition, tree: VisibleFiles) -> bool:
    """Return whether a condition holds. A directory exists if there is a file below it. A broken link is not absent."""
    path, absent = condition.path, condition.kind == "file_absent"
    there = bool(tree.matching(path)) if path.endswith("/") else tree.entry(path) is not None
    return not (there or tree.links(path)) if absent else there
