"""A path without its folder is completed if only one literal path can be meant, and nothing else is."""

import json
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from orch23.model.llm import Judgement, Proposal, RefusedResponse
from orch23.model.pipeline import WriteScope
from orch23.proposal import proposal_codes as codes
from orch23.proposal.proposal import judge_response
from orch23.proposal.proposal_files import ProposalScope
from orch23.steps.llm.spec import LLMStep

NEW = "def f():\n    return 2\n"
FILES = {"src/m.py": NEW}
EDIT = "<<<<<<< SEARCH\n    return 1\n=======\n    return 2\n>>>>>>> REPLACE\n"
LITERAL = ProposalScope(
    cwd=".",
    write_scope=WriteScope(("src/m.py", "src/util/text.py", "lib/text.py")),
    base={"src/m.py": "def f():\n    return 1\n"},
)


def judge(text: str, scope: ProposalScope, returns: str = "files") -> Judgement:
    step = LLMStep(provider="scripted", model="m", prompt="p.j2", returns=returns)  # type: ignore[arg-type]
    return judge_response(text, "end", scope, step=step, outputs=("src/m.py",))


def files(judgement: Judgement) -> Mapping[str, str]:
    assert isinstance(judgement, Proposal), judgement.diagnostics
    return {write.path: write.content for write in judgement.writes}


def reason(judgement: Judgement) -> str:
    assert isinstance(judgement, RefusedResponse), judgement
    return str(judgement.diagnostics[0])


@pytest.mark.parametrize("path", ["m.py", "./m.py"])
def test_a_path_may_lack_its_folder_if_one_literal_output_can_be_meant(path: str) -> None:
    assert files(judge(json.dumps({path: NEW}), LITERAL)) == FILES
    assert files(judge(f"{path}\n```python\n{NEW}```\n", LITERAL, "blocks")) == FILES
    assert files(judge(f"{path}\n{EDIT}", LITERAL, "edits")) == FILES


@pytest.mark.parametrize("path", ["text.py", "M.py", "b/m.py", "src/src/m.py"])
def test_a_path_of_several_outputs_or_none_is_refused(path: str) -> None:
    assert codes.OUTSIDE_WRITE_SCOPE in reason(judge(json.dumps({path: NEW}), LITERAL))


def test_a_path_is_completed_only_if_no_other_file_can_be_meant() -> None:
    text = json.dumps({"m.py": NEW})
    for scope in (
        replace(LITERAL, write_scope=WriteScope(("src/",))),
        replace(LITERAL, base={**LITERAL.base, "lib/m.py": NEW}),
        replace(LITERAL, not_shown=frozenset({"m.py"})),
        replace(LITERAL, write_scope=WriteScope(("src/m.py", "docs/"))),
    ):
        assert codes.OUTSIDE_WRITE_SCOPE in reason(judge(text, scope))
    assert codes.DUPLICATE_PATH in reason(judge(json.dumps({"m.py": NEW, "src/m.py": "X = 1\n"}), LITERAL))


def test_a_path_is_completed_from_the_folder_of_the_stage() -> None:
    scope = replace(LITERAL, cwd="ws", write_scope=WriteScope(("ws/src/m.py",)), base={})
    assert files(judge(json.dumps({"m.py": NEW}), scope)) == {"ws/src/m.py": NEW}
