"""Scripted answers: by stage and attempt, an item's own first, and no more than were written."""

import pytest

from orch23.model.errors import ProviderError
from orch23.model.llm import Message, Request
from orch23.providers import codes
from orch23.providers.scripted import Scripted

ANSWERS = {"code": ["one", "two"], "code@T2": ["own"], "code@T3": []}
REQUEST = Request(
    provider="scripted", model="m", endpoint="e", system="", messages=(Message("user", "x"),), identity=(), params={}
)


def ask(stage: str, attempt: int) -> str:
    return Scripted(ANSWERS, stage, attempt).complete(REQUEST, 1.0, lambda _n: None).text


def test_answers_go_by_attempt_and_an_items_own_list_wins() -> None:
    assert [ask("code", 1), ask("code", 2), ask("code@T1", 2), ask("code@T2", 1)] == ["one", "two", "two", "own"]


def test_asking_twice_is_the_same_answer() -> None:
    provider = Scripted(ANSWERS, "code", 1)
    texts = {provider.complete(REQUEST, 1.0, lambda _n: None).text for _ in range(3)}
    assert texts == {"one"}


@pytest.mark.parametrize(("stage", "attempt"), [("code", 3), ("code@T2", 2), ("code@T3", 1), ("docs", 1), ("code", 0)])
def test_a_missing_answer_names_stage_and_attempt(stage: str, attempt: int) -> None:
    with pytest.raises(ProviderError) as caught:
        ask(stage, attempt)
    diagnostic = caught.value.diagnostics[0]
    assert (diagnostic.code, diagnostic.subject) == (codes.NO_ANSWER, stage)
    assert f"attempt {attempt}" in diagnostic.message


def test_it_says_that_no_model_was_asked() -> None:
    assert "no model" in Scripted(ANSWERS, "code", 1).complete(REQUEST, 1.0, lambda _n: None).provenance
