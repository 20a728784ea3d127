"""Doubles that fill the ports and remember what they were asked: contents, an executor, a provider, a clock."""

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

import pytest

from orch23.model.action import Action, ActionOutcome, ActionResult, Cancelled, Completed, Output
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.model.errors import MissingBytesError, ProviderError
from orch23.model.features import PROVIDERS
from orch23.model.llm import Provider, Request, Response
from orch23.model.ports import ContentStore, FileContentStore
from orch23.providers.adapter import CallContext, ProviderContext
from orch23.store.file_copy import hash_file, no_progress
from orch23.store.safe_files import write_all


def with_needs(provider: str, *more: Any) -> Any:
    """Return the values of a parametrized test, which needs the feature that a provider is of, if it is of one."""
    place = PROVIDERS.get(provider)
    marks = (pytest.mark.needs(place.partition(".")[0]),) if place else ()
    return pytest.param(provider, *more, marks=marks)


class MemoryContents:
    """A content store in memory, with the methods that every implementation must have and no others.

    What a test writes over a blob is damage, which is noticed.
    """

    chunk_bytes = 1000

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def has(self, digest: Digest) -> bool:
        return len(self.blobs.get(digest.sha256, b"")) == digest.size_bytes and digest.sha256 in self.blobs

    def absent(self, digests: Iterable[Digest]) -> list[Digest]:
        return [one for one in digests if not self.has(one)]

    def get(self, digest: Digest) -> bytes:
        data = self.blobs.get(digest.sha256)
        if data is not None and hashlib.sha256(data).hexdigest() != digest.sha256:
            del self.blobs[digest.sha256]
            data = None
        if data is None:
            raise MissingBytesError(digest.sha256)
        return data

    def put(self, data: bytes) -> Digest:
        digest = digest_bytes(data)
        self.blobs[digest.sha256] = data
        return digest

    def get_chunks(self, digest: Digest) -> Iterator[bytes]:
        data = self.get(digest)
        for at in range(0, len(data), self.chunk_bytes):
            yield data[at : at + self.chunk_bytes]

    def put_chunks(self, chunks: Iterable[bytes]) -> Digest:
        return self.put(b"".join(chunks))

    def adopt(self, descriptor: int, name: str = "") -> Digest:
        return self.put(os.pread(descriptor, os.fstat(descriptor).st_size, 0))

    def copy_to(self, digest: Digest, descriptor: int, name: str = "") -> None:
        write_all(descriptor, self.get(digest))

    def check(self, digest: Digest) -> None:
        self.get(digest)

    def sync(self) -> None:
        pass


class MemoryCache:
    """A backend of a shared cache in memory. `before` is called with the name of each method and its digest."""

    def __init__(self) -> None:
        self.blobs: dict[Digest, bytes] = {}
        self.entries: dict[Digest, bytes] = {}
        self.before: Callable[[str, Digest | None], object] = lambda _name, _digest: None
        self.asked: list[str] = []
        self.questions: list[int] = []
        self.closed = 0

    def _ask(self, name: str, digest: Digest | None = None) -> None:
        self.asked.append(name)
        self.before(name, digest)

    def entry(self, digest: Digest) -> bytes | None:
        self._ask("entry", digest)
        return self.entries.get(digest)

    def put_entry(self, digest: Digest, data: bytes, *, replace: bool = False) -> None:
        self._ask("replace_entry" if replace else "put_entry", digest)
        if replace or digest not in self.entries:
            self.entries[digest] = data

    def missing(self, digests: Collection[Digest]) -> list[Digest]:
        self._ask("missing")
        self.questions.append(len(digests))
        return [digest for digest in digests if digest not in self.blobs]

    def blob(self, digest: Digest, offset: int = 0) -> Iterator[bytes] | None:
        self._ask("blob", digest)
        data = self.blobs.get(digest)
        return None if data is None else (data[at : at + 1000] for at in range(offset, len(data), 1000))

    def put_blob(self, digest: Digest, chunks: Callable[[], Iterable[bytes]]) -> None:
        self._ask("put_blob", digest)
        self.blobs[digest] = b"".join(chunks())

    def discard(self, digest: Digest) -> None:
        self._ask("discard", digest)
        self.blobs.pop(digest, None)

    def close(self) -> None:
        self.closed += 1


def file_digest(_path: str, descriptor: int) -> Digest:
    """Return the digest of an open file, as a workspace without git does."""
    return Digest(*hash_file(descriptor, no_progress("hashing", "", 0)))


def memory() -> FileContentStore:
    """Return contents in memory for who copies from and to files."""
    return MemoryContents()


def completed(
    exit_code: int = 0,
    *,
    written: Mapping[str, bytes | str] | None = None,
    removed: Sequence[str] = (),
    text: str = "",
    report: Digest | None = None,
    contents: ContentStore | None = None,
) -> Completed:
    """Return the outcome of a process that ended; what it wrote is kept in `contents`, as the port promises."""
    entries: dict[str, FileEntry] = {}
    for path, content in (written or {}).items():
        data = content.encode() if isinstance(content, str) else content
        entries[path] = FileEntry(contents.put(data) if contents else digest_bytes(data))
    output = Output(text, len(text.encode()))
    result = ActionResult(exit_code=exit_code, written=entries, removed=tuple(removed), output=output, report=report)
    return Completed(result)


class NoFiles:
    """A project without files."""

    def entry(self, path: str) -> FileEntry | None:
        """Find nothing."""

    def listing(self, pattern: str) -> tuple[str, ...]:
        """Find nothing."""
        return ()


CONSENT: Mapping[str, Any] = {"is_granted": lambda _grant: True, "files": NoFiles()}
"""What a `Setting` takes in a test that is not about consent."""


class FakeExecutor:
    """An executor that is a function, called in the thread that asks, and the list of actions it saw.

    With `hold` set, those who ask wait for `release`; `cancel` ends those that wait as Cancelled, and so does
    everything that is asked for afterwards.
    """

    def __init__(self, function: Callable[[Action], ActionOutcome] | None = None, *, hold: bool = False) -> None:
        self.actions: list[Action] = []
        self.cancelled = False
        self.closed = False
        self._function = function or (lambda _action: completed())
        self._hold = hold
        self._waiting: list[tuple[Action, Future[ActionOutcome]]] = []
        self._lock = Lock()

    def run(self, action: Action, hear: Callable[[str], None] | None = None) -> ActionOutcome:
        """Take an action; what the function raises is raised."""
        assert not self.closed, "a closed executor was asked"
        future: Future[ActionOutcome] = Future()
        with self._lock:
            self.actions.append(action)
            held = self._hold and not self.cancelled
            if held:
                self._waiting.append((action, future))
        if not held:
            self._settle(action, future)
        return future.result()

    def release(self, count: int | None = None) -> None:
        """Give the outcomes of the first `count` actions that wait, by default of all."""
        with self._lock:
            freed = self._waiting[:count]
            del self._waiting[: len(freed)]
        for action, future in freed:
            self._settle(action, future)

    def cancel(self) -> None:
        """End what waits, and whatever comes."""
        self.cancelled = True
        self.release()

    def close(self) -> None:
        """Take no more actions; a second time is harmless, as the port promises."""
        self.closed = True

    def _settle(self, action: Action, future: Future[ActionOutcome]) -> None:
        if self.cancelled:
            future.set_result(Cancelled())
            return
        try:
            future.set_result(self._function(action))
        except Exception as error:  # noqa: BLE001  a future hands on whatever its function raised
            future.set_exception(error)


class FakeProvider:
    """A provider that answers from a list, or by a function, and the list of requests it saw.

    An answer that is an exception is raised. A list that is used up is a ProviderError, as a silent repetition of
    the last answer would hide that the loop asks too often.
    """

    def __init__(
        self, answers: Sequence[str | Response | Exception] | Callable[[Request], str | Response] = ()
    ) -> None:
        self.requests: list[Request] = []
        self.deadlines: list[float] = []
        self._answers = answers
        self._lock = Lock()

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Answer one request."""
        with self._lock:
            asked_before = len(self.requests)
            self.requests.append(request)
            self.deadlines.append(deadline_s)
        answer = self._answer(request, asked_before)
        if isinstance(answer, Exception):
            raise answer
        response = Response(text=answer, provenance="fake") if isinstance(answer, str) else answer
        on_text(response.text)
        return response

    def _answer(self, request: Request, number: int) -> str | Response | Exception:
        if callable(self._answers):
            return self._answers(request)
        if number < len(self._answers):
            return self._answers[number]
        return ProviderError(Diagnostic(code="E400", message=f"the fake provider has {len(self._answers)} answers"))


class FakeClock:
    """A clock that stands still until it is told to tick; called, it gives the time, in UTC."""

    def __init__(self, start: datetime = datetime(2026, 2, 15, 14, 30, 22, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed_s = 0.0

    def __call__(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic(self) -> float:
        """Return seconds since the clock was made."""
        return self._elapsed_s

    def tick(self, seconds: float = 1.0) -> None:
        """Let time pass."""
        assert seconds >= 0, "time does not run backwards"
        self._elapsed_s += seconds

    def sleep(self, seconds: float) -> None:
        """Pass the time at once."""
        self.tick(seconds)


def adapter_with(provider: str, **attributes: Any) -> Any:
    """Return the adapter of a provider with other attributes."""
    from orch23.providers import registry  # noqa: PLC0415  what a test has patched

    return type("Double", (registry.ADAPTERS[provider],), attributes)


def made_provider(setting: ProviderContext, asking: CallContext) -> Provider:
    """Return the provider of one attempt of a stage."""
    from orch23.providers.registry import adapter_for  # noqa: PLC0415  few tests need it

    return adapter_for(asking.step).make(setting, asking)


@pytest.fixture
def priced_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `prices` of the pipeline hold for the provider `command`, as for a provider of a plugin: a quick stand-in."""
    from orch23.providers import registry  # noqa: PLC0415  patched in place

    command = adapter_with("command", pricing="unknown")
    monkeypatch.setattr(registry, "ADAPTERS", {**registry.ADAPTERS, "command": command})
