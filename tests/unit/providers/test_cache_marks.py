"""The key and marks of the vendor's prompt cache, and calls that wait for the one that writes a prefix."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from orch23.model.errors import ProviderError
from orch23.model.llm import CachePolicy, Message, Request, Response
from orch23.providers.cache_marks import CachedPrefixes, WarmingProvider, cache_key
from orch23.providers.faults import TransportError, timeout_error

CACHE = CachePolicy()
HEAD = "what all items share\n"


def request(rest: str = "one\n", **more) -> Request:
    said = (Message("user", HEAD + rest),)
    usual = {"model": "gpt-5.5", "family": len(HEAD), "stable": len(HEAD + rest), "system": "s", "params": {}}
    return Request(provider="openai", endpoint="e", messages=said, identity=said, **{**usual, **more})


def key_of(this: Request, cache: CachePolicy | None = CACHE) -> str | None:
    return cache_key(replace(this, cache=cache))


def test_items_and_attempts_have_the_same_key() -> None:
    key = key_of(request())
    assert key is not None
    assert len(key) <= 64
    assert key_of(request("two\n")) == key
    assert key_of(replace(request(), messages=(Message("user", HEAD + "one\nIt failed."),))) == key


@pytest.mark.parametrize("other", [{"model": "gpt-5.4"}, {"endpoint": "f"}, {"system": "t"}, {"family": 5}])
def test_another_model_server_system_text_or_beginning_has_another_key(other) -> None:
    assert key_of(replace(request(), **other)) != key_of(request())


def test_without_sharing_each_stage_has_a_key_of_its_own() -> None:
    alone = CachePolicy(share=False)
    assert key_of(request(), alone) != key_of(request("two\n"), alone)
    assert key_of(request(), alone) == key_of(request(), alone)


def test_a_request_that_no_other_repeats_has_no_key() -> None:
    assert key_of(request(family=0, stable=0)) is None
    assert key_of(request(), None) is None


SHARED = "what all items share\n" * 200
LONG = 60.0


def item_request(rest: str, **more) -> Request:
    said = (Message("user", SHARED + rest),)
    usual = {"model": "claude-opus-5", "family": len(SHARED), "cache": CachePolicy(), "system": "", "params": {}}
    return Request(provider="anthropic", messages=said, identity=said, **{"endpoint": "e", **usual, **more})


class Noticed(threading.Condition):
    """A condition that reports that someone waits."""

    def __init__(self, notice: Callable[[], None]) -> None:
        super().__init__()
        self._notice = notice

    def wait(self, timeout: float | None = None) -> bool:
        self._notice()
        return super().wait(timeout)


class Bench:
    """Calls in threads. The call `a` reports its first event, and ends, when the test says so."""

    def __init__(self, **how) -> None:
        self.moved = threading.Event()
        self.called: list[str] = []
        self.deadlines: list[float] = []
        self.begins, self.ends = threading.Event(), threading.Event()
        self.fault: Exception | None = None
        self.prefixes = CachedPrefixes(_changed=Noticed(self.moved.set), **how)
        self.pool = ThreadPoolExecutor(4)

    def complete(self, this: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        name = this.messages[0].content.removeprefix(SHARED)
        self.called.append(name)
        self.deadlines.append(deadline_s)
        self.moved.set()
        if name == "a":
            assert self.begins.wait(LONG)
            if self.fault is not None:
                raise self.fault
            on_text("")
            assert self.ends.wait(LONG)
        on_text(name)
        return Response(text=name)

    def call(self, this: Request, deadline_s: float = LONG) -> Future[Response]:
        """Start a call, and return when it waits or has reached the provider."""
        self.moved.clear()
        provider = WarmingProvider(inner=self, prefixes=self.prefixes)
        started = self.pool.submit(provider.complete, this, deadline_s, lambda _text: None)
        assert self.moved.wait(LONG)
        return started


def test_the_others_wait_for_the_first_event_and_not_for_the_end() -> None:
    bench = Bench()
    first, others = bench.call(item_request("a")), [bench.call(item_request(name)) for name in ("b", "c")]
    assert bench.called == ["a"]
    bench.begins.set()
    assert [one.result(LONG).text for one in others] == ["b", "c"]
    assert not first.done()
    bench.ends.set()
    assert first.result(LONG).text == "a"
    bench.call(item_request("d")).result(LONG)
    assert len(bench.called) == 4


def test_after_a_first_call_that_failed_another_goes_first() -> None:
    bench = Bench()
    bench.fault = TransportError(timeout_error().diagnostic, transient=True)
    first, other = bench.call(item_request("a")), bench.call(item_request("b"))
    bench.begins.set()
    assert other.result(LONG).text == "b"
    with pytest.raises(TransportError):
        first.result(LONG)
    # `b` has written it: the failed call does not write it a second time.
    assert not bench.prefixes._writing
    assert len(bench.prefixes._used) == 1


def test_a_wait_ends_with_the_build() -> None:
    bench = Bench()
    first, other = bench.call(item_request("a")), bench.call(item_request("b"))
    bench.prefixes.close()
    with pytest.raises(ProviderError, match="the build ended"):
        other.result(LONG)
    bench.begins.set()
    bench.ends.set()
    assert first.result(LONG).text == "a"


def test_a_call_without_time_to_wait_does_not_wait() -> None:
    bench = Bench()
    first = bench.call(item_request("a"))
    assert bench.call(item_request("b"), 0.0).result(LONG).text == "b"
    bench.begins.set()
    bench.ends.set()
    first.result(LONG)


def test_a_wait_takes_half_of_the_time_at_most_and_the_call_gets_the_rest() -> None:
    now = 100.0
    bench = Bench(clock=lambda: now)
    first, other = bench.call(item_request("a"), 10.0), bench.call(item_request("b"), 10.0)
    now = 105.0
    with bench.prefixes._changed:
        bench.prefixes._changed.notify_all()
    assert other.result(LONG).text == "b"
    assert bench.deadlines == [10.0, 5.0]
    bench.begins.set()
    bench.ends.set()
    first.result(LONG)


@pytest.mark.parametrize(("ttl", "later_s", "writes"), [("5m", 299, False), ("5m", 300, True), ("1h", 3599, False)])
def test_a_prefix_that_the_vendor_no_longer_has_is_written_again(ttl, later_s: float, writes: bool) -> None:
    now = 0.0
    prefixes = CachedPrefixes(clock=lambda: now)
    lifetime_s = {"5m": 300.0, "1h": 3600.0}[ttl]
    assert prefixes.begin(("p",), lifetime_s, LONG) == ("p",)
    prefixes.use(("p",))
    now += later_s
    assert prefixes.begin(("p", "q"), lifetime_s, LONG) == (("p", "q") if writes else ("q",))


@pytest.mark.parametrize(
    "other",
    [
        item_request("b", family=0),
        item_request("b", family=100),
        item_request("b", cache=None),
        item_request("b", cache=CachePolicy(share=False)),
        item_request("b", model="claude-haiku-4-5"),
        item_request("b", endpoint="f"),
        item_request("b", system="s"),
    ],
    ids=["no item", "too short", "off", "not shared", "another model", "another server", "another system text"],
)
def test_a_call_that_cannot_read_what_the_first_writes_does_not_wait(other: Request) -> None:
    bench = Bench()
    first = bench.call(item_request("a"))
    assert bench.call(other).result(LONG).text == "b"
    bench.begins.set()
    bench.ends.set()
    first.result(LONG)


def test_an_error_of_the_limits_lets_another_go_first() -> None:
    bench = Bench()
    bench.begins.set()
    bench.fault = ProviderError(timeout_error().diagnostic)
    with pytest.raises(ProviderError):
        bench.call(item_request("a")).result(LONG)
    assert bench.call(replace(item_request("b"))).result(LONG).text == "b"
