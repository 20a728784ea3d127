"""Parse Python without a word on stderr."""

import ast
import warnings
from threading import Lock

_WARNINGS_LOCK = Lock()


def parse_python(source: str | bytes, name: str) -> ast.Module:
    r"""Return the syntax tree of a text.

    Newer Pythons print a SyntaxWarning for "\d" in the text; the filters that silence it are the whole process's.

    Raises:
        SyntaxError: it does not parse; `lineno` and `offset` may be missing or 0.
        ValueError: it holds a null byte (in some Pythons).
        RecursionError: it is nested too deeply, as with MemoryError.
        MemoryError: the parser's own stack is too small for it.

    """
    with _WARNINGS_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, filename=name)
