"""Index what each stage depends on, and find the stages that an edit affects.

There is one table for each command line. It maps a path to the stages that read it, and a stage to the stages
downstream (see `decide.partial_plan`). So the cost of an edit depends on the stages that it affects, not on all stages.
"""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import TypeVar

import msgspec

from orch23.model.event import RunStarted
from orch23.model.paths import is_glob, may_overlap, normalize_pattern
from orch23.model.pipeline import ForeachStage, ListInput, Pipeline, Stage
from orch23.model.plan import Plan
from orch23.model.record import Record
from orch23.plan.nodes import WriterIndex, grouped, writes_of
from orch23.steps.registry import decode_step
from orch23.store.index import IndexFaultError, StoreIndex

_T = TypeVar("_T")
_HEAD, _TEXT = b"head", b"text"
_STAGE, _FAMILY, _READERS, _CHAIN, _ABOVE, _GROUP = b"stage ", b"foreach ", b"reads ", b"chain ", b"above ", b"group "
_OTHER = b"other "
_encode = msgspec.msgpack.encode
_MOST_PATTERNS = 100
_MOST_BESIDE = 100
"""If stages list the files of more others than this, on average, the table is not written: it would be too large."""


class StageRow(msgspec.Struct, frozen=True):
    """One stage: its declaration, its place in the plan, the paths that it read, and the files that it makes.

    `looked` are files by their path, and listed directories by their whole path. `beside` are stages that it does not
    wait for, and whose results decide what it sees: items of the chains in `above`, and stages that may make what it
    lists. With `makes_list` it may write the list of a foreach. `is_recorded`: the lock file has a record of it.
    """

    node: Stage
    number: int
    upstream: tuple[str, ...]
    downstream: tuple[str, ...]
    looked: tuple[str, ...]
    makes: tuple[str, ...]
    beside: tuple[str, ...] = ()
    above: Mapping[str, int] = {}
    group: str = ""
    makes_list: bool = False
    is_recorded: bool = True

    @property
    def is_selected(self) -> bool:
        """Whether the build selected it: other stages have rows only if selected ones see their results."""
        return bool(self.makes or self.looked)


class _Other(msgspec.Struct, frozen=True):
    """A node that was not selected."""

    node: Stage | ForeachStage
    upstream: tuple[str, ...]


class IndexHead(msgspec.Struct, frozen=True):
    """Facts about all stages. `token` pairs the index with a snapshot; `began` is the first event of a build.

    `ends` counts the stages by status in a build with nothing to do; of the skipped ones, `empty` are foreach stages
    with an empty list. `read` are the pipeline and the vars file, by their names below the root. `patterns` are those
    that stages write. They are None if the pipeline file has another order, or the order other reasons than files and
    `needs`: then an edit of inputs changes more than its own edges.
    """

    token: str
    pipeline: Pipeline
    began: RunStarted
    ends: dict[str, int]
    read: tuple[str, ...]
    empty: tuple[str, ...] = ()
    patterns: tuple[str, ...] | None = None


class OutdatedIndexError(Exception):
    """The index does not show which stages an edit affects: all stages have to be decided."""


class DependencyIndex:
    """The index of one command line.

    Raises:
        OutdatedIndexError: the table lacks the row or cannot be read. All methods raise it.
    """

    def __init__(self, index: StoreIndex, table: str) -> None:
        """Read the head of a table."""
        self._index, self._table = index, table
        self.head = self._value(_HEAD, IndexHead)
        # Walking through the graph reads the row of a stage once for each of its neighbours.
        stored = cache(lambda name: self._value(_STAGE + _bytes(name), StageRow))
        # The rows of edited stages and their neighbours, as they are written if the build succeeds.
        self.amended: dict[str, StageRow] = {}
        self.row: Callable[[str], StageRow] = lambda name: self.amended.get(name) or stored(name)
        self._rows = cache(self._read_rows)

    def family(self, name: str) -> ForeachStage | None:
        """Return the foreach of this name, or None."""
        data = self._get(_FAMILY + _bytes(name))
        return None if data is None else _decoded(data, ForeachStage)

    def readers(self, path: str) -> tuple[str, ...]:
        """Return the stages that read a path."""
        return self._names(_READERS, path)

    def chain(self, name: str) -> tuple[str, ...]:
        """Return the items of a chain, in order."""
        return self._names(_CHAIN, name)

    def above(self, chain: str) -> tuple[str, ...]:
        """Return the stages that see the files of a chain as they were before it."""
        return self._names(_ABOVE, chain)

    def group(self, name: str) -> tuple[str, ...]:
        """Return the members of a promotion group."""
        return self._names(_GROUP, name)

    def text(self) -> str:
        """Return the text of the pipeline."""
        return self._value(_TEXT, str)

    def graph(self) -> tuple[Mapping[str, Stage | ForeachStage], Mapping[str, tuple[str, ...]]]:
        """Return all nodes of the pipeline, also those that were not selected, and the stages upstream of each."""
        kinds: dict[bytes, type[StageRow | _Other]] = {_STAGE: StageRow, _OTHER: _Other}
        found = ((data, kind) for key, data in self._rows().items() for kind in kinds if key.startswith(kind))
        rows = [*(_decoded(data, kinds[kind]) for data, kind in found), *self.amended.values()]
        return {row.node.name: row.node for row in rows}, {row.node.name: row.upstream for row in rows}

    def stages(self) -> Mapping[str, StageRow]:
        """Return the rows of all stages that were selected, by name."""
        rows = [_decoded(data, StageRow) for key, data in self._rows().items() if key.startswith(_STAGE)]
        return {row.node.name: row for row in rows if row.is_selected}

    def changes_to(self, rows: Mapping[bytes, bytes]) -> Mapping[bytes, bytes | None]:
        """Return the rows that differ in these new rows of the table; None for those that are gone."""
        before = self._rows()
        changed: dict[bytes, bytes | None] = {key: data for key, data in rows.items() if before.get(key) != data}
        return changed | dict.fromkeys(before.keys() - rows.keys())

    def _read_rows(self) -> Mapping[bytes, bytes]:
        try:
            return dict(self._index.rows(self._table))
        except IndexFaultError as fault:
            raise OutdatedIndexError from fault

    def _names(self, kind: bytes, name: str) -> tuple[str, ...]:
        data = self._get(kind + _bytes(name))
        return () if data is None else tuple(_decoded(data, list[str]))

    def _value(self, key: bytes, kind: type[_T]) -> _T:
        data = self._get(key)
        if data is None:
            raise OutdatedIndexError
        return _decoded(data, kind)

    def _get(self, key: bytes) -> bytes | None:
        try:
            return self._index.get(self._table, key)
        except IndexFaultError as fault:
            raise OutdatedIndexError from fault


def head_of(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline without its stages, as the head of the index has it."""
    return msgspec.structs.replace(
        pipeline, stages=(), skipped=(), locations={}, transcripts=pipeline.transcript_folders
    )


def all_rows(
    head: IndexHead,
    text: str,
    plan: Plan,
    wanted: frozenset[str],
    reads: Mapping[str, Collection[str]],
    records: Mapping[str, Record],
    recorded: Collection[str],
) -> Mapping[bytes, bytes] | None:
    """Return the rows of a project with nothing to do; None if its stages cannot be decided separately.

    `wanted` are the selected stages, `reads` the paths that each of them read, `records` their results. The lock file
    has the `recorded` stages.
    """
    found = _beside(plan, wanted) if _is_closed(plan, wanted) else None
    if found is None:
        return None
    beside, chains = found
    seen = {*wanted, *(one for names in (*beside.values(), *chains.values()) for one in names)}
    rows = {_TEXT: _encode(text)}
    families = [stage for stage in plan.pipeline.stages if isinstance(stage, ForeachStage)]
    sources = [family.foreach.source for family in families if family.foreach.source is not None]
    looked: dict[str, tuple[str, ...]] = {}
    above: dict[str, Mapping[str, int]] = {}
    for number, name in enumerate(plan.order):
        node = plan.nodes[name]
        if isinstance(node, ForeachStage) or name not in seen:
            rows[_OTHER + _bytes(name)] = _encode(_Other(node, plan.upstream[name]))
            continue
        looked[name] = _looked(node, reads) if name in wanted else ()
        above[name] = dict(sorted(plan.upstream_of_chains.get(name, {}).items()))
        row = StageRow(
            node,
            number,
            plan.upstream[name],
            tuple(one for one in plan.downstream[name] if one in wanted),
            looked[name],
            _makes(node, records[name]) if name in wanted else (),
            beside.get(name, ()),
            above[name],
            plan.group_of(name) or "",
            any(may_overlap(pattern, source) for pattern in writes_of(node) for source in sources),
            name in recorded,
        )
        rows[_STAGE + _bytes(name)] = _encode(row)
    patterns = {one for node in plan.nodes.values() for one in writes_of(node) if is_glob(one)}
    others = sources or plan.chains or plan.groups or plan.upstream_of_chains or len(patterns) > _MOST_PATTERNS
    if plan.order == tuple(plan.nodes) and len(wanted) == len(plan.order) and not others:
        head = msgspec.structs.replace(head, patterns=tuple(sorted(patterns)))
    rows[_HEAD] = _encode(head)
    rows |= {_FAMILY + _bytes(family.name): _encode(family) for family in families}
    # A changed list changes the plan. The index maps it to its foreach, which has no row: so all stages are decided.
    lists = {family.name: reads.get(family.name, ()) for family in families}
    readers = _inverted(looked | lists)
    seers = _inverted({name: chains for name, chains in above.items() if name in wanted})
    groups = {name: [one for one in names if one in wanted] for name, names in plan.groups.items()}
    for kind, places in ((_READERS, readers), (_CHAIN, chains), (_ABOVE, seers), (_GROUP, groups)):
        rows.update((kind + _bytes(place), _encode(list(names))) for place, names in places.items())
    return rows


def changed_rows(
    head: IndexHead,
    text: str | None,
    rows_before: DependencyIndex,
    names: Collection[str],
    plan: Plan,
    reads: Mapping[str, Collection[str]],
    records: Mapping[str, Record],
) -> Mapping[bytes, bytes | None]:
    """Return the rows that changed after these stages were decided again. `text` is None if it is unchanged.

    Raises:
        OutdatedIndexError: the rows from before cannot be read.
    """
    rows: dict[bytes, bytes | None] = {_HEAD: _encode(head)}
    if text is not None:
        rows[_TEXT] = _encode(text)
    readers: dict[str, set[str]] = {}
    for name in names:
        before, node = rows_before.row(name), plan.nodes[name]
        if isinstance(node, ForeachStage):
            raise OutdatedIndexError
        looked = _looked(node, reads)
        for path in set(looked).symmetric_difference(before.looked):
            others = readers[path] if path in readers else set(rows_before.readers(path))
            readers[path] = others | {name} if path in looked else others - {name}
        row = msgspec.structs.replace(before, node=node, looked=looked, makes=_makes(node, records[name]))
        rows[_STAGE + _bytes(name)] = _encode(row)
    rows.update((_READERS + _bytes(path), _encode(sorted(names)) if names else None) for path, names in readers.items())
    amended = ((name, row) for name, row in rows_before.amended.items() if name not in names)
    rows.update((_STAGE + _bytes(name), _encode(row)) for name, row in amended)
    return rows


def _looked(node: Stage, reads: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Return the paths that a stage looked at, and those that it may write: it is among the readers of both."""
    written = (normalize_pattern(one) for one in writes_of(node) if not is_glob(one))
    # Sorted, since the order of a set differs from process to process.
    return tuple(sorted({*reads.get(node.name, ()), *written}))


def _inverted(names: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    return grouped((other, name) for name, others in names.items() for other in others)


def _is_closed(plan: Plan, wanted: frozenset[str]) -> bool:
    """Return whether stages include all their upstream, and chains only as a whole."""
    if any(node.name in wanted or node.foreach.sequential for node in plan.unexpanded):
        return False
    if any(not wanted.isdisjoint(items) and not wanted.issuperset(items) for items in plan.chains.values()):
        return False
    return all(wanted.issuperset(plan.upstream[name]) for name in wanted)


def _beside(
    plan: Plan, wanted: Collection[str]
) -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]] | None:
    """Return, by stage, the stages whose results it sees without waiting for them, and all chains of both.

    Literal outputs of stages outside of chains are never listed, whatever is at their paths. None if there are too many
    such stages, or one is not expanded.
    """
    found: dict[str, tuple[str, ...]] = {}
    writers = WriterIndex({name: node for name, node in plan.nodes.items() if is_open(node)})
    writers_of = cache(writers.writers_of)  # many stages list the same directory
    for name in wanted:
        node = plan.nodes[name]
        if isinstance(node, ForeachStage):
            continue
        names = {item for chain in plan.upstream_of_chains.get(name, ()) for item in plan.chains.get(chain, ())}
        listed = [one.pattern for one in (*node.inputs, *node.verify.inputs) if isinstance(one, ListInput)]
        names.update(writer for pattern in listed for writer in writers_of(pattern))
        if names := names.difference((name, *plan.upstream[name])):
            found[name] = tuple(sorted(names))
    seen = {*wanted, *(one for names in found.values() for one in names)}
    if not seen.isdisjoint(node.name for node in plan.unexpanded):
        return None
    if sum(map(len, found.values())) > _MOST_BESIDE * len(plan.order):
        return None
    return found, {chain: items for chain, items in plan.chains.items() if not seen.isdisjoint(items)}


def is_open(node: Stage | ForeachStage) -> bool:
    """Return whether only the result of a node shows which files it makes."""
    return isinstance(node, ForeachStage) or node.chain is not None or any(map(is_glob, writes_of(node)))


def _makes(node: Stage, record: Record) -> tuple[str, ...]:
    return tuple(sorted({*record.outputs, *record.deleted, *node.outputs}))


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _decoded(data: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.msgpack.decode(data, type=kind, dec_hook=decode_step)
    except (msgspec.MsgspecError, UnicodeError) as error:  # written by another version of orch23
        raise OutdatedIndexError from error
