"""Recorded answers: what is reused, what is asked, and that an answer is on disk before anyone sees it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from orch23.model.errors import ProviderError
from orch23.model.llm import Exchange, ExchangeOutcome, Message, Provider, Request, Response, Usage
from orch23.providers.recordings import RecordingProvider, UniqueCalls

OUTCOMES: list[ExchangeOutcome] = [
    "pending",
    "accepted",
    "invalid",
    "refused",
    "truncated",
    "empty",
    "accepted_by_hand",
]


class Store:
    """Transcripts in memory; remembers what was put, in order."""

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = {}
        self.puts: list[Exchange] = []
        self.folders: set[str | None] = set()

    def get(self, fingerprint, transcripts):
        self.folders.add(transcripts)
        return self.exchanges.get(fingerprint)

    def put(self, exchange, transcripts) -> None:
        self.folders.add(transcripts)
        self.exchanges[exchange.fingerprint] = exchange
        self.puts.append(exchange)

    put_later = put

    def nearest(self, stage, parts, transcripts):
        raise AssertionError


class Model:
    """A provider that counts; `store` is looked at when it is asked."""

    def __init__(self, text: str = "answer") -> None:
        self.text = text
        self.asked: list[Request] = []

    def complete(self, request, deadline_s, on_text):
        self.asked.append(request)
        on_text(self.text)
        return Response(text=self.text, stop="max_tokens", usage=Usage(3, 4), duration_s=1.5, provenance="m")


def request(text: str = "hello") -> Request:
    sent = (Message("user", text + " (excerpt)"),)
    return Request(
        provider="p", model="m", endpoint="e", system="s", messages=sent, identity=(Message("user", text),), params={}
    )


@pytest.fixture
def store_with_answer() -> Store:
    store = Store()
    ask(recorded(store, Model()))
    return store


def recorded(store: Store, model: Provider, **more) -> RecordingProvider:
    return RecordingProvider(inner=model, store=store, stage="code@T1", transcripts="q.transcripts", **more)


def ask(provider: Provider) -> Response:
    return provider.complete(request(), 10.0, lambda _n: None)


def test_a_call_is_written_pending_before_it_is_returned_and_replayed_after() -> None:
    store, model = Store(), Model()
    provider = recorded(store, model)
    first = ask(provider)
    assert not first.replayed
    exchange = store.puts[0]
    assert (exchange.outcome, exchange.response, exchange.stage) == ("pending", "answer", "code@T1")
    assert exchange.request["sent"] == [{"role": "user", "content": "hello (excerpt)"}]
    assert exchange.request["messages"] == [{"role": "user", "content": "hello"}]
    second = ask(provider)
    assert second == Response(
        text="answer", stop="max_tokens", usage=Usage(3, 4), duration_s=1.5, provenance="m", replayed=True
    )
    assert len(model.asked) == 1
    assert store.folders == {"q.transcripts"}


def test_a_system_prompt_is_recorded_as_it_was_sent() -> None:
    store = Store()
    blocks = replace(request(), system="block 1", system_identity="block 0")
    recorded(store, Model()).complete(blocks, 10.0, lambda _n: None)
    assert store.puts[0].request["sent_system"] == "block 1"
    assert store.puts[0].request["system"] == "block 0"
    ask(recorded(store, Model()))
    assert "sent_system" not in store.puts[-1].request


def test_a_schema_is_recorded_as_it_was_sent() -> None:
    store = Store()
    narrow = replace(request(), schema={"type": "string"}, schema_identity={"type": "object"})
    recorded(store, Model()).complete(narrow, 10.0, lambda _n: None)
    assert store.puts[0].request["sent_schema"] == {"type": "string"}
    assert store.puts[0].request["schema"] == {"type": "object"}
    assert narrow.fingerprint() == replace(narrow, schema={"type": "object"}, schema_identity=None).fingerprint()
    ask(recorded(store, Model()))
    assert "sent_schema" not in store.puts[-1].request


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize(
    ("mode", "reused"),
    [
        ("cached", set(OUTCOMES)),
        ("record", set()),
        ("replay", set(OUTCOMES)),
    ],
)
def test_the_outcome_and_the_mode_decide_what_is_reused(outcome: ExchangeOutcome, mode: str, reused: set[str]) -> None:
    store, model = Store(), Model()
    ask(recorded(store, model))
    recorded(store, model).settle(request().fingerprint(), outcome, ())
    assert ask(recorded(store, model, mode=mode)).replayed is (outcome in reused)
    assert len(model.asked) == (1 if outcome in reused else 2)


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("mode", ["cached", "record"])
def test_responses_of_an_interrupted_run_are_reused_whatever_their_outcome(outcome: ExchangeOutcome, mode: str) -> None:
    store, model = Store(), Model()
    ask(recorded(store, model))
    recorded(store, model).settle(request().fingerprint(), outcome, ())
    assert ask(recorded(store, model, mode=mode, unique_calls=UniqueCalls({request().fingerprint()}))).replayed


def test_a_superseded_response_is_kept_and_not_used(store_with_answer: Store) -> None:
    store, model = store_with_answer, Model()
    provider = recorded(store, model)
    provider.supersede(request().fingerprint())
    provider.supersede(request().fingerprint())
    provider.supersede("unknown")
    assert [e.superseded for e in store.puts] == [False, True]
    assert provider.find(request()) is None
    assert provider.is_excluded(request())
    assert store.get(request().fingerprint(), None).response == "answer"


def test_a_stage_with_a_result_replaces_a_response_once_a_later_one_is_accepted_and_not_refused_after_that() -> None:
    store, model, calls = Store(), Model(), UniqueCalls()
    first, second = request(), replace(request(), sample=1)
    ask(recorded(store, model))
    provider = recorded(store, model, mode="record", keeps=True, unique_calls=calls)
    provider.complete(second, 1.0, lambda _text: None)
    provider.supersede(first.fingerprint())
    ends: tuple[tuple[ExchangeOutcome, bool], ...] = (("failed", False), ("accepted", True), ("failed", False))
    for outcome, is_replaced in ends:
        provider.settle(second.fingerprint(), outcome, ())
        assert store.get(first.fingerprint(), None).superseded is is_replaced


@pytest.mark.parametrize(("mode", "passed"), [("cached", False), ("record", True), ("replay", False)])
def test_only_record_skips_a_recorded_response(store_with_answer: Store, mode: str, *, passed: bool) -> None:
    provider = recorded(store_with_answer, Model(), mode=mode)
    assert provider.is_excluded(request()) is passed
    assert not provider.is_excluded(request("unrecorded"))


def test_record_takes_what_this_run_has_recorded_as_its_own() -> None:
    store, model, unique_calls = Store(), Model(), UniqueCalls()
    assert not ask(recorded(store, model, mode="record", unique_calls=unique_calls)).replayed
    assert ask(recorded(store, model, mode="record", unique_calls=unique_calls)).replayed
    assert not recorded(store, model, mode="record", unique_calls=unique_calls).is_excluded(request())
    assert recorded(store, model, mode="record").is_excluded(request())
    assert len(model.asked) == 1


def test_stages_with_the_same_request_at_the_same_time_call_once() -> None:
    store, first, second = Store(), threading.Event(), threading.Event()

    class Slow(Model):
        def complete(self, request, deadline_s, on_text):
            first.set()
            assert second.wait(10)
            return super().complete(request, deadline_s, on_text)

    class Watched(UniqueCalls):
        def calling(self, fingerprint):
            if first.is_set():
                second.set()
            return super().calling(fingerprint)

    unique_calls, model = Watched(), Slow()
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(ask, recorded(store, model, unique_calls=unique_calls))
        assert first.wait(10)
        other = pool.submit(ask, recorded(store, model, unique_calls=unique_calls))
        assert [one.result(10).replayed, other.result(10).replayed] == [False, True]
    assert len(model.asked) == 1


def test_after_a_failed_call_the_next_stage_calls() -> None:
    class Broken:
        def complete(self, request, deadline_s, on_text):
            raise ProviderError

    store, model, unique_calls = Store(), Model(), UniqueCalls()
    with pytest.raises(ProviderError):
        ask(recorded(store, Broken(), unique_calls=unique_calls))
    assert not ask(recorded(store, model, unique_calls=unique_calls)).replayed


def test_settling_writes_the_outcome_once() -> None:
    store, model = Store(), Model()
    provider = recorded(store, model)
    ask(provider)
    fingerprint = request().fingerprint()
    provider.settle(fingerprint, "invalid", ("[E203] empty",))
    provider.settle(fingerprint, "invalid", ("[E203] empty",))
    provider.settle("unknown", "accepted", ())
    assert [e.outcome for e in store.puts] == ["pending", "invalid"]
    assert store.puts[-1].diagnostics == ("[E203] empty",)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_replay_writes_nothing(outcome: ExchangeOutcome) -> None:
    store, model = Store(), Model()
    ask(recorded(store, model))
    fingerprint = request().fingerprint()
    recorded(store, model).settle(fingerprint, outcome, ("a",))
    before = len(store.puts)
    recorded(store, model, mode="replay").settle(fingerprint, "accepted", ())
    assert len(store.puts) == before


def test_the_outcome_is_that_of_the_stage_that_called() -> None:
    store, model = Store(), Model()
    ask(recorded(store, model))
    fingerprint = request().fingerprint()
    other = replace(recorded(store, model), stage="code@T2")
    other.settle(fingerprint, "accepted", ())
    assert store.exchanges[fingerprint].outcome == "accepted"
    recorded(store, model).settle(fingerprint, "invalid", ("outside the fence",))
    other.settle(fingerprint, "accepted", ())
    assert store.exchanges[fingerprint].outcome == "invalid"


def test_nothing_is_written_when_the_provider_fails() -> None:
    class Broken:
        def complete(self, request, deadline_s, on_text):
            raise ProviderError

    store = Store()
    with pytest.raises(ProviderError):
        ask(recorded(store, Broken()))
    assert store.puts == []
