"""A team shares results: what one checkout has built, another finds in the shared cache, verified, at no cost."""

from pathlib import Path

import pytest

from tests.e2e.pipelines import calls, green, pipeline, prompt
from tests.project import Project

STAGES = """
  write: {inputs: [spec.md], outputs: [draft.md], llm: {prompt: write.j2, returns: text}}
  polish: {inputs: [draft.md], outputs: [text.md], llm: {prompt: polish.j2, returns: text}}
  copy: {inputs: [text.md], outputs: [out/a.md, out/run], shell: "cp text.md out/a.md; cp text.md out/run; chmod +x out/run"}
  count: {inputs: [out/a.md], outputs: [count.txt], shell: "wc -c < out/a.md > count.txt"}
"""
FILES = {
    "spec.md": "the spec",
    "write.j2": prompt("write", "draft of {{ inputs[0].text }}\n"),
    "polish.j2": prompt("polish", "polished {{ inputs[0].text }}"),
}
MADE = ("draft.md", "text.md", "out/a.md", "out/run", "count.txt")


def checkout(root: Path, **files: str) -> Project:
    return Project(root).write(pipeline(STAGES, {**FILES, **files}, head="cache: {platform: any}\n"))


@pytest.fixture
def cache(tmp_path: Path) -> str:
    return str(tmp_path / "shared")


@pytest.fixture
def first(tmp_path: Path, cache: str) -> Project:
    """Return a checkout whose results are in the cache."""
    project = checkout(tmp_path / "alice/project")
    green(project.build("--cache", cache))
    return project


def test_a_second_checkout_builds_nothing_and_calls_no_model(first: Project, tmp_path: Path, cache: str) -> None:
    assert calls(first) == ["write", "polish"]
    second = checkout(tmp_path / "bob/elsewhere/project")
    done = second.build("--cache", cache)
    green(done)
    assert calls(second) == []
    assert second.ran() == []
    assert {path: second.files()[path] for path in MADE} == {path: first.files()[path] for path in MADE}
    assert "shared cache: 4 restored (" in done.err
    assert second.build("--cache", cache).err.endswith("up to date (4 stages)\n")
    assert second.build().err.endswith("up to date (4 stages)\n")
