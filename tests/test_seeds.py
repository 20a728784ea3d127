"""docs/seeds.md holds every promise of the five documents once, and the tests that it names are there and are run."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from orch23.cli.pages import find_page, page_names

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "seeds.md"
SERIES = {"S0": 27, "S1": 28, "S2": 23, "S3": 26, "S4": 67}
CONTRADICTIONS = 31
HOW = re.compile(r"kept|(changed|dropped): .{20,}")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
NOT_RUN = {"skip", "skipif", "xfail", "importorskip", "thorough", "stride"}
"""What keeps a test, or some of its cases, out of `make test`, or lets it fail: marks, and what a test may call."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table."""

    number: str
    promise: str
    how: str
    proof: str

    @property
    def is_contradiction(self) -> bool:
        return self.number.startswith("C")

    @property
    def proofs(self) -> list[str]:
        return self.proof.split("<br>") if self.proof else []


def read() -> list[Row]:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| *[SC]\d", line)]
    return [Row(*(cell.strip() for cell in line.strip().strip("|").split("|"))) for line in lines]


ROWS = read()


@cache
def not_run(path: str) -> dict[str, str]:
    """Return each test function of a module with what keeps it from being run, or an empty text."""
    return kept_from_running((ROOT / path).read_text())


def kept_from_running(source: str) -> dict[str, str]:
    tree = ast.parse(source)
    everywhere = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(one, ast.Name) and one.id == "pytestmark" for one in node.targets)
    ]
    everywhere += [node.value for node in tree.body if isinstance(node, ast.Expr)]
    found: dict[str, str] = {}
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        around = node.decorator_list if isinstance(node, ast.ClassDef) else []
        for one in inner:
            if isinstance(one, ast.FunctionDef) and one.name.startswith("test_"):
                found[one.name] = " ".join(sorted(NOT_RUN & words([*everywhere, *around, one])))
    return found


def words(nodes: list[ast.AST]) -> set[str]:
    """Return what is taken of the name `pytest` or of its marks, in some code."""
    return {
        inner.attr
        for node in nodes
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and ast.unparse(inner.value) in ("pytest", "pytest.mark")
    }


def test_every_promise_stands_there_once_and_in_its_order() -> None:
    wanted = [f"{series}-{number:02}" for series, count in SERIES.items() for number in range(1, count + 1)]
    wanted += [f"C{number}" for number in range(1, CONTRADICTIONS + 1)]
    assert [row.number for row in ROWS] == wanted


def test_every_promise_is_kept_or_a_reason_says_why_not() -> None:
    assert [
        row.number for row in ROWS if not row.promise or (not row.is_contradiction and not HOW.fullmatch(row.how))
    ] == []
    assert [row.number for row in ROWS if row.is_contradiction and not row.how] == []


def test_what_is_kept_has_a_proof_and_nothing_is_left_open() -> None:
    assert [row.number for row in ROWS if row.how == "kept" and not row.proofs] == []
    open_ = {row.number: [one for one in row.proofs if not TEST.fullmatch(one)] for row in ROWS}
    assert {number: proofs for number, proofs in open_.items() if proofs} == {}


def test_no_other_page_says_what_became_of_a_promise() -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page != PAGE]
    found = {page.name: re.findall(r"\bS[0-4]-\d\d", page.read_text()) for page in pages}
    assert {name: numbers for name, numbers in found.items() if numbers} == {}


def test_pages_for_users_do_not_send_them_to_the_design_documents() -> None:
    shown = [find_page(name) or "" for name in page_names()]
    assert len(shown) > 30
    assert [text.partition("\n")[0] for text in shown if "seeds.md" in text or "design document" in text] == []


def test_no_promise_names_a_test_twice() -> None:
    assert [row.number for row in ROWS if len(row.proofs) != len(set(row.proofs))] == []


def test_every_test_that_is_named_exists_and_is_run() -> None:
    named = sorted({found.groups() for row in ROWS for one in row.proofs if (found := TEST.fullmatch(one))})
    assert len(named) > 200
    wrong = {}
    for path, name in named:
        tests = not_run(path) if (ROOT / path).is_file() else {}
        if tests.get(name, "not there"):
            wrong[f"{path}::{name}"] = tests.get(name, "not there")
    assert wrong == {}


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def test_a(): pass", ""),
        ("@pytest.mark.slow\ndef test_a(): pass", ""),
        ("@pytest.mark.parametrize('n', [1])\n@pytest.mark.skipif(True, reason='x')\ndef test_a(n): pass", "skipif"),
        ("@pytest.mark.xfail\ndef test_a(): pass", "xfail"),
        ("@pytest.mark.thorough\ndef test_a(): pass", "thorough"),
        ("@pytest.mark.stride(2)\n@pytest.mark.parametrize('n', [1, 2])\ndef test_a(n): pass", "stride"),
        ("def test_a():\n    pytest.skip('x')", "skip"),
        ("@pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.skip)])\ndef test_a(n): pass", "skip"),
        ("pytestmark = [pytest.mark.slow, pytest.mark.skip]\ndef test_a(): pass", "skip"),
        ("pytest.importorskip('x')\ndef test_a(): pass", "importorskip"),
        ("@pytest.mark.skip\nclass TestA:\n    def test_a(self): pass", "skip"),
    ],
)
def test_a_test_that_is_not_run_is_no_proof(source: str, why: str) -> None:
    assert kept_from_running(source) == {"test_a": why}
