"""Parse Python source without printing its warnings, from any thread."""

import ast
import threading
import warnings

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
