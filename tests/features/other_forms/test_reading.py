"""Forms of a response that differ from what was asked for: one meaning is accepted, two are refused with the reason."""

import json
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.llm import Judgement, Proposal, RefusedResponse
from orch23.model.pipeline import WriteScope
from orch23.proposal import proposal_codes as codes
from orch23.proposal.proposal import judge_response
from orch23.proposal.proposal_files import ProposalScope
from orch23.steps.llm.spec import LLMStep

NEW = "def f():\n    return 2\n"
FILES = {"src/m.py": NEW}
EDIT = "<<<<<<< SEARCH\n    return 1\n=======\n    return 2\n>>>>>>> REPLACE\n"
SCOPE = ProposalScope(
    cwd=".", write_scope=WriteScope(("src/", "docs/"), delete=("src/",)), base={"src/m.py": "def f():\n    return 1\n"}
)


def judge(text: str, *, returns: str = "files", scope: ProposalScope = SCOPE, only_json: bool = False) -> Judgement:
    step = LLMStep(provider="scripted", model="m", prompt="p.j2", returns=returns, only_json=only_json)  # type: ignore[arg-type]
    return judge_response(text, "end", scope, step=step, outputs=("src/m.py",))


def files(judgement: Judgement) -> Mapping[str, str]:
    assert isinstance(judgement, Proposal), judgement.diagnostics
    return {write.path: write.content for write in judgement.writes}


def reason(judgement: Judgement) -> str:
    assert isinstance(judgement, RefusedResponse), judgement
    return str(judgement.diagnostics[0])


# ---- elements of XML ------------------------------------------------------------------------------

ELEMENTS = [
    f'<file path="src/m.py">\n{NEW}</file>',
    f"<file path='src/m.py' language='python'>\n{NEW}</file>\n",
    f'<FILE name="src/m.py">\n{NEW}</FILE>',
    f'<write_file filename="src/m.py">{NEW}</write_file>',
    f"<file><path>src/m.py</path><content>\n{NEW}</content></file>",
    f"<create_file>\n  <file_path>src/m.py</file_path>\n  <content>\n{NEW}  </content>\n</create_file>",
    f'<file path="src/m.py">\n<![CDATA[{NEW}]]>\n</file>',
    f'<file path="src/m.py">\n```python\n{NEW}```\n</file>',
    f'<file path="src/m.py">\r\n{NEW.replace(chr(10), chr(13) + chr(10))}</file>\r\n',
]


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize(
    "around", ["{}", "<think>hm</think>\nHere it is:\n\n{}\n\nDone.", "```xml\n<files>\n{}\n</files>\n```"]
)
@pytest.mark.parametrize("returns", ["files", "blocks"])
def test_an_element_of_xml_is_a_file(element: str, around: str, returns: str) -> None:
    assert files(judge(around.replace("{}", element), returns=returns)) == FILES


def test_an_element_may_be_empty_or_only_delete() -> None:
    found = judge('<file path="src/__init__.py"></file>\n<file path="src/m.py" action="delete" />\n')
    assert files(found) == {"src/__init__.py": ""}
    assert isinstance(found, Proposal)
    assert found.deletes == ("src/m.py",)


def test_a_file_may_have_what_looks_like_xml() -> None:
    page = "<p>a &amp; b &lt; c</p>\n\n```html\n<file>\n```\n"
    assert files(judge(f'<file path="docs/a.md">\n{page.replace("<file>", "<files>")}</file>')) == {
        "docs/a.md": page.replace("<file>", "<files>")
    }
    assert files(judge('<file path="docs/a.md">\nA &amp; B & C\n</file>')) == {"docs/a.md": "A &amp; B & C\n"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (ELEMENTS[0].removesuffix("</file>"), "`<file>` in line 1 has no end"),
        (f"{ELEMENTS[0]}\n</file>", "a tag of a file is beside"),
        (f'<file path="src/m.py">\n{NEW}{ELEMENTS[0]}', "`<file>` in line 1 has no end"),
        (f'{ELEMENTS[0]}<file path="src/b.py">\n{NEW}</file>', "text is after `</file>` in its line"),
        ('<file path="src/m.py">\nX = 1\n{"src/b.py": "</file>"}', "text is after `</file>` in its line"),
        (f"{ELEMENTS[0]}\n{json.dumps({'src/b.py': NEW})}", "JSON is beside"),
        (f"{ELEMENTS[0]}\n\n```python\n{NEW}```\n", "a fenced block"),
        (f"{ELEMENTS[0]}\n\ndelete: src/old.py\n", "a line that deletes a file"),
        (
            f'<tool_call>\n{{"plan": "x"}}\n</tool_call>\n{ELEMENTS[0]}',
            "one of several calls or elements is not a file",
        ),
        (f"Such as:\n```xml\n{ELEMENTS[0]}\n```\n{ELEMENTS[0].replace('m.py', 'b.py')}", "another fence is beside"),
        (f"```xml\n{ELEMENTS[0]}\n```\n```xml\n{ELEMENTS[0].replace('m.py', 'b.py')}\n```", "another fence is beside"),
        ('<file path="src/m.py">\nX = a &lt; b\n</file>', "it may be escaped"),
        ('<file path="src/m.py">X = a &#60; b</file>', "it may be escaped"),
        ('<file path="src/m.py"><![CDATA[a]]>b<![CDATA[c]]></file>', "parts in CDATA"),
        ('<file path="src/m.py"> X = 1</file>', "every line of a file is indented"),
        ('  <file path="src/m.py">\n    a: 1\n  </file>', "every line of a file is indented"),
        (f'<file path="src/m.py" name="src/b.py">\n{NEW}</file>', "is there twice"),
        (f"<file><path>src/m.py</path><content>\n{NEW}</content>\n</content></file>", "two ends `</content>`"),
        (f"<tool_call>\n{{'path': 1}}\n</tool_call>\n{ELEMENTS[0]}", "a `<tool_call>` is not JSON"),
    ],
)
def test_elements_that_may_mean_several_things_are_refused(text: str, what: str) -> None:
    assert what in reason(judge(text))
    assert "respond once, in one form" in reason(judge(text))


@pytest.mark.parametrize("beside", ["--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-1\n+2\n", f"src/m.py\n{EDIT}"])
@pytest.mark.parametrize("files", [ELEMENTS[0], json.dumps(FILES)])
def test_a_patch_beside_files_is_another_reading(files: str, beside: str) -> None:
    assert isinstance(judge(files), Proposal)
    assert isinstance(judge(f"{files}\n\n{beside}"), RefusedResponse)


@pytest.mark.parametrize(
    "text",
    [
        f'<file path="src/m.py" action="append">\n{NEW}</file>',
        f'<file path="src/m.py" start="3">\n{NEW}</file>',
        f"<file>\n{NEW}</file>",
        '<file path="src/m.py"/>',
    ],
)
def test_an_element_that_is_no_whole_file_is_refused(text: str) -> None:
    assert isinstance(judge(text), RefusedResponse)


def test_files_in_the_usual_form_keep_their_errors_whatever_is_beside_them() -> None:
    cut = "src/m.py\n```python\n# ... rest of code unchanged\n```\n"
    for beside in ('In short: {"a": 1}', ELEMENTS[0].replace("m.py", "b.py")):
        assert codes.INCOMPLETE_FILE in reason(judge(f"{cut}\n{beside}\n"))


# ---- JSON -----------------------------------------------------------------------------------------

ENTRY = {"path": "src/m.py", "content": NEW}


@pytest.mark.parametrize(
    "value",
    [
        ENTRY,
        {"file_path": "src/m.py", "contents": NEW, "explanation": "2 now"},
        {"Path": "src/m.py", "Content": NEW},
        {"Writes": [{"FilePath": "src/m.py", "Content": NEW}], "Summary": "2 now"},
        {"FILES": {"src/m.py": NEW}},
        {"writes": [{"path": "src/m.py", "contents": NEW}]},
        {"command": "create", "path": "src/m.py", "file_text": NEW},
        {"src/m.py": ["def f():", "    return 2"]},
        {"src/m.py": ["def f():", "    return 2", ""]},
        {"files": {"src/m.py": ["def f():\n", "    return 2\n"]}},
        {"files": {"src/m.py": ["def f():\n", "    return 2"]}},
        {"writes": [{"path": "src/m.py", "content": [NEW]}]},
    ],
)
@pytest.mark.parametrize(
    "around", ["{}", "As asked:\n\n{}", "{}\n\nAll tests should pass (see [1]).", "Done:\n```json\n{}\n```"]
)
def test_other_keys_and_contents_as_lines(value: Json, around: str) -> None:
    text = around.replace("{}", json.dumps(value, indent=1))
    assert files(judge(text)) == FILES
    if around != "{}":
        assert reason(judge(text, only_json=True))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"writes": [{"Path": "src/m.py", "PATH": "src/b.py", "content": NEW}]}, "`path` is there twice"),
        ({"Writes": [ENTRY], "WRITES": []}, "`writes` is there twice"),
        ({"src/m.py": ["a\n", "b", "c\n"]}, "only some end with a line break"),
        ({"src/m.py": ["a", "b\nc"]}, "only some end with a line break"),
        ({**ENTRY, "more": [ENTRY]}, "the keys beside `path` and `content`"),
        ({"command": "insert", **ENTRY}, "the command `insert`"),
        ({"src/m.py": []}, "the content of a file is text, not a list"),
        ({"src/m.py": ["a", 1]}, "the content of a file is text, not a list"),
        ({"steps": ["a", "b"]}, "the content of a file is text, not a list"),
    ],
)
def test_json_that_may_mean_several_things_is_refused(value: Json, what: str) -> None:
    assert what in reason(judge(json.dumps(value)))


def test_json_in_prose_is_the_only_one() -> None:
    one, other = (json.dumps({path: NEW}) for path in ("src/m.py", "src/b.py"))
    for text in (
        f"Instead of {other} I wrote:\n{one}",
        f"{one}\n{other}",
        f"{one}\nor\n```json\n{other}\n```",
        f"{one}\n```python\n{NEW}```",
        f"{one}\ndelete: src/b.py",
    ):
        assert "may mean several things" in reason(judge(text)), text


@pytest.mark.parametrize("comment", ["// returns 2", "/* f\n   returns 2 */", "// see https://a.org/b"])
def test_a_comment_in_json_is_left_out(comment: str) -> None:
    text = f'{{ {comment}\n"src/m.py":\n{comment}\n{json.dumps(NEW + "# // a /* b */")},\n{comment}\n}}\n'
    assert files(judge(text)) == {"src/m.py": NEW + "# // a /* b */\n"}
    assert codes.NOT_JSON in reason(judge(text, only_json=True))


@pytest.mark.parametrize(
    "comment",
    ["// ... as before", "/* the rest is unchanged */", '// "src/b.py": "X"', "// delete src/old.py", "// TODO"],
)
def test_a_comment_that_may_say_more_is_refused(comment: str) -> None:
    text = f'{{\n  {comment}\n  "src/m.py": {json.dumps(NEW)}\n}}'
    assert "a comment may change what the JSON says" in reason(judge(text))


def test_what_looks_like_a_comment_in_a_string_is_text_whatever_is_before_the_json() -> None:
    for before in ('A 5" disk:', "It's /* as asked:", "See // this:"):
        assert files(judge(f"{before}\n{json.dumps({'src/m.py': 'URL = 1  # http://a/b'})}")) == {
            "src/m.py": "URL = 1  # http://a/b\n"
        }


def test_an_open_comment_or_another_kind_of_it_is_not_json() -> None:
    for comment in ("/* f", "# f", "-- f"):
        assert codes.NOT_JSON in reason(judge(f'{{\n  {comment}\n  "src/m.py": {json.dumps(NEW)}\n}}'))


def test_a_name_that_is_no_path_is_no_file_in_prose() -> None:
    everything = replace(SCOPE, write_scope=WriteScope(("**",)))
    assert codes.NOT_JSON in reason(judge('The plan is\n{"plan": "X"}', scope=everything))


def test_an_error_in_prose_is_heard() -> None:
    assert codes.MODEL_ERROR in reason(judge('I cannot do it.\n\n{"status": "error", "reason": "there is no spec"}'))


# ---- calls of tools -------------------------------------------------------------------------------


def call(arguments: Json, name: str = "write_file", key: str = "arguments") -> dict[str, Json]:
    return {"name": name, key: arguments}


CALLS: list[Json] = [
    call(ENTRY),
    call(json.dumps(ENTRY)),
    call(ENTRY, key="parameters"),
    {"type": "tool_use", "id": "t1", **call(ENTRY, key="input")},
    call({"writes": [ENTRY]}, "answer"),
    call(FILES, "answer"),
    call({"file_path": "src/m.py", "content": NEW}, "Write"),
    {"tool": "write_file", "args": ENTRY},
    {"function": call(ENTRY)},
    {"type": "function", "function": call(json.dumps(ENTRY)), "id": "c1"},
    {"function_call": call(json.dumps(ENTRY))},
    {"tool_calls": [{"function": call(ENTRY)}]},
    {"role": "assistant", "content": "As asked.", "tool_calls": [call(ENTRY)]},
    [call(ENTRY)],
]


@pytest.mark.parametrize("value", CALLS)
@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "I write it:\n{}\n"])
def test_a_call_of_a_tool_is_its_arguments(value: Json, around: str) -> None:
    assert files(judge(around.replace("{}", json.dumps(value)))) == FILES


def test_several_calls_are_several_files() -> None:
    calls = [call(ENTRY), call({"path": "src/b.py", "content": "X = 1\n"})]
    both = {**FILES, "src/b.py": "X = 1\n"}
    assert files(judge(json.dumps({"tool_calls": calls}))) == both
    assert files(judge("\n".join(f"<tool_call>\n{json.dumps(one)}\n</tool_call>" for one in calls))) == both
    assert codes.DUPLICATE_PATH in reason(judge(json.dumps([calls[0], call({**ENTRY, "content": "X = 2\n"})])))


@pytest.mark.parametrize(
    "value",
    [
        call(ENTRY, "append_to_file"),
        call({"path": "src/m.py"}, "delete_file"),
        [call(ENTRY), call({"command": "rm src/b.py"}, "run")],
        {"tool_calls": [call(ENTRY)], "src/b.py": NEW},
        {"tool_calls": [call(ENTRY)], "more": [{"path": "src/b.py", "content": NEW}]},
        {"tool_calls": [call(ENTRY)], "content": json.dumps({"src/b.py": NEW})},
        [call(ENTRY), ENTRY],
    ],
)
def test_a_call_that_may_mean_more_than_whole_files_is_refused(value: Json) -> None:
    assert "may mean several things" in reason(judge(json.dumps(value)))


def test_a_stage_that_returns_json_takes_text_around_it_and_the_arguments_of_a_call() -> None:
    step = LLMStep(provider="scripted", model="m", prompt="p.j2", returns="json")
    wrong = Diagnostic(codes.WRONG_SHAPE, "`tasks` is missing", hint="add it")

    def judged(text: str) -> Judgement:
        check = lambda value: () if isinstance(value, Mapping) and "tasks" in value else (wrong,)  # noqa: E731
        return judge_response(text, "end", SCOPE, step=step, outputs=("src/m.json",), validate=check)

    value = json.dumps({"tasks": []})
    asked = [value, f"The plan:\n\n{value}", f"{value}\nDone.", json.dumps(call({"tasks": []}, "plan"))]
    for text in (*asked, f"I call it:\n{json.dumps(call(value, 'plan'))}"):
        assert json.loads(files(judged(text))["src/m.json"]) == {"tasks": []}
    for text in (f"{value}\n{value}", '{"a": 1}', 'x {"a": 1}', json.dumps(call({"tasks": []}, "append"))):
        assert isinstance(judged(text), RefusedResponse)
    named = {**call({"tasks": []}, "plan"), "tasks": []}
    assert json.loads(files(judged(json.dumps(named)))["src/m.json"]) == named, "as it was, if the schema takes it"
