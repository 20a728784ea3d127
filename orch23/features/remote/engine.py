"""The port to an engine that runs functions on other machines, its faults, and how often an action is submitted."""

from collections.abc import Mapping
from concurrent.futures import CancelledError
from typing import NoReturn, Protocol

import msgspec
from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault, ConfigurationError
from orch23.model.text import LineListener


class EngineFault(Exception):  # noqa: N818 - not an error of a build: the action is submitted again
    """The engine could not run an action, for a reason that the action did not cause."""

    def __init__(self, reason: str) -> None:
        """Store what happened, in one line without secrets."""
        super().__init__(reason)
        self.reason = reason


class WorkerLost(EngineFault):
    """The worker that ran the action ended: it was killed, or its machine is gone."""


class UnreachableEngineError(EngineFault):
    """The engine could not be reached at all: nothing is tried again."""


def refuse_scheduler(message: str, hint: str) -> NoReturn:
    """Raise the ConfigurationError that a scheduler or a server is not named, or cannot or must not be used."""
    raise ConfigurationError(Diagnostic("E488", message, hint=hint))


class Work(Struct, frozen=True):
    """What an engine sends to a worker: the URL of the cache, and the digest of the action's bytes.

    `resources` are what it takes of the resources that workers declare, by name: sizes in bytes. Only a worker that
    has them gets it. `avoided` are the places of workers that get it only if there are no others.
    """

    cache_url: str
    action: Digest
    resources: Mapping[str, float] = field(default_factory=dict)
    avoided: frozenset[str] = frozenset()


class Submission(Protocol):
    """An action that was submitted. A `concurrent.futures.Future` is one."""

    def result(self, timeout: float) -> bytes:
        """Wait some seconds for the reply of the worker, and return it.

        Raises:
            TimeoutError: there is none yet.
            EngineFault: there will be none.
            concurrent.futures.CancelledError: it was cancelled.
        """


class Engine(Protocol):
    """Runs `worker.RemoteWorker.run` on other machines. Safe for calls from several threads.

    A worker gets the URL of the cache and the digest of the action's bytes, as `digest_text` writes it, and perhaps
    where its lines are sent.
    """

    def connect(self) -> None:
        """Check that the engine can be reached, before files are uploaded for its first action.

        It does nothing once that was so, or if `submit` checks it.

        Raises:
            UnreachableEngineError: it cannot be reached, or runs no actions.
        """

    def submit(self, work: Work, hear: LineListener | None) -> Submission:
        """Submit an action. `hear` may get lines that it prints while it runs, from any thread; it never waits.

        The outcome has all of them, so an engine may leave lines out, but reports none twice.

        Raises:
            EngineFault: the engine cannot be reached.
        """

    def cancel(self, submission: Submission) -> None:
        """Stop an action; the worker kills its processes. Never raises."""

    def release(self, submission: Submission) -> None:
        """Forget an action whose result was fetched, or is of no use. Never raises.

        If a build is killed before this or `cancel`, an engine may let the next one find the action.
        """

    def slots(self) -> int:
        """Return how many actions the workers can run at once now: 0 without workers.

        Raises:
            EngineFault: the engine cannot be reached.
        """

    def lacking(self, resources: Mapping[str, float]) -> str:
        """Return which of some resources no worker has now, as a text; empty if a worker has all, or no one knows.

        Raises:
            EngineFault: the engine cannot be reached.
        """

    def known(self, submission: Submission) -> str:
        """Return why an action may print nothing now, as a text for the user; empty if no reason is known."""

    def close(self) -> None:
        """Release all resources; the workers cancel what they run for this engine."""


def amount_text(amount: float) -> str:
    """Return an amount, without a fraction if it is whole."""
    return str(int(amount)) if amount == int(amount) else repr(amount)


def digest_text(digest: Digest) -> str:
    """Return a digest as one string: `SHA256/SIZE`, as in REAPI."""
    return f"{digest.sha256}/{digest.size_bytes}"


def parse_digest(text: str) -> Digest:
    """Return the digest that `digest_text` was called with.

    Raises:
        ValueError: the text is not one.
    """
    sha256, _, size = text.partition("/")
    return Digest(sha256, int(size))


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


class RemoteLimits(Struct, frozen=True, kw_only=True):
    """How often an action is submitted again after a fault of each kind, and the waits, in seconds.

    `lost` counts workers that ended, `missing` inputs or outputs that the cache has lost, `faults` an engine, a cache
    or a worker that cannot be used. `patience_s` is how long an action waits while there is no worker. `slots` is the
    number of slots of an engine that cannot be asked.
    """

    lost: int = 10
    missing: int = 3
    faults: int = 4
    pauses_s: tuple[float, ...] = (0.5, 2.0, 5.0, 10.0)
    patience_s: float = 60.0
    look_each_s: float = 0.2
    slots: int | None = None


USUAL_LIMITS = RemoteLimits()


class Faults(Struct):
    """What went wrong with one action so far, by kind, and the places of the workers that could not run it."""

    counts: dict[str, int] = field(default_factory=dict)
    places: set[str] = field(default_factory=set)

    def note(self, kind: str) -> int:
        """Count a fault, and return how many of its kind there were."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return self.counts[kind]


class GivenUpError(Exception):
    """The budget of an action for faults is used up. It has the reason, and what to do if that is not the usual."""


def described(fault: Exception) -> tuple[str, str]:
    """Return the kind of a fault, and what happened."""
    match fault:
        case WorkerLost(reason=reason):
            return "lost", reason
        case EngineFault(reason=reason):
            return "faults", reason
        case CacheFault(message=message):
            return "faults", f"the cache cannot be used: {message}"
        case CancelledError():
            # The scheduler was restarted, or the connection to it was lost.
            return "faults", "the engine has cancelled the action"
        case _:
            return "faults", f"the reply of a worker cannot be read: {fault}"
