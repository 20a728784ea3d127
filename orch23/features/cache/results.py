"""Use results of stages from a shared cache, and store those of this build: the port `SharedResults` (ADR 73).

A source looks them up, and what it claims is verified here. Whatever is wrong with it, or with a claim, is a miss: the
stage is built.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from decimal import Decimal
from functools import partial
from itertools import chain

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.decide.decisions import StageDecider
from orch23.decide.machine_facts import has_process
from orch23.decide.shared_results import ResultOrigin
from orch23.features.cache.claims import (
    RECORD,
    TIERS,
    Claim,
    FoundResult,
    Lookup,
    PendingLookupError,
    claim_of,
    found_result,
    tier_of,
)
from orch23.features.cache.daemon_threads import DaemonThreads
from orch23.features.cache.source import CacheResponses, CacheSource
from orch23.model.digest import Digest, digest_json
from orch23.model.errors import MissingBytesError
from orch23.model.event import ORCH23_ROLE, Event, Observer, SharedCacheUsed, Warned
from orch23.model.fields import parse_decimal
from orch23.model.pipeline import Stage
from orch23.model.ports import ContentStore
from orch23.model.record import Record, same_result
from orch23.model.shared_cache import Tier
from orch23.model.step import ProcessStep
from orch23.model.text import decimal_text, join_first
from orch23.report.shared_cache import shared_cache_text
from orch23.resolve.resolution import ResolvedStage
from orch23.text.secrets import Secrets

_FLUSH_S = 300.0
"""How long a build waits for its uploads. A cache that does not respond is switched off much earlier."""
_MOST_WARNINGS = 3
_MOST_NAMES = 5
# A secret is found even if a chunk ends in it: the variables of an environment are shorter.
_OVERLAP_BYTES = 256 << 10


def _as_declared(resolved: ResolvedStage) -> ResolvedStage:
    """Return a stage by whose key all of its inputs count: another machine may know other files by a depfile."""
    if resolved.stage.depfile is None:
        return resolved
    from orch23.resolve.discovered import with_tracked  # noqa: PLC0415 - only for such stages

    return with_tracked(resolved)


class CacheResults(Struct, kw_only=True):
    """The results of a build in a shared cache. Safe for calls from several threads. Each key is looked up once.

    `least_tier` returns the lowest tier of the sandbox whose results count for a stage with processes. `verifies`:
    results are verified again. `responses` are counted in the report. `unsigned` is why results are not stored that
    should be: it is reported with the first one.
    """

    source: CacheSource
    contents: ContentStore
    observer: Observer
    secrets: Secrets
    clock: Callable[[], float]
    least_tier: Callable[[Stage], Tier] = lambda _: TIERS[0]
    writes: bool = False
    verifies: bool = False
    responses: CacheResponses | None = None
    unsigned: str = ""
    _reads: bool = True
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _lookups: dict[str, Lookup] = field(default_factory=dict)
    # By key, whether the cache had the result.
    _asked: dict[str, bool] = field(default_factory=dict)
    _used: dict[str, FoundResult] = field(default_factory=dict)
    _confirmed: set[str] = field(default_factory=set)
    _checks: DaemonThreads = field(default_factory=lambda: DaemonThreads(1, "cache-check"))
    _offered: set[str] = field(default_factory=set)
    _checking: list[Future[None]] = field(default_factory=list)
    _refused: list[str] = field(default_factory=list)
    _lesser: dict[str, str] = field(default_factory=dict)
    _contested: set[str] = field(default_factory=set)
    _warnings: int = 0
    _waited_s: float = 0.0
    _awaited_since: float | None = None

    # ---- look up --------------------------------------------------------------------------

    def faults_of(self, resolved: ResolvedStage) -> tuple[str, ...]:
        """Return why the result of a stage is not shared; none if it is."""
        return self.source.identity(resolved).faults

    def may_store(self, resolved: ResolvedStage) -> bool:
        """Return whether a new result of a stage is stored in the cache."""
        return self.writes and resolved.stage.cache and not self.faults_of(resolved)

    def look_up(self, resolved: ResolvedStage) -> Lookup | None:
        """Start to look up the result of a stage; None if the cache cannot have it, or it would be made again."""
        resolved, stage = _as_declared(resolved), resolved.stage
        # The program of a stage of pytest, or without outputs, is its verification.
        is_check = isinstance(stage.step, ProcessStep) and (stage.step.judges or not stage.outputs)
        if not self._reads or (self.verifies and is_check):
            return None
        known = self._lookups.get(resolved.key)
        if known is not None:
            return known
        key = self._entry_key(resolved)
        return None if key is None else self._begin(resolved, key)

    def look_ahead(
        self, decider: StageDecider, name: str, expected: Mapping[str, Record]
    ) -> tuple[Lookup | None, Record | None]:
        """Start to look up the result of a stage that will be decided soon. Does not wait for it.

        Upstream stages without a result count as if they had the `expected` one. Return the lookup, None if there is
        none, and the result that the stage will have if the local store or the lock file is right.
        """
        state = decider.state.expecting(name, expected) if expected else decider.state
        resolved = replace(decider, state=state).resolve_on(name)
        if not decider.may_share(resolved):
            return None, None
        records = (*state.store.records.by_key(resolved.key), *state.locked.of_key(resolved.key))
        known = next((record for record in records if not record.failed), None)
        return None if decider.has_result(resolved) else self.look_up(resolved), known

    def _begin(self, resolved: ResolvedStage, key: str) -> Lookup:
        stage = resolved.stage
        with self._lock:
            if (known := self._lookups.get(resolved.key)) is not None:
                return known
            lookup = self._lookups[resolved.key] = Lookup(
                partial(found_result, resolved),
                partial(self._is_isolated, stage),
                partial(self._warn_of_entry, stage.name),
            )
            if self._reads:
                self.source.begin(key, resolved, lookup)
            else:
                lookup.finish()
            return lookup

    def _is_isolated(self, stage: Stage, found: FoundResult) -> bool:
        """Return whether the steps of a result were isolated as much as those of this stage are here."""
        if found.tier == TIERS[-1]:
            return True
        least = self.least_tier(stage) if has_process(stage) else TIERS[0]
        return TIERS.index(found.tier) >= TIERS.index(least)

    def find(self, resolved: ResolvedStage, locked: Sequence[Record] = ()) -> Record | None:
        """Return the result of a stage, or None; it must be one of the `locked` results of its key, if there are any.

        Raises:
            PendingLookupError: that is not known yet.
        """
        lookup, resolved = self.look_up(resolved), _as_declared(resolved)
        if lookup is None:
            return None
        if not lookup.is_finished:
            raise PendingLookupError(lookup)
        if lookup.error is not None:
            raise lookup.error
        found = lookup.result
        if lookup.refused is not None:
            self._lesser[resolved.stage.name] = lookup.refused.tier
        elif found is not None and locked and not any(same_result(found.record, one) for one in locked):
            if resolved.key not in self._contested:
                self._contested.add(resolved.key)
                self._warn_of_entry(resolved.stage.name, "W685", "the lock file names another result of the same key")
            found = None
        self._asked[resolved.key] = found is not None
        # It was checked for the same key. All else is as it is now.
        return None if found is None else replace(found.record, manifest=resolved.manifest, texts=resolved.texts)

    def await_lookups(self) -> None:
        """Count the time from now on as waiting for the cache."""
        if self._awaited_since is None:
            self._awaited_since = self.clock()

    def go_on(self) -> None:
        """Stop counting the time."""
        if self._awaited_since is not None:
            self._waited_s += self.clock() - self._awaited_since
            self._awaited_since = None

    def has(self, record: Record) -> bool:
        """Return whether the cache has this result, as far as it was looked up."""
        found = self._found(record.key)
        return found is not None and record.key not in self._contested and same_result(found.record, record)

    def has_bytes(self, digest: Digest) -> bool:
        """Return whether the cache has bytes that were not downloaded."""
        return self.source.has_bytes(digest)

    def read(self, digest: Digest) -> bytes | None:
        """Return bytes that were not downloaded, without storing them; None if there are none, or too many."""
        return self.source.read(digest)

    def confirm(self, record: Record) -> None:
        """Count a result that the cache has, and whose files are on disk already."""
        self._confirmed.add(record.key)

    def use(self, record: Record) -> None:
        """Count a result that is used."""
        found = self._found(record.key)
        if found is not None:
            self._used[record.key] = found

    def _found(self, key: str) -> FoundResult | None:
        lookup = self._lookups.get(key)
        return None if lookup is None else lookup.result

    def _entry_key(self, resolved: ResolvedStage) -> str | None:
        identity = self.source.identity(resolved)
        return digest_json({"environment": identity.digest(), "stage": resolved.key}) if not identity.faults else None

    def _warn_of_entry(self, stage: str, code: str, why: str) -> None:
        with self._counting:
            self._warnings += 1
            is_shown = self._warnings <= _MOST_WARNINGS
        if is_shown:
            text = f"[{code}] a result in the shared cache is ignored, and the stage is built: {why}"
            self._warn(text, stage, code)

    def _warn(self, text: str, role: str, code: str) -> None:
        self.observer.notice(Event(Warned(code=code), text, role, "warning"))

    # ---- store ----------------------------------------------------------------------------

    def share(
        self,
        resolved: ResolvedStage,
        record: Record,
        about: ResultOrigin,
        sandboxes: Collection[str],
        *,
        is_verified: bool,
    ) -> None:
        """See the port."""
        resolved, is_tracked = _as_declared(resolved), resolved.stage.depfile is not None
        record = replace(record, key=resolved.key, manifest=resolved.manifest) if is_tracked else record
        if self.has(record):
            if is_verified:
                self.use(record)
            return
        if not (self.writes or self.unsigned) or record.failed or record.accepted or not resolved.stage.cache:
            return
        key = self._entry_key(resolved)
        if key is not None and self.unsigned:
            self._warn(f"[W732] {self.unsigned}", ORCH23_ROLE, "W732")
            self.unsigned = ""
        if key is None or not self.writes:
            return
        self._checking.append(self._checks.submit(partial(self._offer, record, key, about, tier_of(sandboxes))))

    def _offer(self, record: Record, key: str, about: ResultOrigin, tier: Tier) -> None:
        try:
            claim = claim_of(record, about, tier)
            named = self._secrets_in(claim)
        # A name that is not Unicode, or bytes that are gone: the result is only used here.
        except (ValueError, MissingBytesError):
            return
        if named:
            self._refused.append(record.stage)
            why = f"[W699] not stored in the shared cache, since it has a secret: {join_first(named, _MOST_NAMES)}"
            self._warn(why, record.stage, "W699")
            return
        known = self._lookups.get(record.key)
        if self.source.offer(key, claim, tier, record.stage, known):
            self._offered.add(key)

    def _secrets_in(self, claim: Claim) -> tuple[str, ...]:
        """Return where a result has a secret, each with the name of its variable."""
        files = ((path, self.contents.get_chunks(entry.digest)) for path, entry in claim.outputs.items())
        sources = chain([(RECORD, (claim.text,))], files)
        found = (f"{path} ({name})" for path, chunks in sources for name in self._secrets_of(chunks))
        return tuple(dict.fromkeys(found))

    def _secrets_of(self, chunks: Iterable[bytes]) -> Iterator[str]:
        rest = b""
        for chunk in chunks:
            part = (rest + chunk).decode("utf-8", "replace")
            if self.secrets.may_contain((part,)):
                yield from (finding.name for finding in self.secrets.find(part))
            rest = (rest + chunk)[-_OVERLAP_BYTES:]

    def _flush(self, deadline_s: float) -> Sequence[str]:
        """Wait for the uploads, for some seconds at most. Return the stages whose results are not stored."""
        began_s = self.clock()
        for check in wait(self._checking, deadline_s).done:
            check.result()
        unsent = self.source.flush(max(0.0, began_s + deadline_s - self.clock()))
        unchecked = sum(not check.done() for check in self._checking)
        self._waited_s += self.clock() - began_s
        return (*unsent, *([f"{unchecked} more"] if unchecked else []))

    def finish(self) -> None:
        """See the port."""
        lesser = self.warn_of_tiers()
        unsent = self._flush(_FLUSH_S)
        names = join_first(unsent, _MOST_NAMES)
        # A cache that was switched off has been reported, with the reason.
        if unsent and (refusal := self.source.refusal) is not None:
            why = f" ({refusal})" if refusal else ""
            text = f"results are not stored in the shared cache, and stay on this machine: {names}{why}"
            self.observer.notice(Event(Warned(), text, level="warning"))
        used = self._report(unsent)
        if used is not None:
            self.observer.notice(Event(used, f"shared cache: {shared_cache_text(used, names)}{lesser}"))

    def warn_of_tiers(self) -> str:
        """Report the results that were not used since the sandbox isolated their steps too little; return a clause."""
        if not self._lesser:
            return ""
        names = join_first([f"{name} ({tier})" for name, tier in self._lesser.items()], _MOST_NAMES)
        text = "[W684] results of the shared cache are not used, since their steps ran in a lower tier of the sandbox"
        text += f": {names}; `cache: {{tier: none}}` of the pipeline accepts all"
        self.observer.notice(Event(Warned(code="W684"), text, level="warning"))
        return f", {len(self._lesser)} of a lower tier: {names}"

    def _report(self, unsent: Sequence[str]) -> SharedCacheUsed | None:
        """Return the event about what was done; None if that is nothing. `_flush` returned the `unsent` stages."""
        client, used = self.source.client, [*self._used.values()]
        costs = (parse_decimal(found.about.cost) for found in used if found.about.cost)
        missing = sum(not is_there for is_there in self._asked.values())
        responses = 0 if self.responses is None else self.responses.used
        if not (used or self._confirmed or missing or self._offered or responses or unsent):
            return None
        return SharedCacheUsed(
            restored=len(used),
            confirmed=len(self._confirmed),
            missing=missing,
            stored=len(self._offered) - len(unsent),
            not_stored=len(unsent),
            refused=len(self._refused),
            responses=responses,
            down_bytes=client.down_bytes,
            up_bytes=client.up_bytes,
            waited_s=round(self._waited_s, 3),
            saved_s=round(sum(found.about.seconds for found in used), 3),
            saved=decimal_text(sum((cost for cost in costs if cost is not None), Decimal(0))),
        )

    def close(self) -> None:
        """Wait for nothing, and release all resources. Lookups find nothing from now on."""
        with self._lock:
            self._reads = self.writes = False
            known = [*self._lookups.values()]
        self.source.close()
        for lookup in known:
            lookup.finish()
        self._checks.stop()
