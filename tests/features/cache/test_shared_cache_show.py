"""`show` of a stage whose result came from a shared cache: its shared response, or why there is none."""

from pathlib import Path

import pytest

from tests.e2e.pipelines import calls, green, pipeline, prompt
from tests.project import Project

pytestmark = pytest.mark.slow

STAGES = """
  write: {inputs: [spec.md], outputs: [draft.md], llm: {prompt: write.j2, returns: text}}
  copy: {inputs: [draft.md], outputs: [copy.md], shell: cp draft.md copy.md}
"""
FILES = {"spec.md": "the spec", "write.j2": prompt("write", "draft of {{ inputs[0].text }}\n")}


def restored(tmp_path: Path, *, keys: str = "", cache: str) -> Project:
    """Return a checkout with results from a cache that another one has stored."""
    one, two = (
        Project(tmp_path / name).write(pipeline(STAGES, FILES, head=f"cache: {{platform: any{keys}}}\n"))
        for name in ("one", "two")
    )
    green(one.build("--cache", cache))
    green(two.build("--cache", cache))
    assert (calls(two), two.ran()) == ([], [])
    assert one.run("show", "--response", "write").out == "draft of the spec\n"
    return two


@pytest.fixture
def cache(tmp_path: Path) -> str:
    return str(tmp_path / "shared")


def test_a_response_that_was_not_shared_is_named_as_such(tmp_path: Path, cache: str) -> None:
    two = restored(tmp_path, cache=cache)
    for options in (("--response",), ("--prompt",), ()):
        shown = two.run("show", *options, "write", env={"ORCH23_CACHE_URL": cache})
        assert (shown.code, shown.out) == (66, "")
        text = "no attempt of `write` is kept: its result is from the shared cache, and its response was not shared"
        assert f"[E664]: {text}" in shown.err
        assert "`cache: {responses: true}`" in shown.err


def test_a_stage_without_a_model_says_that_it_did_not_run_here(tmp_path: Path, cache: str) -> None:
    shown = restored(tmp_path, cache=cache).run("show", "copy")
    assert "[E664]: no attempt of `copy` is kept: its result is from the shared cache\n" in shown.err
    assert "`orch23 build --force copy` runs the stage here" in shown.err


def test_a_shared_response_is_shown_from_the_cache(tmp_path: Path, cache: str) -> None:
    two = restored(tmp_path, keys=", responses: true", cache=cache)
    before = two.files()
    shown = two.run("show", "--response", "write", env={"ORCH23_CACHE_URL": cache})
    assert (shown.code, shown.out) == (0, "draft of the spec\n")
    shown = two.run("show", "write", env={"ORCH23_CACHE_URL": cache})
    assert "of the shared cache" in shown.out
    assert "draft of the spec" in shown.out
    assert two.files() == before
    for env in ({}, {"ORCH23_CACHE_URL": f"{cache}-other"}):
        shown = two.run("show", "--response", "write", env=env)
        assert "and its response is not found" in shown.err
        assert "reads the cache of ORCH23_CACHE_URL" in shown.err


def test_a_result_of_a_clone_is_not_said_to_be_from_the_cache(tmp_path: Path, cache: str) -> None:
    one = restored(tmp_path, cache=cache)
    lock = {path: one.read(path) for path in ("pipeline.lock", "draft.md", "copy.md")}
    clone = Project(tmp_path / "clone").write({**pipeline(STAGES, FILES), **lock})
    assert "its result was made elsewhere, or what was kept of it is deleted" in clone.run("show", "write").err
