"""What a bare answer is: a file of its language, or a sentence."""

import ast

import pytest

from orch23.text.source_syntax import is_source, python_tree, syntax_fault


@pytest.mark.parametrize(
    ("path", "text", "source"),
    [
        ("a.py", "x = 1\n", True),
        ("a.py", "print(1)\n", True),
        ("a.py", "await f()\n", True),
        ("a.py", "yield 1\n", True),
        ("a.py", '"""Only a docstring."""\n', True),
        ("a.py", "Yes\ndef f(): ...\n", True),
        ("a.py", "\ufeffx = 1\n", True),
        ("a.pyi", "def f() -> int: ...\n", True),
        ("a.py", "Sure\n", False),
        ("a.py", "Yes, done\n", False),
        ("a.py", "42\n", False),
        ("a.py", "...\n", False),
        ("a.py", "# Here it is:\n", False),
        ("a.py", "", False),
        ("a.py", "x = (\n", False),
        ("a.pyi", "Sure\n", False),
        ("a.toml", "a = 1\n", True),
        ("a.toml", "", False),
        ("a.toml", "# nothing\n", False),
        ("a.toml", "a = \n", False),
        ("a.toml", "a equals 1\n", False),
        ("a.json", '{"a": 1}\n', True),
        ("a.json", "\n [1]\n", True),
        ("a.ipynb", "{}", True),
        ("tsconfig.json", "{ // with comments\n}", True),
        ("a.json", '"Sure"', False),
        ("a.json", "null", False),
        ("a.json", "{", False),
        ("tsconfig.json", "Sure\n", False),
        ("a.txt", "{}", False),
        ("a.md", "a = 1\n", False),
        ("a.md", "def f(): ...\n", False),
    ],
)
def test_a_bare_text_is_source_only_if_it_is_code_of_its_language(path, text, source) -> None:
    assert is_source(path, text) is source


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("a.py", "x = 1\ny = = 2\n", 2),
        ("a.pyi", "x = 1\n\ny = = 2\n", 3),
        ("a.py", "x = 1\n\0", 1),
        ("a.py", "\n" + "-" * 100_000 + "1", 1),
        ("a.json", '{\n"a": ,\n}', 2),
        ("a.json", "[" * 100_000, 1),
        ("a.ipynb", "{", 1),
        ("a.toml", "a = 1\nb\n", 2),
        ("a.toml", "a = 1\r\nb = 2\r\nb = 3\r\n", 3),
    ],
)
def test_a_syntax_error_is_reported_with_its_line(path: str, text: str, line: int) -> None:
    fault = syntax_fault(path, text)
    assert fault is not None
    assert fault[0] == line
    assert fault[1]


@pytest.mark.parametrize("path", ["a.py", "a.json", "a.toml"])
def test_a_byte_order_mark_is_no_fault(path: str) -> None:
    text = {"a.py": "x = 1", "a.json": "{}", "a.toml": "x = 1"}[path]
    assert syntax_fault(path, f"\ufeff{text}") is None
    assert isinstance(python_tree("\ufeffx = 1"), ast.Module)


@pytest.mark.parametrize("path", ["a.txt", "tsconfig.json", "x/.babelrc.json", ".vscode/settings.json", "a.yaml"])
def test_languages_that_are_not_read_have_no_faults(path: str) -> None:
    assert syntax_fault(path, "{ // (") is None
