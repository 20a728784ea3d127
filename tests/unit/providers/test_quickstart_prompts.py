"""The quickstart's prompt: short enough for a toy model, and a failure's identity is in that of the next attempt."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orch23.model.llm import RetryFeedback
from orch23.resolve.templates import render_text

ROOT = Path(__file__).parents[3]
SECTION = "## clamp\n\n`clamp(value, low, high)` returns ...\n\n"
EXCERPT = "test_clamp.py::test_a (call): AssertionError\n>       assert clamp(1) == 2\nE       assert 3 == 2\n"
RED = RetryFeedback(kind="verify_failed", excerpt=EXCERPT, failing=("test_clamp.py::test_a AssertionError",))


def render(brief: RetryFeedback | None, attempt: int = 1) -> str:
    name = "function.md.j2"
    text = (ROOT / "prompts/quickstart" / name).read_text(encoding="utf-8")
    inputs = [SimpleNamespace(path="specs/quickstart.md", slice="clamp", digest="", text=SECTION, base=False)]
    names: dict[str, Any] = {
        "vars": {},
        "item": None,
        "inputs": inputs,
        "own": None,
        "previous": None if brief is None else "old",
    }
    return render_text(text, {**names, "brief": brief, "attempt": attempt, "schema": None}, name)


def test_the_first_prompt_is_the_section_and_one_demand() -> None:
    assert render(None).startswith(SECTION.strip())
    assert "```python" in render(None)


def test_the_second_prompt_shows_the_assertions_that_failed() -> None:
    text = render(RED, 2)
    assert text.startswith(render(None).rstrip()), "a provider may have cached the first prompt"
    assert "\nassert clamp(1) == 2\n" in f"{text}\n"
    assert "E  " not in text
    assert len(text) < 900


@pytest.mark.parametrize("test", ["test_clamp.py::test_a AssertionError", "test_clamp.py::test_b TypeError"])
def test_without_an_excerpt_the_failing_ids_stand_in_so_that_two_failures_are_two_requests(test: str) -> None:
    reduced = RetryFeedback(kind="verify_failed", excerpt=test, failing=(test,))
    assert test in render(reduced, 2)


def test_an_unusable_response_has_a_reason() -> None:
    text = render(RetryFeedback(kind="llm_output_invalid", diagnostics=("[E215] line 2",)), 2)
    assert "[E215] line 2" in text
    assert "It must pass" not in text
