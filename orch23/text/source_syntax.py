"""Parse proposed Python, JSON and TOML files, and find code that an edit removed."""

import ast
import contextlib
import json
import re
import threading
import tokenize
import tomllib
import warnings
from collections.abc import Iterator, Sequence

from orch23.model import parsing

# The warning filters belong to the process: with a lock in each caller, one thread restored the filters that another
# had just set, and warnings stayed silenced.
WARNING_FILTERS_LOCK = threading.Lock()


def parse_python(source: str | bytes, name: str = "<unknown>") -> ast.Module:
    r"""Return the syntax tree of a text.

    Python prints a SyntaxWarning for an escape such as "\d" in the text; it is silenced here.

    Raises:
        SyntaxError: it does not parse; `lineno` and `offset` may be missing or 0.
        ValueError: it contains a null byte (in some versions of Python).
        RecursionError: it is nested too deeply.
        MemoryError: it is nested too deeply for the stack of the parser.
    """
    with WARNING_FILTERS_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, filename=name)


# The line and the message of a syntax error.
SyntaxFault = tuple[int, str]

_JSON = (".json", ".ipynb")
_WITH_COMMENTS = re.compile(r"(?:^|/)(?:[tj]sconfig[^/]*|devcontainer|settings|launch|tasks|\.[^/]*)\.json$")

# A file shrinks much if it has less than this part of its old length.
_SHRINK = 0.5


def is_python(path: str) -> bool:
    """Return whether a file is Python, by its name."""
    return path.endswith((".py", ".pyi"))


def syntax_fault(path: str, content: str) -> SyntaxFault | None:
    """Return the syntax error of a Python, JSON or TOML file; None if there is none, and for other languages.

    A byte order mark at the start is allowed. Files that tools read as JSON with comments are not checked.
    """
    text = content.removeprefix("\ufeff")
    if is_python(path):
        tree = python_tree(text)
        return None if isinstance(tree, ast.Module) else tree
    if path.endswith(_JSON) and not _WITH_COMMENTS.search(path):
        return _json_fault(text)
    return _toml_fault(text) if path.endswith(".toml") else None


def is_source(path: str, content: str) -> bool:
    """Return whether a text is a file of its language, and not a sentence that happens to parse."""
    if is_python(path):
        tree = python_tree(content)
        return isinstance(tree, ast.Module) and any(map(_does_something, tree.body))
    if syntax_fault(path, content) is not None:
        return False
    if path.endswith(".toml"):
        return "=" in content
    return path.endswith(_JSON) and content.lstrip().startswith(("{", "["))


def python_tree(content: str) -> ast.Module | SyntaxFault:
    """Return the tree of Python source, or its syntax error."""
    try:
        return parse_python(content.removeprefix("\ufeff"))
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except (ValueError, RecursionError, MemoryError) as error:
        return 1, f"cannot be read: {type(error).__name__}"


def python_comments(content: str) -> dict[int, str]:
    """Return the comments of Python source that parses, by line. A `#` in a string is not a comment."""
    lines = iter([f"{line}\n" for line in content.removeprefix("\ufeff").split("\n")])
    found: dict[int, str] = {}
    with contextlib.suppress(tokenize.TokenError, SyntaxError, RecursionError):
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type == tokenize.COMMENT:
                found[token.start[0]] = token.string
    return found


# ---- code that an edit removed ------------------------------------------------------------------------


def lost_names(content: str, base: str, tree: ast.Module) -> tuple[str, ...]:
    """Return the top-level names that a Python file loses as it shrinks to less than half."""
    if len(content) >= len(base) * _SHRINK:
        return ()
    return tuple(sorted(top_level_names(python_tree(base)) - top_level_names(tree)))


def top_level_names(tree: ast.Module | SyntaxFault) -> frozenset[str]:
    """Return the functions, classes and variables at the top level of a module; none if it does not parse."""
    names: set[str] = set()
    for node in tree.body if isinstance(tree, ast.Module) else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
    return frozenset(names)


def emptied_functions(tree: ast.Module, base: str) -> tuple[tuple[int, str], ...]:
    """Return (line, name) of each function whose body was code before and is only `...` now.

    Overloads, abstract methods and methods of protocols are written like this and do not count.
    """
    before = python_tree(base)
    if not isinstance(before, ast.Module):
        return ()
    solid = {name for name, node in _functions(before.body, "") if not _is_emptied(node)}
    now = list(_functions(tree.body, ""))
    kept = {name for name, node in now if not _is_emptied(node)}
    return tuple((node.lineno, name) for name, node in now if name in solid - kept and not _is_declaration(node))


def new_ellipses(tree: ast.Module, base: str) -> tuple[int, ...]:
    """Return the lines of `...` among other statements, beyond as many as there were before."""
    before = python_tree(base)
    found = _ellipses(tree)
    had = len(_ellipses(before)) if isinstance(before, ast.Module) else len(found)
    return tuple(found[had:])


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, _Function]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef) and not any(_last_name(one) == "Protocol" for one in node.bases):
            yield from _functions(node.body, f"{prefix}{node.name}.")


def _is_emptied(node: _Function) -> bool:
    rest = _statements(node.body)
    return len(rest) == 1 and _is_ellipsis(rest[0])


def _is_declaration(node: _Function) -> bool:
    return any(_last_name(one).startswith(("overload", "abstract")) for one in node.decorator_list)


def _last_name(node: ast.expr) -> str:
    """Return `Protocol` for `typing.Protocol[T]`, and an empty text for what has no name."""
    match node:
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return _last_name(inner)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _ellipses(tree: ast.Module) -> list[int]:
    lines: list[int] = []
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            rest = _statements(body) if isinstance(body, list) else []
            lines += [one.lineno for one in rest if len(rest) > 1 and _is_ellipsis(one)]
    return sorted(lines)


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(ast.Constant(str())), *rest]:
            return rest
        case _:
            return body


def _is_ellipsis(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is Ellipsis


def _does_something(node: ast.stmt) -> bool:
    """Return whether a statement is more than a word: `Sure` and `a, b` parse too."""
    if not isinstance(node, ast.Expr):
        return True
    return isinstance(node.value, ast.Call | ast.Await | ast.Yield) or (
        isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


# ---- data -------------------------------------------------------------------------------------


def _json_fault(text: str) -> SyntaxFault | None:
    try:
        # Not strict JSON: other tools of the project may allow a repeated key.
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.lineno, f"is not JSON: {error.msg}"
    except (ValueError, RecursionError) as error:
        return 1, f"cannot be read: {type(error).__name__}"
    return None


def _toml_fault(text: str) -> SyntaxFault | None:
    try:
        parsing.parse_toml(text.replace("\r\n", "\n"))
    except parsing.LongTomlKeyError as error:
        return error.line, f"has {error}"
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).removesuffix(")").rpartition(" (at line ")
        line = int(place.partition(",")[0]) if message else text.count("\n") + 1
        return line, f"is not TOML: {message or error}"
    except (ValueError, RecursionError) as error:
        return 1, f"cannot be read: {type(error).__name__}"
    return None
