"""A source of results from elsewhere, such as a shared cache: the port of a build to it (ADR 73).

A source only claims to have a result. A lookup verifies the claim against its stage, and has no other result.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Protocol, TypeAlias

from msgspec import Meta, Struct, field

from orch23.decide.ownership import may_write_outputs_of
from orch23.model.digest import Digest, FileEntry, canonical_json
from orch23.model.errors import SafetyError
from orch23.model.parsing import NaturalNumber, from_struct, parse_json, to_struct
from orch23.model.paths import match_any
from orch23.model.record import Record
from orch23.model.shared_cache import EnvironmentIdentity, Tier
from orch23.plan.diagnostics import missing_outputs
from orch23.resolve.resolution import ResolvedStage
from orch23.store.safe_files import split_path

RECORD = "record.json"
"""The file with all of a record but its outputs."""
MAX_RECORD_BYTES = 4 << 20
"""The maximum size of that file."""

_Sha256: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_BlobId: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9a-f]{40}\Z")]


class ResultOrigin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a result took when it was made: seconds, model calls, tokens, and US dollars (empty if not known)."""

    seconds: float = 0.0
    calls: NaturalNumber = 0
    tokens: NaturalNumber = 0
    cost: str = ""


class RecordForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file `record.json`: a record without its outputs, and without what each checkout adds to it."""

    stage: str
    key: _Sha256
    deleted: tuple[str, ...] = ()
    exchanges: tuple[_Sha256, ...] = ()
    git: dict[_Sha256, _BlobId] = {}
    about: ResultOrigin = ResultOrigin()
    # Without it, as in entries of earlier versions, the steps may have run anywhere.
    tier: Tier = "none"


class Claim(Struct, frozen=True):
    """What a source says of a result: the bytes of `record.json`, and its outputs by path. Nothing of it is trusted."""

    text: bytes
    outputs: Mapping[str, FileEntry]


class FoundResult(Struct, frozen=True):
    """A result of a source whose claim is valid. `tier` is the tier of the sandbox in which its steps ran."""

    record: Record
    about: ResultOrigin
    tier: Tier = "none"


class InvalidResultError(ValueError):
    """An entry that is damaged, forged, or not a result of the stage. `code` is the code of the warning about it."""

    def __init__(self, message: str, *, code: str = "W698") -> None:
        """Store what is wrong."""
        super().__init__(message)
        self.code = code


def claim_of(record: Record, about: ResultOrigin, tier: Tier) -> Claim:
    """Return a record as a claim.

    Raises:
        ValueError: a name is not valid Unicode.
    """
    form = RecordForm(
        stage=record.stage,
        key=record.key,
        deleted=record.deleted,
        exchanges=record.exchanges,
        git=dict(record.git),
        about=about,
        tier=tier,
    )
    return Claim(canonical_json(from_struct(form)), record.outputs)


def found_result(resolved: ResolvedStage, claim: Claim) -> FoundResult:
    """Return the result that a source claims for a stage.

    Raises:
        InvalidResultError: it is damaged or forged.
    """
    form = record_form(claim.text)
    record = Record(
        stage=resolved.stage.name,
        key=form.key,
        manifest=resolved.manifest,
        outputs=claim.outputs,
        deleted=form.deleted,
        exchanges=form.exchanges,
        git=form.git,
        texts=resolved.texts,
    )
    for problem in _problems(resolved, record):
        raise InvalidResultError(problem)
    return FoundResult(record, form.about, form.tier)


def record_form(text: bytes) -> RecordForm:
    """Return what the `record.json` of an entry says.

    Raises:
        InvalidResultError: it is damaged or forged.
    """
    try:
        return to_struct(parse_json(text.decode("utf-8"), max_bytes=MAX_RECORD_BYTES), RecordForm)
    except ValueError as error:
        message = f"its record {error}"
        raise InvalidResultError(message) from None


def _problems(resolved: ResolvedStage, record: Record) -> Iterator[str]:
    stage, sizes = resolved.stage, [entry.digest.size_bytes for entry in record.outputs.values()]
    if record.key != resolved.key:
        yield "it is the result of another stage"
    if len(sizes) > stage.limits.files or sum(sizes) > stage.limits.disk:
        yield f"{len(sizes)} files with {sum(sizes)} bytes are more than the limits of the stage"
    for path in (*record.outputs, *record.deleted):
        try:
            split_path(path)
        except SafetyError:
            yield f"{path[:200]!r} is not the path of an output"
    if not may_write_outputs_of(stage, record):
        yield "it has files that the stage may not write"
    deleted = frozenset(record.deleted)
    if not all(path in resolved.base and match_any(stage.fence.delete, path) for path in deleted):
        yield "it deletes files that the stage may not delete"
    if not deleted.isdisjoint(record.outputs):
        yield "it deletes its outputs"
    if any(above in record.outputs for path in record.outputs for above in _folders(path)):
        yield "a file of it is a folder, too"
    for missing in missing_outputs(stage, record.outputs):
        yield missing.message


def _folders(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


class Lookup(Struct, eq=False):
    """The lookup of one key. Any thread may call it.

    `verify` is `found_result` for the stage. `warn` takes why an entry is ignored. `expected` is a verified result
    whose files may still turn out to be lost, `result` has all of its files. `refused` is one whose steps were isolated
    too little.
    """

    verify: Callable[[Claim], FoundResult]
    is_isolated: Callable[[FoundResult], bool] = lambda _: True
    warn: Callable[[str, str], None] = lambda _code, _why: None
    expected: FoundResult | None = None
    result: FoundResult | None = None
    refused: FoundResult | None = None
    error: BaseException | None = None
    is_finished: bool = False
    _verified: FoundResult | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _watchers: list[Callable[[], None]] = field(default_factory=list)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call a function with each change, from any thread; at once if there was a change already."""
        with self._lock:
            has_changed = self.is_finished or self.expected is not None
            if not self.is_finished:
                self._watchers.append(changed)
        if has_changed:
            changed()

    def claim(self, claim: Claim) -> FoundResult | None:
        """Verify what a source says; None if its steps were isolated too little.

        Raises:
            InvalidResultError: the stage could not have made this.
        """
        found = self.verify(claim)
        if not self.is_isolated(found):
            self.refused = found
            return None
        self._verified = found
        return found

    def expect(self) -> None:
        """Let others look further ahead: the claim is verified, and its files are not here yet."""
        with self._lock:
            self.expected = self._verified
            watchers = [*self._watchers]
        for changed in watchers:
            changed()

    def finish(self, *, is_complete: bool = False, error: BaseException | None = None) -> None:
        """Set whether all files of the claim are there, or what went wrong in orch23. Only the first call counts."""
        with self._lock:
            if self.is_finished:
                return
            self.result = self._verified if is_complete else None
            self.error, self.is_finished = error, True
            watchers, self._watchers = self._watchers, []
        for changed in watchers:
            changed()


class PendingLookupError(Exception):
    """A decision needs the result of a lookup that has not finished. It is made again later."""

    def __init__(self, lookup: Lookup) -> None:
        """Store the lookup."""
        super().__init__("BUG: no one waits for a lookup")
        self.lookup = lookup


class ResultSource(Protocol):
    """Results of stages elsewhere. Safe for calls from several threads. No error of it stops a build.

    Keys are those of entries: of a stage together with its environment.
    """

    @property
    def refusal(self) -> str | None:
        """Why a result was not stored, though the source works, as far as known; None if it was switched off."""

    def identity(self, resolved: ResolvedStage) -> EnvironmentIdentity:
        """Return what a result of a stage depends on beside its key, with the reasons why it is not shared."""

    def begin(self, key: str, resolved: ResolvedStage, lookup: Lookup) -> None:
        """Start to look up a result in the background: claim it, obtain its files, and finish the lookup."""

    def has_bytes(self, digest: Digest) -> bool:
        """Return whether the source has bytes that were not downloaded: a plan downloads none."""

    def read(self, digest: Digest) -> bytes | None:
        """Return bytes that were not downloaded, without storing them; None if there are none, or too many."""

    def offer(self, key: str, claim: Claim, tier: Tier, stage: str, known: Lookup | None) -> bool:
        """Store a result in the background; return False if it cannot be an entry.

        It was searched for secrets. `known` is the lookup of its key, if there was one.
        """

    def flush(self, deadline_s: float) -> Sequence[str]:
        """Wait for what is being stored, for some seconds at most; return the stages whose results are not."""

    def traffic(self) -> tuple[int, int]:
        """Return how many bytes came from it and went to it so far."""

    def close(self) -> None:
        """Wait for nothing, and release all resources."""


class ResponseSource(Protocol):
    """Recorded responses of models elsewhere, by the fingerprint of the request. No error of it stops a build."""

    @property
    def is_signing(self) -> bool:
        """Whether new responses are signed, and may replace one that does not count."""

    def find(self, fingerprint: str) -> bytes | None:
        """Return the exchange of a request as it was offered, not verified; None if there is none."""

    def reject(self, fingerprint: str) -> None:
        """Let the next offer replace what cannot be used."""

    def offer(self, fingerprint: str, text: bytes) -> None:
        """Store an exchange in the background. It was searched for secrets."""
