"""The engine of a dask cluster, and the executor that uses it."""

import logging
import math
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from msgspec import Struct, field

from orch23.features.remote.dask_scheduler import check_scheduler, security_of
from orch23.features.remote.dask_submission import DaskSubmission, FoundSubmission, Place
from orch23.features.remote.engine import (
    EngineFault,
    Submission,
    UnreachableEngineError,
    Work,
    amount_text,
    digest_text,
    refuse_scheduler,
)
from orch23.features.remote.executor import RemoteExecutor
from orch23.model.plugins import exception_text
from orch23.model.ports import NOTHING_RUNS, RunningActions, Surroundings
from orch23.model.text import LineListener, format_duration

FROZEN_S = 60.0
"""dask itself notices it after `distributed.scheduler.worker-ttl`, which is five minutes if it is not set."""
_LOOKS = 12


class _Seen(Struct):
    heartbeat_s: float
    silent_s: float = 0.0


class WorkerWatch:
    """Compares the times of the last heartbeats that the scheduler reports, one look after the other.

    Only differences count, so the clocks of the machines may differ. A look that comes late, since this process or the
    scheduler was stopped, counts as little as one that comes in time.
    """

    def __init__(self, frozen_s: float = FROZEN_S, clock: Callable[[], float] = monotonic) -> None:
        """Take workers as frozen after some seconds without a heartbeat; they have one each half second or so."""
        self._frozen_s, self._clock = frozen_s, clock
        self.each_s = frozen_s / _LOOKS
        """How long to wait between two looks."""
        self._looked_s = clock()
        self._seen: dict[str, _Seen] = {}

    def silent_s(self, address: str) -> float:
        """Return for how many seconds a worker had sent no heartbeat at the last look; 0 if it is not known."""
        seen = self._seen.get(address)
        return 0.0 if seen is None else seen.silent_s

    def frozen(self, heartbeats_s: Mapping[str, float]) -> tuple[str, ...]:
        """Return the addresses of workers that are frozen, from the time of the last heartbeat by address."""
        now_s = self._clock()
        passed_s, self._looked_s = min(now_s - self._looked_s, 2 * self.each_s), now_s
        for address in self._seen.keys() - heartbeats_s.keys():
            del self._seen[address]
        for address, heartbeat_s in heartbeats_s.items():
            seen = self._seen.get(address)
            if seen is not None and seen.heartbeat_s == heartbeat_s:
                seen.silent_s += passed_s
            else:
                self._seen[address] = _Seen(heartbeat_s)
        return tuple(address for address, seen in self._seen.items() if seen.silent_s > self._frozen_s)


if TYPE_CHECKING:
    from distributed import Client

_CONNECT_S = 10
_LOOK_EACH_S = 2.0
_SILENT_S = 10.0
"""A worker has a heartbeat each half second or so: a longer silence is shown."""
_CANCEL_WITHIN_S = 5.0


def make_executor(surroundings: Surroundings) -> RemoteExecutor:
    """Return the executor that runs actions on a dask cluster. It connects to the scheduler with the first action.

    Raises:
        ConfigurationError: the scheduler or the cache is not named, or must not be used, or a library is missing.
    """
    check_scheduler(surroundings.scheduler)
    if not surroundings.cache:
        message = "workers get files through a shared cache, and none is named"
        refuse_scheduler(message, "add `--cache URL`, which workers can use too")
    return RemoteExecutor(
        DaskEngine(surroundings.scheduler, surroundings.running or NOTHING_RUNS, surroundings.warn),
        surroundings.open_cache(surroundings.cache),
        cache_url=surroundings.cache,
        contents=surroundings.contents,
        workers=surroundings.workers,
        redact=surroundings.redact,
        on_fault=lambda reason: surroundings.warn(f"a step is sent to a worker again: {reason}"),
    )


def lacking_text(resources: Mapping[str, float], declared: Iterable[Mapping[str, float]]) -> str:
    """Return the resources that no worker has; empty if one worker has all. `declared` has those of each."""

    def missing(worker: Mapping[str, float]) -> frozenset[str]:
        return frozenset(name for name, amount in resources.items() if worker.get(name, 0) < amount)

    of_each = [missing(worker) for worker in declared]
    if not all(of_each):
        return ""
    of_all = frozenset(resources).intersection(*of_each)
    named = ", ".join(f"{name}={amount_text(resources[name])}" for name in resources if name in (of_all or resources))
    return f"the resource{'' if len(of_all) == 1 else 's'} {named}" + ("" if of_all else " together")


def silence_dask() -> None:
    """Keep dask from writing its log to stderr, between the lines of a build."""
    log = logging.getLogger("distributed")
    log.handlers = [logging.NullHandler()]
    log.propagate = False


class _Workers(Struct, frozen=True):
    """The threads of all workers of a cluster, and the resources that each has declared, by its address."""

    threads: int = 0
    declared: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class DaskEngine:
    """The workers of a dask cluster. It connects with the first action, in the thread of the caller."""

    def __init__(
        self,
        address: str,
        running: RunningActions = NOTHING_RUNS,
        warn: Callable[[str], object] = str,
        watch: WorkerWatch | None = None,
    ) -> None:
        """Use the scheduler at an address. `running` keeps where actions run. `warn` shows a text to the user."""
        self._address, self._running, self._warn = address, running, warn
        self._watch = watch or WorkerWatch()
        self._lock = threading.Lock()
        self._connected: Client | None = None
        self._is_closed = False
        self._looked_s, self._workers = -math.inf, _Workers()
        self._submitted: dict[str, DaskSubmission | FoundSubmission] = {}
        self._unwanted: SimpleQueue[str] = SimpleQueue()
        self._canceller: threading.Thread | None = None

    def connect(self) -> None:
        """See the port."""
        self._client()

    def submit(self, work: Work, hear: LineListener | None) -> Submission:
        """See the port. An action that a worker runs for an earlier build is waited for."""
        place = Place.from_text(self._running.take(self._address, work.action))
        if place is None:
            return self._submit(work, hear)
        from orch23.features.remote.dask_worker import join_action  # noqa: PLC0415 - loads dask

        client = self._client()

        def ask() -> bytes | None:
            # A connection to an address that no one listens to would be tried for long.
            if place.worker not in client.scheduler_info(n_workers=-1)["workers"]:
                return None
            found = client.run(join_action, place.key, client.id, workers=[place.worker])
            reply: bytes | None = found[place.worker]
            return reply

        def submit_again() -> Submission:
            self._forget(found)
            return self._submit(work, hear)

        found = FoundSubmission(place, ask, submit_again, hear)
        self._submitted[place.key] = found
        return found

    def _submit(self, work: Work, hear: LineListener | None) -> Submission:
        from orch23.features.remote.dask_worker import run_remotely  # noqa: PLC0415 - loads dask

        client = self._client()
        # A new key: for an old one, dask would return the result of that submission, even a fault.
        key, digest = f"orch23-{uuid4().hex}", digest_text(work.action)
        allowed = self._others(work)
        try:
            future = client.submit(
                run_remotely,
                work.cache_url,
                digest,
                client.id,
                has_listener=hear is not None,
                key=key,
                pure=False,
                resources=dict(work.resources) or None,
                workers=sorted(allowed) or None,
            )
        except Exception as error:
            raise EngineFault(exception_text(error)) from error

        def on_start(place: Place, earlier: Place) -> None:
            if earlier.worker:
                self._warn(f"a step started again on {place.worker}: {earlier.worker} did not end it")
            self._running.forget(self._address, earlier.to_text())
            self._running.note(self._address, work.action, place.to_text())

        made = DaskSubmission(future, on_start, hear)
        made.allowed = allowed
        self._submitted[key] = made
        return made

    def cancel(self, submission: Submission) -> None:
        """See the port. Dask does not stop a running function: the worker gets the keys of those that have to end."""
        assert isinstance(submission, DaskSubmission | FoundSubmission)
        if isinstance(submission, FoundSubmission):
            submission.is_unwanted.set()
            if submission.again is not None:
                self.cancel(submission.again)
        else:
            with suppress(Exception):
                submission.future.cancel(force=True)
        self._unwanted.put(submission.key)
        with self._lock:
            if self._canceller is None and not self._is_closed:
                self._canceller = threading.Thread(target=self._cancel_all, name="orch23-cancel", daemon=True)
                self._canceller.start()
        self.release(submission)

    def release(self, submission: Submission) -> None:
        """See the port."""
        assert isinstance(submission, DaskSubmission | FoundSubmission)
        if isinstance(submission, DaskSubmission):
            with suppress(Exception):
                submission.future.release()
        elif submission.again is not None:
            self.release(submission.again)
        self._forget(submission)

    def _forget(self, submission: DaskSubmission | FoundSubmission) -> None:
        self._submitted.pop(submission.key, None)
        self._running.forget(self._address, Place(submission.worker, submission.key).to_text())

    def _cancel_all(self) -> None:
        """Tell all workers which actions are not wanted, until the end: which one has it may not be known yet."""
        from orch23.features.remote.dask_worker import cancel_actions  # noqa: PLC0415 - loads dask

        while key := self._unwanted.get():
            keys = [key]
            while not self._unwanted.empty():
                keys.append(self._unwanted.get())
            client = self._connected
            if client is not None:
                with suppress(Exception):
                    client.run(cancel_actions, [one for one in keys if one], on_error="ignore")
            if "" in keys:
                return

    def slots(self) -> int:
        """See the port. Frozen workers are removed."""
        return self._look().threads

    def lacking(self, resources: Mapping[str, float]) -> str:
        """See the port. Resources in use count: an action waits for them."""
        return lacking_text(resources, self._look().declared.values())

    def known(self, submission: Submission) -> str:
        """See the port."""
        assert isinstance(submission, DaskSubmission | FoundSubmission)
        silent_s = self._watch.silent_s(submission.worker)
        silent = f"no word from its worker for {format_duration(silent_s)}" if silent_s > _SILENT_S else ""
        return silent if submission.worker else "waiting for a worker"

    def _look(self) -> "_Workers":
        """Return what the scheduler says of its workers. It is asked every two seconds at most."""
        client = self._client()
        with self._lock:
            if monotonic() > self._looked_s + min(_LOOK_EACH_S, self._watch.each_s):
                try:
                    info = client.scheduler_info(n_workers=-1)
                    workers = info["workers"]
                    declared = {address: worker["resources"] for address, worker in workers.items()}
                    self._workers = _Workers(int(info["total_threads"]), declared)
                    for one in [*self._submitted.values()]:
                        if isinstance(one, DaskSubmission) and one.allowed and one.allowed.isdisjoint(workers):
                            one.lose()
                    self._remove(client, self._watch.frozen({one: workers[one]["last_seen"] for one in workers}))
                except Exception as error:
                    raise EngineFault(exception_text(error)) from error
                self._looked_s = monotonic()
            return self._workers

    def _others(self, work: Work) -> frozenset[str]:
        """Return the workers that may run an action; empty if none is avoided."""
        declared = self._look().declared if work.avoided else {}
        able = [one for one, amounts in declared.items() if not lacking_text(work.resources, [amounts])]
        return frozenset(able) - work.avoided

    def _remove(self, client: "Client", frozen: Collection[str]) -> None:
        """Remove frozen workers from the scheduler if they have actions of this build; dask runs these elsewhere.

        Not only our actions: the scheduler takes a frozen worker as idle, and would give it the next ones. If such a
        worker goes on, it closes, and kills what it ran.
        """
        processing = client.processing() if frozen else {}
        for address in frozen:
            found = [one for one in [*self._submitted.values()] if one.worker == address]
            if not found and self._submitted.keys().isdisjoint(map(str, processing.get(address, ()))):
                continue
            client.sync(client.scheduler.unregister, address=address, stimulus_id="orch23-frozen-worker")
            self._warn(f"the worker {address} is frozen, and was removed from the cluster: its steps run elsewhere")
            for one in found:
                if isinstance(one, FoundSubmission):
                    one.lose()

    def close(self) -> None:
        """See the port."""
        with self._lock:
            self._is_closed = True
            canceller = self._canceller
        if canceller is not None:
            self._unwanted.put("")
            canceller.join(_CANCEL_WITHIN_S)
        with self._lock:
            client, self._connected = self._connected, None
        if client is not None:
            with suppress(Exception):
                client.close(timeout=_CONNECT_S)

    def _client(self) -> "Client":
        with self._lock:
            if self._is_closed:
                raise CancelledError
            # A client closes itself if its scheduler does not come back within half a minute.
            if self._connected is None or self._connected.status == "closed":
                self._connected = self._connect()
            return self._connected

    def _connect(self) -> "Client":
        from distributed import Client  # noqa: PLC0415 - as in `security_of`

        silence_dask()
        security = security_of(self._address, "client")
        try:
            # dask warns of differing versions of libraries, but the strings that are sent do not depend on them.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                client = Client(
                    self._address, security=security, timeout=_CONNECT_S, set_as_default=False, name="orch23"
                )
            # The scheduler has a topic of this name anyway, and removes its events some time after the client is gone.
            client.subscribe_topic(client.id, self._on_event)
        except Exception as error:
            message = f"the scheduler {self._address} cannot be reached: {exception_text(error)}"
            raise UnreachableEngineError(message) from error
        return client

    def _on_event(self, event: tuple[float, Any]) -> None:
        """Take what a worker reports: that it has begun an action, and lines. The topic has other events too."""
        message = event[1]
        if not isinstance(message, dict) or "lines" not in message:
            return
        submission = self._submitted.get(str(message.get("key", "")))
        if submission is None:
            return
        submission.worker = str(message.get("worker", ""))
        if submission.hear is None:
            return
        with suppress(TypeError, ValueError):  # another program may have sent it
            for line, cut in message["lines"]:
                submission.hear(str(line), cut=bool(cut))
