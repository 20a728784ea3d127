"""Look up results of stages in a shared cache, verify them, and store results there (ADR 57).

A result is an entry of the cache: the outputs by digest, and a small JSON file with the rest of the record. An entry
may be forged or damaged, so all of it is checked before anything is downloaded. Whatever is wrong with the cache, or
with an entry, is a miss: the stage is built.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from orch23.cache.client import CacheClient
from orch23.cache.daemon_threads import DaemonThreads
from orch23.decide.secrets import Secrets
from orch23.engine.attempt import StageResult
from orch23.engine.facts import has_process
from orch23.engine.shared_entries import (
    KIND,
    RECORD,
    VERSION,
    FoundResult,
    InvalidResultError,
    ResultOrigin,
    entry_files,
    record_form,
)
from orch23.engine.shared_lookups import Lookup, Lookups, PendingLookupError
from orch23.engine.shared_signatures import NO_SIGNATURES, Signatures, small_blobs
from orch23.model.digest import Digest, FileEntry, digest_json
from orch23.model.environment import TIERS, EnvironmentIdentity, Tier, tier_of
from orch23.model.errors import MissingBytesError
from orch23.model.event import ORCH23_ROLE, Event, Observer, SharedCacheUsed, Warned
from orch23.model.fields import parse_decimal
from orch23.model.pipeline import Stage
from orch23.model.ports import ChunkSource, ContentStore
from orch23.model.record import Record, same_result
from orch23.model.step import ProcessStep
from orch23.model.text import join_first
from orch23.providers.prices import decimal_text
from orch23.reapi.entries import encode_result, entry_digest
from orch23.resolve.resolution import ResolvedStage
from orch23.store.turns import PAUSE

if TYPE_CHECKING:
    from orch23.engine.shared_responses import SharedResponses

_MAX_READ_BYTES = 4 << 20
"""The largest file that a plan reads from the cache for a prompt or a list."""
_MOST_WARNINGS = 3
_MOST_NAMES = 5
# A secret is found even if a chunk ends in it: the variables of an environment are shorter.
_OVERLAP_BYTES = 256 << 10

IdentityOf: TypeAlias = Callable[[ResolvedStage], EnvironmentIdentity]
"""Return the identity of the environment of a stage."""


class SharedResults:
    """The results of a build in a shared cache. Safe for calls from several threads.

    Each key is looked up once in a run. With `downloads`, the outputs of a result are in `contents` when it is found;
    without, they are only in the cache.
    """

    def __init__(  # noqa: PLR0913 - what a cache is used with, each with its own name
        self,
        client: CacheClient,
        contents: ContentStore,
        observer: Observer,
        *,
        is_on_disk: Callable[[str, FileEntry], bool],
        identity_of: IdentityOf,
        secrets: Secrets,
        clock: Callable[[], float],
        least_tier: Callable[[Stage], Tier] = lambda _: TIERS[0],
        downloads: bool = True,
        writes: bool = False,
        verifies: bool = False,
        responses: "SharedResponses | None" = None,
        signatures: Signatures = NO_SIGNATURES,
        unsigned: str = "",
    ) -> None:
        """Look up nothing yet. `is_on_disk` returns whether a path has a file. `verifies`: results are verified again.

        `responses` are counted in the report. `signatures` has the keys whose signatures count. `least_tier` returns
        the lowest tier of the sandbox whose results count for a stage with processes. `unsigned` is why results are not
        stored that should be: it is reported with the first one.
        """
        self._client, self._contents, self._observer = client, contents, observer
        self._identity_of, self._secrets, self._clock = identity_of, secrets, clock
        self._reads, self._writes, self._unsigned = True, writes, unsigned
        self.verifies, self._responses, self._signatures = verifies, responses, signatures
        self._lock = threading.Lock()
        self._lookups = Lookups(
            client,
            contents,
            is_on_disk=is_on_disk,
            signatures=signatures,
            downloads=downloads,
            warn=self._warn_of_entry,
            least_tier=lambda one: least_tier(one.stage) if has_process(one.stage) else TIERS[0],
        )
        # By key, whether the cache had the result.
        self._asked: dict[str, bool] = {}
        self._used: dict[str, FoundResult] = {}
        self._confirmed: set[str] = set()
        self._checks = DaemonThreads(1, "cache-check")
        self._shares: dict[Digest, str] = {}
        self._checking: list[Future[None]] = []
        self._refused: list[str] = []
        self._lesser: dict[str, str] = {}
        self._contested: set[str] = set()
        self._warnings = 0
        self._waited_s = 0.0
        self._awaited_since: float | None = None

    # ---- look up --------------------------------------------------------------------------

    def faults_of(self, resolved: ResolvedStage) -> tuple[str, ...]:
        """Return why the result of a stage is not shared; none if it is."""
        return self._identity_of(resolved).faults

    def may_store(self, resolved: ResolvedStage) -> bool:
        """Return whether a new result of a stage is stored in the cache."""
        return self._writes and resolved.stage.cache and not self.faults_of(resolved)

    def look_up(self, resolved: ResolvedStage) -> Lookup | None:
        """Start to look up the result of a stage; None if the cache cannot have it, or it would be made again."""
        stage = resolved.stage
        # The program of a stage of pytest, or without outputs, is its verification.
        is_check = isinstance(stage.step, ProcessStep) and (stage.step.judges or not stage.outputs)
        if not self._reads or (self.verifies and is_check):
            return None
        known = self._lookups.of(resolved.key)
        if known is not None:
            return known
        action = self._action(resolved)
        return None if action is None else self._lookups.start(resolved, action)

    def find(self, resolved: ResolvedStage, locked: Sequence[Record] = ()) -> Record | None:
        """Return the result of a stage, or None; it must be one of the `locked` results of its key, if there are any.

        Raises:
            PendingLookupError: that is not known yet.

        """
        lookup = self.look_up(resolved)
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
            self._awaited_since = self._clock()

    def go_on(self) -> None:
        """Stop counting the time."""
        if self._awaited_since is not None:
            self._waited_s += self._clock() - self._awaited_since
            self._awaited_since = None

    def has(self, record: Record) -> bool:
        """Return whether the cache has this result, as far as it was looked up."""
        found = self._found(record.key)
        return found is not None and record.key not in self._contested and same_result(found.record, record)

    def has_bytes(self, digest: Digest) -> bool:
        """Return whether the cache has bytes that were not downloaded."""
        return self._lookups.is_remote(digest)

    def read(self, digest: Digest) -> bytes | None:
        """Return bytes that were not downloaded, without storing them; None if there are none, or too many."""
        if not self._lookups.is_remote(digest):
            return None
        with PAUSE:
            return self._client.get(digest, _MAX_READ_BYTES)

    def confirm(self, record: Record) -> None:
        """Count a result that the cache has, and whose files are on disk already."""
        self._confirmed.add(record.key)

    def use(self, record: Record) -> None:
        """Count a result that is used."""
        found = self._found(record.key)
        if found is not None:
            self._used[record.key] = found

    def _found(self, key: str) -> FoundResult | None:
        lookup = self._lookups.of(key)
        return None if lookup is None else lookup.result

    def _action(self, resolved: ResolvedStage) -> str | None:
        """Return the key of the entry of a stage; None if its result is not shared."""
        identity = self._identity_of(resolved)
        return digest_json({"environment": identity.digest(), "stage": resolved.key}) if not identity.faults else None

    def _warn_of_entry(self, stage: str, code: str, why: str) -> None:
        with self._lock:
            self._warnings += 1
            is_shown = self._warnings <= _MOST_WARNINGS
        if is_shown:
            text = f"[{code}] a result in the shared cache is ignored, and the stage is built: {why}"
            self._warn(text, stage, code)

    def _warn(self, text: str, role: str, code: str) -> None:
        self._observer.notice(Event(Warned(code=code), text, role, "warning"))

    # ---- store ----------------------------------------------------------------------------

    def share(self, resolved: ResolvedStage, record: Record, done: StageResult, took_s: float) -> None:
        """Store a result that passed in the cache, in the background; not if it has user edits or secrets.

        `took_s` is how long its stage took, in seconds.
        """
        if self.has(record):
            if done.verified:
                self.use(record)
            return
        if not (self._writes or self._unsigned) or record.failed or record.accepted or not resolved.stage.cache:
            return
        action = self._action(resolved)
        if action is not None and self._unsigned:
            self._warn(f"[W732] {self._unsigned}", ORCH23_ROLE, "W732")
            self._unsigned = ""
        if action is None or not self._writes:
            return
        usage = done.usage
        cost = usage.cost + usage.saved
        about = ResultOrigin(
            seconds=round(took_s, 3),
            calls=usage.calls + usage.recorded,
            tokens=usage.input_tokens + usage.output_tokens,
            cost="" if usage.unpriced else format(cost, "f"),
        )
        share = partial(self._share, record, action, about, tier_of(done.sandboxes))
        self._checking.append(self._checks.submit(share))

    def _share(self, record: Record, action: str, about: ResultOrigin, tier: Tier) -> None:
        digest = entry_digest(KIND, VERSION, action)
        try:
            text, files = entry_files(record, about, tier)
            named = self._secrets_in(text, record.outputs)
            files = self._signatures.signed(KIND, digest, files)
            entry = encode_result(files)
        # A name that is not Unicode, too many files, or bytes that are gone: the result is only used here.
        except (ValueError, MissingBytesError):
            return
        if named:
            self._refused.append(record.stage)
            why = f"[W699] not stored in the shared cache, since it has a secret: {join_first(named, _MOST_NAMES)}"
            self._warn(why, record.stage, "W699")
            return
        blobs: dict[Digest, ChunkSource] = {
            **{one.digest: partial(self._contents.get_chunks, one.digest) for one in record.outputs.values()},
            **small_blobs(KIND, VERSION, action, files),
        }
        self._shares[digest] = record.stage
        if self._found(record.key) is not None:
            self._client.reject(digest)  # its result did not pass here
        elif self._signatures.pair is not None or (lookup := self._lookups.of(record.key)) is None or lookup.refused:
            self._reject_lesser(digest, tier)
        self._client.upload(digest, entry, blobs)

    def _reject_lesser(self, action: Digest, tier: Tier) -> None:
        """Let an upload replace an entry that does not count, or that has a lower tier; it may have come first.

        The build may not have looked it up, or someone may have stored it since.
        """
        data = self._client.entry(action)
        if data is None:
            return
        with contextlib.suppress(InvalidResultError, MissingBytesError):
            text, _ = self._lookups.signed(action, data)
            if TIERS.index(record_form(text).tier) >= TIERS.index(tier):
                return
        self._client.reject(action)

    def _secrets_in(self, text: bytes, outputs: Mapping[str, FileEntry]) -> tuple[str, ...]:
        """Return where a result has a secret, each with the name of its variable."""
        files = ((path, self._contents.get_chunks(entry.digest)) for path, entry in outputs.items())
        sources = chain([(RECORD, (text,))], files)
        found = (f"{path} ({name})" for path, chunks in sources for name in self._secrets_of(chunks))
        return tuple(dict.fromkeys(found))

    def _secrets_of(self, chunks: Iterable[bytes]) -> Iterator[str]:
        rest = b""
        for chunk in chunks:
            part = (rest + chunk).decode("utf-8", "replace")
            if self._secrets.may_contain((part,)):
                yield from (finding.name for finding in self._secrets.find(part))
            rest = (rest + chunk)[-_OVERLAP_BYTES:]

    def flush(self, deadline_s: float) -> Sequence[str]:
        """Wait for the uploads, for some seconds at most. Return the stages whose results are not stored."""
        began_s = self._clock()
        for check in wait(self._checking, deadline_s).done:
            check.result()
        unsent = self._client.flush(max(0.0, began_s + deadline_s - self._clock()))
        unchecked = sum(not check.done() for check in self._checking)
        self._waited_s += self._clock() - began_s
        names = sorted(self._shares[action] for action in unsent if action in self._shares)
        return (*names, *([f"{unchecked} more"] if unchecked else []))

    def warn_of_tiers(self) -> str:
        """Report the results that were not used since the sandbox isolated their steps too little; return a clause."""
        if not self._lesser:
            return ""
        names = join_first([f"{name} ({tier})" for name, tier in self._lesser.items()], _MOST_NAMES)
        text = "[W684] results of the shared cache are not used, since their steps ran in a lower tier of the sandbox"
        text += f": {names}; `cache: {{tier: none}}` of the pipeline accepts all"
        self._observer.notice(Event(Warned(code="W684"), text, level="warning"))
        return f", {len(self._lesser)} of a lower tier: {names}"

    @property
    def refusal(self) -> str | None:
        """Why a result was not stored, though the cache works, as far as it is known; None if it was switched off."""
        return None if self._client.fault else self._client.refusal

    def report(self, unsent: Sequence[str] = ()) -> SharedCacheUsed | None:
        """Return the event about what was done; None if that is nothing. `flush` returned the `unsent` stages."""
        known, used = self._client, [*self._used.values()]
        costs = (parse_decimal(found.about.cost) for found in used if found.about.cost)
        missing = sum(not is_there for is_there in self._asked.values())
        responses = 0 if self._responses is None else self._responses.used
        if not (used or self._confirmed or missing or self._shares or responses or unsent):
            return None
        return SharedCacheUsed(
            restored=len(used),
            confirmed=len(self._confirmed),
            missing=missing,
            stored=len(self._shares) - len(unsent),
            not_stored=len(unsent),
            refused=len(self._refused),
            responses=responses,
            down_bytes=known.down_bytes,
            up_bytes=known.up_bytes,
            waited_s=round(self._waited_s, 3),
            saved_s=round(sum(found.about.seconds for found in used), 3),
            saved=decimal_text(sum((cost for cost in costs if cost is not None), Decimal(0))),
        )

    def close(self) -> None:
        """Wait for nothing, and release all resources. Lookups find nothing from now on."""
        self._reads = self._writes = False
        self._client.close()
        self._lookups.close()
        self._checks.stop()
