"""The site: its menu has all pages, its links are followed, and it requests nothing from other servers."""

import posixpath
import re
from pathlib import Path

import pytest

from scripts.docs_pages import all_pages, anchors, errors, links, read_groups
from scripts.docs_site import broken_html, diagnostic_pages, diagram_text, rewritten

ROOT = Path(__file__).parents[3]
MENU = '[[group]]\ntitle = "Start"\npages = ["README.md", "docs/a.md"]\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/navigation.toml").write_text(MENU)
    (tmp_path / "README.md").write_text("# Project\n\n[a](docs/a.md#two-words) [code](tool.py)\n")
    (tmp_path / "docs/a.md").write_text("# A\n\n## Two `words`!\n\n[back](../README.md)\n")
    (tmp_path / "tool.py").write_text("")
    return tmp_path


@pytest.mark.slow
def test_every_page_of_the_repository_is_in_a_group_and_every_link_and_anchor_leads_somewhere() -> None:
    assert errors(ROOT) == []
    assert len(all_pages(ROOT)) > 60


def test_a_correct_tree_has_no_errors(tree: Path) -> None:
    assert errors(tree) == []


@pytest.mark.parametrize(
    ("page", "error"),
    [
        ("[x](b.md)", "docs/a.md: b.md: the file does not exist"),
        ("[x](../README.md#none)", "docs/a.md: ../README.md#none: no heading has this anchor"),
        ("[x](#none)", "docs/a.md: #none: no heading has this anchor"),
        ("[x](../tool.py#L3)", "docs/a.md: ../tool.py#L3: no heading has this anchor"),
        ("![x](shot.png)", "docs/a.md: shot.png: the file does not exist"),
        ("[x](../../etc)", "docs/a.md: ../../etc: the file does not exist"),
    ],
)
def test_a_link_that_leads_nowhere_is_an_error(tree: Path, page: str, error: str) -> None:
    (tree / "docs/a.md").write_text(f"# A\n\n## Two words\n\n{page}\n")
    assert errors(tree) == [error]


def test_a_page_in_no_group_is_an_error(tree: Path) -> None:
    (tree / "docs/new.md").write_text("# New\n")
    assert errors(tree) == ["docs/navigation.toml: docs/new.md is in no group"]


def test_a_group_with_a_page_that_is_gone_or_twice_is_an_error(tree: Path) -> None:
    (tree / "docs/navigation.toml").write_text(MENU.replace('"docs/a.md"', '"docs/a.md", "docs/a.md", "docs/b.md"'))
    assert errors(tree) == [
        "docs/navigation.toml: docs/b.md does not exist",
        "docs/navigation.toml: docs/a.md is there twice",
    ]


def test_links_in_code_are_no_links_and_equal_headings_have_numbers(tree: Path) -> None:
    page = tree / "docs/b.md"
    page.write_text("# A\n\n# A\n\n`[x](y.md)`\n\n```\n[x](z.md)\n```\n")
    assert anchors(page) == {"a", "a-1"}
    (tree / "docs/navigation.toml").write_text(MENU.replace('"docs/a.md"', '"docs/a.md", "docs/b.md"'))
    assert errors(tree) == []


def test_links_are_rewritten_to_the_places_in_the_site(tree: Path) -> None:
    places = {"README.md": "index.md", "docs/a.md": "a.md"}
    assert rewritten(tree, "README.md", places) == "# Project\n\n[a](a.md#two-words) code\n"
    assert rewritten(tree, "docs/a.md", places).endswith("[back](index.md)\n")


def test_a_diagram_becomes_the_list_of_its_edges() -> None:
    diagram = 'flowchart TD\n    s0["a<br/>shell"]\n    s1[["each<br/>llm"]]\n    s0 --> s1\n'
    assert diagram_text(diagram) == "a (shell)  -> each (llm)\neach (llm)\n"


def test_each_diagnostic_has_a_page() -> None:
    pages = dict(diagnostic_pages())
    assert "# E802: unknown key\n" in pages["diagnostics/E802.md"]
    assert "| [E802](diagnostics/E802.md) | unknown key |" in pages["diagnostics.md"]


def test_links_of_a_diagnostic_lead_to_a_page_from_the_page_of_its_code() -> None:
    places = {name for name, _ in diagnostic_pages()} | {path.name for path in (ROOT / "docs").glob("*.md")}
    targets = {
        posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        for name, text in diagnostic_pages()
        for target in re.findall(r"\]\(([^)#:]+)", text)
    }
    assert "test-results.md" in targets
    assert targets <= places


@pytest.mark.parametrize(
    ("html", "error"),
    [
        ('<a href="b/">', "index.html: b/ leads nowhere"),
        ('<a href="#b">', "index.html: #b leads nowhere"),
        ('<script src="https://cdn.example.org/x.js">', "index.html: requests https://cdn.example.org/x.js"),
        ('<link rel="stylesheet" href="//fonts.example.org/x">', "index.html: requests //fonts.example.org/x"),
        ('<link rel="stylesheet" href="x.css">', "x.css: requests a file of another server"),
    ],
)
def test_html_that_leads_nowhere_or_requests_something_else_is_an_error(tmp_path: Path, html: str, error: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/index.html").write_text('<h1 id="top">')
    (tmp_path / "index.html").write_text('<a href="a/#top"><a href="https://example.org"><i id="x"><a href="#x">')
    assert broken_html(tmp_path) == []
    if "x.css" in html:
        (tmp_path / "x.css").write_text("@import url(https://fonts.example.org/x);")
    (tmp_path / "index.html").write_text(html)
    assert broken_html(tmp_path) == [error]


def test_the_readme_leads_to_every_page_for_users() -> None:
    shown = {page for group in read_groups(ROOT) if not group.maintainers for page in group.pages}
    start, templates = ROOT / "README.md", ROOT / "docs/templates/README.md"
    found = {(one.parent / link.partition("#")[0]).resolve() for one in (start, templates) for link in links(one)}
    assert {page for page in shown if (ROOT / page) not in found} == {"README.md"}
