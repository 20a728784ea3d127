"""A result as a claim of a shared cache or another source, and what must hold for it (ADR 57, ADR 73)."""

from collections.abc import Iterator, Mapping
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from orch23.decide.ownership import may_write_outputs_of
from orch23.model.digest import FileEntry, canonical_json
from orch23.model.environment import Tier
from orch23.model.errors import SafetyError
from orch23.model.parsing import NaturalNumber, from_struct, parse_json, to_struct
from orch23.model.paths import match_any
from orch23.model.record import Record
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
