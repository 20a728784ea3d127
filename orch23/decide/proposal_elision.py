"""Notice that a proposed file is not the whole file: placeholders, broken syntax, lost definitions."""

import ast
import re
import threading
import warnings

_MARK = r"(?:\#+|//+|/\*+|<!--|--+|;+|%+|\{\#|\"\"\"|''')"
_CLOSE = r"[\])>*/-]"
_DOTS = r"(?:\.{2,}|…)"
_THING = (
    r"(?:code|file|files|content|contents|function|functions|method|methods|class|classes|implementation|module|logic|"
    r"imports?|tests?|text|section|sections|document|script|lines?|body|definitions?|stuff|it|above|below)"
)
_PHRASE = (
    rf"(?:(?:the\s+)?(?:rest|remainder)\s+of\s+(?:the\s+|this\s+|your\s+|my\s+)?(?:\w+\s+){{0,2}}{_THING}"
    rf"|(?:the\s+)?(?:rest|remainder|everything\s+else|all\s+else|(?:the\s+)?others?)\s+"
    rf"(?:is|are|remains?|stays?|as|unchanged|omitted|here|goes)"
    rf"|(?:the\s+)?(?:existing|previous|original|remaining|unchanged|same|other|more|your)\s+(?:\w+\s+){{0,2}}{_THING}"
    rf"\s*(?:here|unchanged|remains?\b.*|stays?\b.*|continues?\b.*|goes\s+here|as\s+(?:is|before)|omitted\b.*"
    rf"|{_CLOSE}*\s*{_DOTS})"
    rf"|(?:existing|remaining|unchanged)\s+(?:\w+\s+){{0,2}}{_THING}\s*{_CLOSE}*\s*$"
    rf"|(?:\w+\s+){{0,4}}(?:remains?|stays?|is|are|left|kept)\s+(?:exactly\s+)?(?:unchanged|the\s+same|as\s+(?:is|before))"
    rf"|(?:\w+\s+){{0,3}}(?:omitted|truncated|elided|snipped|shortened)(?:\s+for\s+(?:brevity|clarity|space))?\s*"
    rf"(?:{_DOTS}|[\])>*/.-]*\s*$)"
    rf"|unchanged\s*(?:{_DOTS}|[\])>*/.-]*\s*$)"
    rf"|(?:same|identical)\s+as\s+(?:before|above|earlier|the\s+original)"
    rf"|no\s+changes?\s+(?:here|needed|below|above)"
    rf"|snip\b"
    rf"|(?:rest|remaining)\s*{_DOTS}"
    rf"|(?:add|insert|put|place)\s+(?:your|the\s+(?:rest|remaining|existing))\s+(?:\w+\s+){{0,2}}{_THING}\s*here"
    rf"|your\s+(?:\w+\s+){{0,2}}code\s+(?:goes\s+)?here)"
)
# A phrase counts only where a comment mark, dots or a bracket stand before it: plain prose may well say such words.
_PLACEHOLDER = re.compile(rf"(?:^\s*|\s){_MARK}\s*{_DOTS}?\s*[\[(<]*\s*{_PHRASE}", re.IGNORECASE)
_BRACKETED = re.compile(rf"^\s*(?:{_DOTS}\s*[\[(<]*|[\[(<]+\s*{_DOTS}?)\s*{_PHRASE}", re.IGNORECASE)
_BARE = re.compile(rf"^\s*(?:{_MARK}\s*{_DOTS}\s*(?:\*/|-->|\#\}})?|\[{_DOTS}\])\s*$")
_LINE = 400  # no placeholder is longer, and the patterns need not look further

# What counts as a big shrink: less than this part of the old length.
_SHRINK = 0.5
_PARSING = threading.Lock()


def placeholders(content: str, base: str | None) -> tuple[tuple[int, str], ...]:
    """Return (line, text) of each line that stands for left-out text and was not in the base already.

    A bare `# ...` counts only where there was a file before: in a new one it may be a habit of style.
    """
    known = set() if base is None else {line.strip() for line in base.splitlines()}
    found: list[tuple[int, str]] = []
    for number, line in enumerate(content.splitlines(), start=1):
        text = line.strip()
        if text and text not in known and _is_placeholder(line[:_LINE], known=base is not None):
            found.append((number, text))
    return tuple(found)


def syntax_fault(content: str) -> tuple[int, str] | None:
    """Return (line, message) of what keeps Python source from being parsed, or None."""
    tree = _parse(content)
    return None if isinstance(tree, ast.Module) else tree


def lost_names(content: str, base: str, elsewhere: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the top-level names that a big shrink of a Python file loses, and `elsewhere` does not have."""
    if len(content) >= len(base) * _SHRINK:
        return ()
    return tuple(sorted(top_level_names(base) - top_level_names(content) - elsewhere))


def top_level_names(content: str) -> frozenset[str]:
    """Return the functions, classes and variables that Python source defines at its top; none if it does not parse."""
    tree = _parse(content)
    names: set[str] = set()
    if not isinstance(tree, ast.Module):
        return frozenset()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
    return frozenset(names)


def _is_placeholder(line: str, *, known: bool) -> bool:
    if _PLACEHOLDER.search(line) or _BRACKETED.match(line):
        return True
    return known and _BARE.match(line) is not None


def _parse(content: str) -> ast.Module | tuple[int, str]:
    # The warning filters are global, so that two threads must not change them at once.
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(content)
        except SyntaxError as error:
            return error.lineno or 1, error.msg
        except (ValueError, RecursionError, MemoryError) as error:
            return 1, f"cannot be read: {type(error).__name__}"
