"""Every diagnostic code is explained once, in docs/diagnostics.md, and the generated pages are up to date."""

import ast
import os
import re
from functools import cache
from pathlib import Path

import pytest

from orch23.cli.main import main
from orch23.cli.pages import code_sections, diagnostic_codes
from orch23.model.errors import ExitCode
from orch23.model.features import COMMANDS
from scripts.reference_pages import commands_page, events_page
from tests.gold import Golden

SOURCE = Path(__file__).parents[3] / "orch23"
DOCS = Golden(folder=SOURCE.parent / "docs", rewrite=os.environ.get("REGOLD") == "1")
CODE = re.compile(r"[EWN]\d{3}")
FAMILIES = {"proposal": "2"}


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
def test_every_code_that_occurs_is_explained_once_and_every_explanation_is_of_a_code_that_occurs() -> None:
    explained = [code for codes in code_sections().values() for code in codes]
    assert len(explained) == len(diagnostic_codes())
    assert {code for code, _ in literals()} == set(explained)


def test_the_page_has_one_paragraph_for_each_code_in_order() -> None:
    head, *parts = re.split(r"(?<=\n)(?=\n## )", (SOURCE.parent / "docs/diagnostics.md").read_text())
    assert "###" not in head
    assert parts == [
        f"\n## {heading}\n"
        + "".join(f"\n### {code}: {title}\n\n{text}\n" for code, (title, text) in sorted(codes.items()))
        for heading, codes in code_sections().items()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("package", FAMILIES)
def test_every_name_of_a_code_is_used_and_is_of_the_family_of_its_package(package: str) -> None:
    (module,) = (SOURCE / package).glob("*codes.py")
    names = dict(re.findall(r'^(\w+) = "(\w+)"$', sources()[module], re.MULTILINE))
    assert len(names) == len(sources()[module].splitlines()) - 2
    assert [code for code in names.values() if re.fullmatch(rf"[EW]{FAMILIES[package]}\d+", code) is None] == []
    others = "".join(text for path, text in sources().items() if path != module)
    assert [name for name in names if re.search(rf"\b{name}\b", others) is None] == []


@pytest.mark.needs("templates")
def test_each_module_of_codes_has_a_family() -> None:
    assert {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.glob("**/*codes.py")} == FAMILIES.keys()


@pytest.mark.parametrize("code", sorted(diagnostic_codes()))
def test_every_code_has_a_title_and_an_explanation(code: str) -> None:
    title, text = diagnostic_codes()[code]
    assert not title.endswith(".")
    assert len(title) < 80
    assert text.endswith((".", ".`")), code


@pytest.mark.needs("authoring")
def test_help_explains_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "e802"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("E802: unknown key\n\n")
    assert main(["help", "E80"]) == ExitCode.NOT_FOUND
    assert "near codes: E80" in capsys.readouterr().err


@pytest.mark.needs("exports", *sorted({place.partition(".")[0] for place in COMMANDS.values()}))
def test_the_page_of_commands_is_up_to_date() -> None:
    DOCS.check("commands.md", commands_page())


def test_the_page_of_events_is_up_to_date() -> None:
    DOCS.check("events.md", events_page())


def test_every_exit_code_is_documented() -> None:
    page = (SOURCE.parent / "docs" / "exit-codes.md").read_text()
    assert {code.value for code in ExitCode} == {int(n) for n in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
