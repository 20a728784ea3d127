"""Every answer of the corpus is judged as its index says: bad ones by all their codes, good ones as they are."""

import json
import re
from pathlib import Path

import pytest

from orch23.model.llm import Judgement, Proposal, RefusedResponse
from orch23.model.pipeline import WriteScope
from orch23.proposal import proposal_codes as codes
from orch23.proposal.proposal import judge_response
from orch23.proposal.proposal_files import ProposalScope
from orch23.steps.llm.spec import LLMStep
from tests.corpus.reading import ANSWERS, HIDDEN, Answer, answers, workspace

FENCE = WriteScope(("ws/src/", "ws/docs/", "ws/README.md"), protect=("ws/src/locked.py",), delete=("ws/src/old_*.py",))
BAD, GOOD, BASE = answers("bad"), answers("good"), workspace()
CODES = {value for name, value in vars(codes).items() if name.isupper()}


def judged(answer: Answer) -> Judgement:
    step = LLMStep(provider="scripted", model="m", prompt="p.j2", returns=answer.returns)  # type: ignore[arg-type]
    return judge_response(
        answer.text,
        answer.stop,  # type: ignore[arg-type]
        ProposalScope(cwd="ws", write_scope=FENCE, base=BASE, not_shown=frozenset({HIDDEN})),
        step=step,
        outputs=(answer.output,),
    )


def cases(listed: tuple[Answer, ...]) -> list[object]:
    """Return the responses as cases of a test; one that needs a feature is left out without it."""
    marks = {one.name: [pytest.mark.needs(one.needs)] if one.needs else [] for one in listed}
    return [pytest.param(one, id=one.name, marks=marks[one.name]) for one in listed]


@pytest.mark.parametrize("answer", cases(BAD))
def test_a_bad_response_is_refused_with_all_its_codes_and_a_hint_for_each(answer: Answer) -> None:
    judgement = judged(answer)
    assert isinstance(judgement, RefusedResponse), "it was accepted"
    assert sorted({d.code for d in judgement.diagnostics}) == sorted(answer.codes)
    assert judgement.kind == answer.kind
    for diagnostic in judgement.diagnostics:
        assert diagnostic.message
        assert diagnostic.hint, diagnostic
        assert str(diagnostic).isprintable(), "what a model wrote is shown escaped"
        assert len(str(diagnostic)) < 800


@pytest.mark.parametrize("answer", cases(GOOD))
def test_a_valid_response_is_accepted_however_odd(answer: Answer) -> None:
    judgement = judged(answer)
    assert isinstance(judgement, Proposal), judgement.diagnostics
    if answer.names_files:
        assert [write.path for write in judgement.writes] == list(answer.writes)
        assert judgement.deletes == answer.deletes
    else:
        assert [(write.path, write.content) for write in judgement.writes] == [(answer.output, answer.content)]


def test_the_index_and_the_files_are_the_same() -> None:
    for side, listed in (("bad", BAD), ("good", GOOD)):
        assert {answer.name for answer in listed} == {path.name for path in (ANSWERS / side).iterdir()}
    assert len(BAD) >= 60
    assert len(GOOD) >= 30


def test_every_code_of_proposals_has_a_bad_response() -> None:
    assert {code for answer in BAD for code in answer.codes} == CODES


# ---- the page ------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[3] / "docs" / "proposals.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_names_every_code_of_proposals() -> None:
    assert set(re.findall(r"\bE2\d\d\b", PAGE)) == CODES


def test_the_page_shows_forms_that_are_taken_and_errors_that_are_heard() -> None:
    assert len(EXAMPLES) == 6
    for example in EXAMPLES:
        judgement = judged(Answer(name="example", text=example))
        if "not in artifacts" in example:
            assert isinstance(judgement, RefusedResponse)
            assert [d.code for d in judgement.diagnostics] == [codes.MODEL_ERROR]
        else:
            assert isinstance(judgement, Proposal)
            assert [write.path for write in judgement.writes] == ["ws/src/prices.py"]
            assert json.loads(example)
