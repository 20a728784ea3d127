"""`orch23 help` shows the pages that the program names, and the wheel has all of them."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest

from orch23.cli.group import COMMAND_NAMES
from orch23.cli.pages import diagnostic_codes, find_page, page_names
from scripts.docs_pages import expand, read_groups
from tests.project import Project

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"`orch23 help ([\w/-]+)`")


@cache
def strings() -> tuple[tuple[str, str], ...]:
    """Give the texts of all modules that are installed, without docstrings, and those of all codes."""
    found = [(code, text) for code, (_, text) in diagnostic_codes().items()]
    for path in [*(ROOT / "orch23").rglob("*.py"), *(ROOT / "orch23_checks").rglob("*.py")]:
        tree = ast.parse(path.read_text())
        owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docs = {id(text) for node in ast.walk(tree) if isinstance(node, owners) for text in docstring(node.body)}
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs]
        found += [(path.name, node.value) for node in nodes if isinstance(node.value, str)]
    return tuple(found)


def docstring(body: list[ast.stmt]) -> list[ast.expr]:
    first = body[0] if body else None
    return [first.value] if isinstance(first, ast.Expr) else []


@pytest.mark.slow
def test_no_message_names_a_file_that_is_not_installed() -> None:
    names = [(place, text) for place, text in strings() if re.search(r"\bdocs/[\w/-]+\.md|\bCONTRIBUTING\b", text)]
    assert names == []


@pytest.mark.slow
def test_every_topic_that_the_program_names_can_be_shown() -> None:
    topics = {topic for _, text in strings() for topic in NAMED.findall(text)} - {"pages", "CODE", "PAGE"}
    assert {"budgets", "secrets", "pipeline-reference"} <= topics
    known = {*COMMAND_NAMES, *diagnostic_codes(), *page_names()}
    assert topics <= known


def test_each_page_for_users_is_shown_and_no_page_for_maintainers(project: Project) -> None:
    for name in page_names():
        text = find_page(name)
        assert text is not None, name
        assert text.startswith(("# ", "<!--")), name
    shown = project.run("help", "docs/commands.md").out
    assert shown == (ROOT / "docs" / "commands.md").read_text()
    assert project.run("help", "templates").out.startswith("# Templates\n")
    listed = project.run("help", "pages").out
    assert [line.split()[0] for line in listed.splitlines()] == list(page_names())
    assert project.run("help", "seeds").code == 66
    assert "did you mean `orch23 help budgets`?" in project.run("help", "budgest").err


@pytest.mark.slow
def test_the_wheel_has_the_pages_for_users_and_shows_them_from_anywhere(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        installed = {name for name in archive.namelist() if name.startswith("orch23/docs/")}
        archive.extractall(tmp_path / "installed")
    groups = [group for group in read_groups(ROOT) if not group.maintainers]
    pages = {
        page for group in groups for entry in group.pages for page in expand(ROOT, entry) if page.startswith("docs/")
    }
    assert installed == {f"orch23/{page}" for page in pages} | {"orch23/docs/navigation.toml"}
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "installed"), "HOME": str(tmp_path)}
    command = [sys.executable, "-P", "-c", "from orch23.entry import run; run()"]
    for topic, first in (
        ("secrets", "# Secrets\n"),
        ("E802", "E802: unknown key\n"),
        ("docs/templates", "# Templates\n"),
    ):
        done = subprocess.run(
            [*command, "help", topic], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith(first)
    shutil.rmtree(tmp_path / "installed/orch23/docs")
    (tmp_path / "pipeline.yaml").write_text("version: 1\nexit_codes: {E8: 9}\nstages: {a: {shell: 'true'}}\n")
    for arguments, code, said in (
        (("help", "E802"), 66, "the pages of orch23 are missing: install orch23 again"),
        (("validate",), 0, ""),
    ):
        gone = subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert (gone.returncode, said in gone.stderr, "W803" in gone.stderr) == (code, True, False), gone.stderr
