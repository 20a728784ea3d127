"""Read the names of files in a depfile: rules of make, the list of `ninja -t deps`, or JSON.

The text is from outside: each reader takes linear time, and raises ValueError for what it cannot read.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from orch23.model.parsing import parse_json
from orch23.model.patterns import lazy_pattern

Named: TypeAlias = tuple[int, str, tuple[str, ...]]
"""The number of a line (0: not known), its names as one text, and as words without escapes."""

# A blank with a backslash before it belongs to the name.
_WORD = lazy_pattern(r"(?:\\.|[^ \t\\])+\\?|\\")
_ESCAPE = lazy_pattern(r"(\\+)([ \t#:]|$)?|\$\$")
# Of `a:b.o: a:b.c`, only the second colon ends the targets; nothing escapes a colon.
_END_OF_TARGETS = lazy_pattern(r":(?=[ \t]|$)")


def _make(text: str) -> Iterator[Named]:
    r"""Yield the names after the targets of each rule, line by line.

    Compilers write them for GNU make: `\ ` is a blank, `\#` a number sign, `$$` a dollar sign, and backslashes are
    doubled only before a blank. protoc and Cython escape nothing and write one name a line.
    """
    is_rule = is_continued = False
    for number, line in enumerate(text.split("\n"), 1):
        whole = line.removesuffix("\r")
        if not is_continued:
            is_rule = False
            if whole.lstrip(" \t").startswith("#"):  # `# env-dep:HOME` of rustc
                continue
        is_continued = (len(whole) - len(whole.rstrip("\\"))) % 2 == 1
        names = (whole[:-1] if is_continued else whole).lstrip(" \t")
        if names and not is_rule:
            end = _END_OF_TARGETS.search(names)
            if end is None and not is_continued:
                message = f"line {number} has no `TARGET: `: {names[:80]!r}"
                raise ValueError(message)
            is_rule, names = end is not None, names[end.end() :].lstrip(" \t") if end else ""
        words = (_ESCAPE.sub(_plain, word) for word in _WORD.findall(names))
        if names:
            yield number, names.rstrip(" \t"), tuple(word for word in words if word != "|")


def _plain(escape: "re.Match[str]") -> str:
    """Return the text of backslashes with the character that they escape, or of `$$`."""
    if escape[2] is None:  # `$$`, or backslashes that escape nothing
        return escape[1] or "$"
    return "\\" * ((len(escape[1]) + (not escape[2])) // 2) + escape[2]


def _ninja(text: str) -> Iterator[Named]:
    """Yield the names that `ninja -t deps` lists below each target, one a line and not escaped."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("    "):
            yield number, line[4:], (line[4:],)
        elif line and not line.endswith(("(VALID)", "(STALE)")):
            message = f"line {number} is not of `ninja -t deps`: {line[:80]!r}"
            raise ValueError(message)


def _json(text: str) -> Iterator[Named]:
    """Yield the strings of a list, or of the list or the keys of the mapping `inputs`, as esbuild has them."""
    value = parse_json(text)
    found = value.get("inputs") if isinstance(value, dict) else value
    names = list(found) if isinstance(found, list | dict) else [None]
    for name in names:
        if not isinstance(name, str):
            message = "it must be a list of paths, or an object whose `inputs` is a list of paths or has paths as keys"
            raise ValueError(message)  # noqa: TRY004 - as for all faults of its text
        yield 0, name, (name,)


READERS: Final[Mapping[str, Callable[[str], Iterator[Named]]]] = {"make": _make, "ninja": _ninja, "json": _json}
