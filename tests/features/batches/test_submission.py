"""Which requests go into a batch together."""

from typing import Any

import pytest

from orch23.features.batches import submission
from orch23.features.batches.pending import pending_call
from orch23.features.batches.submission import QueuedCall, grouped
from orch23.model.llm import Message, Request
from orch23.steps.llm.spec import LLMStep


def queued(*stages: str, text: str = "x", model: str = "m", **more: Any) -> dict[str, QueuedCall]:
    found = {}
    for stage in stages:
        step = LLMStep(provider="anthropic", model=model, prompt="p", **more)
        message = Message("user", f"{text} {stage}")
        request = Request(
            provider="anthropic", model=model, endpoint="e", system="", messages=(message,), identity=(message,)
        )
        found[request.fingerprint()] = QueuedCall(step, pending_call(stage, None, request), request)
    return found


def stages(calls: dict[str, QueuedCall]) -> list[list[list[str]]]:
    return [[[one.call.stage for one in part.values()] for part in parts] for parts in grouped(calls)]


def test_a_batch_has_the_requests_of_one_server_and_model_in_the_order_of_stages() -> None:
    calls = queued("c", "a") | queued("b", model="n") | queued("d", base_url="http://other")
    assert stages(calls) == [[["a", "c"]], [["b"]], [["d"]]]


@pytest.mark.parametrize(("limit", "most"), [("_MOST_REQUESTS", 2), ("_MOST_BYTES", 8)])
def test_a_batch_that_would_be_too_large_is_several(monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    monkeypatch.setattr(submission, limit, most)
    assert stages(queued("a", "b", "c")) == [[["a", "b"], ["c"]]]
    assert stages(queued("a", text="longer than all of them")) == [[["a"]]]
