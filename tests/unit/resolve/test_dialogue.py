"""A request that continues another one: its messages, and what is sent again if there was no response."""

import pytest
from msgspec.structs import replace

from orch23.model.llm import RetryFeedback
from orch23.model.pipeline import Retry, Stage
from orch23.resolve.dialogue import continued_request
from orch23.resolve.prompt_inputs import AttemptContext, Dialogue
from orch23.resolve.prompts import make_request
from orch23.steps.llm.spec import LLMStep

STEP = LLMStep(provider="p", model="m", prompt="p.j2", returns="text")
STAGE = Stage(name="code", step=STEP, retry=Retry(max=2, style="conversation"))
FIRST = AttemptContext(model="m")


class Texts:
    def text(self, path: str) -> tuple[str, None]:
        return {
            "p.j2": "Write {{ attempt }}.\n{% if brief %}{{ brief.kind }}{% endif %}",
            "blank": "{% set _ = brief %}",
        }[path], None


def request_of(this: AttemptContext, stage: Stage = STAGE):
    make = make_request if this.dialogue is None else continued_request
    request, problems = make(stage, STEP, this, Texts(), {})
    assert not problems
    assert request is not None
    return request


def after(response: str | None, excerpt: str = "it is wrong", **more: object) -> AttemptContext:
    shown = {(one.path, one.slice): one.digest for one in FIRST.given}
    dialogue = Dialogue(request=request_of(FIRST), response=response, shown=shown)
    feedback = RetryFeedback(kind="verify_failed", excerpt=excerpt, failing=("t.py::test",))
    return AttemptContext(attempt=2, model="n", dialogue=dialogue, feedback=feedback, previous=response)


def test_the_first_message_stays_and_the_last_one_is_of_the_user() -> None:
    first, second = request_of(FIRST), request_of(after("an answer"))
    assert second.messages[:1] == first.messages
    assert second.identity[:1] == first.identity
    assert [one.role for one in second.messages] == ["user", "assistant", "user"]
    assert second.messages[1].content == "an answer"
    assert second.model == "n"
    assert second.stable == first.stable == len(first.messages[0].content)
    assert not first.is_final
    assert not second.is_final
    assert request_of(replace(after("an answer"), attempt=3)).is_final


def test_only_the_reduced_feedback_is_part_of_the_fingerprint() -> None:
    one, other = request_of(after("an answer")), request_of(after("an answer", excerpt="worded otherwise"))
    assert one.messages != other.messages
    assert one.fingerprint() == other.fingerprint()
    assert one.fingerprint() != request_of(after("another answer")).fingerprint()


def test_without_a_response_the_same_messages_are_sent_again() -> None:
    assert request_of(after(None)).messages == request_of(FIRST).messages


@pytest.mark.parametrize("prompt", [None, "blank"])
def test_no_message_is_blank(prompt: str | None) -> None:
    stage = replace(STAGE, retry=replace(STAGE.retry, prompt=prompt))
    last = request_of(after("an answer"), stage).messages[-1].content
    assert last.strip() == "Respond again, as described above." if prompt else "it is wrong" in last
