"""SEARCH/REPLACE blocks: applied, they give the expected text; a block that does not fit is refused with its lines."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import Judgement, Proposal, RefusedResponse
from orch23.model.pipeline import WriteScope
from orch23.proposal import proposal_codes as codes
from orch23.proposal.edit_proposal import apply_edits
from orch23.proposal.fenced_files import EditBlock, read_edits
from orch23.proposal.proposal import judge_response
from orch23.proposal.proposal_files import ProposalScope
from orch23.steps.llm.spec import LLMStep

FENCE = WriteScope(("src/", "docs/"), protect=("src/locked.py",), delete=("src/old.py",))
SHOP = "".join(f"x{n} = {n}\n" for n in range(40)) + "y = 1\n" + "y = 1\n"


def block(search: str, written: str, marks: int = 7) -> str:
    return f"{'<' * marks} SEARCH\n{search}{'=' * marks}\n{written}{'>' * marks} REPLACE\n"


def judge(text: str, base=None, **more) -> Judgement:
    step = LLMStep(provider="scripted", model="m", prompt="p.j2", returns="edits")
    there = {"src/a.py": SHOP} if base is None else base
    stop, outputs = more.pop("stop", "end"), more.pop("outputs", ("src/",))
    scope = ProposalScope(base=there, **{"cwd": ".", "write_scope": FENCE, **more})
    return judge_response(text, stop, scope, step=step, outputs=outputs)


def files(judgement: Judgement) -> dict[str, str]:
    assert isinstance(judgement, Proposal), judgement.diagnostics
    return {write.path: write.content for write in judgement.writes}


def only(judgement: Judgement) -> Diagnostic:
    assert isinstance(judgement, RefusedResponse), judgement
    (one,) = judgement.diagnostics
    return one


# ---- the form -----------------------------------------------------------------------------------

EDIT = block("x3 = 3\n", "x3 = 33\n")


@pytest.mark.parametrize(
    "text",
    [
        f"src/a.py\n{EDIT}",
        f"I change one line.\n\n`src/a.py`:\n\n{EDIT}\nThat is all.\n",
        f"src/a.py\n```python\n{EDIT}```\n",
        f"```python\nsrc/a.py\n{EDIT}```\n",
        f"```python src/a.py\n{EDIT}```\n",
        f"### src/a.py\n\n````\n{EDIT}````\n",
        f"<think>x3 = 3?</think>\n./src/a.py\n{EDIT}".replace("\n", "\r\n"),
        "src/a.py\n" + block("x3 = 3\n", "x3 = 33\n", 9),
    ],
)
def test_a_block_is_read_in_a_fence_or_without_one(text: str) -> None:
    assert files(judge(text)) == {"src/a.py": SHOP.replace("x3 = 3\n", "x3 = 33\n")}


def test_blocks_without_a_path_edit_the_file_of_the_block_before() -> None:
    new_file = block("", "z = 1\n")
    text = f"src/a.py\n{EDIT}\n" + block("x5 = 5\n", "") + f"\nsrc/b.py\n{new_file}"
    expected = SHOP.replace("x3 = 3\n", "x3 = 33\n").replace("x5 = 5\n", "")
    assert files(judge(text)) == {"src/a.py": expected, "src/b.py": "z = 1\n"}


@pytest.mark.parametrize("path", ["src/a b.py", "src/COPYING", "COPYING"])
@pytest.mark.parametrize("form", ["{}\n", "`{}`\n", "### {}:\n\n", "ws/{}\n"])
@pytest.mark.parametrize("is_shown", [True, False])
def test_a_line_that_is_an_existing_file_is_never_prose_between_two_blocks(
    path: str, form: str, *, is_shown: bool
) -> None:
    cwd, scope = ("ws" if form.startswith("ws/") else "."), WriteScope(("**",))
    full = f"ws/{path}" if cwd == "ws" else path
    first = "ws/src/first.py" if cwd == "ws" else "src/first.py"
    base = {first: "x3 = 3\nx5 = 5\n", **({full: "x5 = 5\n"} if is_shown else {})}
    hidden = frozenset[str]() if is_shown else frozenset({full})
    text = f"src/first.py\n{EDIT}\n{form.format(path)}{block('x5 = 5' + chr(10), 'x5 = 55' + chr(10))}"
    judgement = judge(text, base=base, cwd=cwd, write_scope=scope, not_shown=hidden)
    if is_shown:
        assert files(judgement) == {first: "x3 = 33\nx5 = 5\n", full: "x5 = 55\n"}
    else:
        assert only(judgement).code == codes.NOT_SHOWN


def test_a_new_file_may_be_given_whole_and_a_file_deleted() -> None:
    text = f"src/new.py\n```python\nz = 1\n```\n\nsrc/a.py\n```python\n{EDIT}```\n\ndelete: src/old.py\n"
    judgement = judge(text, base={"src/a.py": SHOP, "src/old.py": "x = 1\n"})
    assert files(judgement)["src/new.py"] == "z = 1\n"
    assert isinstance(judgement, Proposal)
    assert judgement.deletes == ("src/old.py",)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"As asked:\n{EDIT}", "line 2: no path"),
        (EDIT, "line 1: no path"),
        ("src/a.py\n<<<<<<< SEARCH\nx3 = 3\n=======\nx3 = 33\n", "line 2: the block has no line `>>>>>>> REPLACE`"),
        ("src/a.py\n<<<<<<< SEARCH\nx3 = 3\n>>>>>>> REPLACE\n", "line 2: the block has no line `=======`"),
        (
            f"src/a.py\n{block('a' + chr(10) + '=======' + chr(10), 'b' + chr(10))}",
            "line 2: the block has lines that look",
        ),
        (f"src/a.py\n<<<<<<< SEARCH\na\n{EDIT}", "line 2: the block has lines that look"),
        (f"src/a.py\n```python\nx = 1\n{EDIT}```\n", "line 2: the fence has text beside"),
        ("I would rather talk.\n", "the response has no SEARCH/REPLACE block"),
        ("```python\nx = 1\n```\n", "line 1: the fenced block has no path"),
    ],
)
def test_a_wrong_form_is_refused_with_its_line(text: str, line: str) -> None:
    judgement = judge(text)
    assert isinstance(judgement, RefusedResponse)
    assert judgement.diagnostics[0].code == codes.WRONG_SHAPE
    assert judgement.diagnostics[0].message.startswith(line)


def test_a_stated_error_is_heard_and_a_cut_off_response_is_not_applied() -> None:
    assert only(judge('{"error": "there is no x99"}')).code == codes.MODEL_ERROR
    assert only(judge(f"src/a.py\n{EDIT}", stop="max_tokens")).code == codes.TRUNCATED


# ---- blocks that do not fit ---------------------------------------------------------------------


def test_several_matches_are_named_by_their_lines() -> None:
    one = only(judge(f"src/a.py\n{block('y = 1' + chr(10), 'y = 2' + chr(10))}"))
    assert one.code == codes.SEVERAL_MATCHES
    assert one.message.endswith("SEARCH matches 2 times, at lines 41 and 42")
    assert one.hint == "add lines before and after it, so that it matches once"


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("x7 = 8\nx8 = 8\n", "SEARCH matches nowhere; nearest lines: 8 `x7 = 7`, 9 `x8 = 8`"),
        ("x77 = 7\n", "SEARCH matches nowhere; nearest lines: 8 `x7 = 7`"),
        ("x6 = 6\n  x7  = 7\n", "SEARCH matches at line 7 only if white space is ignored: 8 `x7 = 7`"),
        ("def main():\n", "SEARCH matches nowhere, and no line is similar"),
        ("", "SEARCH is empty, but the file exists"),
        ("7 = 7\n", "SEARCH matches nowhere; nearest lines: 8 `x7 = 7`"),
    ],
)
def test_a_block_that_does_not_match_shows_the_nearest_lines(search: str, message: str) -> None:
    one = only(judge(f"src/a.py\n{block(search, 'z = 1' + chr(10))}"))
    assert one.code == codes.NO_MATCH
    assert one.message == f"edit in line 2 of the response: {message}"
    assert one.hint


def test_overlapping_blocks_are_refused_and_nothing_applies() -> None:
    text = f"src/a.py\n{block('x1 = 1' + chr(10) + 'x2 = 2' + chr(10), '')}{block('x2 = 2' + chr(10), 'z' + chr(10))}"
    one = only(judge(text))
    assert one.code == codes.OVERLAPPING_EDITS
    assert "line 7" in one.message
    assert "block in line 2" in one.message


def test_the_same_block_twice_is_refused() -> None:
    assert only(judge(f"src/a.py\n{EDIT}{EDIT}")).code == codes.OVERLAPPING_EDITS
    assert only(judge(f"src/b.py\n{block('', 'z' + chr(10)) * 2}")).code == codes.OVERLAPPING_EDITS


def test_a_new_file_must_not_exist_and_a_file_to_edit_must() -> None:
    assert only(judge(f"src/b.py\n{block('z = 1' + chr(10), '')}")).message.endswith("the file does not exist")
    hidden = judge(f"src/b.py\n{block('', 'z = 1' + chr(10))}", not_shown=frozenset({"src/b.py"}))
    assert only(hidden).code == codes.NOT_SHOWN


@pytest.mark.parametrize(
    ("path", "written", "code"),
    [
        ("tests/a.py", "x3 = 33\n", codes.OUTSIDE_WRITE_SCOPE),
        ("src/locked.py", "x3 = 33\n", codes.OUTSIDE_WRITE_SCOPE),
        ("src/conftest.py", "x3 = 33\n", codes.PROTECTED),
        ("../a.py", "x3 = 33\n", codes.UNSAFE_PATH),
        ("src/a.py", "# ... rest of code unchanged\n", codes.INCOMPLETE_FILE),
        ("src/a.py", "def f(:\n", codes.UNPARSABLE),
        ("src/a.py", "x" * 200_001 + " = 1\n", codes.TOO_LARGE),
        ("src/a.py", "\0\n", codes.INVALID_TEXT),
    ],
)
def test_the_result_is_checked_as_a_whole_file_is(path: str, written: str, code: str) -> None:
    base = dict.fromkeys(("src/a.py", "tests/a.py", "src/locked.py", "src/conftest.py"), SHOP)
    assert only(judge(f"{path}\n{block('x3 = 3' + chr(10), written)}", base=base)).code == code


def test_a_file_in_two_forms_is_refused() -> None:
    judgement = judge(f"src/a.py\n```python\nx = 1\n```\n\nsrc/a.py\n{EDIT}")
    assert isinstance(judgement, RefusedResponse)
    assert codes.DUPLICATE_PATH in [d.code for d in judgement.diagnostics]


# ---- parts of a file ----------------------------------------------------------------------------

GUIDE = "# Guide\n\n" + "word " * 50_000 + "\n\n# Use\n\nRun it.\n\n# More\n\nRun it.\nStop.\n"
SLICES = {"docs/guide.md": ((4, 7),)}


def test_a_block_matches_only_in_what_was_shown() -> None:
    base = {"docs/guide.md": GUIDE}
    edit = block("Run it.\n", "Run it twice.\n")
    assert files(judge(f"docs/guide.md\n{edit}", base=base, slices=SLICES)) == {
        "docs/guide.md": GUIDE.replace("Run it.", "Run it twice.", 1)
    }
    assert only(judge(f"docs/guide.md\n{edit}", base=base)).code == codes.SEVERAL_MATCHES
    beside = only(judge(f"docs/guide.md\n{block('Stop.' + chr(10), '')}", base=base, slices=SLICES))
    assert beside.message.endswith("SEARCH matches at line 12, which was not shown")
    unseen = only(judge(f"docs/guide.md\n{block('Stopp.' + chr(10), '')}", base=base, slices=SLICES))
    assert "Stop." not in unseen.message
    values = only(judge(f"docs/guide.md\n{block('Stopp.' + chr(10), '')}", base=base, slices={"docs/guide.md": ()}))
    assert values.message.endswith("no lines of the file were shown")


def test_a_file_shown_in_part_is_not_replaced_as_a_whole() -> None:
    judgement = judge("docs/guide.md\n```\n# Use\n```\n", base={"docs/guide.md": GUIDE}, slices=SLICES)
    assert only(judgement).code == codes.NOT_SHOWN


# ---- properties ---------------------------------------------------------------------------------

LINE = st.text(alphabet="ab \t=<", max_size=3)
PARTS = st.lists(st.tuples(st.lists(LINE, max_size=3), st.lists(LINE, max_size=3), st.booleans()), max_size=5)


@given(PARTS, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from(["", "\ufeff"]))
def test_edits_give_the_expected_text(parts, end: str, ended: bool, mark: str) -> None:
    """Make a file of parts; each edited one begins with a line that is nowhere else."""
    old: list[str] = []
    new: list[str] = []
    edits: list[EditBlock] = []
    for number, (before, after, edited) in enumerate(parts):
        own = [f"unique {number}.", *before]
        old += own
        new += after if edited else own
        if edited:
            edits.append(EditBlock(1, "a", tuple(own), tuple(after)))
    # An empty last line without an end is no line of the file.
    assume(ended or "" not in (*old[-1:], *new[-1:]))
    text = mark + end.join(old) + (end if ended and old else "")
    result, problems = apply_edits("a", text, edits[::-1])
    assert not problems
    # The ends are those of the file, and the line in the place of its last one has a newline if that had one.
    plain = "\n".join(new)
    ended = ended or (parts[-1:] != [] and parts[-1][2] and not parts[-1][1])
    expected = mark + (f"{plain}\n" if ended and new else plain).replace("\n", "\r\n" if "\r\n" in text else "\n")
    assert result == expected


@given(st.text(alphabet="ab\n\r ", max_size=30), st.lists(LINE, min_size=1, max_size=3), st.lists(LINE, max_size=3))
def test_one_edit_replaces_the_one_place_or_none(text: str, search: list[str], written: list[str]) -> None:
    """Read again by another rule: the lines are searched as text with marks around each line."""
    lines = text.replace("\r\n", "\n").split("\n")
    lines = lines if lines[-1] else lines[:-1]
    count = sum(lines[at : at + len(search)] == search for at in range(len(lines)))
    if not count and any(map(str.strip, search)):
        ends = [line.rstrip(" ") for line in search]
        same = [at for at in range(len(lines)) if [line.rstrip(" ") for line in lines[at : at + len(search)]] == ends]
        assume(len(same) != 1)  # test_blanks_at_the_end_of_lines_to_find_do_not_matter
        count = len(same)
    result, problems = apply_edits("a", text, [EditBlock(1, "a", tuple(search), tuple(written))])
    if count != 1:
        assert [problem.code for problem in problems] == [codes.SEVERAL_MATCHES if count else codes.NO_MATCH]
        assert result == text
        assert all(str(problem).isprintable() for problem in problems)
        return
    at = next(at for at in range(len(lines)) if lines[at : at + len(search)] == search)
    expected = [*lines[:at], *written, *lines[at + len(search) :]]
    got = result.replace("\r\n", "\n").split("\n")
    assert got in (expected, [*expected, ""]) or (not expected and result == "")


@pytest.mark.parametrize("blanks", [" ", "\t", "  \t "])
def test_blanks_at_the_end_of_lines_to_find_do_not_matter(blanks: str) -> None:
    assert edited("a\nb\nc\n", ["a", f"b{blanks}"], ["a", "x"]) == "a\nx\nc\n"
    # A line that the block keeps stays as it is in the file.
    assert edited(f"a{blanks}\nb\nc\n", ["a", "b"], ["a", "x", "y"]) == f"a{blanks}\nx\ny\nc\n"


@pytest.mark.parametrize(
    ("text", "search", "code"),
    [
        ("a\na \n", ["a  "], codes.SEVERAL_MATCHES),
        ("a\nb\n", [" a"], codes.NO_MATCH),
        ("\n \n", ["  "], codes.NO_MATCH),
        ("a b\n", ["a  b"], codes.NO_MATCH),
    ],
)
def test_other_blanks_or_several_places_are_refused(text: str, search: list[str], code: str) -> None:
    result, problems = apply_edits("a", text, [EditBlock(1, "a", tuple(search), ("x",))])
    assert (result, [problem.code for problem in problems]) == (text, [code])


def test_lines_that_match_exactly_go_before_those_with_other_blanks() -> None:
    assert edited("a\na \n", ["a "], ["x"]) == "a\nx\n"


def test_lines_with_other_blanks_must_have_been_shown() -> None:
    block = EditBlock(1, "a", ("b ",), ("x",))
    assert [one.code for one in apply_edits("a", "a\nb\n", [block], ((0, 1),))[1]] == [codes.NO_MATCH]


# ---- line ends ----------------------------------------------------------------------------------

ENDED = st.tuples(st.sampled_from(["", "a", "b", "c\rd"]), st.sampled_from(["\n", "\r\n"]))


def edited(text: str, search: list[str], written: list[str]) -> str:
    result, problems = apply_edits("a", text, [EditBlock(1, "a", tuple(search), tuple(written))])
    assert not problems, problems
    return result


@given(st.lists(ENDED), st.lists(ENDED), st.lists(ENDED), st.booleans(), st.lists(st.sampled_from(["", "a", "x"])))
def test_an_edit_changes_no_byte_outside_of_its_match(before, inner, after, ended: bool, new: list[str]) -> None:
    span = [("the only one", "\r\n"), *inner]
    head, middle, tail = ("".join(map("".join, part)) for part in (before, span, after))
    search = [line for line, _ in span]
    text = head + middle + tail
    if not ended and not after:
        line, end = span[-1]
        assume(line)
        middle = middle.removesuffix(end)
        text = head + middle
    assert edited(text, search, search) == text, "replaced with itself"
    result = edited(text, search, new)
    assert result.startswith(head)
    assert result.endswith(tail)
    written = result[len(head) : len(result) - len(tail)]
    assert written.replace("\r\n", "\n") == "".join(f"{line}\n" for line in new)[: None if ended or after else -1]
    at = len(inner) // 2
    inserted = edited(text, search, [*search[:at], "new", *search[at:]])
    assert re.sub("new\r?\n", "", inserted) == text, "with a line before one that it keeps"


@pytest.mark.parametrize(
    ("text", "written", "result"),
    [
        ("a\r\nb\nc\r\n", "a B c", "a\r\nB\nc\r\n"),  # in the place of one with another end
        ("a\r\nb\nc\r\n", "a x b c", "a\r\nx\r\nb\nc\r\n"),  # like the line before
        ("a\r\nb\nc\r\n", "x a b c", "x\r\na\r\nb\nc\r\n"),  # like the line after, at the begin
        ("a\nb\nc\r\nd\r\nd\r\n", "a b c x", "a\nb\nc\r\nx\r\nd\r\nd\r\n"),
        ("a\r\nb\nc", "a b c x", "a\r\nb\nc\nx"),  # the last line of the file
        ("a\r\nb\nc", "a b", "a\r\nb"),
        ("z\r\nz\r\na\nb\nc", "a b c x", "z\r\nz\r\na\nb\nc\nx"),
    ],
)
def test_lines_of_a_file_with_two_kinds_of_ends_keep_theirs(text: str, written: str, result: str) -> None:
    assert edited(text, ["a", "b", "c"], written.split()) == result


def test_a_new_line_beside_the_only_line_without_an_end_ends_like_most_lines() -> None:
    assert edited("z\r\nz\r\nb", ["b"], ["b", "x"]) == "z\r\nz\r\nb\r\nx"
    assert edited("z\r\nb", ["b"], ["b", "x"]) == "z\r\nb\r\nx", "a last line without an end is not counted"


def test_long_blocks_keep_the_ends_of_what_they_begin_and_end_with() -> None:
    old = [f"{number}" for number in range(9_000)]
    text = "".join(f"{line}\r\n" if number % 3 else f"{line}\n" for number, line in enumerate(old))
    new = [*old[:1_500], *(f"x{line}" for line in old[1_500:7_500]), *old[7_500:]]
    result = edited(text, old, new).splitlines(keepends=True)
    before = text.splitlines(keepends=True)
    assert (result[:1_500], result[7_500:]) == (before[:1_500], before[7_500:])
    assert result[1_500:7_500] == [f"x{line}" for line in before[1_500:7_500]]


@given(st.text(alphabet="<=>SEARCHPLc/.y`\n ", max_size=80))
def test_no_response_makes_the_reader_raise(text: str) -> None:
    judgement = judge(text, base={})
    if isinstance(judgement, RefusedResponse):
        assert all(str(one).isprintable() and one.hint for one in judgement.diagnostics)


@given(st.lists(st.sampled_from(["src/a.py", "<<<<<<< SEARCH", "x3 = 3", "=======", ">>>>>>> REPLACE", "```", ""])))
def test_an_accepted_response_has_as_many_blocks_as_marks(lines: list[str]) -> None:
    judgement = judge("\n".join(lines))
    if isinstance(judgement, Proposal):
        found = read_edits("\n".join(lines))
        assert len(found.edits) == lines.count("<<<<<<< SEARCH") == lines.count(">>>>>>> REPLACE")


# ---- what edits leave out ------------------------------------------------------------------------


def test_edits_may_remove_most_of_a_python_file() -> None:
    functions = [f"def f{number}():\n    return {number}\n" for number in range(4)]
    judgement = judge(f"src/a.py\n{block(''.join(functions[1:]), '')}", {"src/a.py": "".join(functions)})
    assert files(judgement) == {"src/a.py": functions[0]}


def test_a_placeholder_in_an_edit_is_refused_with_advice_for_edits() -> None:
    found = only(judge("src/a.py\n" + block("x3 = 3\n", "# ... rest of code unchanged\n")))
    assert (found.code, "whole file" in (found.hint or "")) == (codes.INCOMPLETE_FILE, False)
