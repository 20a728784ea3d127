"""What the pages say is so: links lead somewhere, tables are complete, commands exist."""

import json
import re
from pathlib import Path

import click
import pytest

from orch23.checks.registry import CHECKS
from orch23.cli.group import orch23
from orch23.load.pipeline import load_pipeline
from orch23.model.errors import ExitCode

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)[^)]*\)")
PRODUCT = ROOT / "orch23"
# Pages that describe the code as it is. A record of a decision keeps the names of its time.
ABOUT_THE_CODE = ["AGENTS.md", "CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md", "docs/plugins.md"]
PACKAGES = "|".join(sorted(one.name for one in PRODUCT.iterdir() if (one / "__init__.py").exists()))
DOTTED = re.compile(rf"(?<![\w/.-])(?:(?:orch23\.)?(?:{PACKAGES})|scripts|bench)(?:\.\w+)+(?![\w/(])")
PATH = re.compile(rf"(?<![\w/.:-])(?:orch23/)?(?:{PACKAGES}|tests|scripts|docs|bench)/[\w/.-]*[\w/]")
# In a list of modules: the folder of a feature, and modules of it in the lines below.
PART = re.compile(r"^(features\.\w+) .*\n((?:  .*\n)+)", re.MULTILINE)
MODULES_OF_PART = re.compile(r"^  (\w[\w., ]*?)  +", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


def test_the_table_of_exit_codes_is_the_programs() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", page, re.MULTILINE)
    assert [(int(number), name) for number, name in rows] == [(code.value, code.name) for code in ExitCode]


@pytest.mark.needs("templates")
def test_versions_of_templates_on_pages_are_the_newest() -> None:
    listed = json.loads((ROOT / "orch23" / "features" / "templates" / "catalogue.json").read_text())
    newest = {one["name"]: one["version"] for one in listed["templates"]}
    line = re.compile(rf"^({'|'.join(newest)}) (?:v\d+ -> )?(v\d+)$", re.MULTILINE)
    shown = [(page.name, *found) for page in PAGES for found in line.findall(page.read_text())]
    assert len(shown) >= 3
    assert [(page, name, newest[name]) for page, name, _ in shown] == shown


def test_every_make_command_that_a_page_names_exists() -> None:
    made = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:`|^)make ([a-z]+)", page.read_text(), re.MULTILINE)}
    assert named >= {"demo", "test"}
    assert named <= made


def exists(name: str) -> bool:
    """Return whether a dotted name is a folder or a module, or is in a module that it names."""
    parts = name.removeprefix("orch23.").split(".")
    for length in range(len(parts), 0, -1):
        path = Path(ROOT if parts[0] in {"scripts", "bench"} else PRODUCT, *parts[:length])
        if path.with_suffix(".py").is_file():
            text = path.with_suffix(".py").read_text()
            return all(re.search(rf"\b{part}\b", text) for part in parts[length:])
        if path.is_dir():
            return length == len(parts)
    return False


def needed_by(page: str) -> pytest.MarkDecorator:
    """Return the mark of a page that names modules of features: these must be there."""
    mark: pytest.MarkDecorator = pytest.mark.needs(
        *sorted(set(re.findall(r"(?<![-/\w])features\.(\w+)", (ROOT / page).read_text())))
    )
    return mark


@pytest.mark.parametrize("page", [pytest.param(page, marks=needed_by(page)) for page in ABOUT_THE_CODE])
def test_modules_and_paths_that_a_page_about_the_code_names_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    dotted = [one for one in DOTTED.findall(text) if not one.endswith((".NAME", ".html", ".md", ".sqlite"))]
    for folder, below in PART.findall(text):
        dotted += [f"{folder}.{one}" for names in MODULES_OF_PART.findall(below) for one in names.split(", ")]
    paths = [one for one in PATH.findall(text) if "NAME" not in one and not one.endswith("_")]
    assert len(dotted) + len(paths) >= 3
    assert [one for one in dotted if not exists(one)] == []
    assert [one for one in paths if not ((ROOT / one).exists() or (PRODUCT / one).exists())] == []
    assert set(re.findall(r"\btest_\w+\.py", text)) <= {one.name for one in (ROOT / "tests").rglob("test_*.py")}


def test_the_pipeline_in_the_readme_is_valid(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "greeting.yaml").write_text(example)
    loaded = load_pipeline(tmp_path / "greeting.yaml", tmp_path)
    assert [stage.name for stage in loaded.pipeline.stages] == ["count_words", "listing"]
    assert loaded.warnings == ()


def test_the_nine_rules_of_staleness_are_there_each_with_an_example() -> None:
    page = (ROOT / "docs" / "staleness.md").read_text()
    rules = re.split(r"^## ", page, flags=re.MULTILINE)[1:10]
    assert [rule[:2] for rule in rules] == [f"{number}." for number in range(1, 10)]
    assert all("You " in rule or "```" in rule for rule in rules)


def test_no_word_of_the_glossary_is_explained_twice() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\*", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert len(words) == len(set(words)) > 30


def test_records_of_decisions_are_numbered_without_gaps_but_for_those_that_another_one_names() -> None:
    pages = sorted((ROOT / "docs" / "adr").glob("*.md"))
    numbers = [int(page.name[:4]) for page in pages]
    superseded = [int(found) for page in pages for found in re.findall(r"Supersedes ADR (\d+),", page.read_text())]
    assert sorted(numbers + superseded) == list(range(1, numbers[-1] + 1))


def test_the_codes_of_the_checks_belong_to_the_family_of_verification_or_to_the_work_orders() -> None:
    assert all(re.fullmatch(r"[EW]3[134]\d|E00\d|[EW]10\d", code) for one in CHECKS.values() for code in one.codes)


@pytest.mark.needs("authoring")
def test_the_commands_of_comparisons_and_questions_have_their_options() -> None:
    pages = [ROOT / "docs" / "faq.md", *sorted((ROOT / "docs" / "coming-from").glob("*.md"))]
    found = [one for page in pages for one in re.findall(r"`orch23 ([a-z]+)([^`]*)`", page.read_text())]
    assert len(found) > 30
    for name, words in found:
        command = orch23.get_command(click.Context(orch23), name)
        assert command is not None, name
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words.split() if word.startswith("-")} <= options, (name, words)


def test_pages_say_that_a_second_build_waits_only_with_the_option() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert not re.search(r"builds? (in one root )?run one after another", page.read_text()), page
    for name in ("faq.md", "cookbook/monorepo.md", "exit-codes.md", "diagnostics.md"):
        text = " ".join((ROOT / "docs" / name).read_text().split())
        assert re.search(r"does not\s+wait[^.]+--wait-lock", text) or re.search(
            r"does not wait. [^.]+--wait-lock", text
        ), name
