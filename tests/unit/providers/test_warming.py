"""Calls that share a cached prefix: one writes it, and the others wait for its first event."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from orch23.model.errors import ProviderError
from orch23.model.llm import CachePolicy, Message, Request, Response
from orch23.providers.faults import TransportError, timeout_error
from orch23.providers.warming import CachedPrefixes, WarmingProvider

SHARED = "what all items share\n" * 200
LONG = 60.0


def request(rest: str, **more) -> Request:
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
    first, others = bench.call(request("a")), [bench.call(request(name)) for name in ("b", "c")]
    assert bench.called == ["a"]
    bench.begins.set()
    assert [one.result(LONG).text for one in others] == ["b", "c"]
    assert not first.done()
    bench.ends.set()
    assert first.result(LONG).text == "a"
    bench.call(request("d")).result(LONG)
    assert len(bench.called) == 4


def test_after_a_first_call_that_failed_another_goes_first() -> None:
    bench = Bench()
    bench.fault = TransportError(timeout_error().diagnostic, transient=True)
    first, other = bench.call(request("a")), bench.call(request("b"))
    bench.begins.set()
    assert other.result(LONG).text == "b"
    with pytest.raises(TransportError):
        first.result(LONG)
    # `b` has written it: the failed call does not write it a second time.
    assert not bench.prefixes._writing
    assert len(bench.prefixes._used) == 1


def test_a_wait_ends_with_the_build() -> None:
    bench = Bench()
    first, other = bench.call(request("a")), bench.call(request("b"))
    bench.prefixes.close()
    with pytest.raises(ProviderError, match="the build ended"):
        other.result(LONG)
    bench.begins.set()
    bench.ends.set()
    assert first.result(LONG).text == "a"


def test_a_call_without_time_to_wait_does_not_wait() -> None:
    bench = Bench()
    first = bench.call(request("a"))
    assert bench.call(request("b"), 0.0).result(LONG).text == "b"
    bench.begins.set()
    bench.ends.set()
    first.result(LONG)


def test_a_wait_takes_half_of_the_time_at_most_and_the_call_gets_the_rest() -> None:
    now = 100.0
    bench = Bench(clock=lambda: now)
    first, other = bench.call(request("a"), 10.0), bench.call(request("b"), 10.0)
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
    assert prefixes.begin("p", lifetime_s, LONG)
    prefixes.use("p")
    now += later_s
    assert prefixes.begin("p", lifetime_s, LONG) == writes


@pytest.mark.parametrize(
    "other",
    [
        request("b", family=0),
        request("b", family=100),
        request("b", cache=None),
        request("b", cache=CachePolicy(share=False)),
        request("b", model="claude-haiku-4-5"),
        request("b", endpoint="f"),
        request("b", system="s"),
    ],
    ids=["no item", "too short", "off", "not shared", "another model", "another server", "another system text"],
)
def test_a_call_that_cannot_read_what_the_first_writes_does_not_wait(other: Request) -> None:
    bench = Bench()
    first = bench.call(request("a"))
    assert bench.call(other).result(LONG).text == "b"
    bench.begins.set()
    bench.ends.set()
    first.result(LONG)


def test_an_error_of_the_limits_lets_another_go_first() -> None:
    bench = Bench()
    bench.begins.set()
    bench.fault = ProviderError(timeout_error().diagnostic)
    with pytest.raises(ProviderError):
        bench.call(request("a")).result(LONG)
    assert bench.call(replace(request("b"))).result(LONG).text == "b"
