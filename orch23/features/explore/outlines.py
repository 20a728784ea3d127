"""List the definitions of a source file: Python by `ast`, other languages by tree-sitter (the extra `explore`)."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from itertools import count, islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.patterns import lazy_pattern
from orch23.text.source_syntax import is_python, python_tree

if TYPE_CHECKING:
    from tree_sitter import Node

_LARGEST_OTHER: Final = 500_000  # characters: tree-sitter takes 5 s for 1 MB that is not of the language
_LONGEST_LINE: Final = 20_000  # longer ones are in generated or minified files
_TOO_LARGE: Final = "too large"
_DEEPEST: Final = 8
_SHOWN: Final = 100  # characters of the first line of a definition, or of its name
_CHUNK_BYTES: Final = 65_536
# The parser calls back after a fixed number of steps. Headers of C and files of JavaScript needed up to 9 calls for
# 1,000 bytes, also with errors; a text that is not of the language needs 50, and each takes longer: 4 s for 360 KB.
_FEWEST_CALLS, _CALLS_OF_1000_BYTES = 2_000, 15

# Comments and strings, and names. Each alternative matches without its end too: so the time is linear.
_TOKENS = lazy_pattern(
    r"(?s:(#[^\n]*|//[^\n]*|/\*(?:[^*]|\*(?!/))*"
    r"|\"{3}(?:[^\"\\]|\\.|\"(?!\"\"))*(?:\"{3})?|'{3}(?:[^'\\]|\\.|'(?!''))*(?:'{3})?"
    r"|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?|`(?:[^`\\]|\\.)*`?)|([^\W\d]\w*))"
)
_WORD = lazy_pattern(r"[^\W\d]\w*")
_PYTHON_DEFINITION = lazy_pattern(r"([ \t]*)(?:async[ \t]+)?(def|class)[ \t]+(\w+)")

# The modules of grammars with their functions, by the suffixes of their files.
_GRAMMARS: Final[Mapping[str, tuple[str, str]]] = {
    ".js .jsx .mjs .cjs": ("tree_sitter_javascript", "language"),
    ".ts .mts .cts": ("tree_sitter_typescript", "language_typescript"),
    ".tsx": ("tree_sitter_typescript", "language_tsx"),
    ".go": ("tree_sitter_go", "language"),
    ".rs": ("tree_sitter_rust", "language"),
    ".c .h": ("tree_sitter_c", "language"),
    ".cc .cpp .cxx .hpp .hh": ("tree_sitter_cpp", "language"),
    ".java": ("tree_sitter_java", "language"),
    ".rb": ("tree_sitter_ruby", "language"),
}
_GRAMMAR_OF: Final = {suffix: place for suffixes, place in _GRAMMARS.items() for suffix in suffixes.split()}
# The nodes that declare something in any of these languages: the first word of each says what.
_DECLARATIONS = (
    "abstract_class_declaration class class_declaration class_specifier constructor_declaration "
    "enum_declaration enum_item enum_specifier function_declaration function_definition function_item "
    "generator_function_declaration impl_item interface_declaration macro_definition method method_declaration "
    "method_definition mod_item module namespace_definition record_declaration singleton_method struct_item "
    "struct_specifier trait_item type_alias_declaration type_spec union_item"
)
_DECLARING: Final = frozenset(_DECLARATIONS.split())
_PREFIX = lazy_pattern("(?:abstract|generator|singleton)_")
# Others, such as functions, have what is declared in them as a part of their text.
_SCOPES = {"", "class", "enum", "impl", "interface", "mod", "module", "namespace", "record", "struct", "trait"}
_ASSIGNED = ("variable_declarator", "public_field_definition", "field_definition")
_FUNCTION_VALUES = ("arrow_function", "function_expression", "generator_function")


class Definition(Struct, frozen=True):
    """A definition of a file with its first and last line, from 1; `declared` is the line of its name.

    What is outside of all definitions has no kind and no name. `names` counts the names in its code, `words` those in
    its comments and strings, without those of the definitions inside it.
    """

    kind: str
    name: str
    first: int
    last: int
    declared: int
    shown: str = ""
    names: Mapping[str, int] = {}
    words: Mapping[str, int] = {}


class FileOutline(Struct, frozen=True):
    """The definitions of a file by their lines; the first one has the text outside of all definitions.

    `gap` says why definitions are missing or inexact.
    """

    path: str
    definitions: tuple[Definition, ...]
    gap: str = ""


@lru_cache(maxsize=10_000)  # it takes seconds for a repository, and the items of a foreach look at the same files
def outline_of(path: str, text: str) -> FileOutline:
    """Return the definitions of a file. Time and memory are linear in its length."""
    text = text.removeprefix("\ufeff")
    lines = text.split("\n")
    spans, gap = _found(path, text, lines)
    spans.sort(key=lambda one: (one.first, -one.last))
    found = []
    for span, own in _nested([Definition("", "", 1, len(lines), 1), *spans], lines):
        names: Counter[str] = Counter()
        words: Counter[str] = Counter()
        for quoted, name in _TOKENS.findall("\n".join(own)) if gap != _TOO_LARGE else ():
            names.update([name] if name else ())
            words.update(_WORD.findall(quoted))
        shown = lines[span.declared - 1].strip()[:_SHOWN] if span.kind else ""
        found.append(replace(span, shown=shown, names=dict(names), words=dict(words)))
    return FileOutline(path, tuple(found), gap)


def _found(path: str, text: str, lines: list[str]) -> tuple[list[Definition], str]:
    """Return the definitions with unqualified names, those that contain others first; and why some are missing."""
    suffix = path[path.rfind(".") :].lower()
    if len(max(lines, key=len)) > _LONGEST_LINE or (len(text) > _LARGEST_OTHER and not is_python(path)):
        return [], _TOO_LARGE
    if is_python(path):
        tree = python_tree(text)
        if not isinstance(tree, ast.Module) or "\r" in text.replace("\r\n", ""):  # a line ends there for Python
            return _by_indentation(lines), "syntax error"
        return list(_in_tree(tree)), ""
    if suffix not in _GRAMMAR_OF:
        return [], ""
    return _declarations(suffix, text) if has_grammar(suffix) else ([], "needs orch23[explore]")


def _nested(spans: Sequence[Definition], lines: list[str]) -> Iterator[tuple[Definition, list[str]]]:
    """Yield definitions, named with those that they are in, and their lines without those of the ones inside.

    The first one has all lines. What is inside a function is a part of it.
    """
    found, inside, owner = [spans[0]], [0], [0] * len(lines)
    for one in spans[1:]:
        while found[inside[-1]].last < one.last:
            inside.pop()
        above = found[inside[-1]]
        if len(inside) <= _DEEPEST + 1 and above.kind in _SCOPES:
            owner[one.first - 1 : one.last] = [len(found)] * (one.last - one.first + 1)
            inside.append(len(found))
            found.append(replace(one, name=f"{above.name}.{one.name}") if above.name else one)
    own: list[list[str]] = [[] for _ in found]
    for number, line in zip(owner, lines, strict=True):
        own[number].append(line)
    return zip(found, own, strict=True)


def _in_tree(tree: ast.Module) -> Iterator[Definition]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        for child in ast.iter_child_nodes(waiting.pop()):
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                kind, last = "def" if is_function else "class", child.end_lineno or child.lineno
                yield Definition(kind, child.name, first, last, child.lineno)
            if not is_function and isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                waiting.append(child)


def _by_indentation(lines: list[str]) -> list[Definition]:
    """Return definitions of Python that does not parse: each ends before the next one that is indented as little."""
    found = [(number, one) for number, line in enumerate(lines, 1) if (one := _PYTHON_DEFINITION.match(line))]
    spans = []
    for at, (first, one) in enumerate(found, 1):
        after = (number for number, other in islice(found, at, None) if len(other[1]) <= len(one[1]))
        spans.append(Definition(one[2], one[3], first, next(after, len(lines) + bool(lines[-1])) - 1, first))
    return spans


def has_grammar(suffix: str) -> bool:
    """Return whether tree-sitter and the grammar of such files are installed. Neither is imported."""
    return find_spec("tree_sitter") is not None and find_spec(_GRAMMAR_OF[suffix][0]) is not None


def _declarations(suffix: str, text: str) -> tuple[list[Definition], str]:
    from tree_sitter import Language, Parser  # noqa: PLC0415 - an extra, for files of other languages alone

    module, function = _GRAMMAR_OF[suffix]
    source, calls = text.encode("utf-8", "replace"), count()
    most = _FEWEST_CALLS + len(source) // 1_000 * _CALLS_OF_1000_BYTES
    parser = Parser(Language(getattr(import_module(module), function)()))
    try:  # a text in one piece would be parsed without the callback
        chunks: Callable[[int, object], bytes] = lambda at, _point: source[at : at + _CHUNK_BYTES]  # noqa: E731 - one line
        root = parser.parse(chunks, progress_callback=lambda *_: next(calls) > most).root_node
    except ValueError:  # it was stopped
        return [], "too many syntax errors"
    found = list[tuple[Definition, bool]]()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        name = _name_of(node, source)
        kind = _PREFIX.sub("", node.type).partition("_")[0] if node.type in _DECLARING else "function"
        if name:
            first, last = node.start_point.row + 1, node.end_point.row + 1
            found.append((Definition(kind, name, first, last, first), node.has_error))
        if not name or kind in _SCOPES or node.has_error:
            waiting += node.named_children
    found.sort(key=lambda one: (one[0].first, -one[0].last))
    # With a syntax error, a tree can show a function as a part of another one: so that one ends before the next one.
    ends = [*(one.first - 1 for one, _ in found[1:]), len(source)]
    spans = [
        replace(one, last=max(one.first, min(one.last, end))) if is_broken else one
        for (one, is_broken), end in zip(found, ends, strict=False)
    ]
    return spans, "syntax error" if root.has_error else ""


def _name_of(node: "Node", source: bytes) -> str:
    """Return the name of a declaration; an empty text for another node, a use of a type, and what has no name.

    An `impl` has the name of its type, and a function of C is named inside its declarators.
    """
    value = node.child_by_field_name("value") if node.type in _ASSIGNED else None
    is_function = value is not None and value.type in _FUNCTION_VALUES  # `const f = () => {}` of JavaScript
    has_body = not node.type.endswith("_specifier") or node.child_by_field_name("body") is not None
    if not is_function and (node.type not in _DECLARING or not has_body):
        return ""
    found = next(filter(None, map(node.child_by_field_name, ("name", "property", "type"))), None)
    declarator = node.child_by_field_name("declarator")
    while declarator is not None:
        found, declarator = declarator, declarator.child_by_field_name("declarator")
    # `text` of a node would read a whole chunk.
    name = source[found.start_byte : found.end_byte] if found is not None else b""
    return name.decode("utf-8", "replace").split("\n")[0][:_SHOWN]
