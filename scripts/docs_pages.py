"""The pages of the documentation: their groups, headings and links, and what is wrong with them.

Pages are the Markdown files that GitHub shows. Nothing here needs the libraries that make the site, so the tests check
links and groups too.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from markdown_it import MarkdownIt

NAVIGATION = "docs/navigation.toml"
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_NOT_IN_ANCHOR = re.compile(r"[^\w\- ]")
_HTML_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")


@dataclass(frozen=True)
class Group:
    """Pages under one title of the menu; a page is a path from the root of the repository, or a directory of pages."""

    title: str
    pages: tuple[str, ...]
    maintainers: bool


def read_groups(root: Path) -> tuple[Group, ...]:
    """Return the groups of the menu, in order."""
    found: list[dict[str, Any]] = tomllib.loads((root / NAVIGATION).read_text(encoding="utf-8"))["group"]
    return tuple(Group(one["title"], tuple(one["pages"]), bool(one.get("maintainers"))) for one in found)


def expand(root: Path, page: str) -> tuple[str, ...]:
    """Return a page, or the pages in a directory, sorted."""
    if not (root / page).is_dir():
        return (page,)
    return tuple(sorted(path.relative_to(root).as_posix() for path in (root / page).glob("*.md")))


def all_pages(root: Path) -> tuple[str, ...]:
    """Return all pages of the repository: the Markdown files in its root and below docs."""
    found = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    return tuple(sorted(path.relative_to(root).as_posix() for path in found))


def errors(root: Path) -> list[str]:
    """Return what is wrong: pages in no group or twice, links and anchors that lead nowhere."""
    listed = [page for group in read_groups(root) for entry in group.pages for page in expand(root, entry)]
    pages = all_pages(root)
    found = [f"{NAVIGATION}: {page} is in no group" for page in pages if page not in listed]
    found += [f"{NAVIGATION}: {page} does not exist" for page in listed if page not in pages]
    found += [
        f"{NAVIGATION}: {page} is there twice" for page in sorted({one for one in listed if listed.count(one) > 1})
    ]
    return found + [error for page in pages for error in _broken_links(root, page)]


def _broken_links(root: Path, page: str) -> Iterator[str]:
    for link in links(root / page):
        path, _, anchor = link.partition("#")
        target = (root / page).parent / unquote(path) if path else root / page
        if not target.exists():
            yield f"{page}: {link}: the file does not exist"
        elif root.resolve() not in target.resolve().parents:
            yield f"{page}: {link}: the file is outside of the repository"
        elif anchor and (target.suffix != ".md" or unquote(anchor) not in anchors(target)):
            yield f"{page}: {link}: no heading has this anchor"


def links(page: Path) -> tuple[str, ...]:
    """Return the targets of links and pictures that are not addresses on the network."""
    found = []
    for block in _tokens(page):
        for token in block.children or ():
            target = str(token.attrs.get("href") or token.attrs.get("src") or "")
            if target and not _OUTSIDE.match(target):
                found.append(target)
    return tuple(dict.fromkeys(found))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page: of its headings, as GitHub makes them, and those in HTML."""
    found: list[str] = []
    tokens = _tokens(page)
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            text = "".join(part.content for part in inline.children or () if part.type in {"text", "code_inline"})
            found.append(anchor_of(text, found))
    return frozenset(found) | frozenset(_HTML_ANCHOR.findall(page.read_text(encoding="utf-8")))


def anchor_of(heading: str, earlier: list[str]) -> str:
    """Return the anchor of a heading, with a number if an earlier heading has the same."""
    base = _NOT_IN_ANCHOR.sub("", heading.strip().lower()).replace(" ", "-")
    anchor, number = base, 0
    while anchor in earlier:
        number += 1
        anchor = f"{base}-{number}"
    return anchor


def title_of(page: Path) -> str:
    """Return the first heading of a page, without marks."""
    for opening, inline in pairwise(_tokens(page)):
        if opening.type == "heading_open":
            return str(inline.content).replace("`", "")
    return page.stem


@cache
def _tokens(page: Path) -> list[Any]:
    return list(MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")))
