"""A project with blocks of data in its prompts that commit 1ea159c built: results and recordings are used again.

There every delimiter was computed from all blocks of one use of a filter. Requests have a delimiter for each block now.
Keys and fingerprints are computed as then (ADR 37).
"""

import shutil
import tarfile
from pathlib import Path

import pytest

from tests.project import Project

BUILT = Path(__file__).parent.parent / "corpus" / "earlier" / "blocks_of_1ea159c.tar.gz"


@pytest.fixture
def earlier(tmp_path: Path) -> Project:
    """Give the project as that commit left it.

    Stage `code` has blocks in its system prompt, and passed at its third attempt, with feedback and own files. `edit`
    is a chain. All was built with another `word` before, whose results are in the store.
    """
    root = tmp_path / "project"
    root.mkdir()
    with tarfile.open(BUILT) as archive:
        archive.extractall(root, filter="data")
    return Project(root)


@pytest.mark.slow
def test_it_is_up_to_date(earlier: Project) -> None:
    lock = earlier.read("pipeline.lock")
    assert "up to date (7 stages)" in earlier.run("plan").out
    assert "up to date (7 stages)" in earlier.run("build").err
    assert earlier.read("pipeline.lock") == lock


def test_its_results_are_restored_without_a_call(earlier: Project) -> None:
    before = earlier.files()
    for path in ("src/app.py", "out/a.txt", "doc/notes.md"):
        earlier.delete(path)
    built = earlier.run("build", "--replay")
    assert built.code == 0
    assert "3 restored, 4 fresh" in built.err
    assert earlier.files() == before


@pytest.mark.slow
def test_its_transcripts_answer_every_request_of_every_attempt(earlier: Project) -> None:
    results = {path: earlier.read(path) for path in ("src/app.py", "out/a.txt", "out/all.md", "doc/notes.md")}
    for folder in (".orch23", "out", "src", "doc"):
        shutil.rmtree(earlier.root / folder)
    earlier.delete("pipeline.lock")
    heard = {path: earlier.read(path) for path in earlier.files() if path.startswith("heard/")}
    assert "recorded responses save 2 calls" in earlier.run("plan").out  # of the stages that wait for no other
    built = earlier.run("build", "--replay")
    assert built.code == 0
    assert "7 stages: 7 built" in built.err
    requests = earlier.events_of("llm_request")
    assert [one["data"]["recorded"] for one in requests] == [True] * 9  # three for `code`, two for the first edit
    assert {path: earlier.read(path) for path in results} == results
    assert {path: earlier.read(path) for path in heard} == heard


def test_an_undone_edit_leaves_nothing_to_do(earlier: Project) -> None:
    spec, lock = earlier.read("specs/app.md"), earlier.read("pipeline.lock")
    earlier.edit("specs/app.md", f"{spec}More.\n")
    assert "up to date" not in earlier.run("plan").out
    earlier.edit("specs/app.md", spec)
    assert "up to date (7 stages)" in earlier.run("build").err
    assert earlier.read("pipeline.lock") == lock


@pytest.mark.needs("inspecting")
def test_an_edit_is_the_only_reason(earlier: Project) -> None:
    earlier.replace("pipeline.yaml", "    outputs: [src/app.py]\n", "    outputs: [src/app.py]\n    salt: again\n")
    explained = earlier.run("explain", "code").out
    assert "salt" in explained
    assert "prompt" not in explained.partition("key ")[0]
    assert "~ prompt" not in explained


def test_results_before_the_last_edit_are_used_again_when_it_is_undone(earlier: Project) -> None:
    """Their records are in the store only."""
    earlier.replace("pipeline.yaml", "word: two", 'word: "one"')
    built = earlier.run("build", "--replay")
    assert built.code == 0
    assert "up to date (7 stages)" in built.err
