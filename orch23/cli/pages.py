"""The pages of the documentation for users: installed with orch23, or in its repository; and the codes in one."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

# The wheel has the pages in its package, a repository beside it.
_PACKAGE: Final = Path(__file__).parents[1]
NAVIGATION: Final = "navigation.toml"
_PREFIX: Final = "docs/"
_SUFFIX: Final = ".md"


@cache
def pages_folder() -> Path:
    """Return the folder of the pages; in a broken installation it may be missing."""
    installed = _PACKAGE / "docs"
    return installed if installed.is_dir() else _PACKAGE.parent / "docs"


def page_names() -> tuple[str, ...]:
    """Return the names of all pages for users, in the order of the menu: `budgets`, `cookbook/secrets`."""
    try:
        groups = tomllib.loads((pages_folder() / NAVIGATION).read_text(encoding="utf-8"))["group"]
    except OSError:
        return ()
    shown = [page for group in groups if not group.get("maintainers") for page in group["pages"]]
    return tuple(_name(page) for page in shown if page.startswith(_PREFIX))


def find_page(topic: str) -> str | None:
    """Return the text of a page (Markdown); None if there is none. A topic is `budgets`, `docs/budgets` or a path."""
    name = _name(topic)
    if name not in page_names():
        return None
    for path in (pages_folder() / f"{name}{_SUFFIX}", pages_folder() / name / "README.md"):
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return None


def page_titles() -> tuple[tuple[str, str], ...]:
    """Return name and title of all pages for users."""
    found = ((name, find_page(name)) for name in page_names())
    return tuple((name, text.partition("\n")[0].lstrip("# ").replace("`", "")) for name, text in found if text)


def _name(page: str) -> str:
    return page.removeprefix(_PREFIX).removesuffix(_SUFFIX).removesuffix("/README")


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
