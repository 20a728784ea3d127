"""List the definitions of a source file, with their lines and the names and words in them."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from orch23.features.explore.grammars import DEEPEST, GRAMMAR_OF, Span, declarations, is_available
from orch23.model.patterns import lazy_pattern
from orch23.text.source_syntax import is_python, python_tree

# Files over these limits of characters are in the map by their paths. The largest file of sqlglot has 420,000.
_LARGEST: Final = 1_000_000
_LARGEST_OTHER: Final = 500_000  # of what tree-sitter parses, which takes 5 s for 1 MB that is not of the language
_LONGEST_LINE: Final = 20_000  # longer ones are in generated or minified files
_MOST_DEFINITIONS: Final = 10_000
_SHOWN: Final = 100  # characters of the first line of a definition

# Comments, strings and names. Each alternative matches without its end too: so the time is linear.
_STRINGS = r"\"{3}(?:[^\"\\]|\\.|\"(?!\"\"))*(?:\"{3})?|'{3}(?:[^'\\]|\\.|'(?!''))*(?:'{3})?"
_STRINGS += r"|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?|`(?:[^`\\]|\\.)*`?"
_HASH_TOKENS = lazy_pattern(rf"(?s:(#[^\n]*|{_STRINGS})|([^\W\d]\w*))")
_SLASH_TOKENS = lazy_pattern(rf"(?s:(//[^\n]*|/\*(?:[^*]|\*(?!/))*|{_STRINGS})|([^\W\d]\w*))")
_WORD = lazy_pattern(r"[^\W\d]\w*")
_HASH_COMMENTS = (".py", ".pyi", ".rb", ".sh", ".bash", ".toml", ".yaml", ".yml", ".pl", ".r", ".cfg", ".ini")
_PYTHON_DEFINITION = lazy_pattern(r"([ \t]*)(?:async[ \t]+)?(def|class)[ \t]+(\w+)")


class Definition(Struct, frozen=True):
    """A definition of a file, or what is outside of all definitions of the file, which has no kind and no name.

    `names` counts the names in its code, `words` those in its comments and strings. Definitions inside a function are a
    part of the function; those inside a class are definitions, and not a part of the class.
    """

    kind: str
    name: str
    first: int
    last: int
    shown: str
    names: Mapping[str, int]
    words: Mapping[str, int]


class FileOutline(Struct, frozen=True):
    """The definitions of a file. A pure function of path and content: a caller can store it by their digest.

    The first one has the text outside of all definitions. `gap` says why definitions are missing or inexact.
    """

    path: str
    definitions: tuple[Definition, ...]
    gap: str = ""


def definitions(path: str, text: str) -> FileOutline:
    """Return the definitions of a file, in the order of their lines. Time and memory are linear in its length."""
    text = text.removeprefix("\ufeff")
    lines = text.split("\n")
    limit = _LARGEST if is_python(path) else _LARGEST_OTHER
    if len(text) > limit or len(max(lines, key=len)) > _LONGEST_LINE or "\0" in text:
        gap = "too large, or not a text" if is_python(path) or _suffix(path) in GRAMMAR_OF else ""
        return FileOutline(path, (Definition("", "", 1, len(lines), "", {}, {}),), gap)
    spans, gap = _python_spans(text, lines) if is_python(path) else _other_spans(path, text)
    spans = sorted(spans, key=lambda one: (one.first, -one.last))[:_MOST_DEFINITIONS]
    tokens = _HASH_TOKENS if path.lower().endswith(_HASH_COMMENTS) else _SLASH_TOKENS
    whole = Span("", "", 1, len(lines), 1)
    found = []
    for span, own in _own_lines([whole, *spans], lines):
        names: Counter[str] = Counter()
        words: Counter[str] = Counter()
        for quoted, name in tokens.findall(own):
            if name:
                names[name] += 1
            else:
                words.update(_WORD.findall(quoted))
        shown = lines[span.declared - 1].strip()[:_SHOWN] if span.kind else ""
        found.append(Definition(span.kind, span.name, span.first, span.last, shown, dict(names), dict(words)))
    return FileOutline(path, tuple(found), gap)


def _own_lines(spans: list[Span], lines: list[str]) -> Iterator[tuple[Span, str]]:
    """Yield the text of each span without the lines of the spans inside it. The first one has all lines."""
    own: list[list[str]] = [[] for _ in spans]
    open_spans: list[int] = []
    following = 0
    for number, line in enumerate(lines, 1):
        while open_spans and spans[open_spans[-1]].last < number:
            open_spans.pop()
        while following < len(spans) and spans[following].first <= number:
            open_spans.append(following)
            following += 1
        own[open_spans[-1]].append(line)
    for span, text in zip(spans, own, strict=True):
        yield span, "\n".join(text)


def _python_spans(text: str, lines: list[str]) -> tuple[list[Span], str]:
    tree = python_tree(text)
    if not isinstance(tree, ast.Module):
        return list(_indented_spans(lines)), f"syntax error in line {tree[0]}"
    if "\r" in text.replace("\r\n", ""):
        return list(_indented_spans(lines)), "Python counts its lines in another way"
    return list(_tree_spans(tree)), ""


def _tree_spans(tree: ast.Module) -> Iterator[Span]:
    waiting: list[tuple[str, int, ast.AST]] = [("", 0, tree)]
    while waiting:
        above, depth, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                is_class = isinstance(child, ast.ClassDef)
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                last = child.end_lineno or child.lineno
                yield Span("class" if is_class else "def", f"{above}{child.name}", first, last, child.lineno)
                if is_class and depth < DEEPEST:
                    waiting.append((f"{above}{child.name}.", depth + 1, child))
            elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                waiting.append((above, depth, child))


def _indented_spans(lines: list[str]) -> Iterator[Span]:
    """Yield definitions of Python that does not parse: each ends before the next line that is indented as little.

    Names are not qualified: what a definition is inside of is not certain.
    """
    open_spans: list[tuple[int, str, str, int]] = []
    last = 0
    for number, line in enumerate([*lines, "end"], 1):
        if not line.strip() or line.lstrip().startswith(("#", ")", "]", "}")):
            continue
        indent = len(line) - len(line.lstrip())
        while open_spans and open_spans[-1][0] >= indent:
            _, kind, name, first = open_spans.pop()
            yield Span(kind, name, first, last, first)
        last = number
        found = _PYTHON_DEFINITION.match(line)
        if found and not any(kind == "def" for _, kind, _, _ in open_spans):
            open_spans.append((indent, found[2], found[3], number))


def _other_spans(path: str, text: str) -> tuple[list[Span], str]:
    suffix = _suffix(path)
    if suffix not in GRAMMAR_OF:
        return [], ""
    if not is_available(suffix):
        return [], "needs orch23[explore]"
    return declarations(suffix, text)


def _suffix(path: str) -> str:
    return path[path.rfind(".") :].lower()
