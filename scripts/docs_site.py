"""Build the documentation as a site, and check it: `make site`.

The pages are copied to the places that they have in the site, with their links rewritten: README.md becomes the first
page, docs/budgets.md becomes /budgets/. Then Sphinx makes HTML of them; each of its warnings is an error. Last,
every link and anchor in the HTML is followed, and nothing may be requested from another server.
"""

import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Run as a file, so that `make` needs no package for it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from orch23.cli.pages import code_sections
from scripts.docs_pages import errors, expand, links, read_groups, title_of

ROOT = Path(__file__).parents[1]
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NODE = re.compile(r"^\s*(s\d+)\[+\"(.*?)\"\]+$", re.MULTILINE)
_EDGE = re.compile(r"^\s*(s\d+) --> (s\d+)$", re.MULTILINE)
# A link from a page of docs to another one; the page of a code is a folder below.
_PAGE_LINK = re.compile(r"\]\((?=[\w-]+\.md)")
_STYLE_REQUEST = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//")


def main() -> int:
    """Build the site in build/site, or report what is wrong."""
    wrong = errors(ROOT)
    if not wrong:
        source, site = ROOT / "build" / "site-source", ROOT / "build" / "site"
        for folder in (source, site):
            shutil.rmtree(folder, ignore_errors=True)
        write_pages(ROOT, source)
        options = [
            "-b",
            "dirhtml",
            "--fail-on-warning",
            "--keep-going",
            "--nitpicky",
            "--quiet",
            "-d",
            f"{source}/.doctrees",
        ]
        made = subprocess.run([sys.executable, "-m", "sphinx", *options, str(source), str(site)], check=False)
        if made.returncode:
            return made.returncode
        wrong = broken_html(site)
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    print(f"{len(wrong)} errors" if wrong else "the site is in build/site")
    return 1 if wrong else 0


# ---- pages ----------------------------------------------------------------------------------------


def site_path(page: str) -> str:
    """Return where a page of the repository is in the site."""
    if page == "README.md":
        return "index.md"
    if "/" not in page:
        return page.lower()
    return page.removeprefix("docs/").replace("README.md", "index.md")


def write_pages(root: Path, source: Path) -> None:
    """Write the pages of all groups, those that are made here, and the menu."""
    places: dict[str, str] = {}
    menu: list[str] = []
    not_searched: set[str] = set()
    for group in read_groups(root):
        names = []
        for entry in group.pages:
            pages = expand(root, entry)
            places |= {page: site_path(page) for page in pages}
            if pages != (entry,):
                places[entry] = site_path(f"{entry}/README.md")
                _write(source / places[entry], _directory_page(root, entry, pages))
            not_searched |= {page for page in pages if group.maintainers}
            names.append(places[entry].removesuffix(".md"))
        menu.append(_menu(group.title, [name for name in names if name != "index"]))
    for page in sorted(one for one in places if one.endswith(".md")):
        text = rewritten(root, page, places)
        if page == "README.md":
            text += "\n" + "\n".join(menu)
        _write(source / places[page], f"---\nnosearch: true\n---\n{text}" if page in not_searched else text)
    for name, text in diagnostic_pages():
        _write(source / name, text)
    shutil.copy(Path(__file__).parent / "sphinx" / "conf.py", source / "conf.py")


def rewritten(root: Path, page: str, places: dict[str, str]) -> str:
    """Return a page with links to the places that pages have in the site; what is not in the site is no link."""
    text = (root / page).read_text(encoding="utf-8")
    for link in links(root / page):
        path, mark, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(path))) if path else page
        if target in places:
            place = posixpath.relpath(places[target], posixpath.dirname(places[page]) or ".")
            text = text.replace(f"]({link})", f"]({place if path else ''}{mark}{anchor})")
        else:
            text = re.sub(rf"\[([^\[\]]+)\]\({re.escape(link)}\)", r"\1", text)
    return _DIAGRAM.sub(lambda found: f"```text\n{diagram_text(found[1])}```", text)


def diagram_text(diagram: str) -> str:
    """Return the edges of a flowchart as lines of text: a site without scripts draws no Mermaid."""
    names = {key: name.replace("<br/>", " (") + ")" for key, name in _NODE.findall(diagram)}
    below: dict[str, list[str]] = {key: [] for key in names}
    for start, end in _EDGE.findall(diagram):
        below[start].append(names[end])
    width = max(map(len, names.values()))
    return "".join(
        f"{names[key]:{width}}{' -> ' + ', '.join(ends) if ends else ''}".rstrip() + "\n" for key, ends in below.items()
    )


def diagnostic_pages() -> Iterator[tuple[str, str]]:
    """Yield the page with all codes, and a page for each, so that each code has an address of its own."""
    index = ["# Diagnostics\n\n`orch23 help CODE` shows the same text in a terminal.\n"]
    for heading, codes in code_sections().items():
        index.append(f"\n## {heading}\n\n| code | meaning |\n|---|---|\n")
        for code, (name, text) in codes.items():
            index.append(f"| [{code}](diagnostics/{code}.md) | {name.replace('|', chr(92) + '|')} |\n")
            back = f"\nIn a terminal: `orch23 help {code}`. [All diagnostics](../diagnostics.md)\n"
            below = _PAGE_LINK.sub("](../", text)
            yield f"diagnostics/{code}.md", f"---\norphan: true\n---\n# {code}: {name}\n\n{below}\n{back}"
    yield "diagnostics.md", "".join(index)


def _directory_page(root: Path, entry: str, pages: tuple[str, ...]) -> str:
    names = [posixpath.basename(page).removesuffix(".md") for page in pages]
    rows = "".join(f"- [{title_of(root / page)}]({name}.md)\n" for page, name in zip(pages, names, strict=True))
    title = {"adr": "Decisions"}.get(posixpath.basename(entry), posixpath.basename(entry))
    return f"# {title}\n\n{rows}\n{_menu('', names)}"


def _menu(title: str, names: list[str]) -> str:
    caption = f":caption: {title}\n" if title else ""
    return f"```{{toctree}}\n:hidden:\n{caption}\n" + "".join(f"{name}\n" for name in names) + "```\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# ---- HTML -----------------------------------------------------------------------------------------


@dataclass
class _Html(HTMLParser):
    """What a page of HTML refers to: `requests` are loaded with it, `targets` are followed by a reader."""

    ids: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    requests: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the references of an element."""
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.targets.add(given["href"])
        elif "href" in given:
            self.requests.add(given["href"])
        if "src" in given:
            self.requests.add(given["src"])


def broken_html(site: Path) -> list[str]:
    """Return links of the site that lead nowhere, and requests to other servers."""
    pages: dict[Path, _Html] = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = _Html()
        pages[path].feed(path.read_text(encoding="utf-8"))
    found = []
    for path, page in pages.items():
        shown = path.relative_to(site).as_posix()
        found += [f"{shown}: requests {one}" for one in sorted(page.requests) if urlsplit(one).netloc]
        inside = [one for one in page.targets | page.requests if not urlsplit(one).scheme and not urlsplit(one).netloc]
        found += [f"{shown}: {one} leads nowhere" for one in sorted(inside) if not _leads_somewhere(path, one, pages)]
    for style in sorted(site.rglob("*.css")):
        if _STYLE_REQUEST.search(style.read_text(encoding="utf-8")):
            found.append(f"{style.relative_to(site).as_posix()}: requests a file of another server")
    return found


def _leads_somewhere(page: Path, target: str, pages: dict[Path, _Html]) -> bool:
    parts = urlsplit(target)
    file = Path(posixpath.normpath(page.parent / unquote(parts.path))) if parts.path else page
    file = file / "index.html" if file.is_dir() else file
    if not parts.fragment or file not in pages:
        return file.is_file()
    return unquote(parts.fragment) in pages[file].ids


if __name__ == "__main__":
    sys.exit(main())
