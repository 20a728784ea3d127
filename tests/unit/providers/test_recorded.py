"""Recorded answers: what is reused, what is asked, and that an answer is on disk before anyone sees it."""

import pytest

from orch23.model.errors import ProviderError
from orch23.model.llm import Exchange, ExchangeOutcome, Message, Provider, Request, Response, Usage
from orch23.providers import codes
from orch23.providers.recorded import Recorded

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
        self.near: tuple[Exchange, str] | None = None
        self.folders: set[str | None] = set()

    def get(self, fingerprint, transcripts):
        self.folders.add(transcripts)
        return self.exchanges.get(fingerprint)

    def put(self, exchange, transcripts) -> None:
        self.folders.add(transcripts)
        self.exchanges[exchange.fingerprint] = exchange
        self.puts.append(exchange)

    def nearest(self, stage, parts, transcripts):
        self.folders.add(transcripts)
        return self.near


class Model:
    """A provider that counts; `store` is looked at when it is asked."""

    def __init__(self, text: str = "answer") -> None:
        self.text = text
        self.asked: list[Request] = []

    def complete(self, request, deadline_s, on_progress):
        self.asked.append(request)
        on_progress(len(self.text))
        return Response(text=self.text, stop="max_tokens", usage=Usage(3, 4), duration_s=1.5, provenance="m")


def request(text: str = "hello") -> Request:
    sent = (Message("user", text + " (excerpt)"),)
    return Request(
        provider="p", model="m", endpoint="e", system="s", messages=sent, identity=(Message("user", text),), params={}
    )


def recorded(store: Store, model: Provider, **more) -> Recorded:
    return Recorded(inner=model, store=store, stage="code@T1", transcripts="q.transcripts", **more)


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
def test_what_an_interrupted_run_has_paid_for_is_reused_whatever_became_of_it(
    outcome: ExchangeOutcome, mode: str
) -> None:
    store, model = Store(), Model()
    ask(recorded(store, model))
    recorded(store, model).settle(request().fingerprint(), outcome, ())
    assert ask(recorded(store, model, mode=mode, reusable={request().fingerprint()})).replayed


def test_replay_of_an_unrecorded_request_names_the_stage_and_the_difference_and_asks_nobody() -> None:
    store, model = Store(), Model()
    with pytest.raises(ProviderError) as caught:
        ask(recorded(store, model, mode="replay"))
    diagnostic = caught.value.diagnostics[0]
    assert (diagnostic.code, diagnostic.subject) == (codes.UNRECORDED, "code@T1")
    assert "no answer is recorded for this stage" in diagnostic.message
    store.near = (Exchange(fingerprint="f" * 64, stage="code@T1", request={}, response=""), "params")
    with pytest.raises(ProviderError, match="differs in params"):
        ask(recorded(store, model, mode="replay"))
    assert model.asked == []


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


def test_a_replay_leaves_the_recorded_outcome_alone() -> None:
    store, model = Store(), Model()
    ask(recorded(store, model))
    fingerprint = request().fingerprint()
    recorded(store, model).settle(fingerprint, "invalid", ("a",))
    before = len(store.puts)
    recorded(store, model, mode="replay").settle(fingerprint, "accepted", ())
    assert len(store.puts) == before


def test_nothing_is_written_when_the_provider_fails() -> None:
    class Broken:
        def complete(self, request, deadline_s, on_progress):
            raise ProviderError

    store = Store()
    with pytest.raises(ProviderError):
        ask(recorded(store, Broken()))
    assert store.puts == []
