"""Tools that search parent directories for settings find none of the project's, and do not fail on them either."""

from pathlib import Path

import pytest

from orch23.model.action import Action, Completed
from orch23.model.digest import FileEntry, digest_bytes
from tests.sandbox.probe import Memory, executor
from tests.sandbox.users import TIERS, need

pytestmark = pytest.mark.slow

INPUTS = {
    "package/pyproject.toml": b"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "package"
version = "1"
""",
    "package/package/__init__.py": b"",
    "typed.py": b"def f(x):\n    return x\n",
}
# Each would change what a tool says, or stop it: everything is ignored, annotations are required, `x` is no name.
PROJECT = {
    ".orch23/.gitignore": "*\n",
    ".gitignore": "*\n",
    ".hgignore": "syntax: glob\n*\n",
    "mypy.ini": "[mypy]\ndisallow_untyped_defs = true\n",
    "pyproject.toml": "[tool.ruff.lint]\nselect = ['ALL']\n[tool.mypy]\ndisallow_untyped_defs = true\n",
    "ruff.toml": "lint.select = ['ALL']\n",
    "pytest.ini": "[pytest]\naddopts = --no-such-option\n",
}
COMMANDS = {
    "hatchling": "cd package && python -m hatchling build -t wheel -d ../out && unzip -l ../out/*.whl | grep __init__",
    "ruff": "ruff check typed.py",
    "mypy": "mypy --cache-dir=/dev/null typed.py",
    "pytest": "python -m pytest --version",
}


@pytest.mark.stride(9)
@pytest.mark.parametrize("tool", COMMANDS)
@pytest.mark.parametrize("tier", [*TIERS, "none"])
def test_a_search_for_settings_ends_in_the_sandbox_directory(tmp_path: Path, tier: str, tool: str) -> None:
    need(tier)
    project = tmp_path / "project"
    for name, text in PROJECT.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    memory = Memory(INPUTS)
    inputs = {path: FileEntry(digest_bytes(data)) for path, data in INPUTS.items()}
    command = ("bash", "-c", COMMANDS[tool])
    action = Action(argv=command, inputs=inputs, timeout_s=60, scratch=("**",))
    with executor(tier, memory, project / ".orch23/rooms", (project,)) as running:
        outcome = running.run(action)
    assert isinstance(outcome, Completed), outcome
    assert outcome.result.exit_code == 0, outcome.result.output.text
