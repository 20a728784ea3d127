"""The catalogue of all diagnostic codes: the page docs/diagnostics.md, which explains them."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from orch23.cli.pages import find_page

_ENTRY: Final = re.compile(r"^### ([EWN]\d{3}): (.+)\n\n(.+(?:\n.+)*)", re.MULTILINE)


@cache
def code_sections() -> Mapping[str, Mapping[str, tuple[str, str]]]:
    """Return the sections of the page by heading: title and explanation of each code. None in a broken installation."""
    sections = (part.partition("\n") for part in (find_page("diagnostics") or "").split("\n## ")[1:])
    return {
        heading: {code: (title, text) for code, title, text in _ENTRY.findall(entries)}
        for heading, _, entries in sections
    }


@cache
def diagnostic_codes() -> Mapping[str, tuple[str, str]]:
    """Return title and explanation of every code, sorted by code."""
    return dict(sorted(entry for codes in code_sections().values() for entry in codes.items()))
