"""A validated pipeline: stages, inputs, verification, retries, limits."""

import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Struct, field

from orch23.model.action import DEFAULT_LIMITS, LANDLOCK_TIER, SandboxTier, StepLimits
from orch23.model.diagnostic import Location
from orch23.model.digest import Json
from orch23.model.parsing import json_at
from orch23.model.paths import is_glob, match_any
from orch23.model.step import Grant, ProcessStep, Step, Tool, VerifyStep

DEFAULT_PIPELINE = "pipeline.yaml"
"""The pipeline file that is used when the command line names none."""

CACHE_VARIABLE = "ORCH23_CACHE_URL"
"""The environment variable that names the shared cache of all builds of a user."""

NO_CACHE = "off"
"""The value of `--cache` with which no shared cache is used."""

LOCAL_EXECUTOR = "local"
"""The executor of orch23 itself, which uses this machine."""

DEFAULT_SCRATCH = ("__pycache__", "*.pyc", ".pytest_cache", ".mypy_cache", ".ruff_cache", "*.egg-info")
DEFAULT_TIMEOUT_S = 300.0
MAX_RETRIES = 50
MAX_RERUNS = 10
MAX_EXPLORE_TURNS = 20
LEAST_EXPLORE_TOKENS = 1_000

RetriedKind: TypeAlias = Literal[
    "preflight",
    "exception",
    "llm_output_invalid",
    "write_scope_violation",
    "stale_context",
    "verify_failed",
    "acceptance_failed",
    "timeout",
    "agent_error",
]
FailureKind: TypeAlias = Literal[RetriedKind, "rejected"]
"""`rejected`: by a user. It starts another attempt whatever `retry` says."""
DEFAULT_RETRY_WHEN: tuple[RetriedKind, ...] = (
    "llm_output_invalid",
    "write_scope_violation",
    "verify_failed",
    "acceptance_failed",
    "timeout",
)


class _OneFile:
    __slots__ = ()
    path: str

    @property
    def pattern(self) -> str:
        """Return the path of the file."""
        return self.path

    @property
    def text(self) -> str:
        """Return the input as it is written."""
        return self.path


class PathInput(_OneFile, Struct, frozen=True, omit_defaults=True, tag=True):
    """A literal file. A missing one is an error unless `optional`; `schema` is checked before anything runs."""

    path: str
    optional: bool = False
    schema: str | None = None


class OrderInput(_OneFile, Struct, frozen=True, omit_defaults=True, tag=True):
    """A literal file for order only: the stage runs after the one that makes it. A missing one is an error.

    Its content is not part of the key. Only the step of the stage gets it, not the verification.
    """

    path: str


class GlobInput(Struct, frozen=True, omit_defaults=True, tag=True):
    """Every file that a pattern matches, without those that `exclude` matches.

    A pattern may match nothing, which is a warning unless `optional`. With `folder` it was written as a directory, `d/`
    for `d/**`, which must exist unless `optional`.
    """

    pattern: str
    exclude: tuple[str, ...] = ()
    folder: bool = False
    optional: bool = False

    @property
    def text(self) -> str:
        """Return the input as it is written: a folder as `d/`."""
        return self.pattern.removesuffix("**") if self.folder else self.pattern


class ListInput(Struct, frozen=True, omit_defaults=True, tag=True):
    """A listing: the sorted paths that a pattern matches, without their contents.

    Files that this pipeline made, and those that `exclude` matches, are left out.
    """

    pattern: str
    exclude: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the input as it is written."""
        return self.pattern


class SliceInput(_OneFile, Struct, frozen=True, omit_defaults=True, tag=True):
    """A part of a file: `#Heading` of a Markdown file, or `#/pointer` of a JSON or YAML file."""

    path: str
    selector: str
    optional: bool = False

    @property
    def text(self) -> str:
        """Return the input as it is written."""
        return f"{self.path}#{self.selector}"


Input: TypeAlias = PathInput | OrderInput | GlobInput | ListInput | SliceInput


class BriefLimits(Struct, frozen=True, omit_defaults=True):
    """How the text of a failure is shortened: over `limit` characters, to the first `head` and the last `tail`."""

    limit: int = 4000
    head: int = 2500
    tail: int = 1000


class Condition(Struct, frozen=True, omit_defaults=True):
    """A file that must, or must not, exist."""

    kind: Literal["file_exists", "file_absent"]
    path: str


class CheckStep(VerifyStep, Struct, frozen=True, omit_defaults=True, tag=True):
    """Run a check by name on the outputs of the stage."""

    name: str
    options: Mapping[str, Json] = field(default_factory=dict)


class EnsuresStep(VerifyStep, Struct, frozen=True, omit_defaults=True, tag=True):
    """Check conditions of the result."""

    conditions: tuple[Condition, ...]


class CommandsStep(VerifyStep, Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """Run commands that a model wrote, without a shell, and only programs of `allow`.

    With a `source` the commands are read from a file when the stage is resolved.
    """

    allow: tuple[str, ...]
    commands: tuple[str, ...] = ()
    source: SliceInput | None = None


class Verify(Struct, frozen=True, omit_defaults=True):
    """The verification of a result. `inputs` are staged for these steps only; no model sees them.

    `may_fail` are ids and patterns of tests and findings that may fail if they failed on the base. With `first` "auto",
    the steps run on the base before the first model call.
    With the files that `fails_on_base` matches, as a result has them, the steps must fail on the base (ADR 96).
    """

    steps: tuple[VerifyStep, ...] = ()
    inputs: tuple[Input, ...] = ()
    run_all: bool = False
    first: Literal["auto", "off"] = "auto"
    may_fail: tuple[str, ...] = ()
    fails_on_base: tuple[str, ...] = ()

    @property
    def programs(self) -> tuple[ProcessStep, ...]:
        """The steps that are programs."""
        return tuple(one for one in self.steps if isinstance(one, ProcessStep))

    @property
    def named_failures(self) -> tuple[str, ...]:
        """The entries of `may_fail` that are not patterns."""
        return tuple(one for one in self.may_fail if not {*one} & {*"*?"})


class WriteScope(Struct, frozen=True, omit_defaults=True):
    """The paths that a stage may write. `protect` wins over `write`; only the paths in `delete` may be deleted."""

    write: tuple[str, ...]
    protect: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


# Not a class, for the same reason as `RateLimits`; hashable, unlike a mapping.
ModelChoice: TypeAlias = tuple[tuple[str, str | int], ...]
"""Settings of an llm step that an attempt has in place of those of its stage: names and values."""


class Retry(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Attempts after the first: how many (`max`), after which failures, with which prompt, and when to stop early.

    `escalate` has a model's name, or settings, for each attempt; the last one is for all later attempts.
    """

    max: int = 0
    when: tuple[RetriedKind | Literal["truncated"], ...] = DEFAULT_RETRY_WHEN
    prompt: str | None = None
    start_from: Literal["current", "best", "baseline"] = "current"
    no_progress: int | None = None
    escalate: tuple[str | ModelChoice, ...] = ()
    style: Literal["prompt", "conversation"] = "prompt"

    @property
    def is_conversation(self) -> bool:
        """Return whether a later attempt sends the former ones as turns, after the same first message."""
        return self.style == "conversation" and self.max > 0

    @property
    def usable(self) -> tuple[str | ModelChoice, ...]:
        """The entries of `escalate` that an attempt can use."""
        return self.escalate[: self.max + 1]


class StopConditions(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Limits that end a run, or the attempts of one stage; None means unlimited. `max_failed_stages` is for runs only.

    `max_cost_usd` is in US dollars, `max_tokens` counts input and output together.
    """

    max_cost_usd: Decimal | None = None
    max_tokens: int | None = None
    max_llm_calls: int | None = None
    max_wall_s: float | None = None
    max_failed_stages: int | None = 1


class Price(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The prices of a model in US dollars per million tokens; None for cached input is the price of other input."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


# Not a class: a build after an edit would create it and call no model (ADR 39).
RateLimits: TypeAlias = Mapping[str, tuple[int, float]]
"""Limits of a provider or a model: the number that is allowed, and in how many seconds.

The keys are `requests`, `tokens` (input and output together), `input_tokens` and `output_tokens`.
"""

# Likewise: most builds have no shared cache. `model.shared_cache` reads it.
DeclaredCache: TypeAlias = Mapping[str, bool | str | tuple[str, ...]]
"""The keys of `cache` that a pipeline states, valid and with their expressions evaluated."""


class ChainLink(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The position of a stage in a chain: items of a sequential foreach, stages that edit the same files, or one."""

    chain: str
    index: int


class Item(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An item of a foreach: its key, the name that expressions use for it, and its value."""

    key: str
    name: str
    value: Json


class _Named(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A stage as it is declared, or an item of a foreach. `promote` is its promotion group, if it has one."""

    name: str
    promote: str | None = None

    @property
    def family(self) -> str:
        """Return the declared stage's name: `code` for `code@T1`."""
        return family_of(self.name)


class Stage(_Named, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """A declared unit of work, fully rendered. An item of a foreach is a stage named `stage@key`.

    `outputs` has `edits` too, the patterns of files that it may change, create and delete, and need not make (ADR
    87). `explore` are the patterns of files that its model may look at, with the requests for that in all attempts
    together, and the tokens of what is shown. `promote` is the promotion group of the stage; None if it is promoted
    by itself, or its foreach has the group. `own_inputs` are the positions of the inputs that some other item of its
    foreach does not have. `metrics` are the outputs whose values are compared; they change no result, so they are not
    part of the key. `approve`: a user has to approve the changes of the stage and its group before they are promoted.
    `moved` maps the paths of its values in the document to those at which they are written, if exclusions, lists of
    vars or an `if` move them. With `once` it is done when its result is committed (ADR 90). `on_edit` is what follows
    from an accepted edit. `format` are programs that change the files of an answer before it is verified. `depfile` is
    the syntax and the path of a file in which its program names the files that it has read (ADR 99). `tool_caches` are
    names of tools: a stage with `network` fills their caches, all others only see them.
    """

    step: Step
    desc: str = ""
    needs: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()
    outputs: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    explore: tuple[str, ...] = ()
    explore_turns: int = 1
    explore_tokens: int = 15_000
    # The name is stored in pipelines and is an aspect of keys, so it stays.
    fence: WriteScope = WriteScope(())
    verify: Verify = Verify()
    format: tuple[VerifyStep, ...] = ()
    requires: tuple[Condition, ...] = ()
    ensures: tuple[Condition, ...] = ()
    retry: Retry = Retry()
    on_failure: Literal["rollback", "keep"] = "rollback"
    cwd: str = "."
    timeout_s: float = DEFAULT_TIMEOUT_S
    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    tools: tuple[Tool, ...] = ()
    scratch: tuple[str, ...] = DEFAULT_SCRATCH
    cache: bool = True
    network: bool = False
    tool_caches: tuple[str, ...] = ()
    sandbox: bool = True
    min_tier: SandboxTier = LANDLOCK_TIER
    # Limits are not part of the key: they do not change a result, only whether there is one.
    limits: StepLimits = DEFAULT_LIMITS
    salt: str | None = None
    item: Item | None = None
    chain: ChainLink | None = None
    stop: StopConditions = StopConditions()
    pools: tuple[str, ...] = ()
    own_inputs: tuple[int, ...] = ()
    metrics: tuple[str, ...] = ()
    approve: bool = False
    moved: Mapping[str, str] = field(default_factory=dict)
    once: bool = False
    on_edit: Literal["keep", "rerun"] = "keep"
    depfile: tuple[str, str] | None = None

    @property
    def verifies_first(self) -> bool:
        """Whether the programs of `verify` run before the first call of a model, on the files that it changes."""
        return self.step.asks_model and self.verify.first == "auto" and bool(self.verify.programs)

    @property
    def runs_pytest(self) -> bool:
        """Whether the stage or its verification runs pytest."""
        steps = (self.step, *self.verify.steps)
        return any(isinstance(one, ProcessStep) and one.kind == "pytest" for one in steps)

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Return what the user has to consent to for the step and the tools of the stage, apart from models."""
        return (*self.step.grants, *(grant for tool in self.tools if (grant := tool.grant) is not None))

    @property
    def kind(self) -> str:
        """Return the kind of its step, as the language names it."""
        return self.step.kind

    @property
    def required_outputs(self) -> tuple[str, ...]:
        """Return the outputs that the stage must make: those that are not patterns of `edits`."""
        return tuple(path for path in self.outputs if path not in self.edits) if self.edits else self.outputs

    @property
    def literal_outputs(self) -> frozenset[str]:
        """Return the required outputs that are files, not patterns or folders."""
        return frozenset([path for path in self.required_outputs if not is_glob(path)])

    @property
    def is_editor(self) -> bool:
        """Whether the stage is a program with `edits`: it starts from what is on disk, also if others made it."""
        return bool(self.edits) and not self.step.asks_model

    def takes_edits_of(self, path: str) -> bool:
        """Return whether a file of the user at a path is the base of the next run."""
        return self.is_editor and match_any(self.edits, path)

    @property
    def literal_inputs(self) -> frozenset[str]:
        """Return the inputs that are named as files, whole or in part."""
        return frozenset([one.path for one in self.inputs if isinstance(one, PathInput | SliceInput)])

    @property
    def discovers(self) -> bool:
        """Whether runs of the stage find aspects of its key."""
        return bool(self.edits or self.explore) and self.step.asks_model

    @property
    def schema_files(self) -> tuple[str, ...]:
        """The paths of the JSON schemas that the stage names."""
        checks = (dict(one.options).get("schema") for one in self.verify.steps if isinstance(one, CheckStep))
        own = (getattr(self.step, "schema", None), *(getattr(one, "schema", None) for one in self.inputs))
        return tuple(dict.fromkeys(path for path in (*own, *checks) if path and isinstance(path, str)))

    @property
    def author_files(self) -> dict[tuple[str, str], str]:
        """Return the paths of the author's files that the stage reads, such as prompts, by the key that names each."""
        paths = {(self.kind, key): getattr(self.step, key) for key in self.step.author_keys}
        paths["retry", "prompt"] = self.retry.prompt
        return {place: path for place, path in paths.items() if path is not None}


class Foreach(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The list of a foreach: in a file (`source` and `pointer`), or in the pipeline (`values`).

    With `together`, the results of its items reach the workspace in one transaction or not at all.
    """

    source: str | None = None
    pointer: str = ""
    values: tuple[Json, ...] = ()
    key: str | None = None
    name: str = "item"
    sequential: bool = False
    needs_field: str | None = None
    # If one item fails, new parts of an application would be beside old ones, and nothing would work (ADR 13).
    together: bool = False


class ForeachStage(_Named, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """A foreach that is not expanded yet: its body contains expressions with the item.

    `reads` and `writes` are the patterns that its items may have, with `**` for the part that depends on the item. All
    items belong to the promotion group `promote`, if it is set. `starts_processes` and `uses_network` are those of the
    steps of items; `plugins` are those of the pipeline. `moved` maps nodes of the body that a list of vars shifted to
    the paths at which they are written.
    """

    foreach: Foreach
    body: Mapping[str, Json]
    kind: str
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    starts_processes: bool = False
    uses_network: bool = False
    plugins: tuple[str, ...] = ()
    moved: Mapping[str, str] = field(default_factory=dict)

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Return what the user has to consent to for the tools of all items; an item may have more."""
        named = self.body.get("tools")
        texts = (one["name"] if isinstance(one, Mapping) else one for one in (named if isinstance(named, list) else ()))
        found = (Tool("", text).grant for text in texts if isinstance(text, str) and text.startswith(("/", "~/")))
        return tuple(grant for grant in found if grant is not None)

    @property
    def desc(self) -> str:
        """Return its description, with the expressions of an item."""
        return str(self.body.get("desc", ""))

    @property
    def edits(self) -> tuple[str, ...]:
        """Return the patterns of files that its items edit, with the expressions of an item."""
        edits = self.body.get("edits")
        return tuple(one for one in edits if isinstance(one, str)) if isinstance(edits, list | tuple) else ()


class SkippedStage(_Named, frozen=True, omit_defaults=True, kw_only=True):
    """A stage that its `if` switches off, without expressions of an item. It is not in the graph.

    `writes` are the paths that it would write.
    """

    kind: str
    desc: str = ""
    condition: str = ""
    # For the hint about an input that only this stage would make (ADR 12).
    writes: tuple[str, ...] = ()


def source_path(path: str, moved: Mapping[str, str]) -> str:
    """Return the path at which a node is written that rendering may have moved."""
    head, tail = path, ""
    while head:
        if head in moved:
            return moved[head] + tail
        head, _, last = head.rpartition("/")
        tail = f"/{last}{tail}"
    return path


def written_path(node: Stage | ForeachStage, *path: str | int) -> str:
    """Return the path at which a value below a stage is written."""
    return source_path("/".join(("stages", family_of(node.name), *map(str, path))), node.moved)


def family_of(name: str) -> str:
    """Return the name of the declared stage that a node belongs to: `code` for `code@T1`."""
    return name.partition("@")[0]


# The number of parts in the path of a stage, `stages/NAME`.
_OF_STAGE = 2


# `dict=True` gives the object a `__dict__`, which `cached_property` needs.
class Pipeline(Struct, frozen=True, omit_defaults=True, kw_only=True, dict=True):
    """A validated document. `locations` maps a path in it, such as `stages/code/outputs/0`, to its location.

    If `stages` are only some of its stages, `transcripts` are the folders of recorded responses of all stages. `pools`
    are the sizes of pools, `pool_executors` and `pool_resources` where steps of their stages run, and what one of them
    needs of a worker there. Each has only the pools that state it. `options` are those of the command line that change
    the pipeline, without secrets.
    """

    name: str
    file: str
    stages: tuple[Stage | ForeachStage, ...]
    skipped: tuple[SkippedStage, ...] = ()
    vars: Mapping[str, Json] = field(default_factory=dict)
    stop: StopConditions = StopConditions()
    prices: Mapping[str, Price] = field(default_factory=dict)
    rates: Mapping[str, RateLimits] = field(default_factory=dict)
    jobs: int | None = None
    pools: Mapping[str, int] = field(default_factory=dict)
    pool_executors: Mapping[str, str] = field(default_factory=dict)
    pool_resources: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    exit_codes: Mapping[str, int] = field(default_factory=dict)
    never_send: tuple[str, ...] = ()
    run_log: str | None = None
    plugins: tuple[str, ...] = ()
    executor: str = LOCAL_EXECUTOR
    cache: DeclaredCache = field(default_factory=dict)
    locations: Mapping[str, Location] = field(default_factory=dict)
    transcripts: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    def command_line(self, command: str, *words: str) -> str:
        """Return a command on this pipeline as it is typed in a shell, with the options of the running command."""
        file = () if self.file == DEFAULT_PIPELINE else (self.file,)
        taken = (one for one in self.options if command not in ("clean", "release") or one[0] in ("--set", "--vars"))
        return shlex.join(("orch23", command, *file, *words, *(word for option in taken for word in option)))

    @cached_property
    def transcript_folders(self) -> tuple[str, ...]:
        """Return the sorted folders of transcripts that the stages name; a foreach may have no items."""
        found: set[str] = set(self.transcripts)
        for stage in self.stages:
            if isinstance(stage, ForeachStage):
                place = json_at(stage.body, "llm", "transcripts")
            else:
                place = getattr(stage.step, "transcripts", None)
            if isinstance(place, str):
                found.add(place)
        return tuple(sorted(found))

    def locate(self, *path: str | int) -> Location | None:
        """Return the location of a node, or of its nearest ancestor that has one. `code@T1` is found as `code`."""
        parts = [family_of(str(p)) if i == 1 else str(p) for i, p in enumerate(path)]
        while parts:
            found = self.locations.get("/".join(parts))
            if found is not None:
                return found
            parts.pop()
        return None

    def place_in(self, node: Stage | ForeachStage, *path: str | int) -> Location | None:
        """Return the location of a value below a stage, or of its nearest ancestor that has one."""
        return self.locate(*written_path(node, *path).split("/"))

    def locate_written(self, path: str) -> Location | None:
        """Return the location of a node that may be written under `defaults`, or of its nearest ancestor."""
        found = (self.locations.get(one) for one, _ in definition_paths(path.split("/"), self.locations))
        return next((place for place in found if place is not None), None)


def definition_paths(parts: Sequence[str], written: Container[str]) -> Iterator[tuple[str, bool]]:
    """Yield the paths at which a node may be written: in its stage, under `defaults`, then those of each node above it.

    With each path comes whether it is that of a node above. `written` are the paths of all nodes.
    """
    # A list of the stage replaces the default list, so the items of the default are not those of the stage.
    own_list = next(("/".join(parts[:n]) for n, part in enumerate(parts) if n > _OF_STAGE and part.isdigit()), None)
    has_defaults = parts[0] == "stages" and (own_list is None or own_list not in written)
    for length in range(len(parts), 0, -1):
        yield "/".join(parts[:length]), length < len(parts)
        if has_defaults and length > _OF_STAGE:
            yield "/".join(("defaults", *parts[_OF_STAGE:length])), length < len(parts)
