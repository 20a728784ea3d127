"""The doubles keep the promises of the ports they fill."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from orch23.model.action import Action, ActionOutcome, Cancelled, Completed, Output, TimedOut
from orch23.model.errors import ProviderError
from orch23.model.llm import Message, Provider, Request, Response
from tests.doubles import FakeClock, FakeExecutor, FakeProvider, MemoryContents, completed


def _action(*argv: str) -> Action:
    return Action(argv=argv, inputs={})


def _request(text: str) -> Request:
    message = (Message("user", text),)
    return Request(provider="fake", model="m", endpoint="", system="", messages=message, identity=message)


def _silent(_characters: str) -> None:
    pass


def test_an_executor_gives_what_its_function_says_and_remembers_the_action() -> None:
    def by_name(action: Action) -> ActionOutcome:
        return TimedOut(Output("slow"), 1.0) if action.argv == ("slow",) else completed(1, text="red")

    executor = FakeExecutor(by_name)
    red, slow = executor.run(_action("test")), executor.run(_action("slow"))
    assert isinstance(red, Completed)
    assert red.result.exit_code == 1
    assert slow == TimedOut(Output("slow"), 1.0)
    assert [action.argv for action in executor.actions] == [("test",), ("slow",)]


def test_an_executor_that_holds_gives_outcomes_when_released_and_cancels_the_rest() -> None:
    executor = FakeExecutor(hold=True)
    pause = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(executor.run, _action("a"))
        while len(executor.actions) < 1:
            pause.wait(0.001)
        second = threads.submit(executor.run, _action("b"))
        while len(executor.actions) < 2:
            pause.wait(0.001)
        assert not first.done()
        executor.release(1)
        assert isinstance(first.result(20), Completed)
        assert not second.done()
        executor.cancel()
        assert second.result(20) == Cancelled()
    assert executor.run(_action("c")) == Cancelled()


def test_what_the_function_raises_is_raised() -> None:
    def broken(_action: Action) -> ActionOutcome:
        raise OSError

    with pytest.raises(OSError):
        FakeExecutor(broken).run(_action("a"))


def test_a_closed_executor_takes_no_action() -> None:
    executor = FakeExecutor()
    executor.close()
    executor.close()
    with pytest.raises(AssertionError):
        executor.run(_action("a"))


def test_the_bytes_that_an_outcome_names_are_in_the_contents() -> None:
    kept = MemoryContents()
    outcome = completed(written={"a.txt": "text", "b.bin": b"\x00"}, removed=["c"], contents=kept)
    written = outcome.result.written
    assert {path: kept.blobs[entry.digest.sha256] for path, entry in written.items()} == {
        "a.txt": b"text",
        "b.bin": b"\x00",
    }
    assert outcome.result.removed == ("c",)


def test_a_provider_answers_in_order_and_is_used_up_loudly() -> None:
    fake = FakeProvider(["one", Response(text="two", stop="max_tokens"), TimeoutError()])
    provider: Provider = fake
    reported: list[str] = []
    assert provider.complete(_request("a"), 5.0, reported.append).text == "one"
    assert provider.complete(_request("b"), 6.0, reported.append).stop == "max_tokens"
    with pytest.raises(TimeoutError):
        provider.complete(_request("c"), 7.0, reported.append)
    with pytest.raises(ProviderError):
        provider.complete(_request("d"), 8.0, reported.append)
    assert reported == ["one", "two"]
    assert [request.messages[0].content for request in fake.requests] == ["a", "b", "c", "d"]
    assert fake.deadlines == [5.0, 6.0, 7.0, 8.0]


def test_a_provider_can_be_a_function() -> None:
    fake = FakeProvider(lambda request: request.messages[0].content.upper())
    assert fake.complete(_request("a"), 1.0, _silent).text == "A"


def test_a_clock_stands_still_until_it_is_reported_to_tick() -> None:
    clock = FakeClock()
    start = clock()
    assert clock() == start
    clock.tick(90)
    clock.sleep(0.5)
    assert (clock() - start).total_seconds() == 90.5
    assert clock.monotonic() == 90.5
