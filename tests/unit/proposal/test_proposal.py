"""Judging answers: what is a proposal, what is refused, and that everything wrong is said at once."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.diagnostic import Diagnostic
from orch23.model.file_policy import allows_write, is_protected
from orch23.model.llm import Proposal, RefusedResponse
from orch23.model.pipeline import WriteScope
from orch23.proposal import proposal_codes as codes
from orch23.proposal.proposal import judge_response
from orch23.proposal.proposal_files import ProposalScope
from orch23.steps.llm.spec import LLMStep

FENCE = WriteScope(("ws/src/", "ws/README.md"), protect=("ws/src/locked.py",), delete=("ws/src/old*.py",))


def judge(
    answer,
    *,
    returns="files",
    stop="end",
    cwd="ws",
    write_scope=FENCE,
    outputs=("ws/src/a.py",),
    base=None,
    validate=None,
    **more,
):
    text = answer if isinstance(answer, str) else json.dumps(answer)
    step = LLMStep(provider="local", model="smollm2", prompt="p.j2", returns=returns, max_tokens=100)
    scope = ProposalScope(cwd=cwd, write_scope=write_scope, base=base or {}, **more)
    return judge_response(text, stop, scope, step=step, outputs=outputs, validate=validate)


def found(judgement) -> list[str]:
    assert isinstance(judgement, RefusedResponse), judgement
    return [d.code for d in judgement.diagnostics]


def write(path: str, content: str = "x = 1\n", **more) -> dict[str, object]:
    return {"path": path, "content": content, **more}


# ---- the forms of an answer -------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        {"summary": "", "writes": [write("src/a.py"), write("src/b.py", "y = 2\n")], "deletes": [], "error": None},
        {"edits": [write("src/b.py", "y = 2\n"), write("src/a.py")]},
        {"files": {"src/a.py": "x = 1\n", "src/b.py": "y = 2\n"}},
        {"files": [write("src/a.py"), write("src/b.py", "y = 2\n")]},
        {"src/b.py": "y = 2\n", "src/a.py": "x = 1\n"},
    ],
)
def test_each_form_gives_the_same_proposal_by_path_from_the_root(answer) -> None:
    proposal = judge(answer)
    assert isinstance(proposal, Proposal)
    assert [(w.path, w.content) for w in proposal.writes] == [("ws/src/a.py", "x = 1\n"), ("ws/src/b.py", "y = 2\n")]


@pytest.mark.parametrize("cwd", [".", ""])
def test_paths_are_from_the_root_where_the_stage_runs_there(cwd: str) -> None:
    proposal = judge({"ws/src/a.py": ""}, cwd=cwd)
    assert isinstance(proposal, Proposal)
    assert proposal.writes[0].path == "ws/src/a.py"


def test_deletes_and_summary_are_kept() -> None:
    proposal = judge({"summary": "gone", "writes": [], "deletes": ["src/old1.py"]}, base={"ws/src/old1.py": "1\n"})
    assert proposal == Proposal("gone", (), ("ws/src/old1.py",))


@pytest.mark.parametrize(
    "answer",
    [
        {"error": "src/b.py is not mine"},
        {"status": "error", "reason": "src/b.py is not mine"},
        {"writes": [], "error": "src/b.py is not mine"},
    ],
)
@pytest.mark.parametrize("returns", ["files", "json"])
def test_a_stated_error_is_an_agent_error_with_its_reason(answer, returns: str) -> None:
    judgement = judge(answer, returns=returns)
    assert found(judgement) == [codes.MODEL_ERROR]
    assert judgement.kind == "agent_error"
    assert "src/b.py is not mine" in judgement.diagnostics[0].message


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        ([1], 1),
        ("7", 1),
        ({"writes": "x"}, 1),
        ({"writes": [1, {"path": 2}, write("src/a.py", base_sha256="abc", mode="x")]}, 5),
        ({"writes": [write("src/a.py", action="delete")]}, 1),
        ({"writes": [write("src/a.py", encoding="base64")]}, 1),
        ({"writes": [write("src/a.py")], "edits": []}, 1),
        ({"writes": [write("src/a.py")], "error": "no"}, 1),
        ({"writes": [write("src/a.py")], "src/b.py": "x = 1\n"}, 1),
        ({"writes": [write("src/a.py")], "deleted": ["src/b.py"]}, 1),
        ({"writes": [write("src/a.py")], "more": [write("src/b.py")]}, 1),
        ({"writes": [write("src/a.py")], "deletes": "all"}, 1),
        ({"writes": [write("src/a.py")], "deletes": [1]}, 1),
        ({"writes": [write("src/a.py")], "summary": 1}, 1),
        ({"src/a.py": None}, 1),
    ],
)
def test_a_wrong_shape_is_named_in_every_place(answer, count: int) -> None:
    judgement = judge(answer)
    assert found(judgement) == [codes.WRONG_SHAPE] * count
    assert judgement.kind == "llm_output_invalid"
    assert not any("sha256" in str(one.hint) for one in judgement.diagnostics), "no digest is requested"


@pytest.mark.parametrize(
    "text",
    [
        'Or {"src/b.py": ""}:\n```json\n{"src/a.py": ""}\n```',
        'Here: {"src/a.py": ""} and {"src/b.py": ""}',
        '{"src/a.py": ""} done {"src/b.py": ""}',
        '{"a": 1, "a": 2}',
        "[NaN]",
    ],
)
@pytest.mark.parametrize("returns", ["files", "json"])
def test_what_is_not_strict_json_is_refused_with_its_place(text: str, returns: str) -> None:
    judgement = judge(text, returns=returns)
    assert found(judgement) == [codes.NOT_JSON]
    assert "line 1, column" in judgement.diagnostics[0].message


@pytest.mark.parametrize("answer", ["", "  \n", "{}", {"writes": []}, {"summary": "nothing to do"}])
def test_a_response_without_files_is_empty(answer) -> None:
    judgement = judge(answer)
    assert found(judgement) == [codes.EMPTY]
    assert judgement.outcome == "empty"


# ---- how it ended -----------------------------------------------------------------------------


@pytest.mark.parametrize("returns", ["files", "json", "text", "code"])
def test_a_response_that_was_cut_off_is_truncated(returns: str) -> None:
    for stop in ("max_tokens", "unknown"):
        judgement = judge("```python\nx = 1\n", returns=returns, stop=stop)
        assert found(judgement) == [codes.TRUNCATED]
        assert judgement.outcome == "truncated"


def test_a_closed_code_block_is_whole_whatever_chatter_was_cut_off() -> None:
    proposal = judge("```python\nx = 1\n```\nThis sets", returns="code", stop="max_tokens")
    assert isinstance(proposal, Proposal)


def test_a_refusal_is_refused_with_any_text() -> None:
    for text in ("", "I cannot", '{"src/a.py": ""}'):
        judgement = judge(text, stop="refusal")
        assert found(judgement) == [codes.REFUSED]
        assert judgement.outcome == "refused"


# ---- paths ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../src/a.py",
        "src/../../a.py",
        "src//a.py",
        "src/./a.py",
        "src/a\x00.py",
        "src/a\u202e.py",
        "src/a\u200b.py",
        "src\\a.py",
        "C:/a.py",
        "src/*.py",
        "~/a.py",
        "-rf",
        "src/a.py.",
        "src/con.py",
        "src/",
        "",
        "src/café.py",
        "src/" + "d/" * 40 + "a.py",
        "src/" + "n" * 300 + ".py",
    ],
)
def test_one_unsafe_path_refuses_the_whole_response(path: str) -> None:
    judgement = judge({"writes": [write("src/good.py"), write(path)]})
    assert codes.UNSAFE_PATH in found(judgement)
    assert judgement.kind == "write_scope_violation"
    assert all(d.subject is None or d.subject.isprintable() for d in judgement.diagnostics)


@pytest.mark.parametrize("other", ["src/a.py", "src/A.py", "SRC/a.py"])
def test_two_names_of_one_file_are_refused(other: str) -> None:
    assert codes.DUPLICATE_PATH in found(judge({"writes": [write("src/a.py"), write(other)]}))


def test_single_characters_and_writes_that_are_deleted_too_are_duplicates() -> None:
    write_scope = WriteScope(("**",), delete=("**",))
    assert found(judge({"writes": [write("a"), write("a")]}, write_scope=write_scope, cwd=".")) == [
        codes.DUPLICATE_PATH
    ]
    judgement = judge({"writes": [write("a")], "deletes": ["a"]}, write_scope=write_scope, cwd=".", base={"a": "old"})
    assert found(judgement) == [codes.DUPLICATE_PATH]


def test_a_path_is_not_both_file_and_directory() -> None:
    both = {"writes": [write("src/x", "1"), write("src/x/y.txt", "2")]}
    assert found(judge(both)) == [codes.FILE_AND_DIRECTORY]
    below = {"writes": [write("src/x/y.txt", "2")]}
    assert found(judge(below, base={"ws/src/x": "1"})) == [codes.FILE_AND_DIRECTORY]
    assert found(judge({"writes": [write("src/x", "1")]}, base={"ws/src/x/y.txt": "2"})) == [codes.FILE_AND_DIRECTORY]


def test_a_deleted_file_may_give_way_to_a_directory() -> None:
    answer = {"writes": [write("src/old.py/a.txt", "1")], "deletes": ["src/old.py"]}
    assert isinstance(judge(answer, base={"ws/src/old.py": "1"}), Proposal)


@pytest.mark.parametrize("path", ["a.py", "tests/t.py", "src-evil/a.py", "src/locked.py"])
def test_a_path_outside_the_write_scope_is_a_scope_violation(path: str) -> None:
    judgement = judge({path: ""})
    assert found(judgement) == [codes.OUTSIDE_WRITE_SCOPE]
    assert judgement.kind == "write_scope_violation"


def test_a_path_from_the_root_gets_the_right_path_as_hint() -> None:
    """Both may be written here, so the response is not read as if it named the other."""
    write_scope = WriteScope(("ws/src/", "ws/ws/lib/"))
    judgement = judge({"ws/src/a.py": ""}, write_scope=write_scope, base={"ws/ws/src/a.py": "x = 1\n"})
    assert judgement.diagnostics[0].hint == "paths are relative to `ws`: did you mean `src/a.py`?"


@pytest.mark.parametrize(
    "name",
    [
        "conftest.py",
        ".env",
        ".env.local",
        "x.pth",
        "sitecustomize.py",
        "pyproject.toml",
        "Makefile",
        "MAKEFILE",
        "node_modules/x.js",
        "sub/.github/workflows/x.yml",
        "CLAUDE.md",
        ".vscode/tasks.json",
        "a.lock",
    ],
)
def test_a_protected_name_needs_a_literal_entry(name: str) -> None:
    judgement = judge({f"src/{name}": ""}, write_scope=WriteScope(("ws/src/",)))
    assert found(judgement)[0] in (codes.PROTECTED, codes.OUTSIDE_WRITE_SCOPE)
    assert is_protected(f"ws/src/{name}")
    assert isinstance(judge({f"src/{name}": ""}, write_scope=WriteScope((f"ws/src/{name}",))), Proposal)


@pytest.mark.parametrize("name", [".git/config", ".GIT/hooks/x", "lib/.git", ".orch23/VERSION"])
def test_what_is_sealed_no_entry_admits(name: str) -> None:
    judgement = judge({f"src/{name}": ""}, write_scope=WriteScope(("ws/src/", f"ws/src/{name}")))
    assert found(judgement) == [codes.PROTECTED]
    assert "literal" not in str(judgement.diagnostics)


def test_the_projects_own_files_are_protected_by_place_or_by_name() -> None:
    everything = ("**",)
    assert not allows_write(everything, "prompts/coder.md.j2")
    assert not allows_write(everything, "specs/todo.md")
    assert not allows_write(everything, "build.yaml", ("build.yaml",))
    assert allows_write(everything, "src/specs/a.py")
    judgement = judge({"build.yaml": ""}, write_scope=WriteScope(everything), cwd=".", protected=("build.yaml",))
    assert found(judgement) == [codes.PROTECTED]


def test_deletes_are_off_unless_listed_and_need_a_file() -> None:
    base = {"ws/src/a.py": "1\n", "ws/src/old.py": "1\n", "ws/src/locked.py": "1\n"}
    assert found(judge({"deletes": ["src/a.py"]}, base=base)) == [codes.FORBIDDEN_DELETE]
    assert found(judge({"deletes": ["src/old2.py"]}, base=base)) == [codes.FORBIDDEN_DELETE]
    assert found(judge({"deletes": ["src/locked.py"]}, base=base)) == [codes.OUTSIDE_WRITE_SCOPE]
    assert found(judge({"deletes": ["../x"]}, base=base)) == [codes.UNSAFE_PATH]
    assert isinstance(judge({"deletes": ["src/old.py"]}, base=base), Proposal)
    assert found(judge({"deletes": ["src/old2.py"]}, base=base, not_shown={"ws/src/old2.py"})) == [codes.NOT_SHOWN]


# ---- contents ---------------------------------------------------------------------------------


def test_sizes_are_capped_a_file_and_in_all() -> None:
    just = "x" * 200_000
    assert isinstance(judge({"src/a.txt": just}), Proposal)
    assert found(judge({"src/a.txt": just + "x"})) == [codes.TOO_LARGE]
    assert found(judge({"src/a.txt": "ä" * 100_001})) == [codes.TOO_LARGE]
    assert isinstance(judge({"src/a.txt": just, "src/b.txt": just, "src/c.txt": just[:99_997]}), Proposal)
    assert found(judge({"src/a.txt": just, "src/b.txt": just, "src/c.txt": just[:100_001]})) == [codes.TOO_LARGE]


def test_text_that_no_file_can_hold_is_refused() -> None:
    assert found(judge('{"src/a.txt": "a\\u0000b"}')) == [codes.INVALID_TEXT]
    assert found(judge('{"src/a.txt": "\\ud800"}')) == [codes.NOT_JSON]
    assert found(judge("```\na\ud800b\n```", returns="code", outputs=("ws/a.txt",))) == [codes.INVALID_TEXT]


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("shown", "echoed", "good"),
    [
        ("old = 1\n", _sha("old = 1\n"), True),
        ("old = 1\n", _sha("old = 1\n").upper(), True),
        ("old = 1\n", "", True),
        (None, None, True),
        (None, "", True),
        ("old = 1\n", _sha("other"), False),
        ("old = 1\n", None, True),
        (None, _sha("old = 1\n"), False),
    ],
)
def test_an_echoed_base_must_be_what_was_shown(shown: str | None, echoed: str | None, good: bool) -> None:
    judgement = judge({"writes": [write("src/a.py", base_sha256=echoed)]}, base={"ws/src/a.py": shown})
    if good:
        assert isinstance(judgement, Proposal)
    else:
        assert found(judgement) == [codes.STALE_BASE]
        assert judgement.kind == "stale_context"


def test_an_existing_file_that_was_not_shown_is_not_replaced() -> None:
    judgement = judge({"src/a.py": "x = 1\n"}, not_shown={"ws/src/a.py"})
    assert found(judgement) == [codes.NOT_SHOWN]
    assert judgement.kind == "llm_output_invalid"  # another attempt can ask for it, or leave it out


ELIDED = [
    "# ... rest of code unchanged ...",
    "# rest of the code remains the same",
    "// ... existing code ...",
    "    # ... (rest of the function unchanged)",
    "/* rest of file unchanged */",
    "<!-- rest of the document unchanged -->",
    "# [previous code here]",
    "# ... existing imports ...",
    "# (unchanged)",
    "... rest of code ...",
    "[rest of the file omitted]",
    "# remaining methods unchanged",
    "# other methods remain unchanged",
    "x = 1  # ... rest unchanged",
    "# code omitted for brevity",
    "# same as before",
    "# the rest of the class stays the same",
    "# ... (existing code) ...",
    "# your code here",
    "… rest of file unchanged",
]
HONEST = [
    "# restore the file",
    "the rest of the code is unchanged since 1990",
    "x = ...",
    "    ...",
    "# other files are read too",
    "# Other methods",
    "# remaining is the number of items left",
    "rest = code[1:]",
    "# Existing users keep their code",
    "# Return the rest of the list",
    "# Truncated answers are refused",
    "# The rest of the string is the name",
    "# ...",
]


@pytest.mark.parametrize("line", ELIDED)
def test_a_placeholder_is_refused_unless_it_was_there_before(line: str) -> None:
    content = f"first\n{line}\n"
    judgement = judge({"src/a.txt": content})
    assert found(judgement) == [codes.INCOMPLETE_FILE]
    assert "line 2" in judgement.diagnostics[0].message
    assert isinstance(judge({"src/a.txt": content}, base={"ws/src/a.txt": f"{line}\nmore\n"}), Proposal)


@pytest.mark.parametrize("line", HONEST)
def test_honest_lines_are_no_placeholders(line: str) -> None:
    assert isinstance(judge({"src/a.txt": f"first\n{line}\n"}), Proposal)


def test_bare_dots_in_a_comment_leave_something_out_only_where_there_was_something() -> None:
    assert found(judge({"src/a.txt": "a\n# ...\n"}, base={"ws/src/a.txt": "a\nb\n"})) == [codes.INCOMPLETE_FILE]


@pytest.mark.parametrize("content", ["def f(:\n", "x = (\n", "(" * 5000, "-" * 100_000 + "1", "x = 1\n  y = 2\n"])
def test_python_that_does_not_parse_is_refused_unless_it_did_not_before(content: str) -> None:
    assert found(judge({"src/a.py": content})) == [codes.UNPARSABLE]
    assert isinstance(judge({"src/a.py": content}, base={"ws/src/a.py": "print 'two'\n"}), Proposal)
    assert isinstance(judge({"src/a.txt": content}), Proposal)


def test_a_doubtful_escape_is_no_fault_and_no_warning(recwarn) -> None:
    assert isinstance(judge({"src/a.py": 'x = "\\d"\n'}), Proposal)
    assert not recwarn.list


LONG = "import os\nLIMIT = 3\ndef f():\n    return 1\n" + "# filler\n" * 40 + "class G:\n    pass\n"


def test_names_lost_in_a_big_shrink_are_refused() -> None:
    judgement = judge({"src/a.py": "LIMIT = 3\n"}, base={"ws/src/a.py": LONG})
    assert found(judgement) == [codes.LOST_DEFINITIONS]
    assert "G, f" in judgement.diagnostics[0].message


def test_a_shrink_that_keeps_or_moves_the_names_is_fine() -> None:
    kept = "LIMIT = 3\ndef f():\n    return 1\nclass G: pass\n"
    assert isinstance(judge({"src/a.py": kept}, base={"ws/src/a.py": LONG}), Proposal)
    moved = {"src/a.py": "from b import *\n", "src/b.py": kept}
    assert isinstance(judge(moved, base={"ws/src/a.py": LONG}), Proposal)
    was_broken = LONG + "print 'two'\n"
    assert isinstance(judge({"src/a.py": "LIMIT = 3\n"}, base={"ws/src/a.py": was_broken}), Proposal)
    renamed = LONG.replace("def f", "def h")
    assert isinstance(judge({"src/a.py": renamed}, base={"ws/src/a.py": LONG}), Proposal)


def test_all_errors_are_reported_at_once() -> None:
    answer = {
        "writes": [
            write("src/a.py", "def f(:\n"),
            write("src/b.txt", "# rest of code unchanged\n"),
            write("../x"),
            write("elsewhere.py"),
            write("src/conftest.py"),
            write("src/new.py", base_sha256="0" * 64),
            write("src/seen.py"),
            write("src/SEEN.py"),
        ],
        "deletes": ["src/keep.py"],
        "renamed": {"src/c.py": "src/d.py"},
    }
    judgement = judge(answer, not_shown={"ws/src/seen.py"})
    expected = {codes.UNPARSABLE, codes.INCOMPLETE_FILE, codes.UNSAFE_PATH, codes.OUTSIDE_WRITE_SCOPE, codes.PROTECTED}
    expected |= {codes.STALE_BASE, codes.NOT_SHOWN, codes.DUPLICATE_PATH, codes.FORBIDDEN_DELETE, codes.WRONG_SHAPE}
    assert set(found(judgement)) == expected
    assert judgement.kind == "write_scope_violation"


def test_a_long_list_of_errors_is_limited_and_has_one_of_each_code() -> None:
    answer = {"writes": [write(f"other/{n}.txt") for n in range(200)] + [write("../x"), write("src/a.py", "def f(:")]}
    judgement = judge(answer)
    assert len(judgement.diagnostics) < 60
    assert {codes.OUTSIDE_WRITE_SCOPE, codes.UNSAFE_PATH, codes.UNPARSABLE} <= set(found(judgement))
    assert "more errors are not listed" in judgement.diagnostics[-1].message


@pytest.mark.slow
def test_many_files_are_judged_in_time_with_their_number() -> None:
    """Each of them has lost its names; to parse all the others for each would take minutes."""
    base = {f"ws/src/m{n}.py": LONG for n in range(300)}
    judgement = judge({"writes": [write(f"src/m{n}.py", f"x{n} = 1\n") for n in range(300)]}, base=base)
    assert set(found(judgement)) == {codes.LOST_DEFINITIONS}


def test_a_file_that_is_no_text_is_not_rewritten() -> None:
    """The model was shown it with holes; to write it whole would destroy it."""
    there = b"caf\xe9 = 1\n".decode("utf-8", "surrogateescape")
    assert found(judge({"src/a.txt": "cafe = 1\n"}, base={"ws/src/a.txt": there})) == [codes.INVALID_TEXT]
    judgement = judge("cafe = 1\n", returns="text", outputs=("a.txt",), base={"a.txt": there})
    assert found(judgement) == [codes.INVALID_TEXT]


def test_a_base_that_is_no_text_still_has_the_digest_of_its_bytes() -> None:
    raw = b"caf\xe9\n"
    base = {"ws/src/a.txt": raw.decode("utf-8", "surrogateescape")}
    answer = {"writes": [write("src/a.txt", "x", base_sha256=hashlib.sha256(raw).hexdigest())]}
    assert codes.STALE_BASE not in found(judge(answer, base=base))


def test_an_existing_file_in_another_case_is_the_same_file_unless_it_goes() -> None:
    base = {"ws/src/old1.py": "x = 1\n"}
    judgement = judge({"src/OLD1.py": "x = 1\n"}, base=base)
    assert found(judgement) == [codes.DUPLICATE_PATH]
    assert judgement.diagnostics[0].hint == "write `src/old1.py`"
    assert found(judge({"src/Hid.py": ""}, not_shown={"ws/src/hid.py"})) == [codes.DUPLICATE_PATH]


def test_a_stated_error_beside_empty_lists_is_an_error_and_beside_files_a_fault() -> None:
    wire = {"summary": "", "writes": [], "deletes": [], "error": "the spec contradicts itself"}
    assert found(judge(wire)) == [codes.MODEL_ERROR]
    assert found(judge({"status": "error", "reason": "no", "edits": []})) == [codes.MODEL_ERROR]
    assert found(judge({"status": "error", "edits": [write("src/a.py")]})) == [codes.WRONG_SHAPE]
    assert found(judge({"error": "x", "deletes": ["src/old.py"]}, base={"ws/src/old.py": "1"})) == [codes.WRONG_SHAPE]


BODY = "def f(x):\n    y = x + 1\n    return y\n\n\nclass A:\n    def g(self):\n        return f(1)\n"


@pytest.mark.parametrize(
    "content",
    [
        "def f(x):\n    ...\n\n\nclass A:\n    def g(self):\n        return f(1)\n",
        'def f(x):\n    """Add one."""\n    ...\n\n\nclass A:\n    def g(self):\n        return f(1)\n',
        BODY.replace("        return f(1)\n", "        ...\n"),
        BODY + "\n...\n",
        BODY.replace("    y = x + 1\n", "    ...\n    y = x\n"),
        BODY.replace("class A:\n", "class A:\n    ...\n\n"),
    ],
)
def test_dots_where_python_had_code_are_left_out_code(content: str) -> None:
    assert found(judge({"src/a.py": content}, base={"ws/src/a.py": BODY})) == [codes.INCOMPLETE_FILE]
    assert isinstance(judge({"src/a.py": content}), Proposal), "in a new file they are a stub"
    assert isinstance(judge({"src/a.py": content}, base={"ws/src/a.py": content + "# 1\n"}), Proposal), "it was there"


def test_a_placeholder_may_stand_no_more_often_than_before() -> None:
    once = "a\n# ... rest of code unchanged\nb\n"
    twice = once + "# ... rest of code unchanged\n"
    assert isinstance(judge({"src/a.txt": once}, base={"ws/src/a.txt": once}), Proposal)
    assert found(judge({"src/a.txt": twice}, base={"ws/src/a.txt": once})) == [codes.INCOMPLETE_FILE]


@pytest.mark.parametrize(
    ("path", "good", "bad"),
    [("a.json", '{"a": 1}\n', '{"a": 1,}\n'), ("a.toml", "a = 1\n", "a = \n"), ("a.ipynb", "{}\n", "{\n")],
)
def test_data_files_parse_unless_they_did_not_before(path: str, good: str, bad: str) -> None:
    assert isinstance(judge({f"src/{path}": good}), Proposal)
    assert found(judge({f"src/{path}": bad})) == [codes.UNPARSABLE]
    assert isinstance(judge({f"src/{path}": bad}, base={f"ws/src/{path}": bad + bad}), Proposal)


# ---- json, text, code -------------------------------------------------------------------------


def test_json_is_one_file_in_the_order_of_the_response() -> None:
    proposal = judge('{"b": [1, 2.5], "a": "ä"}', returns="json", outputs=("build/plan.json",))
    assert isinstance(proposal, Proposal)
    assert proposal.writes[0].path == "build/plan.json"
    assert proposal.writes[0].content == '{\n  "b": [\n    1,\n    2.5\n  ],\n  "a": "ä"\n}\n'


def test_the_errors_of_the_validator_are_part_of_the_refusal() -> None:
    seen = []

    def validate(value) -> tuple[Diagnostic, ...]:
        seen.append(value)
        return (Diagnostic("E103", "postconditions"),)

    judgement = judge({"src/a.py": ""}, returns="json", validate=validate)
    assert found(judgement) == ["E103"]
    assert seen == [{"src/a.py": ""}]


def test_text_is_kept_with_one_newline_at_its_end() -> None:
    proposal = judge("\n# Title\r\n\r\nbody\n\n\n", returns="text", outputs=("README.md",))
    assert isinstance(proposal, Proposal)
    assert proposal.writes[0].content == "# Title\n\nbody\n"


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("Sure!\n```python\nx = 1\n```\nand\n```python\ny = 2\n```", "x = 1\n"),
        ("```\nx = 1\n\n\n```", "x = 1\n"),
        ("~~~py\nx = 1\n~~~", "x = 1\n"),
        ("````\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
        ("```python\nx = 1\n", "x = 1\n"),
        ("x = 1\n\n", "x = 1\n"),
        ("```python\r\nx = 1\r\n```", "x = 1\n"),
    ],
)
def test_code_is_the_first_block_or_the_whole_response(text: str, content: str) -> None:
    proposal = judge(text, returns="code")
    assert isinstance(proposal, Proposal), proposal
    assert proposal.writes[0].content == content


def test_prose_without_code_is_refused() -> None:
    assert found(judge("I would add one to it, then.", returns="code")) == [codes.NO_CODE]
    assert found(judge("```python\n\n```", returns="code")) == [codes.EMPTY]
    assert found(judge("x = 1", returns="code", outputs=("a.sql",))) == [codes.NO_CODE]
    assert found(judge('{"error": "cannot"}', returns="code")) == [codes.MODEL_ERROR]


def test_code_is_held_to_the_rules_of_contents() -> None:
    judgement = judge("```\ndef f(:\n    # rest of code unchanged\n```", returns="code")
    assert set(found(judgement)) == {codes.UNPARSABLE, codes.INCOMPLETE_FILE}


def test_a_single_file_needs_a_single_output() -> None:
    with pytest.raises(ValueError, match="BUG"):
        judge("x = 1", returns="code", outputs=())


# ---- properties -------------------------------------------------------------------------------

JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["writes", "edits", "files", "deletes", "error", "path", "content", "base_sha256", "a.py"])
            | st.text(max_size=6),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(JSONISH, st.sampled_from(["files", "json", "text", "code"]))
def test_no_response_makes_the_judge_raise_and_no_proposal_leaves_the_write_scope(value, returns: str) -> None:
    judgement = judge(value, returns=returns)
    if isinstance(judgement, Proposal) and returns == "files":
        assert all(allows_write(FENCE.write, w.path) for w in judgement.writes)
    elif isinstance(judgement, RefusedResponse):
        assert judgement.diagnostics


@given(st.text(max_size=200))
def test_no_text_breaks_the_judge(text: str) -> None:
    for returns in ("files", "json", "text", "code"):
        assert isinstance(judge(text, returns=returns), Proposal | RefusedResponse)
