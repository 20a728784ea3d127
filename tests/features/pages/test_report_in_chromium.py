"""The page of a run, in a browser: what it shows, where it leads, and that it neither runs nor requests anything."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import Browser, needs_chromium, running_chromium
from tests.project import Project, files_answer, scripted
from tests.run_journals import write_run

pytestmark = [needs_chromium, pytest.mark.slow]

HOSTILE = (
    "# Docs\n<script>document.title = 'owned'</script><img src=http://127.0.0.1:9/x.png onerror=\"alert(2)\">\n"
    "</pre></details></td></table><h1 style='color:red'>owned</h1><a href=\"javascript:alert(3)\">x</a>\n"
)
STAGES: dict[str, dict[str, Any]] = {
    "intent": {"inputs": ["spec.md"], "outputs": ["intent.txt"], "shell": "wc -w < spec.md > intent.txt"},
    "model": {
        "inputs": ["intent.txt", "spec.md"],
        "outputs": ["model.txt"],
        "llm": {"returns": "files"},
        "verify": [{"shell": "grep -q right model.txt"}],
        "retry": 2,
    },
    "docs": {"inputs": ["spec.md"], "outputs": ["docs.md"], "llm": {"returns": "text"}},
    "lint": {"inputs": ["model.txt", "docs.md"], "shell": "echo unused import >&2; exit 3"},
    "release": {"needs": ["lint"], "outputs": ["r.txt"], "shell": "echo r > r.txt"},
    "each": {
        "foreach": {"in": [f"k{at:02}" for at in range(14)]},
        "outputs": ["each/${{ item }}.txt"],
        "shell": "echo ${{ item }} > each/${{ item }}.txt",
    },
}
ANSWERS = {"model": [files_answer({"model.txt": f"{word}\n"}) for word in ("wrong", "right")], "docs": [HOSTILE]}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running_chromium(tmp_path_factory.mktemp("chromium")) as one:
        yield one


@pytest.fixture(scope="module")
def page_of_a_failure(tmp_path_factory: pytest.TempPathFactory) -> str:
    project = Project(tmp_path_factory.mktemp("story") / "project")
    assert project.write({**scripted(STAGES, ANSWERS), "spec.md": "a spec\n"}).build("-k").code == 1
    outcome = project.run("report", "-o", "pages/report.html")
    assert (outcome.code, outcome.err) == (0, "wrote pages/report.html\n")
    return (project.root / "pages/report.html").as_uri()


def test_rows_nodes_and_a_click_on_a_node(browser: Browser, page_of_a_failure: str) -> None:
    with browser.page(page_of_a_failure) as page:
        assert page.run("document.querySelector('h1 .badge').textContent") == "✘failed"
        # The 14 items of the foreach are one node.
        assert page.run("document.querySelectorAll('svg.graph .node').length") == 6
        assert page.run("document.querySelectorAll('svg.graph .edges path').length") == 4
        nodes = page.run("[...document.querySelectorAll('svg.graph a')].map(one => one.getAttribute('href').slice(1))")
        assert [one for one in nodes if page.run(f"document.getElementById({one!r}) === null")] == []
        assert page.run("document.querySelectorAll('tbody.stage').length") == 5 + 14
        assert page.run("document.querySelector('#stage-lint .badge').textContent") == "✘failed"
        assert page.run("document.querySelectorAll('#stage-model .attempt h4').length") == 2 + 1
        before = page.run("scrollY")
        page.click("svg.graph a[href='#stage-release']")
        assert page.run("document.querySelector(':target').id") == "stage-release"
        assert page.run("scrollY") > before
        seen = page.run(
            "(at => at.top >= 0 && at.bottom <= innerHeight)(document.querySelector(':target').getBoundingClientRect())"
        )
        assert seen


def test_a_link_to_a_folded_item_opens_its_group(browser: Browser, page_of_a_failure: str) -> None:
    with browser.page(f"{page_of_a_failure}#stage-each@k03") as page:
        assert page.run("document.getElementById('stage-each@k03').checkVisibility()")
        assert not page.run("document.querySelector('#stage-docs details').open")


def test_nothing_is_requested_run_or_reported(browser: Browser, page_of_a_failure: str) -> None:
    with browser.page(page_of_a_failure) as page:
        page.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert page.happened() == [f"request {page_of_a_failure}"]
        assert page.run("document.title") == "pipeline: failed"
        assert page.run("document.querySelectorAll('script, img, iframe, link, [style], [onerror]').length") == 0
        assert page.run("[...document.links].every(one => one.getAttribute('href').startsWith('#'))")
        shown = page.run("[...document.querySelectorAll('#stage-docs pre')].map(one => one.innerText).join('')")
        assert "<script>document.title = 'owned'</script>" in shown
        # The styles came through the policy.
        assert page.run("getComputedStyle(document.querySelector('.totals')).display") == "grid"


def test_the_policy_stops_what_a_mistake_in_the_template_would_let_through(browser: Browser, tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    project.write({**scripted(STAGES, ANSWERS), "spec.md": "a spec\n"}).build("-k")
    html = project.run("report", "-o", "-").out
    injected = tmp_path / "injected.html"
    injected.write_text(html.replace("</footer>", f"</footer>{HOSTILE}<script>document.title = 'owned'</script>"))
    with browser.page(injected.as_uri()) as page:
        assert page.run("document.querySelectorAll('script').length") > 0
        happened = page.happened()
        assert page.run("document.title") == "pipeline: failed"
        assert not [one for one in happened if one.startswith("dialog")]
        assert [one for one in happened if "Content Security Policy" in one]


@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_fits_a_phone(browser: Browser, page_of_a_failure: str, width: int) -> None:
    with browser.page(page_of_a_failure, width=width) as page:
        page.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
        # Text is as large as on a desktop, and no column is squeezed to a few characters.
        assert page.run("parseFloat(getComputedStyle(document.querySelector('#stage-docs pre')).fontSize)") > 11
        assert page.run("document.querySelector('#stage-lint .wide').getBoundingClientRect().width") > 100


def test_light_and_dark_colors_can_be_read(browser: Browser, page_of_a_failure: str) -> None:
    contrast = """(() => {
      const parts = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
      const light = text => parts(text).map(one => one / 255)
        .map(one => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
        .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
      const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      const behind = one => { for (; one; one = one.parentElement) {
        const color = getComputedStyle(one).backgroundColor; if (color !== 'rgba(0, 0, 0, 0)') return color; } };
      return Math.min(...[...document.querySelectorAll('.badge, .quiet, dt, dd, p, a, th, td, pre, summary')]
        .filter(one => !(one instanceof SVGElement))
        .map(one => ratio(light(getComputedStyle(one).color), light(behind(one))))) })()"""
    papers = []
    for scheme in ("light", "dark"):
        with browser.page(page_of_a_failure, scheme=scheme) as page:
            papers.append(page.run("getComputedStyle(document.body).backgroundColor"))
            assert page.run(contrast) >= 4.5, scheme  # AA of WCAG 2
    assert papers == ["rgb(255, 255, 255)", "rgb(22, 24, 27)"]


def test_details_are_open_on_paper(browser: Browser, page_of_a_failure: str) -> None:
    def sheets(pdf: bytes) -> int:
        return len(re.findall(rb"/Type\s*/Page\b", pdf))

    closed = "one => !one.checkVisibility({contentVisibilityAuto: true})"
    hidden = f"[...document.querySelectorAll('pre')].filter({closed}).length"
    with browser.page(page_of_a_failure, scheme="dark") as page:
        assert page.run(hidden) > 5
        printed = sheets(page.pdf())
        page.show(scheme="dark", media="print")
        assert page.run(hidden) == 0
        assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        page.show(scheme="dark")
        page.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert sheets(page.pdf()) == printed > 1


def test_two_hundred_stages(browser: Browser, project: Project) -> None:
    write_run(project.root / "logs", 200)
    outcome = project.run("report")
    assert outcome.code == 0, outcome.err
    path = project.root / "report.html"
    assert path.stat().st_size < 5_000_000
    with browser.page(path.as_uri()) as page:
        assert page.run("document.querySelectorAll('tbody.stage').length") == 200
        assert page.run("document.querySelectorAll('svg.graph a').length") == 200
        assert page.run("document.querySelectorAll('svg.timeline a').length") == 200
        assert page.happened() == [f"request {path.as_uri()}"]


HOSTILE_NAMES = {
    "</title></svg><script>document.title = 'owned'</script>": 1,
    '<img src=http://127.0.0.1:9/x.png onerror="alert(2)">': 2,
    "\u202eesrever": 3,
    "long " * 100: 4,
    "text": "<h1>owned</h1>",
}


def test_metrics_have_plots_and_hostile_names_stay_text(browser: Browser, project: Project) -> None:
    stage = {"inputs": ["in.json"], "outputs": ["m.json"], "metrics": ["m.json"], "shell": "cp in.json m.json"}
    project.write(scripted({"train": stage}, {}))
    for number in (0.5, 0.9, 0.7):
        values = {"accuracy": number, **dict.fromkeys(HOSTILE_NAMES, number), "text": HOSTILE_NAMES["text"]}
        assert project.write({"in.json": json.dumps(values)}).build().code == 0
    assert project.run("report").code == 0
    address = (project.root / "report.html").as_uri()
    for scheme, width in (("light", 1280), ("dark", 400)):
        with browser.page(address, scheme=scheme, width=width) as page:
            assert page.happened() == [f"request {address}"]
            assert page.run("document.title") == "pipeline: passed"
            assert page.run("document.querySelectorAll('script, img, #metrics h1, [onerror], [style]').length") == 0
            assert page.run("document.querySelectorAll('#metrics svg.plot').length") == len(HOSTILE_NAMES)
            assert page.run(
                "document.querySelector('#metrics tbody tr:nth-child(2)').innerText.split('\\t').slice(0, 5)"
            ) == [
                "accuracy",
                "0.9",
                "0.7",
                "-0.2",
                "-22.2%",
            ]
            title = page.run("document.querySelector('svg.plot title').textContent")
            assert title == "accuracy: 0.5, 0.9, 0.7"
            shown = page.run("document.querySelector('#metrics').innerText")
            assert "<script>document.title = 'owned'</script>" in shown
            assert "\u202e" not in page.run("document.documentElement.outerHTML")
            # The line has the color of the scheme, and the table scrolls in its own box.
            line, link = (
                page.run(f"getComputedStyle(document.querySelector({one!r})).{two}")
                for one, two in (("svg.plot path", "stroke"), (".badge.t-active, a", "color"))
            )
            assert line == link
            assert page.run("getComputedStyle(document.querySelector('svg.plot path')).fill") == "none"
            assert page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
