"""The mistakes of a first hour, each held to the text that the user sees: `make regold` writes it, read it then."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.first_hour import MISTAKES, VARIANTS, Mistake, reply
from tests.e2e.pipelines import of_any_tier
from tests.gold import Golden
from tests.openai_server import OpenAIServer
from tests.processes import run_program
from tests.project import Project

pytestmark = pytest.mark.needs("vendors")

_REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with OpenAIServer(rule=reply) as started:
        yield started.url


def run(mistake: Mistake, root: Path, home: Path, server: str) -> str:
    """Run the command of a mistake as a user's process does, and return what it printed."""
    root.mkdir()
    variables = mistake.prepare(root, home, server)
    environ = {
        "HOME": str(home),
        "PATH": f"{home}/bin:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "ORCH23_TRUST": "1",
        "PYTHONPATH": str(_REPOSITORY),
        **variables,
    }
    done = run_program(mistake.argv, cwd=root / mistake.folder, env=environ)
    printed = masked(f"{done.stdout}{done.stderr}", root, home, server)
    return f"$ orch23 {' '.join(mistake.argv)}\n{printed}exit {done.returncode}\n"


def masked(text: str, root: Path, home: Path, server: str) -> str:
    """Return a text without what differs from run to run and from machine to machine."""
    for old, new in ((server, "http://SERVER/v1"), (str(root), "PROJECT"), (str(home), "HOME")):
        text = text.replace(old, new)
    text = text.replace(sys.executable, "PYTHON")
    text = re.sub(r"\d{8}T\d{6}Z-[0-9a-f]{8}(-\d+)?", "RUN", text)
    text = re.sub(r"\b\d+\.\ds\b", "0.0s", text)
    # Stages without dependencies end in any order.
    lines = text.split("\n")
    ended = [number for number, line in enumerate(lines) if re.match(r" [✔✘-] \w+ +\w", line)]
    for number, line in zip(ended, sorted(lines[number] for number in ended), strict=True):
        lines[number] = line
    return of_any_tier("\n".join(lines))


ALL = (*MISTAKES, *VARIANTS)


@pytest.mark.slow
@pytest.mark.stride(23)
@pytest.mark.parametrize("mistake", ALL, ids=[one.id for one in ALL])
def test_a_mistake_is_answered_with_place_cause_and_way_out(
    mistake: Mistake, tmp_path: Path, server: str, golden: Golden
) -> None:
    golden.check(f"mistakes/{mistake.id}.txt", run(mistake, tmp_path / "app", tmp_path / "home", server))


@pytest.mark.slow
def test_the_project_without_a_mistake_builds(project: Project, server: str) -> None:
    Mistake(0, "none").prepare(project.root, project.home, server)
    assert project.build().code == 0
