"""Scripted answers: by stage and attempt, an item's own first, and no more than were written."""

import pytest
from msgspec.structs import replace

from orch23.model.errors import ProviderError
from orch23.model.llm import Message, Request
from orch23.providers.adapter import ScriptedCase
from orch23.providers.scripted import ScriptedProvider, request_digest

ANSWERS = {
    "code": [ScriptedCase(("one", "two"))],
    "code@T2": [ScriptedCase(("own",))],
    "code@T3": [],
    "plan": [
        ScriptedCase(("with a date", "again"), when="due date"),
        ScriptedCase(("strict",), when="Be strict."),
        ScriptedCase(("plain",)),
    ],
    "test": [ScriptedCase(("found",), when="pytest")],
}
REQUEST = Request(
    provider="scripted", model="m", endpoint="e", system="", messages=(Message("user", "x"),), identity=(), params={}
)


def ask(stage: str, attempt: int, *, said: str = "x", system: str = "") -> str:
    request = replace(REQUEST, messages=(Message("user", said),), system=system)
    return ScriptedProvider(ANSWERS, stage, attempt).complete(request, 1.0, lambda _n: None).text


def test_responses_are_by_attempt_and_an_items_own_list_wins() -> None:
    assert [ask("code", 1), ask("code", 2), ask("code@T1", 2), ask("code@T2", 1)] == ["one", "two", "two", "own"]


def test_the_first_case_whose_text_the_request_holds_counts() -> None:
    assert [ask("plan", 1, said="Add a due date."), ask("plan", 2, said="a due date")] == ["with a date", "again"]
    assert ask("plan", 1, said="Add a colour.") == "plain"
    assert ask("plan", 1, system="Be strict.") == "strict"
    assert ask("plan", 1, said="due date", system="Be strict.") == "with a date"


def test_a_case_that_fits_is_not_left_for_the_next_one_when_its_list_ends() -> None:
    with pytest.raises(ProviderError, match="attempt 3, only 2"):
        ask("plan", 3, said="due date")


def test_a_request_that_matches_no_case_is_reported() -> None:
    with pytest.raises(ProviderError, match="contains the text of no `when`"):
        ask("test", 1)


def test_the_digest_of_a_scripted_response_covers_every_case_of_the_attempt() -> None:
    digest = ScriptedProvider(ANSWERS, "plan", 1).digest()
    other = {**ANSWERS, "plan": [*ANSWERS["plan"][:2], ScriptedCase(("plainer",))]}
    reworded = {**ANSWERS, "plan": [ScriptedCase(("with a date",), when="date"), *ANSWERS["plan"][1:]]}
    digests = {ScriptedProvider(one, "plan", 1).digest() for one in (other, reworded)}
    assert len({digest, *digests}) == 3


def test_two_equal_requests_have_equal_responses() -> None:
    provider = ScriptedProvider(ANSWERS, "code", 1)
    texts = {provider.complete(REQUEST, 1.0, lambda _n: None).text for _ in range(3)}
    assert texts == {"one"}


@pytest.mark.parametrize(("stage", "attempt"), [("code", 3), ("code@T2", 2), ("code@T3", 1), ("docs", 1), ("code", 0)])
def test_a_missing_response_names_stage_and_attempt(stage: str, attempt: int) -> None:
    with pytest.raises(ProviderError) as caught:
        ask(stage, attempt)
    diagnostic = caught.value.diagnostics[0]
    assert (diagnostic.code, diagnostic.subject) == ("E404", stage)
    assert f"attempt {attempt}" in diagnostic.message


def test_the_provenance_says_that_no_model_was_called() -> None:
    assert "no model" in ScriptedProvider(ANSWERS, "code", 1).complete(REQUEST, 1.0, lambda _n: None).provenance


# ---- responses for some requests only ----------------------------------------------------------------


def request(text: str, *, system: str = "", sent: str | None = None) -> Request:
    messages = (Message("user", text if sent is None else sent),)
    return replace(REQUEST, messages=messages, identity=(Message("user", text),), system=system)


def respond(asked: Request, *cases: ScriptedCase, attempt: int = 1) -> str:
    return ScriptedProvider({"plan": cases}, "plan", attempt).complete(asked, 1.0, lambda _n: None).text


def test_a_case_with_requests_responds_to_these_only() -> None:
    todo, chess = request("a to-do list"), request("a game of chess")
    case = ScriptedCase(("todo", "todo again"), requests=(request_digest(todo), "0" * 16))
    assert respond(todo, case) == "todo"
    with pytest.raises(ProviderError) as caught:
        respond(chess, case)
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.subject) == ("E404", "plan")
    assert "were written for other requests" in diagnostic.message
    assert diagnostic.hint is not None
    assert f'requests: ["{request_digest(chess)}"]' in diagnostic.hint
    assert "orch23 template update --data provider=" in diagnostic.hint
    assert respond(chess, case, ScriptedCase(("any",))) == "any"


def test_feedback_of_further_attempts_is_not_compared() -> None:
    case = ScriptedCase(("todo", "todo again"), requests=(request_digest(request("a to-do list")),))
    assert respond(request("a to-do list, and the failures"), case, attempt=2) == "todo again"


def test_the_digest_of_a_request_is_of_its_texts_as_recordings_compare_them() -> None:
    one = request("a", system="s")
    assert request_digest(one) != request_digest(request("b", system="s"))
    assert request_digest(one) != request_digest(request("a", system="t"))
    assert request_digest(one) == request_digest(request("a", system="s", sent="a, with other delimiters"))
    assert request_digest(one) == request_digest(replace(one, model="other", params={"answer": "x"}, sample=1))
    assert len(request_digest(one)) == 16


def test_a_request_of_no_case_with_its_text_is_not_called_outdated() -> None:
    case = ScriptedCase(("x",), when="due date", requests=("0" * 16,))
    with pytest.raises(ProviderError, match="contains the text of no `when`"):
        respond(request("a colour"), case)
