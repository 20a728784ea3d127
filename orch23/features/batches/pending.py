"""Store the batches that a vendor works on, from before they are submitted until their results are recorded."""

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from orch23.model.digest import Json
from orch23.model.event import BatchWaiting
from orch23.model.llm import CachePolicy, Message, Request
from orch23.store.json_text import TRUSTED, StoreKey
from orch23.store.project_store import ProjectStore
from orch23.store.safe_files import PRIVATE_FILE_MODE, list_folder, read_regular, try_unlink, write_atomic

MOST_NAMES = 8
"""The most stages that are named of a batch."""


class _StoredMessage(Struct, frozen=True):
    """A message without its pictures and PDFs: recordings have only their digests, which are in the content."""

    role: Literal["user", "assistant"]
    content: str


class _StoredRequest(Struct, frozen=True, kw_only=True):
    """A request with all that its recording, its price and its response depend on."""

    provider: str
    model: str
    endpoint: str
    api: str
    system: str
    system_identity: str | None
    messages: tuple[_StoredMessage, ...]
    identity: tuple[_StoredMessage, ...]
    params: Mapping[str, Json]
    returns: str
    schema: Json
    schema_identity: Json = None
    sample: int


class BatchServer(Struct, frozen=True, kw_only=True):
    """The fields of an llm step that name its server."""

    provider: str
    base_url: str | None = None
    endpoint_alias: str | None = None
    api: str | None = None


class PendingCall(Struct, frozen=True, kw_only=True):
    """A request of a stage in a batch. `hour`: it may write to the prompt cache for an hour."""

    stage: str
    transcripts: str | None
    stored: _StoredRequest
    hour: bool = False

    @property
    def request(self) -> Request:
        """The request."""
        cache = CachePolicy(ttl="1h") if self.hour else None
        fields = asdict(self.stored)
        for name in ("messages", "identity"):
            fields[name] = tuple(Message(one.role, one.content) for one in fields[name])
        return Request(**fields, pace="batch", cache=cache)


def pending_call(stage: str, transcripts: str | None, request: Request) -> PendingCall:
    """Return the call of a stage."""
    fields = {name: getattr(request, name) for name in _StoredRequest.__struct_fields__}
    for name in ("messages", "identity"):
        fields[name] = tuple(_StoredMessage(one.role, one.content) for one in fields[name])
    stored = _StoredRequest(**fields)
    return PendingCall(stage=stage, transcripts=transcripts, stored=stored, hour=request.writes_for_an_hour)


class PendingBatch(Struct, frozen=True, kw_only=True):
    """A batch with its calls by fingerprint. Without `batch_id`, it is not known whether the vendor has it.

    `created_s` is a Unix time before it was submitted.
    """

    label: str
    pipeline: str
    server: BatchServer
    model: str
    created_s: float
    calls: Mapping[str, PendingCall]
    batch_id: str = ""

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of its calls, each once."""
        return tuple(sorted({call.stage for call in self.calls.values()}))


def waiting_batch(batch: PendingBatch) -> BatchWaiting:
    """Return what is shown of a batch that has not ended."""
    return BatchWaiting(
        batch_id=batch.batch_id,
        provider=batch.server.provider,
        model=batch.model,
        requests=len(batch.calls),
        stages=batch.stages[:MOST_NAMES],
        since=datetime.fromtimestamp(batch.created_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


class PendingBatches(Struct, frozen=True):
    """The files of pending batches in a folder of the store. Damaged ones are set aside."""

    folder: Path
    store_key: StoreKey = TRUSTED

    def of_pipeline(self, pipeline: str) -> tuple[PendingBatch, ...]:
        """Return the batches of a pipeline, oldest first."""
        paths = (path for path in list_folder(self.folder) if path.suffix == ".json")
        found = [one for one in map(self._read, paths) if one is not None and one.pipeline == pipeline]
        return tuple(sorted(found, key=lambda one: (one.created_s, one.label)))

    def write(self, batch: PendingBatch) -> None:
        """Write a batch durably."""
        write_atomic(self._path(batch), self.store_key.encode(batch), mode=PRIVATE_FILE_MODE)

    def remove(self, batch: PendingBatch) -> None:
        """Remove a batch: its results are recorded, or the vendor does not have it."""
        try_unlink(self._path(batch))

    def _path(self, batch: PendingBatch) -> Path:
        return self.folder / f"{batch.label}.json"

    def _read(self, path: Path) -> PendingBatch | None:
        try:
            return self.store_key.decode(read_regular(path) or b"", PendingBatch)
        except ValueError:
            with contextlib.suppress(OSError):  # a command that only reads may not rename it
                path.rename(path.with_name(f"{path.name}.damaged"))
            return None


def waiting_batches(store: ProjectStore, pipeline: str) -> tuple[BatchWaiting, ...]:
    """Return what is shown of the batches that the last build of a pipeline waits for."""
    return tuple(map(waiting_batch, PendingBatches(store.batches, store.key).of_pipeline(pipeline)))
