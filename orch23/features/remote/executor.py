"""Run actions on the workers of an engine. Faults of machines are never failures of a stage."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from orch23 import __version__
from orch23.features.remote.engine import (
    USUAL_LIMITS,
    Engine,
    EngineFault,
    Faults,
    GivenUpError,
    RemoteLimits,
    Reply,
    Submission,
    UnreachableEngineError,
    Work,
    described,
)
from orch23.features.remote.live_lines import HeardLines
from orch23.features.remote.transfers import Transfers
from orch23.features.remote.worker import digests_of, input_digests
from orch23.model.action import (
    Action,
    ActionOutcome,
    Cancelled,
    Completed,
    EngineUnavailable,
    InputsChanged,
    Output,
    StepLimits,
    TimedOut,
    changes_of,
    outcome_from_bytes,
)
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest
from orch23.model.errors import CacheFault, ConfigurationError, MissingBytesError, Orch23Error
from orch23.model.ports import ContentStore, SharedCache
from orch23.model.server_url import without_login
from orch23.model.text import LineListener, one_line

_EACH_S = 2.0


class SlotCount:
    """The number of slots now. It follows workers that start or end while the build runs."""

    def __init__(self, ask: Callable[[], int], wait: Callable[[float], bool]) -> None:
        """Ask nothing yet. `ask` may take long, or raise EngineFault; `wait` returns whether the executor has ended."""
        self._ask, self._wait = ask, wait
        self._lock = threading.Lock()
        self._is_running = False
        self._count = 1

    def now(self) -> int:
        """Return the number, at least 1: an action that waits for a worker reports that there is none."""
        with self._lock:
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._follow, name="orch23-slots", daemon=True).start()
        return max(1, self._count)

    def _follow(self) -> None:
        while True:
            try:
                self._count = self._ask()
            except CancelledError:
                return
            except (EngineFault, Orch23Error):
                pass  # the actions report it
            if self._wait(_EACH_S):
                return


_E_REMOTE = "E487"
_MOST_FAILED = 3
"""So many actions may fail on a worker for a reason of its machine, before others are preferred."""
_MOST_OUTCOME_BYTES = 64 << 20
_MOST_TEXT_BYTES = 1 << 30
"""For the log and the report of a step, beside its outputs. Nothing larger is read: a reply can name any sizes."""


_NO_WORKER = "check that the scheduler and its workers run and can use the cache, then build again; results are kept"
_NO_RESOURCE = "start a worker with it (`orch23 worker --resource NAME=AMOUNT`), or correct `resources` of the pool"


class RemoteExecutor:
    """Sends actions to the workers of an engine, and fetches their outputs. Safe for calls from several threads.

    Bytes travel through a shared cache, and are verified wherever they arrive. A worker never gets a path or an
    environment variable of this machine.
    """

    def __init__(
        self,
        engine: Engine,
        cache: SharedCache,
        *,
        cache_url: str,
        contents: ContentStore,
        workers: int,
        redact: Callable[[str], str] = str,
        on_fault: Callable[[str], object] = str,
        limits: RemoteLimits = USUAL_LIMITS,
    ) -> None:
        """Submit at most `workers` actions at a time. `cache_url` is the URL of the cache, for the workers.

        They do not get its user name and password. `redact` removes secrets from reports. `on_fault` gets why an action
        is submitted again.
        """
        self._engine, self._cache, self._contents = engine, cache, contents
        self._cache_url = without_login(cache_url)
        self._redact, self._limits = redact, limits
        self._on_fault = on_fault
        self._stop = threading.Event()
        self._transfers = Transfers(cache, contents, self._stop.wait)
        self._slots = threading.Semaphore(workers)
        self._slot_count = SlotCount(engine.slots, self._stop.wait)
        self._lock = threading.Lock()
        self._running: set[Submission] = set()
        self._avoided: set[str] = set()
        self._failed: Counter[str] = Counter()
        self._is_closed = False
        self.submissions = 0

    def run(self, action: Action, hear: LineListener | None = None) -> ActionOutcome:
        """See the port. If an action has to start again, its lines are heard again."""
        return self.run_with({}, action, hear)

    def with_resources(self, resources: Mapping[str, float]) -> "ResourceExecutor":
        """Return an executor whose actions run on workers with these resources, and share all else with this one."""
        return ResourceExecutor(self, resources)

    def run_with(
        self, resources: Mapping[str, float], action: Action, hear: LineListener | None = None
    ) -> ActionOutcome:
        """Run an action on a worker with these resources."""
        lines = HeardLines(hear)
        with self._slots:
            try:
                outcome = self._run(action, resources, lines)
            except GivenUpError as given_up:
                outcome = _unavailable(*given_up.args)
            if (changes := changes_of(outcome)) is not None:
                lines.finish(self._chunks(changes.output))
            return Cancelled() if self._stop.is_set() else outcome

    def connect(self) -> None:
        """Connect to the engine.

        Raises:
            ConfigurationError: it cannot be reached.
        """
        try:
            self._engine.connect()
        except EngineFault as fault:
            raise ConfigurationError(Diagnostic(_E_REMOTE, one_line(fault.reason), hint=_NO_WORKER)) from fault

    def slots(self) -> int:
        """Return how many actions the workers can run at once: 1 until that is known.

        The engine is asked in a thread, and not before the first action was submitted.
        """
        if self._limits.slots is not None:
            return self._limits.slots
        return self._slot_count.now() if self.submissions else 1

    def cancel(self) -> None:
        """See the port: the workers kill the processes of all actions."""
        self._stop.set()
        with self._lock:
            running = [*self._running]
        for submission in running:
            self._engine.cancel(submission)

    def close(self) -> None:
        """See the port."""
        self.cancel()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._engine.close()
        self._cache.close()

    def _chunks(self, output: Output) -> Iterator[bytes]:
        if output.log is None:
            yield output.text.encode("utf-8", "replace")
            return
        # It was fetched just now; its lines are only shown.
        with suppress(MissingBytesError, OSError):
            yield from self._contents.get_chunks(output.log)

    def _run(self, action: Action, resources: Mapping[str, float], lines: HeardLines) -> ActionOutcome:
        faults = Faults()
        try:
            work = Work(self._cache_url, self._contents.put(action.to_bytes()), resources)
        except ValueError as error:
            return EngineUnavailable(f"the action cannot be sent: {error}")
        while not self._stop.is_set():
            work = replace(work, avoided=frozenset(faults.places | self._avoided))
            outcome = self._tried_once(action, work, faults, lines)
            if outcome is not None:
                return outcome
        return Cancelled()

    def _tried_once(self, action: Action, work: Work, faults: Faults, lines: HeardLines) -> ActionOutcome | None:
        """Submit an action; return None if it has to be submitted again, raise if there were too many faults."""
        try:
            return self._outcome(action, work, faults, lines)
        except MissingBytesError as lost:
            return InputsChanged(_paths_of(action, lost.sha256))
        except OSError as error:
            return EngineUnavailable(f"the outputs could not be stored: {error}", "room")
        except UnreachableEngineError as fault:
            raise GivenUpError(fault.reason) from fault
        except (EngineFault, CacheFault, CancelledError, ValueError) as fault:
            if not self._stop.is_set():
                self._again(*described(fault), faults)
            return None

    def _outcome(self, action: Action, work: Work, faults: Faults, lines: HeardLines) -> ActionOutcome | None:
        self._engine.connect()
        self._transfers.upload((work.action, *input_digests(action)))
        with self._submitted(work, lines) as submission:
            reply = Reply.from_bytes(self._reply(submission, work.resources, lines))
            if reply.version not in {"", __version__}:
                self._refuse(f"{reply.worker} has orch23 {reply.version}, and this is {__version__}", reply, faults)
            elif reply.fault:
                self._again("faults", _named(reply, reply.fault), faults, reply.place)
            elif reply.missing:
                self._upload_again(action, work.action, reply, faults)
            else:
                return self._fetched(reply, action.limits, faults)
        return None

    @contextmanager
    def _submitted(self, work: Work, lines: HeardLines) -> Iterator[Submission]:
        """Submit an action, and yield it. Whatever happens, nothing goes on that no one waits for."""
        submission = self._engine.submit(work, lines.new_start())
        with self._lock:
            self._running.add(submission)
            self.submissions += 1
        try:
            if self._stop.is_set():
                self._engine.cancel(submission)
            yield submission
        except BaseException:
            self._engine.cancel(submission)
            raise
        else:
            self._engine.release(submission)
        finally:
            with self._lock:
                self._running.discard(submission)

    def _reply(self, submission: Submission, resources: Mapping[str, float], lines: HeardLines) -> bytes:
        seen_s = monotonic()
        while not self._stop.is_set():
            with suppress(TimeoutError):
                return submission.result(self._limits.look_each_s)
            lines.pass_on()
            lines.know(self._engine.known(submission))
            lacking = self._engine.lacking(resources) if resources else ""
            if self._engine.slots() and not lacking:
                seen_s = monotonic()
            elif monotonic() > seen_s + self._limits.patience_s:
                none = f"no worker with {lacking}" if lacking else "no worker"
                message = f"there has been {none} for {self._limits.patience_s:g} s"
                raise GivenUpError(message, _NO_RESOURCE if lacking else _NO_WORKER)
        raise CancelledError

    def _upload_again(self, action: Action, digest: Digest, reply: Reply, faults: Faults) -> None:
        """Upload inputs that a worker did not find: the cache has removed them, or has wrong bytes."""
        asked = {digest, *input_digests(action)}.intersection(reply.missing)
        reason = f"{reply.worker} does not find {len(reply.missing)} files in the cache that were uploaded to it"
        self._again("missing", reason, faults, reply.place)
        self._transfers.upload_again(asked)

    def _fetched(self, reply: Reply, limits: StepLimits, faults: Faults) -> ActionOutcome | None:
        """Fetch what an outcome names; return None if the cache has lost some of it: then it is run again."""
        if reply.blob is not None and reply.blob.size_bytes > _MOST_OUTCOME_BYTES:
            message = "it is too large"
            raise ValueError(message)
        if reply.blob is not None and self._transfers.fetch([reply.blob]):
            self._again("missing", "the cache has lost an outcome", faults)
            return None
        data = reply.outcome if reply.blob is None else self._contents.get(reply.blob)
        if data is None:
            message = "it is empty"
            raise ValueError(message)
        outcome = outcome_from_bytes(data)
        if isinstance(outcome, Cancelled):
            # The worker is shutting down, or lost its scheduler.
            self._again("lost", f"{reply.worker} has cancelled the action", faults)
            return None
        if isinstance(outcome, EngineUnavailable) and outcome.kind == "room":
            # The disk of the worker is full, for example: it says nothing about the stage.
            self._again("faults", _named(reply, outcome.reason), faults, reply.place)
            return None
        if sum(digest.size_bytes for digest in digests_of(outcome)) > limits.disk + _MOST_TEXT_BYTES:
            message = "its outputs are larger than the limit of the step"
            raise ValueError(message)
        if self._transfers.fetch(digests_of(outcome)):
            self._again("missing", "the cache has lost outputs", faults)
            return None
        return self._without_secrets(outcome)

    def _without_secrets(self, outcome: ActionOutcome) -> ActionOutcome:
        """Return an outcome whose reports have no secrets: a worker does not know those of this machine."""
        changes = changes_of(outcome)
        if changes is None:
            return outcome
        clean = replace(changes, report=None if changes.report is None else self._redacted(changes.report))
        if isinstance(clean, TimedOut):
            return clean
        return Completed(replace(clean, results={path: self._redacted(one) for path, one in clean.results.items()}))

    def _redacted(self, report: Digest) -> Digest:
        text = self._contents.get(report).decode("utf-8", "surrogateescape")
        return self._contents.put(self._redact(text).encode("utf-8", "surrogateescape"))

    def _refuse(self, reason: str, reply: Reply, faults: Faults) -> None:
        """Send nothing more to the worker of a reply; raise if there is no other one, or there were too many such."""
        if not reply.place:
            raise GivenUpError(reason)
        with self._lock:
            self._avoided.add(reply.place)
        self._again("lost", reason, faults)

    def _again(self, kind: str, reason: str, faults: Faults, place: str = "") -> None:
        """Count a fault, and wait before the action is submitted again: to another worker, if there is one.

        A worker that fails for several actions gets none any more while there are others.

        Raises:
            GivenUpError: there were too many of this kind.
        """
        if place:
            faults.places.add(place)
            with self._lock:
                self._failed[place] += 1
                if self._failed[place] == _MOST_FAILED:
                    self._avoided.add(place)
        reason = one_line(reason)
        count = faults.note(kind)
        if count > getattr(self._limits, kind):
            raise GivenUpError(reason)
        self._on_fault(reason)
        if kind == "faults":
            self._stop.wait(self._limits.pauses_s[min(count, len(self._limits.pauses_s)) - 1])


class ResourceExecutor(Struct, frozen=True):
    """Runs actions with an executor, on workers that have some resources."""

    executor: RemoteExecutor
    resources: Mapping[str, float]

    def run(self, action: Action, hear: LineListener | None = None) -> ActionOutcome:
        """See the port."""
        return self.executor.run_with(self.resources, action, hear)

    def cancel(self) -> None:
        """See the port: it cancels all actions of the executor."""
        self.executor.cancel()

    def close(self) -> None:
        """See the port."""
        self.executor.close()


def _named(reply: Reply, reason: str) -> str:
    return f"{reply.worker}: {reason}" if reply.worker else reason


def _paths_of(action: Action, sha256: str) -> tuple[str, ...]:
    named = (*action.inputs.items(), *action.tools.items())
    return tuple(path for path, entry in named if entry.digest.sha256 == sha256) or (sha256,)


def _unavailable(reason: str, hint: str = _NO_WORKER) -> EngineUnavailable:
    message = f"the action could not be run on another machine: {one_line(reason)}"
    return EngineUnavailable(message, diagnostic=Diagnostic(_E_REMOTE, message, hint=hint))
