"""Patterns that are compiled when they are first used."""

import copy
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orch23
from orch23.model import patterns
from orch23.model.patterns import lazy_pattern


def test_a_pattern_is_compiled_once_and_only_for_its_first_use() -> None:
    with patch("orch23.model.patterns.re.compile", wraps=re.compile) as compiled:
        pattern = lazy_pattern(r"(a)b", re.IGNORECASE)
        assert compiled.call_count == 0
        assert [pattern.fullmatch(text) is not None for text in ("ab", "AB", "b")] == [True, True, False]
        assert compiled.call_count == 1
    assert pattern.sub(r"\1", "ABab") == "Aa"
    assert (pattern.pattern, pattern.groups) == ("(a)b", 1)
    assert copy.deepcopy(pattern).search("xab") is not None
    assert lazy_pattern(rb"\d").findall(b"1a2") == [b"1", b"2"]


def lazy_patterns(value: object) -> Iterator[patterns._LazyPattern[Any]]:
    if isinstance(value, patterns._LazyPattern):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from lazy_patterns(one)


def test_every_pattern_of_the_program_is_valid() -> None:
    root = Path(orch23.__file__).parent
    names = (path.relative_to(root).with_suffix("").parts for path in root.rglob("*.py") if is_used_in(path))
    modules = [import_module(".".join(("orch23", *name))) for name in names]
    found = [one for module in modules for value in vars(module).values() for one in lazy_patterns(value)]
    assert len(found) > 50
    assert all(isinstance(one.flags, int) for one in found)


def is_used_in(path: Path) -> bool:
    return "lazy_pattern(" in path.read_text()
