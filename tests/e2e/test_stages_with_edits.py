"""Stages with `edits`: what they changed is their result, file by file; all other files are sources (ADR 87)."""

import re
from pathlib import Path

import pytest

from tests.repository import EchoModel, Repository, addition, green, pipeline, spec, up_to_date

FEATURE = {"inputs": ["spec.md", "src/**"], "edits": ["src/**"], "llm": {"returns": "files"}, "retry": 0}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "p")
    made.init()
    return made


@pytest.mark.slow
def test_the_key_of_an_llm_stage_has_the_base_of_the_files_that_it_changed(repository: Repository) -> None:
    model = EchoModel()
    feature = {**FEATURE, "inputs": ["spec.md", "src/a.py"]}
    files = {"src/a.py": "a\n", "src/b.py": "b\n", "spec.md": spec("src/a.py: x", "src/new.py: y")}
    repository.write({**pipeline({"feature": feature}), **files})
    with model.answering():
        green(repository.build("a.yaml"))
        assert repository.read("src/a.py") == "a\n" + addition("x")
        up_to_date(repository.build("a.yaml"))
        # A file that matches, and that the stage did not change, is a source.
        repository.edit("src/b.py", "mine\n")
        up_to_date(repository.build("a.yaml"))
        repository.write({"src/c.py": "new\n"})
        up_to_date(repository.build("a.yaml"))
    assert len(model.calls) == 1
    shown = green(repository.run("show", "a.yaml", "--key", "feature")).out
    assert set(re.findall(r"base:\S+", shown)) == {"base:src/a.py", "base:src/new.py"}
