"""What a worker replies: an outcome, blobs that it lacks, or why it could not run the action."""

import msgspec
from msgspec import Struct

from orch23.model.digest import Digest

MAX_INLINE_BYTES = 1 << 16
"""An outcome with more bytes is sent as a blob: engines keep replies in memory."""


class Reply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reply of a worker: exactly one of the first four fields is set.

    `outcome` has the bytes of an ActionOutcome, `blob` the digest of such bytes in the cache. `missing` are blobs that
    the cache does not have. `fault` is why the worker could not fetch, run or store anything. `worker` is its name, and
    `version` that of its orch23. `place` is what its engine knows it by, if it can send an action to other workers.
    """

    outcome: bytes | None = None
    blob: Digest | None = None
    missing: tuple[Digest, ...] = ()
    fault: str = ""
    worker: str = ""
    version: str = ""
    place: str = ""

    def to_bytes(self) -> bytes:
        """Return the reply as JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Reply":
        """Return the reply that `to_bytes` was called on.

        Raises:
            ValueError: these are not the bytes of a reply.
        """
        return msgspec.json.decode(data, type=cls, strict=True)
