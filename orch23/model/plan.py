"""A pipeline as it was read, and its plan: the graph of stages, the decision, the reasons and the estimate of each."""

from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest
from orch23.model.errors import InvalidInputError
from orch23.model.event_data import UsageTotals
from orch23.model.pipeline import ForeachStage, Pipeline, SkippedStage, Stage, family_of
from orch23.model.record import Reason, Record

if TYPE_CHECKING:
    from orch23.model.event import AttemptFinished


class ParsedPipeline(Struct, frozen=True):
    """The result of parsing a text: the pipeline (None with errors), all diagnostics, and the origin of each var.

    With errors, `partial` has the valid stages, so that their other errors can be reported in the same run; `unread`
    are the texts in the stages that are not valid.
    """

    pipeline: Pipeline | None
    diagnostics: tuple[Diagnostic, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    partial: Pipeline | None = None
    unread: tuple[str, ...] = ()


class LoadedPipeline(Struct, frozen=True):
    """A valid pipeline, its warnings, the origin of each var; by file the texts that were read, and their digests."""

    pipeline: Pipeline
    warnings: tuple[Diagnostic, ...]
    origins: Mapping[str, str]
    sources: Mapping[str, str]
    digests: Mapping[str, Digest]


class InvalidPipelineError(InvalidInputError):
    """The pipeline is not valid; `sources` are the texts that the diagnostics refer to, `parsed` is the valid part."""

    def __init__(
        self, *diagnostics: Diagnostic, sources: Mapping[str, str], parsed: ParsedPipeline | None = None
    ) -> None:
        """Store the texts and the valid part beside the diagnostics."""
        super().__init__(*diagnostics)
        self.sources = sources
        self.parsed = parsed


class Edge(Struct, frozen=True):
    """`reader` runs after `producer`; `why` is the path, the pattern or the key that is the reason."""

    producer: str
    reader: str
    why: str


class CompileCache(Protocol):
    """Stored values by name, each with the bytes that it was computed from."""

    def get(self, name: str, made_of: bytes) -> bytes | None:
        """Return the value of a name if it was computed from these bytes, or None."""

    def put(self, name: str, made_of: bytes, value: bytes) -> None:
        """Store a value under a name, and replace the former one."""


# `dict=True` gives the object a `__dict__`, which `cached_property` needs.
class Plan(Struct, frozen=True, kw_only=True, dict=True):
    """The graph of stages. `order` is topological; otherwise nodes stay in the order of the file.

    A node is a stage, an item of a foreach, or a foreach that is not expanded yet. `expansions` are the stages that
    each foreach was expanded to. `upstream_of_chains` maps a node to the chains with members downstream of it, and
    how many of their first members it sees: with 0, their files are as they were before the chain (version 0).
    `skipped` are the stages and items that their `if` switches off; they are not nodes. `lists` has edges from before
    the items of a foreach were known whose list a stage makes: it came after that stage, and other nodes after it, as
    its items do now. `groups` maps each promotion group to its nodes: its name is given in the pipeline, or is that
    of an expanded foreach that is promoted together (`NAME[*]` if a group has the same name). `cache` has the stored
    plans, one of which may be an expansion. With `whole`, `nodes` are only the part of the pipeline that an edit
    affects, and `whole` returns all nodes and the stages upstream of each.
    """

    pipeline: Pipeline
    nodes: Mapping[str, Stage | ForeachStage]
    order: tuple[str, ...]
    upstream: Mapping[str, tuple[str, ...]]
    downstream: Mapping[str, tuple[str, ...]]
    edges: tuple[Edge, ...] = ()
    expansions: Mapping[str, tuple[Stage, ...]] = field(default_factory=dict)
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    upstream_of_chains: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Not nodes: otherwise every rule about owners, versions and files would need an exception (ADR 12).
    skipped: Mapping[str, SkippedStage] = field(default_factory=dict)
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    whole: Callable[[], tuple[Mapping[str, Stage | ForeachStage], Mapping[str, tuple[str, ...]]]] | None = None
    cache: CompileCache | None = None

    @cached_property
    def all_nodes(self) -> Mapping[str, Stage | ForeachStage]:
        """Return the nodes of the whole pipeline; `nodes` may be a part of them."""
        return self.nodes if self.whole is None else self.whole()[0]

    @cached_property
    def all_upstream(self) -> Mapping[str, tuple[str, ...]]:
        """Return the stages upstream of each node; in a partial plan, `upstream` lacks stages before it."""
        return self.upstream if self.whole is None else self.whole()[1]

    @cached_property
    def unexpanded(self) -> tuple[ForeachStage, ...]:
        """Return the foreach stages that are not expanded yet."""
        return tuple(node for node in self.nodes.values() if isinstance(node, ForeachStage))

    @cached_property
    def idle(self) -> Mapping[str, SkippedStage]:
        """Return the skipped stages and items, and each foreach with an empty list."""
        families = {one.family for one in self.skipped.values()}
        empty = (one for one in self.pipeline.stages if self.expansions.get(one.name) == ())
        off = (SkippedStage(name=one.name, kind=one.kind, desc=one.desc) for one in empty if one.name not in families)
        return {**self.skipped, **{one.name: one for one in off}}

    @cached_property
    def _group_of(self) -> Mapping[str, str]:
        return {name: group for group, names in self.groups.items() for name in names}

    @cached_property
    def gated(self) -> frozenset[str]:
        """Return the nodes whose changes a user has to approve: those with `approve`, and all of their groups."""
        own = (name for name, node in self.nodes.items() if isinstance(node, Stage) and node.approve)
        return frozenset(other for name in own for other in self.promoted_with(name))

    def is_declared(self, name: str) -> bool:
        """Return whether a name belongs to a node, or may belong to an item of a foreach that is not expanded yet."""
        return name in self.nodes or isinstance(self.nodes.get(family_of(name)), ForeachStage)

    def earlier_items(self, name: str) -> tuple[str, ...]:
        """Return the items before a node in its chain, in order. It may read any of their files.

        In a foreach, the graph has an edge only from the item directly before it, which runs after all others. Stages
        with `edits` need not wait for each other, if they edit other files.
        """
        node = self.nodes[name]
        if isinstance(node, ForeachStage) or node.chain is None:
            return ()
        return self.chains.get(node.chain.chain, ())[: node.chain.index]

    def group_of(self, name: str) -> str | None:
        """Return the name of a node's promotion group, or None if the node is promoted by itself."""
        return self._group_of.get(name)

    def promoted_with(self, name: str) -> tuple[str, ...]:
        """Return the nodes that are promoted in one transaction with a node, including it.

        A foreach that is not expanded yet is one of them: the group is not complete without its items.
        """
        group = self._group_of.get(name)
        return (name,) if group is None else self.groups[group]


# There is no flag that a stage is done: only records and bytes decide (ADR 3).
class Fresh(Struct, frozen=True):
    """The files on disk equal a record of the current key: there is nothing to do."""

    record: Record
    label: ClassVar[Literal["fresh", "done"]] = "fresh"


class Done(Fresh, frozen=True):
    """The stage has `once`, its result is committed, and its task text has not changed: its files are the user's.

    The record owns no files.
    """

    label: ClassVar[Literal["fresh", "done"]] = "done"


class Restore(Struct, frozen=True):
    """A record of the current key exists, and its bytes are available: restore them, and run nothing."""

    record: Record
    reasons: tuple[Reason, ...]
    label: ClassVar[Literal["restore"]] = "restore"


class VerifyOnly(Struct, frozen=True):
    """Verify outputs without running the step: only the verification changed, a user edited them, or it is a claim.

    `adopted` are outputs that a user edited and committed: the record has them as they are on disk, and they are
    recorded as accepted if they pass. With `claim`, only the lock file has the record (ADR 21). With `shared`, it is
    from a shared cache (ADR 57): if it does not pass, the stage runs as if there were no record.
    """

    record: Record
    reasons: tuple[Reason, ...]
    adopted: tuple[str, ...] = ()
    # A clone can bring a forged lock file, so its records are verified first (ADR 21).
    claim: bool = False
    shared: bool = False
    label: ClassVar[Literal["verify"]] = "verify"

    @property
    def is_final(self) -> bool:
        """Return whether the stage fails if the verification fails: no model is called then."""
        # A call would replace a user's committed edit (ADR 19). After a failed claim, the user has to request it with
        # `--resample` or `--force` (ADR 21).
        return bool(self.adopted) or self.claim


class Edited(Struct, frozen=True):
    """A user edited these outputs, and has to decide whether they are kept or overwritten.

    With a record, the stage has nothing else to do: stages that do not read these paths can run. `existed` are paths
    that no stage has written before, `accepted` paths with accepted bytes that a run would overwrite, `unshown` paths
    with a user's bytes that the model of a run would replace without having seen them.
    """

    paths: tuple[str, ...]
    record: Record | None = None
    # A build never overwrites these files by itself (ADR 19).
    existed: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    unshown: tuple[str, ...] = ()
    label: ClassVar[Literal["edited"]] = "edited"

    def only(self, paths: Collection[str]) -> "Edited":
        """Return this end for some of the paths."""
        some = (
            tuple(p for p in group if p in paths) for group in (self.paths, self.existed, self.accepted, self.unshown)
        )
        return Edited(next(some), None, *some)

    @property
    def descriptions(self) -> tuple[str, ...]:
        """Return descriptions of the paths, one for each reason."""
        plain = tuple(path for path in self.paths if path not in (*self.existed, *self.accepted, *self.unshown))
        groups = (
            ("edited by hand", plain),
            ("existed before the stage first ran", self.existed),
            ("accepted by a user, and a run would overwrite it", self.accepted),
            ("written by a user, and the prompt does not show it (`{{ inputs | blocks }}` does)", self.unshown),
        )
        return tuple(f"{what}: {', '.join(paths)}" for what, paths in groups if paths)


class Run(Struct, frozen=True):
    """The stage has to run. With `edits`, it ends as these if its result has other bytes than a user at their paths.

    With `resample`, its model is called again; these are the fingerprints that were requested so far.
    """

    reasons: tuple[Reason, ...]
    edits: Edited | None = None
    resample: tuple[str, ...] | None = None
    label: ClassVar[Literal["run"]] = "run"


Resample: TypeAlias = Mapping[str, tuple[str, ...] | None]
"""The stages whose models are called again, with the fingerprints that were requested so far; None: it has ended."""


def resample_of(stages: Resample, name: str) -> tuple[str, ...] | None:
    """Return what was requested so far for a stage, by its own name or the name of its foreach; None: no call again."""
    return stages.get(name, stages.get(family_of(name)))


class RunHistory(Struct, frozen=True, kw_only=True):
    """What earlier runs leave to the next. All after `resample` is about an interrupted run, and so is `unlocked`.

    - `failed`: for each stage that failed when it last ran, the key that it failed with; `failures`: its last attempt.
    - `unlocked`: for each stage that the run finished, its key: the lock file does not have it yet. It is empty if the
      lock file is not the one that the run began with, as after a switch of branches.
    - `reusable`: the fingerprints of responses that the run requested in place of recorded ones.
    - `withheld`: for each stage whose promotion group did not pass, the key of its result.
    - `resample`: what `--resample` of this run or of an interrupted one has promised, and has not ended yet.
    - `spent`: what each stage used, never too little: a request without a known outcome has possible amounts.
    - `submitted`: for each fingerprint, the id of a response that a provider accepted and that was not received; also
      of a newest run that was not interrupted, but could not collect them.
    - `uncollected`: the part of `spent` that belongs to each submitted response; collecting it settles this part.
    """

    failed: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, "AttemptFinished"] = field(default_factory=dict)
    withheld: Mapping[str, str] = field(default_factory=dict)
    unlocked: Mapping[str, str] = field(default_factory=dict)
    reusable: frozenset[str] = frozenset()
    resample: Resample = field(default_factory=dict)
    spent: Mapping[str, UsageTotals] = field(default_factory=dict)
    submitted: Mapping[str, str] = field(default_factory=dict)
    uncollected: Mapping[str, UsageTotals] = field(default_factory=dict)


class Maybe(Struct, frozen=True):
    """The decision depends on files that the stages in `waiting_on` will write. `edits` are those of a run.

    Without these stages, it depends on whether the `edits` are only formatted results.
    """

    waiting_on: tuple[str, ...]
    reasons: tuple[Reason, ...] = ()
    edits: Edited | None = None
    label: ClassVar[Literal["maybe"]] = "maybe"

    @property
    def may_run(self) -> bool:
        """Return whether the stage may run; otherwise it is fresh or edited."""
        return bool(self.waiting_on or self.reasons)


class Expand(Struct, frozen=True):
    """A foreach whose items are unknown until its producer has run; in the last build it had `last_count`.

    `at_stake` are the files of a chain that a new list may replace or remove.
    """

    waiting_on: tuple[str, ...]
    last_count: int
    at_stake: tuple[str, ...] = ()
    label: ClassVar[Literal["expand"]] = "expand"


class Blocked(Struct, frozen=True):
    """The stage cannot run, since these stages failed or wait for the user."""

    by: tuple[str, ...]
    label: ClassVar[Literal["blocked"]] = "blocked"


class Skipped(Struct, frozen=True):
    """The `if` of the stage, given as it is written, switches it off; without one, the list of a foreach is empty."""

    condition: str
    label: ClassVar[Literal["skipped"]] = "skipped"

    def __str__(self) -> str:
        """Return why it is skipped."""
        return f"`if` is false: {self.condition}" if self.condition else "0 items: its list is empty"


Decision: TypeAlias = Fresh | Restore | VerifyOnly | Run | Maybe | Expand | Blocked | Edited | Skipped


PriceKind: TypeAlias = Literal["none", "free", "known", "unknown"]
"""The price of a model call: there is no call, it is free, the price table has it, or it is unknown."""


class CallRange(Struct, frozen=True):
    """The number of requests of a stage; None if it is not known. `has_new_items`: only known items are counted."""

    minimum: int = 0
    maximum: int | None = 0
    has_new_items: bool = False


class Estimate(Struct, frozen=True, kw_only=True):
    """The expected calls, tokens, cost and time of one stage. Tokens and `likely_cost` are those of its first request.

    `responses` counts the earlier responses that the tokens are estimated from, `runs` the earlier runs with
    `duration_s` as their median. `least_cost` is the cost of a run with one attempt, 0 if there may be no call at all;
    `most_cost` is an upper bound. `saved_calls` are requests with a recorded response, `saved_cost` is what these cost.
    `cache_saving` is what the prompt cache should save of the first request, which `likely_cost` and `least_cost` take
    into account; it is negative for a stage that writes to the cache for others. `shared_lines` are the first lines of
    its prompt that other stages send too, and `shared_end` is the last of them. `stored_at` is the server that stores
    the response of a call, empty if none does. `explores` says what the model may look at before it responds.
    `verifies_base`: before it is called, the verification runs on what the stage starts from.
    """

    calls: CallRange = CallRange()
    price: PriceKind = "none"
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    responses: int = 0
    least_cost: Decimal | None = Decimal(0)
    likely_cost: Decimal | None = Decimal(0)
    most_cost: Decimal | None = Decimal(0)
    saved_calls: int = 0
    saved_cost: Decimal | None = Decimal(0)
    cache_saving: Decimal = Decimal(0)
    shared_lines: int = 0
    shared_end: str = ""
    duration_s: float | None = None
    runs: int = 0
    stored_at: str = ""
    explores: str = ""
    verifies_base: bool = False

    @property
    def may_call(self) -> bool:
        """Return whether a provider may be called."""
        return self.calls.maximum != 0

    def with_cache(self, saving: Decimal) -> Self:
        """Return the estimate if the prompt cache saves so much of the first request."""
        least = self.least_cost - saving if self.least_cost else self.least_cost
        likely = None if self.likely_cost is None else self.likely_cost - saving
        return replace(self, cache_saving=saving, least_cost=least, likely_cost=likely)


EMPTY_ESTIMATE = Estimate()
