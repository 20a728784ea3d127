"""Each request is reserved before it is sent, and what became of it is said exactly once."""

from collections.abc import Callable

import pytest

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, LimitError, ProviderError
from orch23.model.llm import Message, Request, Response, Usage
from orch23.providers.faults import NotCollectedError, TransportError, incomplete_error
from orch23.providers.middleware import MeteredProvider

REQUEST = Request(provider="p", model="m", endpoint="e", system="", messages=(Message("user", "x"),), identity=())
FAULT = Diagnostic("E419", "gone")


class Meter:
    """Notes what it hears. `left` are the answers to how much time is left; None is none."""

    def __init__(self, *left: float | None, full: bool = False) -> None:
        self.heard: list[str] = []
        self._left = list(left)
        self._full = full

    def reserve(self, stage: str, _request: Request) -> None:
        self.heard.append(f"reserve {stage}")
        if self._full:
            raise LimitError(FAULT)

    def deadline_s(self, _stage: str, asked_s: float) -> float:
        left = self._left.pop(0) if self._left else asked_s
        if left is None:
            raise LimitError(Diagnostic("E504", "over"))
        return min(left, asked_s)

    def with_cost(self, _request: Request, response: Response) -> Response:
        self.heard.append("priced")
        return response

    def settle(self, stage: str, _response: Response) -> None:
        self.heard.append(f"settle {stage}")

    def release(self, _stage: str) -> None:
        self.heard.append("release")

    def might_fit(self, _stage: str, _request: Request) -> bool:
        return True

    def settle_unusable(self, _stage: str, usage: Usage, *, is_final: bool = True) -> None:
        self.heard.append(f"{'unusable' if is_final else 'cut after'} {usage.total}")

    def forfeit(self, _stage: str) -> None:
        self.heard.append("forfeit")


class Provider:
    def __init__(self, outcome: Response | BaseException) -> None:
        self.deadlines: list[float] = []
        self._outcome = outcome

    def complete(self, _request: Request, deadline_s: float, _on_text: Callable[[str], None]) -> Response:
        self.deadlines.append(deadline_s)
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome


def complete(provider: Provider, meter: Meter) -> Response:
    return MeteredProvider(inner=provider, stage="a", meter=meter).complete(REQUEST, 60.0, lambda _count: None)


def test_a_response_is_priced_and_settled_by_the_caller_that_records_it() -> None:
    meter, provider = Meter(), Provider(Response(text="yes"))
    assert complete(provider, meter).text == "yes"
    assert meter.heard == ["reserve a", "priced"]
    assert provider.deadlines == [60.0]


def test_what_does_not_fit_is_not_sent() -> None:
    meter, provider = Meter(full=True), Provider(Response(text="yes"))
    with pytest.raises(LimitError):
        complete(provider, meter)
    assert (provider.deadlines, meter.heard) == ([], ["reserve a"])


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (TransportError(FAULT, transient=True, status=429), "release"),
        (TransportError(FAULT, charged=True), "forfeit"),
        (TransportError(FAULT, charged=True, usage=Usage(3, 4)), "unusable 7"),
        (ProviderError(FAULT), "forfeit"),
        (ConfigurationError(FAULT), "release"),
        (KeyboardInterrupt(), "forfeit"),
        (TypeError("a bug"), "forfeit"),
    ],
)
def test_only_what_is_known_to_be_free_is_given_back(fault: BaseException, said: str) -> None:
    meter = Meter()
    with pytest.raises(type(fault)):
        complete(Provider(fault), meter)
    assert meter.heard == ["reserve a", said]


@pytest.mark.parametrize(("usage", "said"), [(None, "forfeit"), (Usage(3, 4), "unusable 7")])
def test_what_cannot_be_collected_is_accounted_for_before_it_is_sent_again(usage: Usage | None, said: str) -> None:
    class Lost(Provider):
        def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
            if not self.deadlines:
                self.deadlines.append(deadline_s)
                raise NotCollectedError(usage)
            return super().complete(request, deadline_s, on_text)

    meter = Meter()
    assert complete(Lost(Response(text="yes")), meter).text == "yes"
    assert meter.heard == ["reserve a", said, "reserve a", "priced"]


def test_a_request_has_no_more_time_than_its_stage() -> None:
    provider = Provider(Response(text="yes"))
    complete(provider, Meter(5.0))
    assert provider.deadlines == [5.0]


def test_a_stage_whose_time_is_over_sends_nothing_and_is_charged_nothing() -> None:
    meter, provider = Meter(None), Provider(Response(text="yes"))
    with pytest.raises(LimitError):
        complete(provider, meter)
    assert (provider.deadlines, meter.heard) == ([], ["reserve a", "release"])


@pytest.mark.parametrize("fault", [TransportError(FAULT), ProviderError(FAULT)])
def test_a_fault_when_the_time_is_over_is_the_end_of_the_time(fault: Exception) -> None:
    meter = Meter(5.0, None)
    with pytest.raises(LimitError) as end:
        complete(Provider(fault), meter)
    assert end.value.diagnostics[0].code == "E504"
    assert len(meter.heard) == 2, "and is settled all the same"


def test_the_tokens_of_a_response_that_was_cut_are_counted_and_the_rest_is_possible() -> None:
    meter = Meter()
    fault = incomplete_error("u", "cut").knowing(Usage(7, 3))
    with pytest.raises(TransportError):
        complete(Provider(fault), meter)
    assert meter.heard == ["reserve a", "cut after 10"]
