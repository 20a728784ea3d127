"""What a provider says, answering or failing, is free of secrets before anyone hears it."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from orch23.decide.secrets import Secrets
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import LimitError, Orch23Error, ProviderError
from orch23.model.llm import Request, Response, Usage
from orch23.providers.redacting import Redacting

KEY = "abcd-1234-efgh"
REDACT = Secrets({"MY_KEY": KEY}).redact
REQUEST = Request(provider="p", model="m", endpoint="e", system="", messages=(), identity=())


@dataclass(frozen=True)
class Says:
    """A provider that answers, or fails, in one way."""

    outcome: Response | Orch23Error

    def complete(self, request: Request, deadline_s: float, on_progress: Callable[[int], None]) -> Response:
        del request, deadline_s, on_progress
        if isinstance(self.outcome, Orch23Error):
            raise self.outcome
        return self.outcome


def asked(outcome: Response | Orch23Error) -> Response:
    return Redacting(Says(outcome), REDACT).complete(REQUEST, 1.0, lambda _count: None)


def test_an_answer_keeps_everything_but_the_secrets() -> None:
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
