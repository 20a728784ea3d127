"""Parts of text files: definitions of Python code and ranges of lines."""

import ast
import warnings
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.resolve.slices import compose_slices, take_slice
from orch23.resolve.text_slices import SliceError, moved_lines, text_part

CODE = """\
import os

@first
@second(
    1)
def f(a):
    return a


class C(Base):
    x = 1

    @property
    def size(self): return 1

    @size.setter
    def size(self, value): ...

    async def run(self):
        def inner(): pass
        return 1

    class Meta:
        def run(self): pass

if os.name:
    def late(): pass
else:
    def late(): return 2
try:
    pass
except E:
    class Found: pass
"""


def part(selector: str, text: str = CODE, path: str = "src/a.py") -> str:
    return text_part(text, path, selector).text


def refused(selector: str, text: str = CODE, path: str = "src/a.py") -> tuple[str, str]:
    with pytest.raises(SliceError) as caught:
        text_part(text, path, selector)
    return str(caught.value), caught.value.hint


def lines(first: int, last: int) -> str:
    return "".join(CODE.splitlines(keepends=True)[first - 1 : last])


@pytest.mark.parametrize(
    ("selector", "first", "last"),
    [
        ("def f", 3, 7),
        ("class C", 10, 25),
        ("def C.run", 19, 21),
        ("async def C.run", 19, 21),
        ("def C.run.inner", 20, 20),
        ("class C.Meta", 23, 24),
        ("def C.Meta.run", 24, 24),
        ("class Found", 33, 33),
        ("L3", 3, 3),
        ("L3-7", 3, 7),
        ("L3-L7", 3, 7),
        ("L1-33", 1, 33),
    ],
)
def test_a_part_has_whole_lines_with_the_decorators(selector: str, first: int, last: int) -> None:
    found = text_part(CODE, "src/a.py", selector)
    assert found.text == lines(first, min(last, 24) if selector == "class C" else last)
    assert found.start == first - 1


@pytest.mark.parametrize(
    ("selector", "message", "hint"),
    [
        ("def size", "no definition is `def size`", "did you mean `def C.size`?"),
        ("def C.size", "2 definitions are `def C.size`", "name the lines: `#L13-14` or `#L16-17`"),
        ("def late", "2 definitions are `def late`", "name the lines: `#L27-27` or `#L29-29`"),
        ("class D", "no definition is `class D`", "the file has: class C, class C.Meta, class Found"),
        ("class Fuond", "no definition is `class Fuond`", "did you mean `class Found`?"),
        ("class f", "no definition is `class f`", "the file has: class C, class C.Meta, class Found"),
        ("f", "no heading is named `f`", "a definition is `#def NAME` or `#class NAME`, and lines are `#L10-40`"),
        ("L34", "the file has 33 lines", "the last line is `L33`"),
        ("L30-99", "the file has 33 lines", "the last line is `L33`"),
        ("L9-3", "the range ends before it begins: 9 to 3", "write `L3-9`"),
    ],
)
def test_a_part_that_is_not_there_is_refused_with_what_is(selector: str, message: str, hint: str) -> None:
    assert refused(selector) == (message, hint)


def test_code_that_python_cannot_read_is_refused_with_its_line() -> None:
    assert refused("def f", "x = 1\ndef f(:\n") == (
        "`src/a.py` is not valid Python (line 2)",
        "correct it, or name lines: `#L10-40`",
    )
    assert refused("def f", "def f(): pass\n\0")[0].startswith("`src/a.py` is not valid Python")
    assert refused("def f", f"x = {'(' * 5000}\n")[0].startswith("`src/a.py` is not valid Python")
    assert part("L1-1", "def f(:\n") == "def f(:\n"


def test_definitions_are_found_in_python_alone_and_a_heading_may_have_any_name() -> None:
    assert refused("def f", "function f() {}\n", "a.js") == ("no heading is named `def f`", "the headings are: none")
    assert part("def f", "# def f\nx\n", "a.md") == "# def f\nx\n"
    for path in ("a.md", "a.txt", "a.mdx"):
        assert part("L1", "a\n# L1\nx\n", path) == "# L1\nx\n"
    assert part("L1", "a\nb\n", "a.md") == "a\n"
    assert part("L2", "a\nb", "a.txt") == "b\n"
    assert refused("L1", "", "a.txt") == ("the file has 0 lines", "the file is empty")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_are_kept_and_a_byte_order_mark_does_not_count(end: str) -> None:
    text = "\ufeff" + CODE.replace("\n", end)
    assert part("def f", text) == lines(3, 7).replace("\n", end)


def test_lines_that_end_at_a_lone_carriage_return_are_taken_up_to_a_line_feed() -> None:
    found = text_part("x = 1\ry = 2\ndef f():\r  pass\rz = 3\nw = 4\n", "a.py", "def f")
    assert (found.text, found.start, found.end) == ("def f():\r  pass\rz = 3\n", 1, 2)


def test_a_program_gets_each_part_once_and_ranges_by_their_numbers() -> None:
    def composed(*selectors: str) -> str:
        found = [take_slice(CODE, "src/a.py", one, lambda _: None) for one in selectors]
        assert compose_slices(found) == compose_slices(reversed(found))
        return compose_slices(found).decode()

    assert composed("def C.run", "class C", "def f") == f"{lines(3, 7)}\n{lines(10, 24)}"
    assert composed("L10-12", "L9-13", "L2-3", "L2-L3") == f"{lines(2, 3)}\n{lines(9, 13)}"


NAMES = st.sampled_from(["a", "b", "c"])
BLOCKS = st.recursive(
    st.just("pass"),
    lambda inner: st.lists(
        st.tuples(
            st.sampled_from(["def {}():", "class {}:", "if 1:", "async def {}():", "@x\ndef {}():"]), NAMES, inner
        ),
        min_size=1,
        max_size=3,
    ),
    max_leaves=6,
)


Block: TypeAlias = "str | list[tuple[str, str, Block]]"


def written(block: Block, indent: str = "") -> str:
    if isinstance(block, str):
        return f"{indent}{block}\n"
    heads = [(head.format(name).replace("\n", f"\n{indent}"), inner) for head, name, inner in block]
    return "".join(f"{indent}{head}\n{written(inner, indent + ' ')}" for head, inner in heads)


@given(BLOCKS)
def test_each_definition_with_a_name_of_its_own_is_found_as_python_has_it(block: Block) -> None:
    text = written(block)
    nodes: dict[str, list[ast.AST]] = {}

    def collect(node: ast.AST, above: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                kind = "class" if isinstance(child, ast.ClassDef) else "def"
                nodes.setdefault(f"{kind} {above}{child.name}", []).append(child)
                collect(child, f"{above}{child.name}.")
            else:
                collect(child, above)

    collect(ast.parse(text), "")
    for selector, found in nodes.items():
        if len(found) > 1:
            assert refused(selector, text)[0] == f"{len(found)} definitions are `{selector}`"
            continue
        source = part(selector, text)
        head = source.strip().removeprefix("@x").strip()
        assert head.startswith((selector.split(" ")[0], "async"))
        assert source in text
        assert source.rstrip().endswith((ast.get_source_segment(text, found[0]) or "").rstrip())


def test_a_warning_about_the_code_is_no_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert part("def f", 'x = "\\d"\ndef f(): pass\n') == "def f(): pass\n"


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("", "", (1, 4)),
        ("a\n", "new\na\n", (2, 5)),
        ("c\n", "c1\nc2\nc3\n", (1, 6)),
        ("d\n", "d\nnew\n", (1, 5)),
        ("b\nc\nd\n", "", (1, 1)),
        ("e\n", "e1\ne2\n", (1, 6)),
    ],
)
def test_a_part_is_found_again_in_an_edited_file(old: str, new: str, lines: tuple[int, int]) -> None:
    before = "a\nb\nc\nd\ne\n"
    assert moved_lines(before, before.replace(old, new, 1), 1, 4) == lines
