"""What a provider says, answering or failing, is free of secrets before anyone hears it."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import LimitError, Orch23Error, ProviderError
from orch23.model.llm import Request, Response, Usage
from orch23.providers.faults import status_error
from orch23.providers.middleware import RedactingProvider
from orch23.text.secrets import Secrets

KEY = "abcd-1234-efgh"
REDACT = Secrets({"MY_KEY": KEY}).redact
REQUEST = Request(provider="p", model="m", endpoint="e", system="", messages=(), identity=())


@dataclass(frozen=True)
class Says:
    """A provider that answers, or fails, in one way."""

    outcome: Response | Orch23Error

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        del request, deadline_s, on_text
        if isinstance(self.outcome, Orch23Error):
            raise self.outcome
        return self.outcome


def asked(outcome: Response | Orch23Error) -> Response:
    return RedactingProvider(Says(outcome), REDACT).complete(REQUEST, 1.0, lambda _count: None)


def test_a_response_keeps_everything_but_the_secrets() -> None:
    answer = Response(
        text=f"the key is {KEY}",
        provenance=f"gateway {KEY}",
        model=f"m {KEY}",
        client=f"c {KEY}",
        usage=Usage(1, 2),
        cost="1",
    )
    mark = "[redacted MY_KEY]"
    assert asked(answer) == Response(
        text=f"the key is {mark}", provenance=f"gateway {mark}", model=f"m {mark}", client=f"c {mark}",
        usage=Usage(1, 2), cost="1",
    )  # fmt: skip


def test_a_failure_keeps_everything_but_the_secrets() -> None:
    first = Diagnostic("E401", f"header x-api-key: {KEY}", hint=f"unset {KEY}", subject=f"s {KEY}")
    with pytest.raises(ProviderError) as failed:
        asked(ProviderError(first, Diagnostic("E402", "fine")))
    mark = "[redacted MY_KEY]"
    assert failed.value.diagnostics == (
        Diagnostic("E401", f"header x-api-key: {mark}", hint=f"unset {mark}", subject=f"s {mark}"),
        Diagnostic("E402", "fine"),
    )
    assert KEY not in repr(failed.value.__cause__) + str(failed.value)


def test_a_limit_is_passed_on_as_it_is() -> None:
    limit = LimitError(Diagnostic("E501", "enough"))
    with pytest.raises(LimitError) as reached:
        asked(limit)
    assert reached.value is limit


@dataclass(frozen=True)
class Echoes:
    """A server that answers 400 with a text, seen through what every adapter makes of that."""

    said: str

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        del request, deadline_s, on_text
        raise ProviderError(status_error("server", 400, self.said).diagnostic)


@pytest.mark.parametrize("before", range(280, 301, 4))
def test_a_secret_at_the_limit_of_what_is_shown_of_a_server_is_not_cut_in_two(before: int) -> None:
    with pytest.raises(ProviderError) as failed:
        RedactingProvider(Echoes(f"{'x' * before}{KEY} and more of it"), REDACT).complete(
            REQUEST, 1.0, lambda _count: None
        )
    message = failed.value.diagnostics[0].message
    assert message.startswith(f"server replied 400: {'x' * before}"[:200])
    assert [KEY[:length] for length in range(3, len(KEY)) if f"x{KEY[:length]}" in message] == []


def test_a_secret_of_several_lines_is_taken_out_before_they_are_made_one() -> None:
    redact = Secrets({"MY_KEY": "one two\nthree four\nfive six"}).redact
    with pytest.raises(ProviderError) as failed:
        RedactingProvider(Echoes("<one two\nthree four\nfive six>"), redact).complete(REQUEST, 1.0, lambda _count: None)
    assert failed.value.diagnostics[0].message == "server replied 400: <[redacted MY_KEY]>"
