"""A plan: the graph of stages, and the decision, the reasons and the estimate of each."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cached_property
from typing import ClassVar, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from orch23.model.pipeline import ForeachStage, Pipeline, SkippedStage, Stage
from orch23.model.record import Reason, Record


class Edge(Struct, frozen=True):
    """`reader` comes after `producer`; `why` names the path, pattern or key that makes it so."""

    producer: str
    reader: str
    why: str


class CompileCache(Protocol):
    """Plans as they were compiled, each under a name with what it is made of."""

    def get(self, name: str, made_of: bytes) -> bytes | None:
        """Return the value under a name if it is made of these bytes, or None."""

    def put(self, name: str, made_of: bytes, value: bytes) -> None:
        """Keep a value in the place of the one under its name."""


class Plan(Struct, frozen=True, kw_only=True, dict=True):
    """The graph of stages. `order` is the lexicographically smallest topological order of the node names.

    A node is a stage, an item of a foreach, or a foreach that is not expanded yet. `expansions` are the stages that
    each foreach was expanded to. `upstream_of_chains` maps a node to the chains that are downstream of it: it sees the
    files of those as they were before (version 0). `skipped` are the stages and items that their `if` switches off;
    they are not nodes. `groups` maps each promotion group to its nodes: its name is given in the pipeline, or is that
    of an expanded foreach that is promoted together (`NAME[*]` if a group has the same name). `cache` has the stored
    plans, one of which may be an expansion. With `whole`, these nodes are the part of a pipeline that an edit reaches,
    and `whole` returns all of its nodes.
    """

    pipeline: Pipeline
    nodes: Mapping[str, Stage | ForeachStage]
    order: tuple[str, ...]
    upstream: Mapping[str, tuple[str, ...]]
    downstream: Mapping[str, tuple[str, ...]]
    edges: tuple[Edge, ...] = ()
    expansions: Mapping[str, tuple[Stage, ...]] = field(default_factory=dict)
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    upstream_of_chains: Mapping[str, frozenset[str]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    skipped: Mapping[str, SkippedStage] = field(default_factory=dict)
    whole: Callable[[], Mapping[str, Stage | ForeachStage]] | None = None
    cache: CompileCache | None = None

    @cached_property
    def all_nodes(self) -> Mapping[str, Stage | ForeachStage]:
        """Return the nodes of the whole pipeline, of which these may be a part."""
        return self.nodes if self.whole is None else self.whole()

    @cached_property
    def unexpanded(self) -> tuple[ForeachStage, ...]:
        """Return the nodes that are not expanded to stages yet."""
        return tuple(node for node in self.nodes.values() if isinstance(node, ForeachStage))

    @cached_property
    def _group_of(self) -> Mapping[str, str]:
        return {name: group for group, names in self.groups.items() for name in names}

    def earlier_items(self, name: str) -> tuple[str, ...]:
        """Return the items before a node in its chain, in order. It may read any of their files.

        The graph has an edge from the item directly before it alone: that one comes after all others already.
        """
        node = self.nodes[name]
        if isinstance(node, ForeachStage) or node.chain is None:
            return ()
        return self.chains.get(node.chain.chain, ())[: node.chain.index]

    def group_of(self, name: str) -> str | None:
        """Return the name of a node's promotion group, or None if the node is promoted by itself."""
        return self._group_of.get(name)

    def promoted_with(self, name: str) -> tuple[str, ...]:
        """Return the nodes that are promoted in one transaction with a node, itself among them.

        A foreach that is not expanded yet stands for its items: the group is not complete without them.
        """
        group = self._group_of.get(name)
        return (name,) if group is None else self.groups[group]


class Fresh(Struct, frozen=True):
    """The disk equals this record of today's key: nothing to do."""

    record: Record
    label: ClassVar[Literal["fresh"]] = "fresh"


class Restore(Struct, frozen=True):
    """A record of today's key exists and its bytes can be had: put them back, run nothing."""

    record: Record
    reasons: tuple[Reason, ...]
    label: ClassVar[Literal["restore"]] = "restore"


class VerifyOnly(Struct, frozen=True):
    """Verify the recorded outputs as they are: only the verification changed, a user edited them, or it is a claim.

    `adopted` are outputs that a user edited and committed: they are in the record as they are on disk, and are recorded
    as accepted if they pass. With `claim`, only the lock file has the record (ADR 21).
    """

    record: Record
    reasons: tuple[Reason, ...]
    adopted: tuple[str, ...] = ()
    claim: bool = False
    label: ClassVar[Literal["verify"]] = "verify"

    @property
    def is_final(self) -> bool:
        """Return whether nothing else can come of it but a failure: no model is asked."""
        return bool(self.adopted) or self.claim


class Run(Struct, frozen=True):
    """The stage has to run."""

    reasons: tuple[Reason, ...]
    label: ClassVar[Literal["run"]] = "run"


class Maybe(Struct, frozen=True):
    """It depends on what the stages it waits for will write."""

    waiting_on: tuple[str, ...]
    reasons: tuple[Reason, ...] = ()
    label: ClassVar[Literal["maybe"]] = "maybe"


class Expand(Struct, frozen=True):
    """A foreach whose items are unknown until its producer has run; last time there were `last_count`."""

    waiting_on: tuple[str, ...]
    last_count: int
    label: ClassVar[Literal["expand"]] = "expand"


class Blocked(Struct, frozen=True):
    """It cannot run, since these stages failed or wait for a person."""

    by: tuple[str, ...]
    label: ClassVar[Literal["blocked"]] = "blocked"


class Edited(Struct, frozen=True):
    """A user's bytes are at these outputs, and the user has to say what is to become of them.

    With a record, the stage has nothing else to do: what does not read these paths goes on. `existed` are those that
    no stage has ever written, `accepted` those that a run would overwrite although the user had them accepted.
    """

    paths: tuple[str, ...]
    record: Record | None = None
    existed: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    label: ClassVar[Literal["edited"]] = "edited"

    @property
    def descriptions(self) -> tuple[str, ...]:
        """Return what there is to say of the paths, in parts."""
        plain = tuple(path for path in self.paths if path not in self.existed and path not in self.accepted)
        told = (
            ("edited by hand", plain),
            ("existed before the stage first ran", self.existed),
            ("accepted by a user, and a run would overwrite it", self.accepted),
        )
        return tuple(f"{what}: {', '.join(paths)}" for what, paths in told if paths)


class Skipped(Struct, frozen=True):
    """Its `if`, given as it is written, switches it off."""

    condition: str
    label: ClassVar[Literal["skipped"]] = "skipped"


Decision: TypeAlias = Fresh | Restore | VerifyOnly | Run | Maybe | Expand | Blocked | Edited | Skipped


PriceKind: TypeAlias = Literal["none", "free", "known", "unknown"]
"""What asking costs: nobody is asked, nothing, what the price table says, or nobody knows."""


class CallRange(Struct, frozen=True):
    """How many requests a stage may make: at least, and at most where that is known."""

    minimum: int = 0
    maximum: int | None = 0


class Estimate(Struct, frozen=True, kw_only=True):
    """What one stage may take. Tokens and `likely_cost` are those of its first request, if a provider answers it.

    `responses` counts the earlier answers that the tokens rest on, `runs` the earlier runs of which `duration_s` is the
    median. `least_cost` is that of a run without a second attempt, 0 where nobody may be asked at all; `most_cost` is
    a bound. `saved_calls` are requests that the transcripts answer for sure, `saved_cost` is what those had cost.
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
    duration_s: float | None = None
    runs: int = 0

    @property
    def may_call(self) -> bool:
        """Return whether a provider may be asked."""
        return self.calls.maximum != 0


EMPTY_ESTIMATE = Estimate()


class AffectedStage(Struct, frozen=True, kw_only=True):
    """A stage (or item) that is affected: of another key (`changed`), new (`added`), or perhaps (`downstream`).

    `after` are the affected stages whose results it may read; of one that is downstream those alone of which it is not
    known how they differ.
    """

    stage: str
    why: Literal["changed", "added", "downstream"]
    reasons: tuple[Reason, ...] = ()
    after: tuple[str, ...] = ()


class AffectedStages(Struct, frozen=True, kw_only=True):
    """The affected stages in the order of the plan, out of `count`; `removed` are those that the revision had alone.

    `comparable` is false where the revision has no such pipeline, or an invalid one: then every stage is new.
    """

    name: str
    file: str
    since: str
    commit: str
    count: int
    stages: tuple[AffectedStage, ...] = ()
    removed: tuple[str, ...] = ()
    comparable: bool = True
