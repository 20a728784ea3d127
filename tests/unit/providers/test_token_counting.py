"""A request is counted if it may not fit into the context of its model; one that certainly does not is not sent."""

import pytest
from msgspec import Struct, field

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import LimitError
from orch23.model.llm import Message, Request, Response
from orch23.providers.faults import TransportError
from orch23.providers.middleware import CountingProvider
from orch23.providers.model_facts import ModelFacts

CONTEXT = 5_000


class Vendor(Struct):
    """A model, its budget, and its counter; `count` is 0 if the server does not count."""

    count: int
    refuses: str = ""
    counted: int = 0
    sent: list[int | None] = field(default_factory=list)

    def complete(self, request: Request, _deadline_s: float, _on_text: object) -> Response:
        if self.refuses and request.input_tokens is None:
            raise LimitError(Diagnostic(self.refuses, "too much"))
        self.sent.append(request.input_tokens)
        return Response(text="said")

    def count_tokens(self, _request: Request, _deadline_s: float) -> int:
        self.counted += 1
        if not self.count:
            raise TransportError(Diagnostic("E414", "there is no such page"))
        return self.count


def call(vendor: Vendor, characters: int, *, context: int | None = CONTEXT, might_fit: bool = True) -> Response:
    message = Message("user", "x" * characters)
    request = Request(
        provider="p", model="m", endpoint="e", system="", messages=(message,), identity=(message,),
        params={"max_tokens": 100},
    )  # fmt: skip
    provider = CountingProvider(
        inner=vendor,
        counter=vendor,
        facts=ModelFacts(context_tokens=context),
        might_fit=lambda one: one.input_tokens == 1 and might_fit,
    )
    return provider.complete(request, 600.0, lambda _: None)


def test_a_prompt_that_surely_fits_is_not_counted() -> None:
    vendor = Vendor(count=50_000)
    call(vendor, 500)
    assert (vendor.counted, vendor.sent) == (0, [None])


def test_a_long_prompt_is_sent_if_it_fits_as_counted() -> None:
    vendor = Vendor(count=4_000)
    call(vendor, 9_000)
    assert (vendor.counted, vendor.sent) == (1, [4_080])


def test_a_prompt_that_does_not_fit_as_counted_is_not_sent() -> None:
    vendor = Vendor(count=6_000)
    with pytest.raises(TransportError) as caught:
        call(vendor, 9_000)
    assert not caught.value.charged
    assert not caught.value.transient
    assert "the prompt has 6,120 tokens, and with `max_tokens: 100` that is more than the context of m, 5,000" in str(
        caught.value.diagnostic
    )
    assert vendor.sent == []


@pytest.mark.parametrize(("count", "context"), [(0, CONTEXT), (5_000, None)], ids=["no counter", "no known context"])
def test_without_a_count_or_a_context_the_server_decides(count: int, context: int | None) -> None:
    vendor = Vendor(count=count)
    call(vendor, 9_000, context=context)
    assert vendor.sent == [None]


@pytest.mark.parametrize("code", ["E502", "E503"])
def test_a_request_over_the_budget_is_counted_and_tried_once_more(code: str) -> None:
    vendor = Vendor(count=300, refuses=code)
    call(vendor, 500)
    assert (vendor.counted, vendor.sent) == (1, [306])


def test_nothing_is_counted_if_the_response_alone_is_too_much() -> None:
    vendor = Vendor(count=300, refuses="E502")
    with pytest.raises(LimitError):
        call(vendor, 500, might_fit=False)
    assert vendor.counted == 0


@pytest.mark.parametrize("code", ["E501", "E504"])
def test_another_limit_is_no_reason_to_count(code: str) -> None:
    vendor = Vendor(count=300, refuses=code)
    with pytest.raises(LimitError):
        call(vendor, 500)
    assert vendor.counted == 0
