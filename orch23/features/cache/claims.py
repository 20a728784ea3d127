"""What the cache says of a result, and its verification (ADR 73).

The cache only claims to have a result. A lookup verifies the claim against its stage, and has no other result.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Final, TypeAlias, get_args

from msgspec import Meta, Struct, field

from orch23.decide.ownership import may_write_outputs_of
from orch23.decide.shared_results import ResultOrigin
from orch23.model.digest import FileEntry, canonical_json
from orch23.model.errors import SafetyError
from orch23.model.parsing import from_struct, parse_json, to_struct
from orch23.model.paths import match_any
from orch23.model.record import Record
from orch23.model.shared_cache import Tier
from orch23.plan.diagnostics import missing_outputs
from orch23.resolve.resolution import ResolvedStage
from orch23.store.safe_files import split_path

RECORD = "record.json"
"""The file with all of a record but its outputs."""
MAX_RECORD_BYTES = 4 << 20
"""The maximum size of that file."""

TIERS: Final[tuple[Tier, ...]] = get_args(Tier)
_TIERS: Final[Mapping[str, Tier]] = {"namespaces": "A", "bubblewrap": "A", "landlock": "B"}

_Sha256: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_BlobId: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9a-f]{40}\Z")]


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


def tier_of(sandboxes: Iterable[str]) -> Tier:
    """Return the lowest tier of the sandboxes that processes ran in, by their names; `A` if no process ran."""
    return min((_TIERS.get(name, "none") for name in sandboxes), key=TIERS.index, default="A")


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
