"""Find declarations in other languages than Python with tree-sitter, which the extra `explore` installs."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from orch23.model.patterns import lazy_pattern

if TYPE_CHECKING:
    from tree_sitter import Node

DEEPEST: Final = 8
_CHUNK_BYTES: Final = 65_536
# The parser calls back after a fixed number of steps. Headers of C and files of JavaScript needed up to 9 calls for
# 1,000 bytes, also with errors; a text that is not of the language needs 50, and each takes longer: 4 s for 360 KB.
_FEWEST_CALLS, _CALLS_OF_1000_BYTES = 2_000, 15


class Span(Struct, frozen=True):
    """The place of a definition: its kind and qualified name, its first and last line, from 1.

    `declared` is the line of its name, below its decorators.
    """

    kind: str
    name: str
    first: int
    last: int
    declared: int


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
GRAMMAR_OF: Final = {suffix: place for suffixes, place in _GRAMMARS.items() for suffix in suffixes.split()}
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
# What has its declarations as parts: those of others, such as functions, are a part of their text.
_SCOPES = {"class", "enum", "impl", "interface", "mod", "module", "namespace", "record", "struct", "trait"}
_ASSIGNED = ("variable_declarator", "public_field_definition", "field_definition")
_FUNCTION_VALUES = ("arrow_function", "function_expression", "generator_function")
_LONGEST_NAME: Final = 100


def is_available(suffix: str) -> bool:
    """Return whether tree-sitter and the grammar of such files are installed. Neither is imported."""
    return find_spec("tree_sitter") is not None and find_spec(GRAMMAR_OF[suffix][0]) is not None


def declarations(suffix: str, text: str) -> tuple[list[Span], str]:
    """Return the declarations of a text, and its first syntax error or an empty text.

    With an error, the tree can show a function as a part of another one, or not at all. So a declaration with an error
    in it has the lines up to the next one, and what is inside of it has no qualified name.
    """
    from tree_sitter import Language, Parser  # noqa: PLC0415 - an extra, for files of other languages alone

    module, function = GRAMMAR_OF[suffix]
    source = text.encode("utf-8", "replace")
    left = _FEWEST_CALLS + len(source) // 1_000 * _CALLS_OF_1000_BYTES

    def must_stop(_offset: int, _has_error: bool) -> bool:  # noqa: FBT001 - as the library calls it
        nonlocal left
        left -= 1
        return left < 0

    parser = Parser(Language(getattr(import_module(module), function)()))
    try:  # a text in one piece would be parsed without the callback
        root = parser.parse(_reader(source), progress_callback=must_stop).root_node
    except ValueError:  # it was stopped
        return [], "too many syntax errors"
    found = list(_declared(root, source))
    if root.has_error:
        return _with_broken(found, text.count("\n") + 1), f"syntax error in line {_first_error(root)}"
    return [span for span, _ in found], ""


def _reader(source: bytes) -> Callable[[int, object], bytes]:
    return lambda offset, _point: source[offset : offset + _CHUNK_BYTES]


def _declared(root: "Node", source: bytes) -> Iterator[tuple[Span, bool]]:
    """Yield each declaration, and whether there is an error in it. Then those in a function are declarations, too."""
    waiting: list[tuple[str, int, Node]] = [("", 0, root)]
    while waiting:
        above, depth, node = waiting.pop()
        for child in node.named_children:
            name = _name_of(child, source)
            if name:
                kind = _PREFIX.sub("", child.type).partition("_")[0] if child.type in _DECLARING else "function"
                first, last = child.start_point.row + 1, child.end_point.row + 1
                yield Span(kind, f"{above}{name}", first, last, first), child.has_error
                if (kind in _SCOPES or child.has_error) and depth < DEEPEST:
                    waiting.append(("" if child.has_error else f"{above}{name}.", depth + 1, child))
            elif child.named_child_count:
                waiting.append((above, depth, child))


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
    if found is None:
        return ""
    # `text` of a node would read a whole chunk.
    return source[found.start_byte : found.end_byte].decode("utf-8", "replace").split("\n")[0][:_LONGEST_NAME]


def _first_error(root: "Node") -> int:
    node: Node | None = root
    line = 0
    while node is not None:
        line = node.start_point.row + 1
        is_found = node.is_error or node.is_missing
        node = None if is_found else next((one for one in node.children if one.has_error), None)
    return line


def _with_broken(found: list[tuple[Span, bool]], lines: int) -> list[Span]:
    """Return the declarations of a text with errors: one that has an error in it ends before the next one."""
    found.sort(key=lambda one: one[0].first)
    starts = [*(span.first for span, _ in found), lines + 1][1:]
    return [
        Span(one.kind, one.name, one.first, max(one.first, start - 1), one.first) if is_broken else one
        for (one, is_broken), start in zip(found, starts, strict=True)
    ]
