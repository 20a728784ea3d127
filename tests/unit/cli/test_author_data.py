"""Scripted responses are lists of texts or of cases; every other form is reported with its stage."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from orch23.cli.author_data import read_scripted_responses
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import InvalidInputError
from orch23.providers.adapter import ScriptedCase


@dataclass(frozen=True)
class OneFile:
    """Every path is one file with this text."""

    content: str

    def text(self, path: str) -> tuple[str | None, Diagnostic | None]:
        del path
        return self.content, None


def read(text: str) -> Mapping[str, object]:
    return read_scripted_responses(OneFile(text), "answers.yaml")


def test_a_list_of_texts_is_one_case_that_always_matches() -> None:
    assert read("code: [one, two]\nempty: []\n") == {
        "code": (ScriptedCase(("one", "two")),),
        "empty": (ScriptedCase(()),),
    }


def test_cases_keep_their_order_and_need_no_when() -> None:
    text = "code:\n  - {when: due date, answers: [a, b]}\n  - answers: [c]\n"
    assert read(text) == {"code": (ScriptedCase(("a", "b"), when="due date"), ScriptedCase(("c",)))}


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        "{a: b}",
        "[1]",
        "[{when: 1, answers: []}]",
        "[{when: x}]",
        "[x, {answers: [y]}]",
        "[{whne: x, answers: []}]",
    ],
)
def test_an_invalid_entry_is_reported_with_its_stage(wrong: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read(f"good: [x]\nbad: {wrong}\n")
    (found,) = caught.value.diagnostics
    assert found.code == "E404"
    assert "`bad`" in found.message
    assert "`good`" not in found.message
