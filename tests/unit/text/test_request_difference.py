"""The first difference of two requests, in one line that helps a person."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.model.llm import Message, Request
from orch23.text.request_difference import REQUEST_PARTS, describe_difference, distance

BASE = Request(
    provider="anthropic",
    model="large",
    endpoint="https://api.example",
    api="messages",
    system="be brief",
    messages=(),
    identity=(Message("user", "write\na\nlimerick"),),
    params={"max_tokens": 32000, "effort": "high"},
    schema={"type": "object"},
    program={"model.py": "old"},
)


def same(text: str) -> str:
    return text


def prompt(text: str) -> Request:
    return replace(BASE, identity=(Message("user", text),))


CASES: list[tuple[Request, str]] = [
    (replace(BASE, provider="openai"), "the provider is `openai`, was `anthropic`"),
    (replace(BASE, endpoint=""), "the endpoint is empty, was `https://api.example`"),
    (replace(BASE, api="chat"), "the interface is `chat`, was `messages`"),
    (replace(BASE, model="small"), "the model is `small`, was `large`"),
    (replace(BASE, returns="text"), "`returns` is `text`, was `files`"),
    (replace(BASE, system="be long"), "the system prompt differs at line 1: 'be long' was 'be brief'"),
    (prompt("write\na\nhaiku"), "the prompt differs at line 3: 'haiku' was 'limerick'"),
    (prompt("write\na\nlimerick\nnow"), "the prompt differs at line 4: 'now' was not there"),
    (prompt("write\na"), "the prompt differs at line 3: 'limerick' is gone"),
    (replace(BASE, params={**BASE.params, "max_tokens": 64000}), "`max_tokens` is `64000`, was `32000`"),
    (replace(BASE, params={"max_tokens": 32000}), "`effort` is not given, and was `high`"),
    (replace(BASE, params={**BASE.params, "seed": None}), "`seed` is `null`, and was not given"),
    (
        replace(BASE, schema={"type": "array"}),
        """the schema differs at line 2: ' "type": "array"' was ' "type": "object"'""",
    ),
    (replace(BASE, schema=None), "the schema differs at line 1: 'none' was '{'"),
    (replace(BASE, program={"model.py": "new"}), "`model.py` changed"),
    (replace(BASE, program={"model.py": "old+x"}), "`model.py` became executable"),
    (replace(BASE, program={"model.py": "old", "lib.py": "new"}), "`lib.py` was not there"),
    (prompt("write\na\nlong\nlimerick"), "the prompt differs at line 3: 'long' was not there"),
    (prompt("write\nlimerick"), "the prompt differs at line 2: 'a' is gone"),
    (replace(BASE, sample=2), "it is for sample 2, and sample 0 is recorded"),
]


@pytest.mark.parametrize(("now", "said"), CASES)
def test_the_clause_has_the_new_and_the_old_value(now: Request, said: str) -> None:
    assert describe_difference(BASE.parts(), now.parts(), same) == said


def test_every_part_of_a_request_is_compared() -> None:
    assert set(REQUEST_PARTS) == set(BASE.parts())
    changed = [name for name in REQUEST_PARTS for now, _ in CASES if BASE.parts()[name] != now.parts()[name]]
    assert set(changed) == set(REQUEST_PARTS)
    assert {distance(BASE.parts(), now.parts())[0] for now, _ in CASES} == {1}


def test_the_same_request_differs_in_nothing_also_after_it_was_written_and_read() -> None:
    parts = {**BASE.parts(), "messages": tuple(BASE.parts()["messages"])}  # type: ignore[arg-type]
    assert describe_difference(BASE.parts(), parts, same) == ""
    assert distance(BASE.parts(), parts) == (0, 0, 0)


def test_a_difference_of_the_model_is_reported_before_the_prompt() -> None:
    now = replace(prompt("else"), model="small")
    assert describe_difference(BASE.parts(), now.parts(), same).startswith("the model is")


def test_long_lines_are_cut_to_where_they_part() -> None:
    long = "a" * 500
    reported = describe_difference(prompt(long + "x" + long).parts(), prompt(long + "y" + long).parts(), same)
    assert "y" in reported
    assert "x" in reported
    assert len(reported) < 250


def test_a_secret_at_the_edge_of_an_excerpt_is_taken_out_whole() -> None:
    secret = "sk-" + "s" * 80
    redact: Any = lambda text: text.replace(secret, "[redacted]")  # noqa: E731
    reported = describe_difference(prompt(f"key {secret} one").parts(), prompt(f"key {secret} two").parts(), redact)
    assert reported == "the prompt differs at line 1: 'key [redacted] two' was 'key [redacted] one'"
    other = describe_difference(prompt(f"{secret}").parts(), prompt("[redacted]").parts(), redact)
    assert other == "the prompt differs in redacted text"


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_two_texts_differ_in_a_short_clause(one: str, other: str) -> None:
    reported = describe_difference(prompt(one).parts(), prompt(other).parts(), same)
    assert bool(reported) is (one != other)
    assert len(reported) < 250


def test_the_text_of_a_block_is_reported_and_not_its_delimiter() -> None:
    def block(text: str, digits: str) -> Request:
        head = f'--- begin {digits * 6}: "file" path="a.md" sha256={digits * 32} ---'
        return prompt(f"write\n{head}\n{text}\n--- end {digits * 6} ---")

    then, now = block("a limerick", "ab"), block("a haiku", "cd")
    assert (
        describe_difference(then.parts(), now.parts(), same)
        == "the prompt differs at line 3: 'a haiku' was 'a limerick'"
    )
    renamed = replace(now, identity=(Message("user", now.identity[0].content.replace("a.md", "b.md")),))
    assert "line 2" in describe_difference(then.parts(), renamed.parts(), same)
    other_fence = block("a limerick", "ef")
    assert "line 2" in describe_difference(then.parts(), other_fence.parts(), same), (
        "nothing but the fence differs: so be it"
    )


def test_the_distance_is_that_of_the_lines_and_not_of_the_first_difference() -> None:
    """A block of data begins with its digest, and a line that is inserted at the top moves all others."""
    now = prompt("--- begin aaaaaaaaaaaa: x sha256=" + "a" * 64 + " ---\none\ntwo\nthree").parts()
    near = prompt("--- begin bbbbbbbbbbbb: x sha256=" + "b" * 64 + " ---\nzero\none\ntwo\nthree").parts()
    far = prompt("--- begin cccccccccccc: x sha256=" + "c" * 64 + " ---\none").parts()
    assert distance(near, now) < distance(far, now)


def test_a_program_that_lost_its_mode_is_described_by_that() -> None:
    then = replace(BASE, program={"model.py": "old+x"})
    assert describe_difference(then.parts(), BASE.parts(), same) == "`model.py` is not executable any more"
    assert describe_difference(BASE.parts(), replace(BASE, program={}).parts(), same) == "`model.py` is gone"
