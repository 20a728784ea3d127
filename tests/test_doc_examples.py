"""Examples on pages are what they look like: blocks, tables, responses and names of models are read."""

import configparser
import json
import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import jinja2
import pytest
import yaml

from orch23.model.llm import Proposal
from orch23.model.parsing import parse_json
from orch23.model.pipeline import WriteScope
from orch23.proposal.proposal import judge_response
from orch23.proposal.proposal_files import ProposalScope
from orch23.providers.model_facts import UNKNOWN_MODEL_FACTS, facts_of
from orch23.steps.llm.spec import LLMStep

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^ *(?P<marks>`{3,}|~{3,})(?P<info>[^\n`]*)$")


def blocks(page: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, language and text of each fenced block of a page."""
    start, marks, info, found = 0, "", "", list[str]()
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if not start and fence:
            start, marks, info, found = number, fence["marks"], fence["info"], []
        elif start and fence and fence["marks"].startswith(marks) and not fence["info"]:
            yield start, (info.split() or [""])[0], textwrap.dedent("\n".join(found)) + "\n"
            start = 0
        else:
            found.append(line)
    assert not start, f"{page.name}: the block in line {start} has no end"


def read_ini(text: str) -> None:
    configparser.ConfigParser(strict=False, interpolation=None).read_string(text)


def read_jinja(text: str) -> None:
    environment = jinja2.Environment(autoescape=False, extensions=["jinja2.ext.do"])
    environment.parse(text)


READERS: dict[str, Callable[[str], object]] = {
    "json": parse_json,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "toml": tomllib.loads,
    "python": lambda text: compile(text, "example", "exec", dont_inherit=True),
    "ini": read_ini,
    "jinja": read_jinja,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_block_is_in_its_language(page: Path) -> None:
    for line, language, text in blocks(page):
        if language in READERS:
            try:
                READERS[language](text)
            except Exception as error:  # noqa: BLE001 - each reader has errors of its own
                pytest.fail(f"{page.name}:{line}: not {language}: {error}")


def test_the_languages_of_blocks_are_read() -> None:
    found = Counter(language for page in PAGES for _, language, _ in blocks(page))
    assert {name: found[name] for name in READERS if found[name] < 2} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_row_of_a_table_has_as_many_cells_as_its_head(page: Path) -> None:
    """A `|` ends a cell in code too, unless it has a backslash before it."""
    inside = {line + n for line, _, text in blocks(page) for n in range(text.count("\n") + 2)}
    width = None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if number in inside or not line.startswith("|"):
            width = None
            continue
        cells = len(re.findall(r"(?<!\\)\|", line)) - 1
        width = width or cells
        assert cells == width, f"{page.name}:{number}"
        assert line.endswith("|"), f"{page.name}:{number}"


def in_line(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each JSON in a line: code that begins with an object or a list of these."""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        for text in re.findall(r"(?<!`)`(\{\"[^`]+\}|\[\{\"[^`]*\])`", line):
            yield number, text


def test_json_in_a_line_is_json_but_for_dots_and_names_in_capitals() -> None:
    found = [(page, line, text) for page in PAGES for line, text in in_line(page)]
    assert len(found) > 10
    for page, line, text in found:
        whole = re.sub(r'(?<![".])\.\.\.(?!")|(?<=") or "[^"]*"', "", text)
        try:
            json.loads(re.sub(r"(?<=: )[A-Z]+", "0", whole))
        except ValueError as error:
            pytest.fail(f"{page.name}:{line}: {text}: {error}")


# ---- responses ------------------------------------------------------------------------------------

BASE = {"src/prices.py": 'NAME = "a"\nLIMIT = 10\n', "src/old_prices.py": "X = 1\n"}
SCOPE = ProposalScope(cwd=".", write_scope=WriteScope(("src/",), delete=("src/old_*.py",)), base=BASE)


def judged(text: str, returns: str) -> Proposal:
    step = LLMStep(provider="scripted", model="m", prompt="p.j2", returns=returns)  # type: ignore[arg-type]
    found = judge_response(text, "end", SCOPE, step=step, outputs=("src/prices.py",))
    assert isinstance(found, Proposal), found.diagnostics
    return found


def responses() -> tuple[str, str]:
    first, second = (text for _, kind, text in blocks(ROOT / "docs" / "proposals.md") if kind == "markdown")
    return first, second


def test_the_example_of_blocks_is_three_files_and_a_delete() -> None:
    found = judged(responses()[0], "blocks")
    assert {one.path: one.content for one in found.writes} == {
        "src/prices.py": "def price(): return 1\n",
        "src/shop.toml": "open = true\n",
        "src/util/text.py": "LIMIT = 10\n",
    }
    assert found.deletes == ("src/old_prices.py",)


def test_the_example_of_edits_changes_the_limit() -> None:
    found = judged(responses()[1], "edits")
    assert [(one.path, one.content) for one in found.writes] == [("src/prices.py", 'NAME = "a"\nLIMIT = 12\n')]


def test_the_form_that_a_prompt_asks_for_is_taken() -> None:
    page = (ROOT / "docs" / "prompts.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (Respond with .*) \|$", page, re.MULTILINE))
    assert rows.keys() == {"files", "blocks", "edits", "code"}
    (example,) = re.findall(r"`(\{.*\})`", rows["files"])
    assert judged(example.replace('"..."', '"src/a.txt"'), "files").writes[0].content == "the complete file"
    marks = re.findall(r"`([<=>].*?)`", rows["edits"])
    assert [*marks] == ["<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"]
    lines = ["src/prices.py", marks[0], "LIMIT = 10", marks[1], "LIMIT = 12", marks[2]]
    assert judged("\n".join(lines), "edits").writes[0].content.endswith("LIMIT = 12\n")


@pytest.mark.needs("explore")
def test_the_example_of_a_request_for_files_is_read() -> None:
    from orch23.features.explore.parts import read_answer  # noqa: PLC0415 - a feature, which may be missing

    (text,) = (text for _, kind, text in blocks(ROOT / "docs" / "prompts.md") if kind == "json")
    assert read_answer(text) == (["src/shop.py#def total", "src/cart.js#L10-40", "README.md"], ["round", "/_sum$/"])


# ---- names of models ------------------------------------------------------------------------------

MODEL = re.compile(
    r"provider: (anthropic|openai|bedrock|vertex),(?![^}\n]*base_url)[^}\n]*?\bmodel: [\"']?([^,}\"'\s]+)"
)
# As the vendor lists them (Claude in Amazon Bedrock, 2026-11): from Opus 4.7 on, an id has no version at its end.
BEDROCK = frozenset({"eu.anthropic.claude-opus-4-8"})


def test_models_on_pages_exist() -> None:
    found = {one for page in PAGES if "adr" not in page.parts for one in MODEL.findall(page.read_text())}
    assert {provider for provider, _ in found} == {"anthropic", "openai", "bedrock", "vertex"}
    assert {model for provider, model in found if provider == "bedrock"} <= BEDROCK
    for provider, model in found:
        name = re.sub(r"^eu\.anthropic\.|@\d+$", "", model)
        vendor = "openai" if provider == "openai" else "anthropic"
        assert facts_of(vendor, name).max_output_tokens != UNKNOWN_MODEL_FACTS.max_output_tokens, model
