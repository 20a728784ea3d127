"""Harmless variants of a response mean what the plain form means; nothing else is read into one."""

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.llm import Judgement, Proposal, RefusedResponse
from orch23.model.parsing import parse_json
from orch23.model.pipeline import WriteScope
from orch23.proposal import proposal_codes as codes
from orch23.proposal.fenced_files import read_fenced, sole_fence
from orch23.proposal.proposal import judge_response
from orch23.proposal.proposal_files import ProposalScope
from orch23.steps.llm.spec import LLMStep
from tests.corpus.reading import PLAUSIBLE

BEFORE = "def f():\n    return 1\n"
CASES = yaml.safe_load(PLAUSIBLE.read_text(encoding="utf-8"))
FENCE = WriteScope(("src/", "docs/"), delete=("src/",))


def judge(text: str, *, returns="files", cwd=".", write_scope=FENCE, base=None, only_json=False) -> Judgement:
    step = LLMStep(provider="scripted", model="m", prompt="p.j2", returns=returns, only_json=only_json)
    there = {"src/m.py": BEFORE} if base is None else base
    scope = ProposalScope(cwd=cwd, write_scope=write_scope, base=there)
    return judge_response(text, "end", scope, step=step, outputs=("src/m.py",))


def files(judgement: Judgement) -> dict[str, str]:
    assert isinstance(judgement, Proposal), judgement.diagnostics
    return {write.path: write.content for write in judgement.writes}


def refused(judgement: Judgement) -> list[str]:
    assert isinstance(judgement, RefusedResponse), judgement
    return [d.code for d in judgement.diagnostics]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_plausible_response_is_accepted_as_the_files_that_it_means(case) -> None:
    scope = WriteScope(("src/m.py", "src/util/text.py"))
    assert files(judge(case["response"], write_scope=scope)) == case["files"]


def test_all_plausible_responses_are_here() -> None:
    assert len(CASES) == 20


# ---- only JSON ----------------------------------------------------------------------------------

VALUE = '{"src/m.py": "x = 1\\n"}'
AROUND = ["```json\n{}\n```", "<think>\nhm\n</think>\n{}", "As asked.\n\n~~~\n{}\n~~~\nDone.", "\ufeff{}", "{}"]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("returns", ["files", "json"])
def test_a_stage_can_refuse_everything_beside_the_json(around: str, returns: str) -> None:
    text = around.replace("{}", VALUE)
    assert files(judge(text, returns=returns, base={}))
    strict = judge(text, returns=returns, base={}, only_json=True)
    if around == "{}":
        assert files(strict)
    else:
        assert refused(strict) == [codes.NOT_JSON]


def test_a_stage_that_returns_only_json_takes_no_blocks_and_no_loose_json() -> None:
    for text in ("src/m.py\n```python\nx = 1\n```\n", '{"src/m.py": "x = 1\\n",}'):
        assert files(judge(text, base={}))
        assert refused(judge(text, base={}, only_json=True)) == [codes.NOT_JSON]


def test_an_error_in_a_fence_has_its_line_in_the_response() -> None:
    judgement = judge('Here it is:\n\n```json\n{\n  "a": one\n}\n```\n', returns="json")
    assert isinstance(judgement, RefusedResponse)
    assert "line 5, column 8" in judgement.diagnostics[0].message


# ---- patches ------------------------------------------------------------------------------------

PATCH = "```diff\n--- a/src/m.py\n+++ b/src/m.py\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2\n```\n"


@pytest.mark.parametrize("returns", ["files", "blocks", "edits", "json"])
def test_a_patch_is_named_as_such_with_what_is_expected(returns: str) -> None:
    judgement = judge(f"Here is the change:\n\n{PATCH}", returns=returns)
    assert isinstance(judgement, RefusedResponse)
    (one,) = judgement.diagnostics
    assert (one.code, one.message) == (codes.DIFF, "the response is a diff or a patch")
    assert {"files": "writes", "blocks": "fenced", "edits": "SEARCH", "json": "JSON"}[returns] in str(one.hint)


def test_a_wrong_block_is_no_patch_where_blocks_are_expected() -> None:
    assert refused(judge("src/m.py\n<<<<<<< SEARCH\nx\n=======\n@@ -1 +1 @@\n", returns="edits")) == [codes.WRONG_SHAPE]
    assert refused(judge('{"src/m.py": "\n@@ -1 +1 @@\n"', returns="files")) == [codes.NOT_JSON]


def test_a_fence_around_a_text_is_not_in_the_file() -> None:
    assert files(judge(f"```python\n{BEFORE}```\n", returns="text")) == {"src/m.py": BEFORE}


# ---- paths --------------------------------------------------------------------------------------


def test_a_path_from_the_root_is_read_as_such_where_only_that_makes_sense() -> None:
    inside = WriteScope(("ws/src/",))
    assert files(judge('{"ws/src/a.py": "x = 1\\n"}', cwd="ws", write_scope=inside, base={})) == {
        "ws/src/a.py": "x = 1\n"
    }
    deleted = judge(
        '{"deletes": ["./ws/src/a.py"]}',
        cwd="ws",
        write_scope=WriteScope((), delete=("ws/src/*",)),
        base={"ws/src/a.py": ""},
    )
    assert isinstance(deleted, Proposal)
    assert deleted.deletes == ("ws/src/a.py",)


@pytest.mark.parametrize(
    ("existing", "meant"),
    [
        ((), "ws/ws/a.py"),  # a new file: it is below cwd, as paths are
        (("ws/a.py",), "ws/a.py"),
        (("ws/a.py", "ws/ws/a.py"), "ws/ws/a.py"),
        (("ws/a.py", "ws/ws/b.py"), "ws/ws/a.py"),
        (("ws/ws/a.py",), "ws/ws/a.py"),
    ],
)
def test_a_path_with_two_meanings_is_relative_to_cwd(existing: tuple[str, ...], meant: str) -> None:
    base = dict.fromkeys(existing, "x = 0\n")
    assert files(judge('{"ws/a.py": "x = 1\\n"}', cwd="ws", write_scope=WriteScope(("ws/",)), base=base)) == {
        meant: "x = 1\n"
    }


def test_a_path_from_the_root_stays_within_the_write_scope() -> None:
    scope = WriteScope(("ws/src/",), protect=("ws/src/locked.py",))
    for path in ("ws/tests/a.py", "ws/src/locked.py", "ws/src/conftest.py", "ws/src/../a.py"):
        assert refused(judge(json.dumps({path: "x = 1\n"}), cwd="ws", write_scope=scope, base={}))


# ---- contents -----------------------------------------------------------------------------------

LINES = st.lists(st.text(alphabet="ab ", max_size=4), min_size=1, max_size=5)


@given(LINES, LINES, st.sampled_from(["\n", "\r\n"]), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_a_file_keeps_its_line_ends_and_its_newline_at_the_end(old, new, kept: str, written: str, ended: bool) -> None:
    base = kept.join([*old, ""])
    content = written.join([*new, ""] if ended else [*new])
    proposed = files(judge(json.dumps({"src/a.txt": content}), base={"src/a.txt": base}))["src/a.txt"]
    whole = content if content.endswith("\n") or not content else content + written
    assert proposed == whole.replace("\r\n", "\n").replace("\n", kept)


@pytest.mark.parametrize("base", [None, "", "one line", "a\r\nb\n"])
def test_a_file_without_line_ends_of_one_kind_is_written_as_it_is(base: str | None) -> None:
    there = {} if base is None else {"src/a.txt": base}
    assert files(judge('{"src/a.txt": "x\\r\\ny\\nz\\n"}', base=there)) == {"src/a.txt": "x\r\ny\nz\n"}


def test_a_fence_around_markdown_is_the_content() -> None:
    fenced = "```python\nx = 1\n```\n"
    for path in ("docs/a.md", "docs/a.txt", "docs/a.md.j2"):
        assert files(judge(json.dumps({path: fenced}))) == {path: fenced}
    assert files(judge(json.dumps({"src/a.js": fenced}))) == {"src/a.js": "x = 1\n"}
    assert files(judge(json.dumps({"src/a.js": fenced}), base={"src/a.js": "```\na\n```\n"})) == {"src/a.js": fenced}


@pytest.mark.parametrize("text", ["```\na\n```\n```\nb\n```", "a\n```\nb\n```", "```\nb\n```\na", "```\nb", "```", ""])
def test_only_one_whole_fence_is_taken_off(text: str) -> None:
    assert sole_fence(text) is None


# ---- blocks -------------------------------------------------------------------------------------

NAMES = st.sampled_from(["src/a.txt", "src/b.txt", "src/c d.txt", "docs/e.md", "src/f"])
BODIES = st.lists(
    st.sampled_from(
        ["", "x", "```", "```python", "~~~", "`src/z.py`", "### src/z.py", "delete: src/m.py", "  ```", "{"]
    ),
    max_size=6,
).map(lambda lines: "".join(f"{line}\n" for line in lines))
HEADS = st.sampled_from(["`{}`", "**`{}`**", "### `{}`\n", "File: {}", "1. `{}`:"])


@given(st.dictionaries(NAMES, st.tuples(HEADS, BODIES), min_size=1), st.sampled_from(["files", "blocks"]))
def test_a_block_with_a_longer_fence_is_the_file_as_it_is(parts, returns: str) -> None:
    text = "As asked.\n\n" + "\n".join(
        f"{head.format(path)}\n````text\n{body}````\n" for path, (head, body) in parts.items()
    )
    assert files(judge(text, returns=returns)) == {path: body for path, (_, body) in parts.items()}


@given(st.lists(st.sampled_from(["`src/a.txt`", "```", "```python", "````", "x", "", "~~~", "delete: src/b.txt"])))
def test_a_file_of_blocks_is_all_between_its_fences(lines: list[str]) -> None:
    """Read again by another rule: an accepted response has an even number of fences, and drops none of its blocks."""
    text = "\n".join(lines)
    judgement = judge(text, returns="blocks", base={"src/a.txt": "", "src/b.txt": ""})
    if isinstance(judgement, Proposal) and judgement.writes:
        (write,) = judgement.writes
        assert f"\n{write.content}" in f"{text}\n"
        found = read_fenced(text)
        kept = re.sub(r"(?m)^.*\n?", lambda line: line[0], write.content)
        assert sum(block.text == kept for block in found.blocks) == len(found.blocks) == 1


def test_a_block_says_its_line_where_it_is_wrong() -> None:
    judgement = judge("src/a.py\n```python\nx = 1\n```\n\n```bash\nmake\n```\n", returns="blocks")
    assert isinstance(judgement, RefusedResponse)
    assert [d.code for d in judgement.diagnostics] == [codes.WRONG_SHAPE]
    assert judgement.diagnostics[0].message == "line 6: the fenced block has no path"


def test_a_recorded_thought_is_not_read_as_files() -> None:
    text = "<think>\nsrc/a.py\n```python\nx = 0\n```\n</think>\nsrc/a.py\n```python\nx = 1\n```\n"
    assert files(judge(text)) == {"src/a.py": "x = 1\n"}
    assert refused(judge("<think>\nsrc/a.py\n" + "x" * 10)) == [codes.NOT_JSON]


@given(st.recursive(st.text(max_size=4) | st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=6))
def test_a_lenient_reader_reads_strict_json_as_the_strict_one_does(value) -> None:
    text = json.dumps({"a": value})
    assert parse_json(text, lenient=True) == parse_json(text)
    loose = re.sub(r"\}$", ",}", text).replace("\\n", "\n")
    assert parse_json(loose, lenient=True) == parse_json(text)


# ---- thoughts -----------------------------------------------------------------------------------

AFTER = "def f():\n    return 2\n"
THOUGHTS = "Perhaps\n```python\nx = 0\n```\nor not.\n"
PLAIN = {
    "files": json.dumps({"src/m.py": AFTER}),
    "blocks": f"src/m.py\n```python\n{AFTER}```\n",
    "edits": "src/m.py\n<<<<<<< SEARCH\n    return 1\n=======\n    return 2\n>>>>>>> REPLACE\n",
    "code": f"```python\n{AFTER}```\n",
}


@pytest.mark.parametrize("returns", PLAIN)
@pytest.mark.parametrize("begin", ["<think>\n", "<thinking>", ""])
def test_a_block_in_the_thoughts_is_not_the_response(returns: str, begin: str) -> None:
    end = "</thinking>" if begin == "<thinking>" else "</think>"
    assert files(judge(f"{begin}{THOUGHTS}{end}\n\n{PLAIN[returns]}", returns=returns)) == {"src/m.py": AFTER}


def test_thoughts_are_no_part_of_a_text_or_a_value() -> None:
    assert files(judge(f"<think>\nhm\n</think>\n{AFTER}", returns="text")) == {"src/m.py": AFTER}
    value = judge('<think>{"a": 0}</think>\n{"a": 1}', returns="json", base={})
    assert files(value) == {"src/m.py": '{\n  "a": 1\n}\n'}
    assert refused(judge("<think>\nhm\n</think>\n", returns="text")) == [codes.EMPTY]


def test_thoughts_without_an_end_are_no_code() -> None:
    assert refused(judge(f"<think>\n{THOUGHTS}", returns="code")) == [codes.NO_CODE]


def test_an_end_tag_in_a_file_ends_no_thoughts() -> None:
    page = "a\n</think>\nb\n"
    text = f'"""\n{page}"""\n'
    assert files(judge(text, returns="text", base={})) == {"src/m.py": text}
    assert files(judge(f"```python\n{text}```\n", returns="code", base={})) == {"src/m.py": text}
    assert files(judge(f"src/m.py\n```python\n{text}```\n", returns="blocks", base={})) == {"src/m.py": text}
    edit = f"src/m.py\n<<<<<<< SEARCH\n    return 1\n=======\n    return '''\n{page}'''\n>>>>>>> REPLACE\n"
    assert "</think>" in files(judge(edit, returns="edits"))["src/m.py"]
