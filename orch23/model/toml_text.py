"""Read TOML in a time that grows with the text: `tomllib` takes the square of the number of parts of a dotted key."""

import re
import tomllib
from typing import Any

MAX_KEY_PARTS = 64
_TEXTS_AND_COMMENTS = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"""|\Z)|'
    r"'''.*?(?:'''|\Z)|"
    r'"(?:\\.|[^"\\\n])*"?|'
    r"'[^'\n]*'?|"
    r"#[^\n]*",
    re.DOTALL,
)
_LONG_KEY = re.compile(r"[ \t]*\.[ \t]*".join([r"[A-Za-z0-9_-]+"] * (MAX_KEY_PARTS + 1)))


class LongKeyError(ValueError):
    """A dotted key has too many parts; `line` counts from 1."""

    def __init__(self, line: int) -> None:
        """Keep the line."""
        super().__init__(f"a key of more than {MAX_KEY_PARTS} parts")
        self.line = line


def loads(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises:
        ValueError: it is no TOML (`tomllib.TOMLDecodeError`), or a key is too long (`LongKeyError`).
        RecursionError: it is nested too deeply.

    """
    if text.count(".") >= MAX_KEY_PARTS:
        # A quoted part of a key counts as one, whatever is in it; the lines stay.
        plain = _TEXTS_AND_COMMENTS.sub(lambda found: "s" + "\n" * found.group().count("\n"), text)
        long = _LONG_KEY.search(plain)
        if long is not None:
            raise LongKeyError(plain.count("\n", 0, long.start()) + 1)
    return tomllib.loads(text)
