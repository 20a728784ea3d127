"""Run actions of other machines: fetch the action and its inputs from a cache, run it here, store its outputs there."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from orch23 import __version__
from orch23.execute.cleanup import temporary_folder
from orch23.execute.interpreters import SYSTEM_PATH, matching_interpreter, tool_digest
from orch23.execute.launch import PlainLauncher, SandboxLauncher
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox.tier_selection import best_tier_once
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.features.cache.registry import open_shared_cache
from orch23.features.remote.engine import MAX_INLINE_BYTES, Reply, parse_digest
from orch23.features.remote.live_lines import LineSender
from orch23.features.remote.transfers import Transfers
from orch23.model.action import (
    Action,
    ActionOutcome,
    ActionResult,
    Cancelled,
    EngineUnavailable,
    InputsChanged,
    Interpreter,
    changes_of,
    outcome_to_bytes,
)
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry
from orch23.model.errors import CacheFault, ConfigurationError, MissingBytesError
from orch23.model.ports import FileContentStore, SharedCache
from orch23.store.content_store import DiskContentStore
from orch23.store.input_files import new_file
from orch23.store.tree_removal import remove_tree

_LOOK_EACH_S = 0.2
_CLOSE_WITHIN_S = 20.0
USUAL_SCRATCH_BYTES = 4 << 30


def digests_of(outcome: ActionOutcome) -> Iterator[Digest]:
    """Yield the digests of all blobs that an outcome names."""
    changes = changes_of(outcome)
    if changes is None:
        return
    yield from (entry.digest for entry in changes.written.values())
    if changes.output.log is not None:
        yield changes.output.log
    if isinstance(changes, ActionResult) and changes.report is not None:
        yield changes.report
    yield from changes.results.values() if isinstance(changes, ActionResult) else ()


def input_digests(action: Action) -> Iterator[Digest]:
    """Yield the digests of the files that an action needs."""
    yield from (entry.digest for entry in (*action.inputs.values(), *action.tools.values()))


class StoredInputs:
    """The inputs of actions, from a content store alone: a worker has no workspace."""

    def __init__(self, contents: FileContentStore) -> None:
        """Read the bytes of inputs from this store."""
        self._contents = contents

    def copy_into(self, path: str, entry: FileEntry, target: str) -> bool:
        """Create `target`; return False if the bytes are missing."""
        with suppress(MissingBytesError), new_file(target, executable=entry.executable) as descriptor:
            self._contents.copy_to(entry.digest, descriptor, path)
            return True
        return False


class _Generation(Struct):
    """A temporary content store with the executors that use it, and how many actions run with it."""

    contents: DiskContentStore
    idle: list[LocalExecutor] = field(default_factory=list)
    users: int = 0


class RemoteWorker:
    """Runs actions in a temporary folder of this machine. Safe for calls from several threads.

    A folder that a killed worker left, with its processes, is removed when the next worker starts in the same `top`.
    """

    def __init__(
        self,
        top: Path,
        *,
        slots: int,
        environ: Mapping[str, str],
        cache_url: str = "",
        allowed: bool = False,
        scratch_bytes: int = USUAL_SCRATCH_BYTES,
        open_cache: Callable[[str], SharedCache] = open_shared_cache,
    ) -> None:
        """Create the temporary folder in `top`. At most `slots` actions run at once.

        `cache_url` is used instead of the URL that an action comes with; `allowed` lets actions run without a sandbox.
        Blobs are kept for later actions, `scratch_bytes` at most if actions with others are not running. `open_cache`
        returns the cache of a URL.

        Raises:
            OSError: the folder cannot be created.
        """
        top.mkdir(parents=True, exist_ok=True)
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(temporary_folder("worker", top))
        self._slots, self._environ, self._cache_url = slots, environ, cache_url
        self._scratch_bytes, self._open_cache = scratch_bytes, open_cache
        self.name = f"{os.uname().nodename}:{os.getpid()}"
        home = environ.get("HOME", "")
        closed = (Path(home),) if Path(home).is_absolute() else ()
        self._sandbox = SandboxLauncher(best_tier_once, closed=closed, allowed=allowed)
        self._unconfined = PlainLauncher(None if allowed else _not_allowed_error(self.name))
        self._changed = threading.Condition()
        self._caches: dict[str, SharedCache] = {}
        self._generations: list[_Generation] = []
        self._running: set[LocalExecutor] = set()
        self._retired: list[LocalExecutor] = []
        self._is_closed = False

    def run_remotely(
        self,
        cache_url: str,
        digest: str,
        is_wanted: Callable[[], bool] = lambda: True,
        lines: LineSender | None = None,
        place: str = "",
    ) -> bytes:
        """Run an action to its end, and return the bytes of a `Reply`. Never raises.

        `digest` is the digest of the action's bytes. As soon as `is_wanted` returns False, the action is cancelled: its
        processes are killed. `lines` gets the lines that it prints. `place` is what the engine knows this worker by.
        """
        try:
            reply = self._reply(cache_url, digest, is_wanted, lines)
        except CacheFault as fault:
            reply = Reply(fault=f"the cache cannot be used: {fault.message}")
        except ConfigurationError as error:
            reply = Reply(fault=error.diagnostics[0].message)
        except Exception as error:  # noqa: BLE001 - the engine would send it as a pickle of this machine's classes
            reply = Reply(fault=f"{type(error).__name__}: {error}")
        return replace(reply, worker=self.name, version=__version__, place=place).to_bytes()

    def close(self) -> None:
        """Cancel all actions, wait for their end, and remove the folder. A second call has no effect."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            for executor in self._running:
                executor.cancel()
            self._changed.wait_for(lambda: not self._running, _CLOSE_WITHIN_S)
            for generation in self._generations:
                self._retired += generation.idle
            self._close_retired()
            for cache in self._caches.values():
                cache.close()
        self._stack.close()

    def _reply(
        self, cache_url: str, digest_text: str, is_wanted: Callable[[], bool], lines: LineSender | None
    ) -> Reply:
        digest = parse_digest(digest_text)
        cache = self._cache(self._cache_url or cache_url)
        with self._generation() as generation:
            contents = generation.contents
            transfers = Transfers(cache, contents)
            if missing := transfers.fetch([digest]):
                return Reply(missing=missing)
            try:
                action = Action.from_bytes(contents.get(digest))
            except ValueError as error:
                return Reply(fault=f"orch23 {__version__} of the worker cannot read the action: {error}")
            if missing := transfers.fetch(input_digests(action)):
                return Reply(missing=missing)
            if (other := self._other_program(action)) is not None:
                return Reply(outcome=outcome_to_bytes(EngineUnavailable(other.message, diagnostic=other)))
            with self._executor(generation) as executor:
                outcome = _run_while(executor, action, is_wanted, lines)
            if isinstance(outcome, InputsChanged):
                # They were there a moment ago: the disk is damaged, or someone cleans up.
                return Reply(fault=f"the worker lost the bytes of {', '.join(outcome.paths)}")
            transfers.upload(digests_of(outcome))
            data = outcome_to_bytes(outcome)
            if len(data) <= MAX_INLINE_BYTES:
                return Reply(outcome=data)
            blob = contents.put(data)
            transfers.upload([blob])
            return Reply(blob=blob)

    def _other_program(self, action: Action) -> Diagnostic | None:
        if not action.programs:
            return None
        try:
            folders = (self._interpreter(action.python).parent, *SYSTEM_PATH)
        except ConfigurationError:
            return None  # the executor reports that
        for name, wanted in action.programs.items():
            if (found := tool_digest(name, folders)) != wanted:
                why = "is not installed" if found is None else "is another program than on the machine that builds"
                message = f"the declared tool `{name}` {why} on the worker {self.name}"
                return Diagnostic("E482", message, hint="install the same version there")
        return None

    def _interpreter(self, wanted: Interpreter) -> Path:
        return matching_interpreter(wanted, self._folder, self._environ)

    def _cache(self, url: str) -> SharedCache:
        with self._changed:
            if url not in self._caches:
                self._caches[url] = self._open_cache(url)
            return self._caches[url]

    @contextmanager
    def _generation(self) -> Iterator[_Generation]:
        with self._changed:
            if not self._generations or self._generations[-1].contents.added_bytes > self._scratch_bytes:
                contents = DiskContentStore(self._folder / "blobs" / os.urandom(8).hex())
                self._generations.append(_Generation(contents))
            generation = self._generations[-1]
            generation.users += 1
        try:
            yield generation
        finally:
            with self._changed:
                generation.users -= 1
                self._remove_unused()

    def _remove_unused(self) -> None:
        for generation in [one for one in self._generations[:-1] if not one.users]:
            self._generations.remove(generation)
            self._retired += generation.idle
            remove_tree(generation.contents.folder)

    @contextmanager
    def _executor(self, generation: _Generation) -> Iterator[LocalExecutor]:
        """Yield an executor of its own for one action: `cancel` of an executor cancels all of its actions."""
        with self._changed:
            executor = generation.idle.pop() if generation.idle else self._new_executor(generation.contents)
            self._running.add(executor)
            if self._is_closed:
                executor.cancel()
        try:
            yield executor
        finally:
            with self._changed:
                self._running.discard(executor)
                if executor.is_cancelled:
                    self._retired.append(executor)
                else:
                    generation.idle.append(executor)
                if not self._running:
                    self._close_retired()
                self._changed.notify_all()

    def _close_retired(self) -> None:
        # Only while nothing runs: an executor that is closed kills processes that it can assign to no step.
        while self._retired and not self._running:
            self._retired.pop().close()

    def _new_executor(self, contents: FileContentStore) -> LocalExecutor:
        return LocalExecutor(
            sandbox_dirs=SandboxDirs(self._folder, StoredInputs(contents)),
            contents=contents,
            # Not 1: a process that is left may be of another executor's step.
            workers=max(self._slots, 2),
            interpreters=self._interpreter,
            launcher=self._sandbox,
            unconfined=self._unconfined,
        )


def _not_allowed_error(worker: str) -> Diagnostic:
    message = f"it says `sandbox: off`, which the worker {worker} does not allow"
    hint = "start the workers with `orch23 worker --allow-unsandboxed`, or remove `sandbox: off`"
    return Diagnostic("E484", message, hint=hint)


def _run_while(
    executor: LocalExecutor, action: Action, is_wanted: Callable[[], bool], lines: LineSender | None
) -> ActionOutcome:
    """Run an action, send its lines, and cancel it as soon as it is not wanted any more."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_EACH_S):
            if not is_wanted():
                executor.cancel()
                return
            if lines is not None:
                lines.send_waiting()

    watcher = threading.Thread(target=watch, name="orch23-wanted", daemon=True)
    watcher.start()
    try:
        return executor.run(action, lines) if is_wanted() else Cancelled()
    finally:
        ended.set()
        watcher.join()
