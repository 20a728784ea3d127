"""Run a fetch step: take the bytes from the store, the project, or a server."""

import threading
import time
from collections import defaultdict

from orch23.attempt.attempt import AttemptInput, AttemptLoop, AttemptResult, StepRequirements, StepRunner
from orch23.attempt.failures import failure_of
from orch23.features.fetch.connections import FetchError, download_timeout_error, wrong_digest_error
from orch23.features.fetch.download import download, file_chunks
from orch23.features.fetch.step.spec import FetchStep
from orch23.model.digest import Digest, FileEntry
from orch23.model.errors import ConsentError, MissingBytesError
from orch23.model.ports import ContentStore
from orch23.providers.registry import not_granted_error


class _FetchRunner(StepRunner):
    """Fetches files. The lock of a digest makes two stages that need the same file download it once."""

    def __init__(self) -> None:
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def needs(self, step: FetchStep, contents: ContentStore) -> StepRequirements:
        """Return the servers to connect to: none if the store has the file."""
        # A stored file is not fetched again, so its server needs no consent.
        if not step.url or _stored(step, contents) is not None:
            return StepRequirements()
        return StepRequirements(step.grants, step.barred)

    def attempt(self, attempts: AttemptLoop, step: FetchStep, turn: AttemptInput) -> AttemptResult:
        began = time.monotonic()
        try:
            entry = self._entry(attempts, step)
        except FetchError as error:
            kind, retryable = "timeout" if error.is_timeout else "exception", error.is_transient or error.is_timeout
            return AttemptResult(turn.start, (), failure_of(kind, (error.diagnostic,), retryable=retryable))
        return AttemptResult({attempts.resolved.stage.outputs[0]: entry}, took_s=time.monotonic() - began)

    def _entry(self, attempts: AttemptLoop, step: FetchStep) -> FileEntry:
        if step.file:
            # The inputs of a stage are copied into the store before it starts (ADR 4).
            digest = _stored(step, attempts.contents) or attempts.resolved.unkeyed[step.file].digest
            if digest.sha256 != step.sha256:
                raise wrong_digest_error(step.file, digest.sha256, step.sha256)
            return FileEntry(digest)
        # Waiting for another stage's download of the file counts too.
        attempts.report.step_lines(f"fetching {step.url}")
        deadline = time.monotonic() + attempts.resolved.stage.timeout_s
        lock = self._locks[step.sha256]
        if not lock.acquire(timeout=attempts.resolved.stage.timeout_s):
            raise download_timeout_error(step.url)
        try:
            # Another stage may have fetched the file while this one waited for the lock.
            found = _stored(step, attempts.contents)
            if found is None:
                _check_allowed(attempts, step)
                path = download(step, attempts.safeguards.network, deadline - time.monotonic())
                found = attempts.contents.put_chunks(file_chunks(path))
                path.unlink(missing_ok=True)
        finally:
            lock.release()
        return FileEntry(found)


def _stored(step: FetchStep, contents: ContentStore) -> Digest | None:
    # The whole file is read: damaged bytes count as missing, and are fetched again.
    try:
        size = sum(map(len, contents.get_chunks(Digest(step.sha256, 0))))
    except MissingBytesError:
        return None
    return Digest(step.sha256, size)


def _check_allowed(attempts: AttemptLoop, step: FetchStep) -> None:
    """Check that the build may connect to the servers of a step: it is not offline, and the user has consented."""
    outside = attempts.safeguards.network
    if outside.offline and step.barred is not None:
        raise FetchError(step.barred)
    lacking = [grant for grant in step.grants if not outside.is_granted(grant)]
    if lacking:
        raise ConsentError(*(not_granted_error(grant, outside.trust_command()) for grant in lacking))


FETCH_RUNNER = _FetchRunner()
