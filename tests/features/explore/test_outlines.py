"""The definitions of a file: names, lines, and what is certain of a file with syntax errors."""

import sys

import msgspec
import pytest

from orch23.features.explore.outlines import FileOutline, outline_of
from orch23.resolve.text_slices import text_part

PYTHON = '''"""A shop."""
LIMIT = 3

@trace
class Basket(dict):
    """Holds apples."""

    size = LIMIT

    async def add(self, item):
        # Adds pears.
        def inner():
            return weigh(item)
        return inner()

    class Line:
        def total(self):
            return 1

if LIMIT:
    def empty(basket):
        return "no plums"
'''
LANGUAGES = {
    "a.js": (
        (
            "class A {\n m(x) {\n  return 1\n }\n f = (a) => {}\n}\n"
            "const g = () => {\n}\nfunction h() { function in1() {} }\n"
        ),
        ["class A 1-6", "method A.m 2-4", "function A.f 5-5", "function g 7-8", "function h 9-9"],
    ),
    "a.ts": (
        "interface I { a: number }\ntype T = string\nabstract class C<T> {\n private x(): void {}\n}\nenum E { A }\n",
        ["interface I 1-1", "type T 2-2", "class C 3-5", "method C.x 4-4", "enum E 6-6"],
    ),
    "b.ts": ("let a = 1\n", []),
    "a.tsx": ("const Page = () => <p>{1}</p>\n", ["function Page 1-1"]),
    "a.go": (
        "package a\ntype T struct { a int }\nfunc (t *T) M() int {\n return 1\n}\nfunc F() {}\n",
        ["type T 2-2", "method M 3-5", "function F 6-6"],
    ),
    "a.rs": (
        "struct S { a: i32 }\nimpl S {\n fn m(&self) {}\n}\nmod q {\n fn z() {}\n}\n",
        ["struct S 1-1", "impl S 2-4", "function S.m 3-3", "mod q 5-7", "function q.z 6-6"],
    ),
    "a.c": (
        "struct s { int a; };\nstruct s *f(int a) {\n return 0;\n}\nstatic int **h(struct s x) {}\n",
        ["struct s 1-1", "function f 2-4", "function h 5-5"],
    ),
    "a.cpp": (
        "namespace n {\nclass A {\n int m() { return 1; }\n};\n}\nint n::A::k() {}\n",
        ["namespace n 1-5", "class n.A 2-4", "function n.A.m 3-3", "function n::A::k 6-6"],
    ),
    "A.java": (
        "class A {\n A() {}\n int m() { return 1; }\n interface I { void q(); }\n}\n",
        ["class A 1-5", "constructor A.A 2-2", "method A.m 3-3", "interface A.I 4-4", "method A.I.q 4-4"],
    ),
    "a.rb": (
        "module M\n class A\n  def m\n  end\n  def self.n\n  end\n end\nend\n",
        ["module M 1-8", "class M.A 2-7", "method M.A.m 3-4", "method M.A.n 5-6"],
    ),
}


def listed(outline: FileOutline) -> list[str]:
    return [f"{one.kind} {one.name} {one.first}-{one.last}" for one in outline.definitions[1:]]


def test_definitions_of_python_have_the_names_and_lines_of_slices() -> None:
    outline = outline_of("shop.py", PYTHON)
    assert listed(outline) == [
        "class Basket 4-18",
        "def Basket.add 10-14",
        "class Basket.Line 16-18",
        "def Basket.Line.total 17-18",
        "def empty 21-22",
    ]
    for one in outline.definitions[1:]:
        part = text_part(PYTHON, "shop.py", f"{one.kind} {one.name}")
        assert (part.start + 1, part.end) == (one.first, one.last)
    assert outline.gap == ""


def test_text_belongs_to_the_innermost_definition_and_words_are_apart_from_names() -> None:
    module, basket, add, *_, empty = outline_of("shop.py", PYTHON).definitions
    assert module.words == {"A": 1, "shop": 1}
    assert module.names["LIMIT"] == 2
    assert "apples" in basket.words
    assert "weigh" not in basket.names
    assert {"Adds", "pears"} <= add.words.keys()
    assert {"weigh", "inner"} <= add.names.keys()
    assert empty.words == {"no": 1, "plums": 1}


def test_an_outline_is_a_value_that_can_be_stored() -> None:
    outline = outline_of("shop.py", PYTHON)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(outline), type=FileOutline) == outline


@pytest.mark.parametrize("path", LANGUAGES)
def test_definitions_of_other_languages(path: str) -> None:
    text, expected = LANGUAGES[path]
    outline = outline_of(path, text)
    assert listed(outline) == expected
    assert outline.gap == ""


def test_without_the_extra_a_file_of_another_language_is_in_the_map_by_its_path(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    outline = outline_of("other.go", LANGUAGES["a.go"][0])
    assert listed(outline) == []
    assert outline.gap == "needs orch23[explore]"
    assert listed(outline_of("shop.py", PYTHON))


def test_a_python_file_with_a_syntax_error_is_read_by_indentation() -> None:
    text = "class A:\n    x = (\n    def m(self):\n        a\n\n"
    text += "    def n(\n        b,\n    ):\n        return 1\n\ndef f(:\n    y\nz = 1\n"
    outline = outline_of("a.py", text)
    assert listed(outline) == ["class A 1-10", "def A.m 3-5", "def A.n 6-10", "def f 11-13"]
    assert outline.gap == "syntax error"


def test_a_function_after_an_unclosed_one_is_not_a_part_of_it() -> None:
    text = "int z() {}\nint a() {\n if (x) {\n}\nint g() {\n}\n"
    outline = outline_of("a.c", text)
    assert listed(outline) == ["function z 1-1", "function a 2-4", "function g 5-6"]
    assert outline.gap == "syntax error"


def test_carriage_returns_and_a_byte_order_mark_do_not_move_lines() -> None:
    assert listed(outline_of("a.py", "\ufeffx = 1\r\ndef f():\r\n    pass\r\n")) == ["def f 2-3"]
    assert outline_of("a.py", "\ufeffdef f(): pass\n").definitions[1].shown == "def f(): pass"
    assert listed(outline_of("a.go", "\ufeffpackage a\r\nfunc F() {\r\n}\r\n")) == ["function F 2-3"]
    lone = outline_of("a.py", "x = '\r'\ndef f():\n    pass\n")
    assert listed(lone) == ["def f 2-3"]
    assert lone.gap


@pytest.mark.parametrize(("path", "text"), [("a.go", "x\n" * 300_000), ("a.py", "x = [" + "1," * 20_000 + "]")])
def test_what_is_too_large_has_no_definitions(path: str, text: str) -> None:
    outline = outline_of(path, text)
    assert listed(outline) == []
    assert outline.gap == "too large"


@pytest.mark.slow
def test_a_file_of_420_kb_has_all_its_definitions() -> None:
    text = "".join(f"def f{number}(x):\n    return g{number}(x, 'a text of {number}')\n" for number in range(9_500))
    outline = outline_of("a.py", text)
    assert len(text) > 420_000
    assert len(outline.definitions) == 9_501
    assert outline.definitions[-1].names["g9499"] == 1


@pytest.mark.slow
def test_a_text_that_is_not_of_its_language_is_given_up_after_a_number_of_steps() -> None:
    outline = outline_of("a.c", "\n".join(["a*b(c)" * 10] * 1_000))
    assert outline.gap == "too many syntax errors"


def test_deep_nesting_is_bounded() -> None:
    deep = "".join("class A {\n" for _ in range(3_000)) + "}\n" * 3_000
    outline = outline_of("A.java", deep)
    assert max(one.name.count(".") for one in outline.definitions) == 8
