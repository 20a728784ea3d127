"""How models tend to respond: what has one meaning is accepted, and everything else is refused with a useful error."""

import json

import pytest

from orch23.model.llm import Judgement, Proposal, RefusedResponse
from orch23.model.pipeline import WriteScope
from orch23.proposal import proposal_codes as codes
from orch23.proposal.proposal import judge_response
from orch23.proposal.proposal_files import ProposalScope
from orch23.steps.llm.spec import LLMStep

OLD = "import os\n\n\ndef f():\n    return 1\n"
NEW = "import os\n\n\ndef f():\n    return 2\n"
GUIDE = "# A\n\n```sh\nmake all\n```\n\nEnd.\n"
BASE = {"src/m.py": OLD, "src/old.py": "X = 1\n", "docs/a.md": GUIDE}
SCOPE = WriteScope(("src/", "docs/", "Makefile"), delete=("src/old.py",))
EDIT = "<<<<<<< SEARCH\n    return 1\n=======\n    return 2\n>>>>>>> REPLACE\n"


def judge(text: str, returns: str, output: str = "src/m.py") -> Judgement:
    step = LLMStep(provider="scripted", model="m", prompt="p.j2", returns=returns)  # type: ignore[arg-type]
    scope = ProposalScope(cwd=".", write_scope=SCOPE, base=BASE)
    return judge_response(text, "end", scope, step=step, outputs=(output,))


def proposal(text: str, returns: str, output: str = "src/m.py") -> Proposal:
    judgement = judge(text, returns, output)
    assert isinstance(judgement, Proposal), judgement.diagnostics
    return judgement


def contents(text: str, returns: str, output: str = "src/m.py") -> dict[str, str]:
    return {one.path: one.content for one in proposal(text, returns, output).writes}


def problem(text: str, returns: str, output: str = "src/m.py") -> str:
    judgement = judge(text, returns, output)
    assert isinstance(judgement, RefusedResponse), judgement
    (one,) = judgement.diagnostics
    return str(one)


# ---- files as JSON ------------------------------------------------------------------------------

ENTRY = {"path": "src/m.py", "content": NEW}


@pytest.mark.parametrize("key", ["path", "file_path", "filepath", "filename", "file"])
def test_the_path_of_an_entry_may_have_the_name_that_tools_give_it(key: str) -> None:
    assert contents(json.dumps({"writes": [{key: "src/m.py", "content": NEW}]}), "files") == {"src/m.py": NEW}


@pytest.mark.parametrize("entry", [{"file": "a", "filename": "b"}, {"name": "src/m.py"}, {"file": 1}])
def test_an_entry_with_two_paths_or_none_is_refused(entry: dict[str, object]) -> None:
    assert "a text is expected" in problem(json.dumps({"writes": [{**entry, "content": NEW}]}), "files")


@pytest.mark.parametrize(
    "how",
    [
        {"action": "delete"},
        {"operation": "Remove", "content": None},
        {"status": "deleted", "content": "", "reason": "not used"},
        {"delete": True},
    ],
)
def test_an_entry_that_only_deletes_is_a_delete(how: dict[str, object]) -> None:
    found = proposal(json.dumps({"writes": [ENTRY, {"path": "src/old.py", **how}]}), "files")
    assert ([one.path for one in found.writes], found.deletes) == (["src/m.py"], ("src/old.py",))


@pytest.mark.parametrize(
    "how", [{"action": "delete", "content": "X = 2\n"}, {"action": "delete", "rename_to": "src/b.py"}, {"type": True}]
)
def test_an_entry_that_may_mean_more_than_a_delete_is_refused(how: dict[str, object]) -> None:
    judgement = judge(json.dumps({"writes": [{"path": "src/old.py", **how}]}), "files")
    assert isinstance(judgement, RefusedResponse)
    assert {d.code for d in judgement.diagnostics} == {codes.WRONG_SHAPE}


@pytest.mark.parametrize("tag", ["think", "thinking", "thought", "reasoning"])
def test_thoughts_have_several_names(tag: str) -> None:
    assert contents(f"<{tag}>\n{{1}}\n</{tag}>\n{json.dumps({'src/m.py': NEW})}", "files") == {"src/m.py": NEW}


@pytest.mark.parametrize("marks", ["```", "````", "~~~"])
@pytest.mark.parametrize("around", ["{}", "Here it is:\n\n{}\n\nTell me if you need more.\n", "\ufeff{}"])
def test_json_in_any_fence_with_prose_around_it(marks: str, around: str) -> None:
    fenced = around.replace("{}", f"{marks}JSON\r\n{json.dumps({'src/m.py': NEW})}\r\n{marks}")
    assert contents(fenced, "files") == {"src/m.py": NEW}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n  # the file\n  "src/m.py": "X = 1\\n"\n}', "not a comment (write strict JSON: double quotes"),
        ('{"src/m.py": "X = 1\\n"  # done\n}', "not a comment"),
        ("{'src/m.py': 'X = 1'}", "a key in double quotes is expected, not \"'src/m.py':\""),
        ('{"src/m.py": "re.compile(\'\\d\')"}', "`\\\\` for a backslash"),
        ('<edit path="src/m.py">\nX = 1\n</edit>', "not '<edit' (respond with only one JSON value, nothing beside it)"),
        (json.dumps({"src/m.py": NEW}) + "\n\n[Done.", "there is text after the value"),
        (json.dumps([{**ENTRY, "encoding": "base64"}]), "`content` must be the whole file as text"),
        (json.dumps([{"path": "src/m.py", "content": None}]), "a text is expected, not null"),
    ],
)
def test_what_is_wrong_with_json_is_named(text: str, message: str) -> None:
    assert message in problem(text, "files")


def test_an_empty_file_is_a_file() -> None:
    assert contents('{"src/__init__.py": ""}', "files") == {"src/__init__.py": ""}


# ---- blocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        "```python path=src/m.py\n",
        '```python title="src/m.py"\n',
        '```python {path="src/m.py"}\n',
        '```{path="src/m.py"}\n',
        "```python file: src/m.py\n",
        "```python:src/m.py\n",
        "**src/m.py**\n\n```python\n",
        "**File: `src/m.py`**\n```python\n",
        "`src/m.py` (modified)\n```python\n",
        "### src/m.py (updated):\n\n```python\n",
        "### 2. `src/m.py`\n\n```python\n",
        "\ufeff./src/m.py\n```python\n",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_path_of_a_block_has_many_places(head: str, end: str) -> None:
    text = f"As asked.\n\n{head}{NEW}```\n\nRun the tests now.\n".replace("\n", end)
    text = text if not head.startswith("\ufeff") else text.removeprefix(f"As asked.{end}{end}")
    for returns in ("blocks", "files"):
        assert contents(text, returns) == {"src/m.py": NEW}


@pytest.mark.parametrize("comment", ["# src/m.py", "# File: src/m.py", "# `src/m.py`"])
def test_a_comment_in_the_first_line_is_the_path_and_a_line_of_the_file(comment: str) -> None:
    assert contents(f"```python\n{comment}\n{NEW}```\n", "blocks") == {"src/m.py": f"{comment}\n{NEW}"}


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("// src/a.js", "src/a.js"),
        ("-- src/a.sql", "src/a.sql"),
        ("/* src/a.css */", "src/a.css"),
        ("<!-- src/a.html -->", "src/a.html"),
        ("; src/a.ini", "src/a.ini"),
    ],
)
def test_each_language_has_its_comments(line: str, path: str) -> None:
    assert contents(f"```\n{line}\nx\n```\n", "blocks") == {path: f"{line}\nx\n"}


def test_a_path_outside_of_a_block_goes_before_a_comment_in_it() -> None:
    assert contents(f"`src/m.py`\n```python\n# src/old.py\n{NEW}```\n", "blocks").keys() == {"src/m.py"}


@pytest.mark.parametrize(
    "head",
    [
        "`src/m.py` (unchanged)\n```python\n",
        "`src/m.py` (excerpt)\n```python\n",
        "In `src/m.py`, change this:\n```python\n",
        "```python\n# src/m.py has one function\n",
        "`src/m.py`\n\nIt returns 2 now.\n\n```python\n",
    ],
)
def test_a_block_that_may_be_only_a_part_has_no_path(head: str) -> None:
    assert "the fenced block has no path" in problem(f"{head}{NEW}```\n", "blocks")


@pytest.mark.slow
@pytest.mark.parametrize("fence", ["````", "~~~", "```"])
def test_a_file_with_fences_is_whole(fence: str) -> None:
    assert contents(f"docs/b.md\n{fence}markdown\n{GUIDE}{fence}\n", "blocks") == {"docs/b.md": GUIDE}


def test_a_name_without_an_extension_is_a_path_in_its_own_line_and_a_language_in_the_fence() -> None:
    assert contents("Makefile\n```make\nall:\n```\n", "blocks") == {"Makefile": "all:\n"}
    assert "has no path" in problem("```Dockerfile\nFROM x\n```\n", "blocks")


@pytest.mark.parametrize(
    "line", ["delete: src/old.py", "- delete: `src/old.py`", "**Delete:** `src/old.py`", "### Delete: src/old.py"]
)
@pytest.mark.parametrize("returns", ["blocks", "edits"])
def test_a_delete_may_be_in_a_list_or_bold(line: str, returns: str) -> None:
    assert proposal(f"{line}\n", returns).deletes == ("src/old.py",)


def test_prose_about_deleting_deletes_nothing() -> None:
    text = f"- Delete: the old import\n\n`src/m.py`\n```python\n{NEW}```\n"
    assert proposal(text, "blocks").deletes == ()


@pytest.mark.parametrize("returns", ["blocks", "edits", "code", "text", "files", "json"])
@pytest.mark.parametrize("fence", ["", "```json\n"])
def test_an_error_may_be_in_a_fence(returns: str, fence: str) -> None:
    text = f'{fence}{{"status": "error", "reason": "there is no spec"}}\n{fence[:3]}'
    assert "there is no spec" in problem(text, returns)
    assert codes.MODEL_ERROR in problem(text, returns)


# ---- edits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"src/m.py\n```python\n{EDIT}```\n",
        f"```python\nsrc/m.py\n{EDIT}```\n",
        f"```diff\nsrc/m.py\n{EDIT}```\n",
        f'```python {{path="src/m.py"}}\n{EDIT}```\n',
        f"````markdown\nsrc/m.py\n{EDIT}````\n",
        f"### `src/m.py` (modified)\n\n{EDIT}\nDone.\n",
        f"### `src/m.py`\n\nIt returns 2 now, as `f` in the spec:\n\n```python\n{EDIT}```\n",
        EDIT.replace("SEARCH", "SEARCH src/m.py"),
        "src/m.py\n" + EDIT.replace("SEARCH", "search:").replace("REPLACE", "Replace:"),
        f"\ufeffsrc/m.py\r\n{EDIT}".replace("\r\n", "\n").replace("\n", "\r\n"),
    ],
)
def test_an_edit_is_read_with_whatever_is_around_it(text: str) -> None:
    assert contents(text, "edits") == {"src/m.py": NEW}


def test_a_later_block_is_of_the_file_that_was_named_last() -> None:
    second = "<<<<<<< SEARCH\nX = 1\n=======\nX = 2\n>>>>>>> REPLACE\n"
    text = f"src/m.py\n{EDIT}\nNow `src/old.py`, which is simple:\n\n- `src/old.py`\n\nIts value is 2.\n\n{second}"
    assert contents(text, "edits") == {"src/m.py": NEW, "src/old.py": "X = 2\n"}


def test_blank_lines_to_find_in_no_file_make_a_new_one() -> None:
    text = "src/new.py\n<<<<<<< SEARCH\n\n=======\nX = 1\n>>>>>>> REPLACE\n"
    assert contents(text, "edits") == {"src/new.py": "X = 1\n"}
    assert "SEARCH matches 2 times" in problem(text.replace("new.py", "m.py"), "edits")


def test_a_word_after_the_mark_that_is_no_path_begins_no_block() -> None:
    assert codes.DIFF in problem("src/m.py\n" + EDIT.replace("SEARCH", "SEARCH it"), "edits")


# ---- one file -----------------------------------------------------------------------------------


def test_commands_before_the_code_are_not_the_file() -> None:
    text = f"Install it first:\n\n```bash\npip install x\n```\n\nThen:\n\n```python\n{NEW}```\n"
    assert contents(text, "code") == {"src/m.py": NEW}
    assert contents(text, "code", "src/a.sh") == {"src/a.sh": "pip install x\n"}
    assert contents("```sh\nls\n```\n```\nX = 1\n```\n", "code", "src/a.txt") == {"src/a.txt": "ls\n"}


def test_an_example_in_markdown_is_not_the_file() -> None:
    assert "the code block is `sh`, and the file is Markdown" in problem(GUIDE, "code", "docs/b.md")
    for language in ("markdown", "md", "", "text"):
        assert contents(f"````{language}\n{GUIDE}````\n", "code", "docs/b.md") == {"docs/b.md": GUIDE}


@pytest.mark.parametrize("returns", ["code", "text"])
def test_a_byte_order_mark_before_a_response_is_not_in_the_file(returns: str) -> None:
    assert contents(f"\ufeff```python\r\n{NEW}```\r\n", returns) == {"src/m.py": NEW}


@pytest.mark.parametrize("fence", ["```", "````"])
def test_a_fence_around_a_text_is_left_out(fence: str) -> None:
    assert contents(f"{fence}html\n<p>x</p>\n{fence}\n", "text", "docs/a.html") == {"docs/a.html": "<p>x</p>\n"}
    assert contents(f"{fence}markdown\n{GUIDE}{fence}\n", "text", "docs/b.md") == {"docs/b.md": GUIDE}
    assert contents(json.dumps({"docs/b.md": f"{fence}md\n{GUIDE}{fence}"}), "files") == {"docs/b.md": GUIDE}


def test_a_text_that_only_begins_and_ends_with_a_fence_is_unchanged() -> None:
    for text in ("```sh\nmake\n```\n", "```markdown\na\n```\nb\n```\nc\n```\n"):
        assert contents(text, "text", "docs/b.md") == {"docs/b.md": text}


def test_a_file_in_json_may_be_what_would_be_an_error() -> None:
    text = '```json\n{"error": "the text of the file"}\n```\n'
    assert "the text of the file" in contents(text, "code", "src/a.json")["src/a.json"]
