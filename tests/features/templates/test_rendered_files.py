"""Where a template may bring files, and where not."""

from pathlib import Path

import pytest

from orch23.features.templates.changes import read_rendered
from orch23.model.errors import SafetyError


@pytest.mark.parametrize("path", [".git/config", "lib/.GIT/hooks/x", ".orch23/VERSION", "logs/x.jsonl", ".hg/hgrc"])
def test_a_template_may_not_write_protected_paths(tmp_path: Path, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("forged")
    with pytest.raises(SafetyError, match="E670"):
        read_rendered(tmp_path)


def test_a_template_may_write_configuration_files_of_tools(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    assert list(read_rendered(tmp_path)) == ["pyproject.toml"]
