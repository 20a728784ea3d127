"""Every diagnostic code is in exactly one table, and the generated pages are up to date."""

import ast
import os
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from orch23.cli.catalogue import CODE_SECTIONS, diagnostic_codes, diagnostics_page
from orch23.cli.main import main
from orch23.cli.reference_pages import commands_page, events_page
from orch23.model.errors import ExitCode
from tests.gold import Golden

SOURCE = Path(__file__).parents[3] / "orch23"
DOCS = Golden(folder=SOURCE.parent / "docs", rewrite=os.environ.get("REGOLD") == "1")
CODE = re.compile(r"[EWN]\d{3}")


@cache
def sources() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(SOURCE.parent.glob("orch23*/**/*.py"))}


@cache
def literals() -> tuple[tuple[str, str], ...]:
    return tuple(
        (node.value, path.name)
        for path, text in sources().items()
        if CODE.search(text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value)
    )


@pytest.mark.slow
def test_every_code_that_occurs_is_in_exactly_one_table() -> None:
    counts = Counter(code for tables in CODE_SECTIONS.values() for table in tables for code in table)
    occurring = {code for code, _ in literals()}
    assert {code for code in occurring if counts[code] != 1} == set()


@pytest.mark.slow
def test_every_code_of_a_table_occurs_somewhere_else() -> None:
    used = Counter(code for code, _ in literals())
    named = {code for code, file in literals() if file.endswith("codes.py")}
    by_name = {code for code in named if used[code] == 1 and not _has_name(code)}
    assert by_name == set()


def _has_name(code: str) -> bool:
    """Say whether a table gives the code a name, by which the rest of the program speaks of it."""
    text = "".join(text for path, text in sources().items() if path.name.endswith("codes.py"))
    name = re.search(rf'^([A-Z_]+) = "{code}"$', text, re.MULTILINE)
    if name is None:
        return False
    others = [text for path, text in sources().items() if not path.name.endswith("codes.py")]
    return any(name[1] in text and re.search(rf"\b{name[1]}\b", text) for text in others)


def test_every_table_is_on_the_page() -> None:
    assert sorted(re.findall(r"^### (\w+): ", diagnostics_page(), re.MULTILINE)) == list(diagnostic_codes())


@pytest.mark.parametrize("code", sorted(diagnostic_codes()))
def test_every_code_has_a_title_and_an_explanation(code: str) -> None:
    title, text = diagnostic_codes()[code]
    assert not title.endswith(".")
    assert text.endswith((".", ".`")), code


def test_help_explains_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "e802"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("E802: unknown key\n\n")
    assert main(["help", "E80"]) == ExitCode.NOT_FOUND
    assert "near codes: E80" in capsys.readouterr().err


def test_the_page_of_diagnostics_is_up_to_date() -> None:
    DOCS.check("diagnostics.md", diagnostics_page())


def test_the_page_of_commands_is_up_to_date() -> None:
    DOCS.check("commands.md", commands_page())


def test_the_page_of_events_is_up_to_date() -> None:
    DOCS.check("events.md", events_page())


def test_every_exit_code_is_documented() -> None:
    page = (SOURCE.parent / "docs" / "exit-codes.md").read_text()
    assert {code.value for code in ExitCode} == {int(n) for n in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
