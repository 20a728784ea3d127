"""A source of results from elsewhere, such as a shared cache: the port of a build to it (ADR 73).

A source only claims to have a result. A lookup verifies the claim against its stage, and has no other result.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from orch23.decide.shared_entries import Claim, FoundResult
from orch23.model.digest import Digest
from orch23.model.environment import EnvironmentIdentity, Tier
from orch23.resolve.resolution import ResolvedStage


class Lookup:
    """The lookup of one key. Any thread may call it.

    `expected` is a verified result whose files may still turn out to be lost, `result` has all of its files. `refused`
    is one whose steps were isolated too little.
    """

    def __init__(
        self,
        verify: Callable[[Claim], FoundResult],
        is_isolated: Callable[[FoundResult], bool] = lambda _: True,
        warn: Callable[[str, str], None] = lambda _code, _why: None,
    ) -> None:
        """Know nothing yet. `verify` is `found_result` for the stage. `warn` takes why an entry is ignored."""
        self.expected: FoundResult | None = None
        self.result: FoundResult | None = None
        self.refused: FoundResult | None = None
        self.error: BaseException | None = None
        self.is_finished = False
        self.warn = warn
        self._verify, self._is_isolated = verify, is_isolated
        self._verified: FoundResult | None = None
        self._lock = threading.Lock()
        self._watchers: list[Callable[[], None]] = []

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
        found = self._verify(claim)
        if not self._is_isolated(found):
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
