"""Answer requests from recorded exchanges, record new responses, or refuse to call."""

import threading
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.errors import ProviderError
from orch23.model.event_data import RecordingMode
from orch23.model.llm import Exchange, ExchangeOutcome, Provider, Request, Response
from orch23.text.request_difference import describe_difference


class TranscriptStore(Protocol):
    """The port to recorded exchanges. `transcripts` is the committed directory that is read first, if any."""

    def get(self, fingerprint: str, transcripts: str | None, /) -> Exchange | None:
        """Return the exchange of a request; None if there is none."""

    def put(self, exchange: Exchange, transcripts: str | None, /) -> None:
        """Store an exchange durably; it replaces an earlier one of the same request."""

    def put_later(self, exchange: Exchange, transcripts: str | None, /) -> None:
        """Replace an exchange for this process at once, and durably with the next results that are stored."""

    def nearest(self, stage: str, parts: Mapping[str, Json], transcripts: str | None, /) -> Exchange | None:
        """Return another exchange of a stage, the most similar one to these parts of a request."""


class UniqueCalls:
    """Makes a run call each request once, even if several stages need it at the same time.

    `taken` are the fingerprints that an interrupted run had requested as new. In the mode `record` these and those of
    this run are not requested again.
    """

    def __init__(self, taken: Container[str] = frozenset()) -> None:
        """Start a run that continues an interrupted one with these fingerprints."""
        # Only these: with all responses that the run used, `--resample` after Ctrl-C would do nothing (ADR 7).
        self._taken = taken
        self._recorded: set[str] = set()
        # The responses of each stage that later samples of this run replace.
        self.replaced: dict[str, list[str]] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def __contains__(self, fingerprint: object) -> bool:
        """Return whether this run, or the one that it continues, recorded the response."""
        return fingerprint in self._recorded or fingerprint in self._taken

    @contextmanager
    def calling(self, fingerprint: str) -> Iterator[None]:
        """Let one thread at a time call a request."""
        with self._lock:
            lock = self._locks.setdefault(fingerprint, threading.Lock())
        with lock:
            yield

    def add(self, fingerprint: str) -> None:
        """Note that the run recorded a response."""
        self._recorded.add(fingerprint)


class RecordingProvider(Struct, frozen=True, kw_only=True):
    """A provider that records: one stage's view of the transcripts.

    `mode` is the mode of the step, or of the whole build. `cached` uses every recorded response, also a refused one: an
    unchanged failed build costs nothing and fails the same way. `record` requests another sample of what is recorded,
    and uses only responses of this run, by `unique_calls`. In `replay`, `inner` refuses every call. `keeps`: the stage
    has a result, whose responses stay in force until a new one is accepted.
    """

    inner: Provider
    store: TranscriptStore
    stage: str
    mode: RecordingMode = "cached"
    transcripts: str | None = None
    unique_calls: UniqueCalls = field(default_factory=UniqueCalls)
    keeps: bool = False
    _own: dict[str, Exchange] = field(default_factory=dict)

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Return the recorded response, or the provider's, which is on disk before this returns.

        Raises:
            ProviderError: the provider failed, or may not be called.
        """
        fingerprint = request.fingerprint()
        # Only one response can be recorded for a fingerprint: equal requests of several stages cause one call (ADR 7).
        with self.unique_calls.calling(fingerprint):
            # If this thread waited, another stage has made the same call.
            known = self.find(request)
            if known is not None:
                return Response(text=known.response, replayed=True, **_facts(known))
            response = self.inner.complete(request, deadline_s, on_text)
            own = _exchange(fingerprint, self.stage, request, response)
            self.store.put(own, self.transcripts)
            self._own[fingerprint] = own  # only its own stage changes it, so `settle` need not read it
            self.unique_calls.add(fingerprint)
        return response

    def find(self, request: Request) -> Exchange | None:
        """Return the recorded exchange that answers a request; None if the provider would be called."""
        found = self.store.get(request.fingerprint(), self.transcripts)
        return None if found is None or self._is_excluded(found) else found

    def is_excluded(self, request: Request) -> bool:
        """Return whether a request has a recorded response that must not be used: then its next sample is requested."""
        found = self.store.get(request.fingerprint(), self.transcripts)
        return found is not None and self._is_excluded(found)

    def supersede(self, fingerprint: str) -> None:
        """Mark a response as replaced by a later sample. Call it after that exists: a failed call changes nothing."""
        found = self.store.get(fingerprint, self.transcripts)
        if found is not None and not found.superseded:
            self.unique_calls.replaced.setdefault(self.stage, []).append(fingerprint)
            self._mark(superseded=not self.keeps)

    def _mark(self, *, superseded: bool) -> None:
        for one in self.unique_calls.replaced.get(self.stage, ()):
            found = self.store.get(one, self.transcripts)
            if found is not None and found.superseded != superseded:
                self.store.put(replace(found, superseded=superseded), self.transcripts)

    def settle(self, fingerprint: str, outcome: ExchangeOutcome, diagnostics: tuple[str, ...]) -> None:
        """Record the outcome of a response.

        Nothing is recorded in `replay`, which changes no file. A response that another stage requested keeps its
        outcome, since the two stages may judge it differently.
        """
        if self.keeps:
            # A check of several stages together may refuse a response that was accepted.
            self._mark(superseded=outcome == "accepted")
        known = self._own.get(fingerprint) or self.store.get(fingerprint, self.transcripts)
        if self.mode == "replay" or known is None or (known.outcome != "pending" and known.stage != self.stage):
            return
        settled = replace(known, outcome=outcome, diagnostics=diagnostics)
        if settled != known:
            self._own.pop(fingerprint, None)
            # A crash loses it together with the result, which is then judged again.
            put = self.store.put_later if outcome == "accepted" else self.store.put
            put(settled, self.transcripts)

    def _is_excluded(self, found: Exchange) -> bool:
        # A refused or truncated response is not excluded: otherwise each further build would be paid for (ADR 7).
        return found.superseded or (self.mode == "record" and found.fingerprint not in self.unique_calls)


def _facts(of: Exchange | Response) -> dict[str, Any]:
    """Return what a response and its record both have, by the name of the field."""
    return {name: getattr(of, name) for name in Response.__struct_fields__ if name in Exchange.__struct_fields__}


def _exchange(fingerprint: str, stage: str, request: Request, response: Response) -> Exchange:
    sent: dict[str, Json] = {"sent": [{"role": m.role, "content": m.content} for m in request.messages]}
    # A system prompt with blocks of data is sent with other delimiters than its part of the fingerprint has.
    sent |= {} if request.system_identity is None else {"sent_system": request.system}
    sent |= {} if request.schema_identity is None else {"sent_schema": request.schema}
    return Exchange(
        fingerprint=fingerprint,
        stage=stage,
        request={**request.parts(), **sent},
        response=response.text,
        outcome="pending",
        **_facts(response),
    )


class ReplayOnlyProvider(Struct, frozen=True, kw_only=True):
    """A provider that refuses every call. `code` and `hint` say why, and what to do."""

    store: TranscriptStore
    stage: str
    transcripts: str | None
    code: str
    hint: str
    redact: Callable[[str], str]

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> NoReturn:
        """Refuse a request.

        Raises:
            ProviderError: always, with the first difference from the nearest recording.
        """
        del deadline_s, on_text
        near = self.store.nearest(self.stage, request.parts(), self.transcripts)
        if near is None:
            message = "no response is recorded for this stage"
        else:
            how = describe_difference(near.request, request.parts(), self.redact)
            message = (
                f"no response is recorded for this request; compared with the nearest ({near.fingerprint[:12]}), {how}"
            )
        raise ProviderError(Diagnostic(self.code, message, subject=self.stage, hint=self.hint))
