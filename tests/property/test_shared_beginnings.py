"""What prompts of stages share: marked in each of them at the same places, and worth a write to the cache."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.llm import CachePolicy, Message, Request
from orch23.providers.cache_marks import cache_marks, pays_to_write
from orch23.providers.model_facts import facts_of
from orch23.providers.shared_beginnings import shared_beginnings

MODEL = "claude-opus-5"
LINES = st.lists(st.sampled_from(["a\n", "b\n", "\n", "  \n", "c" * 2_500 + "\n", "d" * 5_000 + "\n"]), max_size=8)
SYSTEMS = st.sampled_from(["", "s", "s" * 3_000])


def request(text: str, system: str = "", family: int = 0, stable: int = 0) -> Request:
    said = (Message("user", text),)
    return Request(
        provider="anthropic",
        model=MODEL,
        endpoint="e",
        system=system,
        messages=said,
        identity=said,
        family=family,
        stable=stable,
        cache=CachePolicy(),
    )


@given(st.lists(st.tuples(SYSTEMS, LINES), min_size=2, max_size=8))
def test_each_end_is_that_of_a_beginning_of_another_stage_with_more_than_blanks_after_it(
    drawn: list[tuple[str, list[str]]],
) -> None:
    asked = [request("".join(lines), system) for system, lines in drawn if lines]
    shared = shared_beginnings((f"s{number}", one) for number, one in enumerate(asked))
    for one in asked:
        marked = shared.marked(one)
        text = one.messages[0].content
        alike = [other for other in asked if other is not one and other.system == one.system]
        assert len(marked.beginnings) <= 2
        for end in marked.beginnings:
            assert any(other.messages[0].content.startswith(text[:end]) for other in alike)
            assert not text[end:] or text[end:].strip()
            assert facts_of("anthropic", MODEL).caches(len(one.system) + end)
        assert marked.system_users == ("stages" if alike and one.system else "")


@given(LINES, st.integers(2, 6))
def test_what_all_stages_share_is_marked_if_it_is_long_enough(head: list[str], count: int) -> None:
    text = f"x\n{''.join(head)}y\n"
    asked = [request(f"{text}number {number}\n") for number in range(count)]
    shared = shared_beginnings((f"s{number}", one) for number, one in enumerate(asked))
    wanted = (len(text),) if facts_of("anthropic", MODEL).caches(len(text)) else ()
    assert {shared.marked(one).beginnings for one in asked} == {wanted}


@given(st.integers(0, 40_000), st.integers(0, 40_000), st.booleans())
def test_a_request_has_at_most_four_marks(stable: int, family: int, is_conversation: bool) -> None:
    text = "line\n" * 10_000
    turns = (Message("assistant", "a" * 9_000), Message("user", "b" * 9_000)) if is_conversation else ()
    one = request(text, "s" * 9_000, family, stable)
    shared = shared_beginnings([("a", request(text[:20_000] + "1\n", "s" * 9_000)), ("b", one)])
    one = Request(
        **{name: getattr(shared.marked(one), name) for name in one.__struct_fields__}
        | {"messages": (*one.messages, *turns), "beginnings": (5_000, 20_000)}
    )
    marks = cache_marks(one, facts_of("anthropic", MODEL))
    assert marks.system + len(marks.ends) + bool(marks.turn) <= 4


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 0.6])
def test_marks_by_history_cost_little_more_than_by_a_known_rate(rate: float) -> None:
    """Attempts of a stage that may be retried twice, in prices of its whole prompt."""
    draws = random.Random(f"rate {rate}")
    spent, judged, failed = 0.0, 0, 0
    best = {True: 0.0, False: 0.0}
    for _ in range(400):
        outcomes = [draws.random() < rate for _ in range(3)]
        calls = 1 + (outcomes[0] + (outcomes[0] and outcomes[1]))
        for marks in best:
            best[marks] += price(calls, marks=marks)
        spent += price(calls, marks=pays_to_write(judged, failed))
        judged, failed = judged + calls, failed + sum(outcomes[:calls])
    assert spent <= 1.1 * min(best.values())


def price(calls: int, *, marks: bool) -> float:
    """Return the price of a stage. The second attempt writes if the first did not, and the last one only reads."""
    written_at = 1 if marks else 2
    return sum(1.0 if at < written_at else 1.25 if at == written_at else 0.1 for at in range(1, calls + 1))
