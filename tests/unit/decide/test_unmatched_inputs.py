"""The files that may be meant by a path that does not exist."""

from typing import Any

import pytest

from orch23.decide.unmatched_inputs import similar_paths, with_similar
from orch23.model.diagnostic import Diagnostic
from tests.unit.engine.rig import MemoryWorkspace

FILES = ("specs/app.md", "specs/b/deep.md", "docs/guide.md", "notes.md", ".hidden/app.md")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("specs/ap.md", {"specs/app.md"}),
        ("spec/app.md", {"specs/app.md"}),
        ("spec/c/dep.md", set()),
        ("specs/bb/deep.md", set()),
        ("app.md", {"notes.md", "specs/app.md"}),
        ("far/notes.md", {"notes.md"}),
        ("doc/", {".hidden/", "docs/", "specs/"}),
        ("specs/docs/", {"specs/b/", "docs/"}),
    ],
)
def test_paths_beside_it_and_of_its_name_are_found(path: str, found: set[str]) -> None:
    workspace: Any = MemoryWorkspace(dict.fromkeys(FILES, "x"))
    assert set(similar_paths(workspace, path)) == found


def test_a_prompt_that_does_not_exist_is_reported_with_the_similar_file() -> None:
    workspace: Any = MemoryWorkspace(dict.fromkeys(FILES, "x"))
    problem = Diagnostic("E831", "no", hint="paths are relative")
    found = with_similar(problem, "specs/ap.md", workspace)
    assert (found.hint, found.fix) == ("did you mean `specs/app.md`?", ("specs/ap.md", "specs/app.md"))
    for path in ("specs/app.md", "docs", "xyzzy/none.j2"):
        assert with_similar(problem, path, workspace) == problem
