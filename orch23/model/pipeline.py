"""A validated pipeline: stages, inputs, verification, retries, limits."""

from collections.abc import Container, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Struct, field

from orch23.model.action import DEFAULT_LIMITS, StepLimits
from orch23.model.diagnostic import Location
from orch23.model.digest import Json
from orch23.model.step import Step, VerifyStep

DEFAULT_PIPELINE = "pipeline.yaml"
"""The pipeline that a command line means when it names none."""

LOCAL_EXECUTOR = "local"
"""The executor that is orch23's own: this machine."""

DEFAULT_SCRATCH = ("__pycache__", "*.pyc", ".pytest_cache", ".mypy_cache", ".ruff_cache", "*.egg-info")
DEFAULT_TIMEOUT_S = 300.0
MAX_RETRIES = 50

FailureKind: TypeAlias = Literal[
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
DEFAULT_RETRY_WHEN: tuple[FailureKind, ...] = (
    "llm_output_invalid",
    "write_scope_violation",
    "verify_failed",
    "acceptance_failed",
    "timeout",
)


# ---- inputs: a closed union -------------------------------------------------------------------


class PathInput(Struct, frozen=True, omit_defaults=True, tag=True):
    """A literal file. Missing is an error unless `optional`; `schema` is checked before anything runs."""

    path: str
    optional: bool = False
    schema: str | None = None

    @property
    def pattern(self) -> str:
        """Return the path."""
        return self.path

    @property
    def text(self) -> str:
        """Return the input as it is written."""
        return self.path


class OrderInput(Struct, frozen=True, omit_defaults=True, tag=True):
    """A literal file for order only: the stage runs after the one that makes it. Missing is an error.

    Its contents are not part of the key. Only the step of the stage is given it, no verification.
    """

    path: str

    @property
    def pattern(self) -> str:
        """Return the path."""
        return self.path

    @property
    def text(self) -> str:
        """Return the input as it is written."""
        return self.path


class GlobInput(Struct, frozen=True, omit_defaults=True, tag=True):
    """Every file that a pattern matches, without those that `exclude` matches.

    A pattern may match nothing. With `folder` it was written as a directory, `d/` for `d/**`: that has to be there.
    """

    pattern: str
    exclude: tuple[str, ...] = ()
    folder: bool = False

    @property
    def text(self) -> str:
        """Return the input as it is written: a folder as `d/`."""
        return self.pattern.removesuffix("**") if self.folder else self.pattern


class ListInput(Struct, frozen=True, omit_defaults=True, tag=True):
    """A listing: the sorted paths that a pattern matches, without what this pipeline made and what `exclude` matches.

    It has no content.
    """

    pattern: str
    exclude: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the input as it is written."""
        return self.pattern


class SliceInput(Struct, frozen=True, omit_defaults=True, tag=True):
    """A part of a file: `#Heading` of a Markdown file, or `#/pointer` of a JSON or YAML file."""

    path: str
    selector: str
    optional: bool = False

    @property
    def pattern(self) -> str:
        """Return the path of the file."""
        return self.path

    @property
    def text(self) -> str:
        """Return the input as it is written."""
        return f"{self.path}#{self.selector}"


Input: TypeAlias = PathInput | OrderInput | GlobInput | ListInput | SliceInput


# ---- verification ---------------------------------------------------------------------------


class BriefLimits(Struct, frozen=True, omit_defaults=True):
    """How a failure's text is cut: over `limit` characters, the first `head`, a mark, the last `tail`."""

    limit: int = 4000
    head: int = 2500
    tail: int = 1000


# ---- conditions and verification --------------------------------------------------------------


class Condition(Struct, frozen=True, omit_defaults=True):
    """A file that must, or must not, be there."""

    kind: Literal["file_exists", "file_absent"]
    path: str


class CheckStep(VerifyStep, Struct, frozen=True, omit_defaults=True, tag=True):
    """Run a validator of `orch23/checks/` by name on the stage's outputs."""

    name: str
    options: Mapping[str, Json] = field(default_factory=dict)


class EnsuresStep(VerifyStep, Struct, frozen=True, omit_defaults=True, tag=True):
    """Hold the frozen result to conditions."""

    conditions: tuple[Condition, ...]


class CommandsStep(VerifyStep, Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """Run commands that a model wrote, without a shell: only programs of `allow`, each named plainly.

    With a `source` the commands are what it says, and are known once the stage is resolved.
    """

    allow: tuple[str, ...]
    commands: tuple[str, ...] = ()
    source: SliceInput | None = None


class Verify(Struct, frozen=True, omit_defaults=True):
    """What a result must pass. `inputs` are staged for these steps only; no model sees them.

    `places` are the positions at which the steps are written: those that their `if` switches off are left out.
    """

    steps: tuple[VerifyStep, ...] = ()
    inputs: tuple[Input, ...] = ()
    run_all: bool = False
    places: tuple[int, ...] = ()

    def __eq__(self, other: object) -> bool:
        """Return whether it verifies the same: `places` are not compared."""
        return self._compared() == other._compared() if isinstance(other, Verify) else NotImplemented

    def __hash__(self) -> int:
        """Return a hash of what is compared."""
        return hash(self._compared())

    def _compared(self) -> tuple[object, ...]:
        return self.steps, self.inputs, self.run_all


class WriteScope(Struct, frozen=True, omit_defaults=True):
    """Where a stage may write. `protect` is stronger than `write`; deletes are off unless listed."""

    write: tuple[str, ...]
    protect: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


class Retry(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Attempts after the first (`max`), for which failures, how they are asked, when to give up early."""

    max: int = 0
    when: tuple[FailureKind, ...] = DEFAULT_RETRY_WHEN
    prompt: str | None = None
    start_from: Literal["current", "baseline"] = "current"
    no_progress: int | None = None
    escalate: tuple[str, ...] = ()


class StopConditions(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What ends a run, or the attempts of one stage; None means no limit. `max_failed_stages` is of runs alone.

    `max_cost_usd` is in US dollars, `max_tokens` counts input and output together.
    """

    max_cost_usd: Decimal | None = None
    max_tokens: int | None = None
    max_llm_calls: int | None = None
    max_wall_s: float | None = None
    max_failed_stages: int | None = 1


class Price(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a model costs, in US dollars for a million tokens; cached input as other input where nothing is said."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


# ---- stages -----------------------------------------------------------------------------------


class ChainLink(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A stage's place in a chain: items of one sequential foreach, or a single llm stage as a chain of one."""

    chain: str
    index: int


class Item(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a foreach stage was expanded with: the key, the name it is called by, and the value."""

    key: str
    name: str
    value: Json


class Stage(Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """A declared unit of work, fully rendered. An item of a foreach is a stage named `stage@key`.

    `promote` names the promotion group of the stage: None where it is promoted by itself, or its foreach says it.
    """

    name: str
    step: Step
    desc: str = ""
    needs: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()
    outputs: tuple[str, ...] = ()
    fence: WriteScope = WriteScope(())
    verify: Verify = Verify()
    requires: tuple[Condition, ...] = ()
    ensures: tuple[Condition, ...] = ()
    retry: Retry = Retry()
    on_failure: Literal["rollback", "keep"] = "rollback"
    cwd: str = "."
    timeout_s: float = DEFAULT_TIMEOUT_S
    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    tools: tuple[str, ...] = ()
    scratch: tuple[str, ...] = DEFAULT_SCRATCH
    cache: bool = True
    network: bool = False
    sandbox: bool = True
    limits: StepLimits = DEFAULT_LIMITS
    salt: str | None = None
    item: Item | None = None
    chain: ChainLink | None = None
    stop: StopConditions = StopConditions()
    pools: tuple[str, ...] = ()
    promote: str | None = None

    @property
    def kind(self) -> str:
        """Return the kind of its step, as the language names it."""
        return self.step.kind

    @property
    def family(self) -> str:
        """Return the declared stage's name: `code` for `code@T1`."""
        return self.name.partition("@")[0]

    @property
    def author_files(self) -> dict[tuple[str, str], str]:
        """Return the paths of the author's files that the stage reads, by the key that names each."""
        paths = {(self.kind, key): getattr(self.step, key) for key in self.step.author_keys}
        paths["retry", "prompt"] = self.retry.prompt
        return {place: path for place, path in paths.items() if path is not None}


class Foreach(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a stage multiplies: over a list in a file (`source` + `pointer`) or a static list (`values`).

    With `together`, the results of its items reach the workspace in one transaction or not at all.
    """

    source: str | None = None
    pointer: str = ""
    values: tuple[Json, ...] = ()
    key: str | None = None
    name: str = "item"
    sequential: bool = False
    needs_field: str | None = None
    together: bool = False


class ForeachStage(Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """A stage that is not expanded yet: its body still holds expressions of the item.

    `reads` and `writes` are the patterns it may turn out to have, with `**` where the item decides. All items belong
    to the promotion group `promote`, if there is one. `starts_processes` says that the step of an item does,
    `uses_network` that it uses the network itself, `plugins` are those of the pipeline. `moved` maps nodes of the body
    that a list of vars shifted to where they were written.
    """

    name: str
    foreach: Foreach
    body: Mapping[str, Json]
    kind: str
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    promote: str | None = None
    starts_processes: bool = False
    uses_network: bool = False
    plugins: tuple[str, ...] = ()
    moved: Mapping[str, str] = field(default_factory=dict)


class SkippedStage(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A stage that its `if`, as it is written, switches off. It is no part of the graph; `writes` is what it would."""

    name: str
    kind: str
    condition: str = ""
    writes: tuple[str, ...] = ()
    promote: str | None = None

    @property
    def family(self) -> str:
        """Return the declared stage's name: `code` for `code@T1`."""
        return self.name.partition("@")[0]


_OF_STAGE = 2
"""How many parts the path of a stage has: `stages/NAME`."""


class Pipeline(Struct, frozen=True, omit_defaults=True, kw_only=True, dict=True):
    """The whole validated document. `locations` maps a path in it, such as `stages/code/outputs/0`, to its place.

    If `stages` are some of the document's, `transcripts` are the folders of recorded answers of all of them.
    """

    name: str
    file: str
    stages: tuple[Stage | ForeachStage, ...]
    skipped: tuple[SkippedStage, ...] = ()
    vars: Mapping[str, Json] = field(default_factory=dict)
    stop: StopConditions = StopConditions()
    prices: Mapping[str, Price] = field(default_factory=dict)
    jobs: int | None = None
    pools: Mapping[str, int] = field(default_factory=dict)
    exit_codes: Mapping[str, int] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    executor: str = LOCAL_EXECUTOR
    locations: Mapping[str, Location] = field(default_factory=dict)
    transcripts: tuple[str, ...] = ()

    @cached_property
    def transcript_folders(self) -> tuple[str, ...]:
        """Return the folders that the declared stages name, sorted; of a foreach also where it has no items today."""
        found: set[str] = set(self.transcripts)
        for stage in self.stages:
            if isinstance(stage, ForeachStage):
                llm = stage.body.get("llm")
                place = llm.get("transcripts") if isinstance(llm, Mapping) else None
            else:
                place = getattr(stage.step, "transcripts", None)
            if isinstance(place, str):
                found.add(place)
        return tuple(sorted(found))

    def locate(self, *path: str | int) -> Location | None:
        """Return the place of a node, or of its nearest ancestor that has one. `code@T1` is found as `code`."""
        parts = [str(p).partition("@")[0] if i == 1 else str(p) for i, p in enumerate(path)]
        while parts:
            found = self.locations.get("/".join(parts))
            if found is not None:
                return found
            parts.pop()
        return None

    def locate_written(self, path: str) -> Location | None:
        """Return the place of a node that may be written among the defaults, or of its nearest ancestor."""
        found = (self.locations.get(one) for one, _ in definition_paths(path.split("/"), self.locations))
        return next((place for place in found if place is not None), None)


def definition_paths(parts: Sequence[str], written: Container[str]) -> Iterator[tuple[str, bool]]:
    """Yield where a node may be written: in its stage, else among the defaults; then the same of each node above it.

    With each comes whether it is one above. A list of the stage takes the place of the default one, so that its items
    are not looked for there. `written` are the paths of all nodes.
    """
    own_list = next(("/".join(parts[:n]) for n, part in enumerate(parts) if n > _OF_STAGE and part.isdigit()), None)
    has_defaults = parts[0] == "stages" and (own_list is None or own_list not in written)
    for length in range(len(parts), 0, -1):
        yield "/".join(parts[:length]), length < len(parts)
        if has_defaults and length > _OF_STAGE:
            yield "/".join(("defaults", *parts[_OF_STAGE:length])), length < len(parts)
