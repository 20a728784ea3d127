"""`approve: true`: a user approves the changes of a stage, or rejects them with words, before they are promoted."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.pipelines import calls, ends, green, pipeline, prompt
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds

APPROVAL = 8
STAGES = """\
  page: {outputs: [page.txt], inputs: [spec.txt], llm: {prompt: page.j2, returns: text}, approve: true}
  site: {inputs: [page.txt], outputs: [site.txt], shell: cp page.txt site.txt}
"""
# The model writes what the reviewer said last; its name shows the attempt.
PAGE = prompt(
    "page {{ attempt }}",
    "{% if brief %}{{ brief.kind }}: {{ brief.excerpt }}{% else %}first {{ inputs['spec.txt'].text }}{% endif %}",
)


def story(project: Project, stages: str = STAGES, **files: str) -> Project:
    return project.write(pipeline(stages, {"spec.txt": "one\n", "page.j2": PAGE, **files}))


def held(project: Project, *argv: str) -> str:
    outcome = project.build(*argv)
    assert outcome.code == APPROVAL, outcome.err
    return outcome.err


def test_a_change_is_held_until_it_is_approved_and_no_model_is_called_again(project: Project) -> None:
    err = held(story(project))
    assert ends(project) == {"page": "held", "site": "blocked"}
    assert not project.exists("page.txt")
    assert not project.exists("pipeline.lock") or '"page"' not in project.read("pipeline.lock")
    assert "`orch23 approve page`" in err
    assert "waiting for approval" in err
    held(project)
    assert project.run("approve", "page", "--by", "Ann").out.startswith("approved page: 1 file (")
    green(project.build())
    assert project.read("site.txt") == "first one\n"
    assert calls(project) == ["page 1"]
    (approved,) = project.events_of("approved")
    assert approved["data"]["by"] == "Ann"
    assert len(approved["data"]["digest"]) == 64
    assert set(project.plan().values()) == {"fresh"}
    green(project.build())


def test_another_result_needs_another_approval_and_a_restored_one_none(project: Project) -> None:
    held(story(project))
    green(project.run("approve", "page"))
    green(project.build())
    project.edit("spec.txt", "two\n")
    held(project)
    assert project.read("page.txt") == "first one\n"
    project.edit("spec.txt", "one\n")
    green(project.build())
    project.edit("spec.txt", "two\n")
    held(project)
    green(project.run("approve", "page"))
    green(project.build())
    project.edit("spec.txt", "one\n")
    green(project.build())
    assert project.read("page.txt") == "first one\n"
    assert calls(project) == ["page 1", "page 1"]


def test_three_rounds_of_words_are_replayed_without_a_key(project: Project, tmp_path: Path) -> None:
    stages = STAGES.replace("returns: text}", "returns: text, transcripts: t/}")
    held(story(project, stages))
    for number, text in enumerate(("make it short", "make it red", "make it blue"), start=2):
        green(project.run("reject", "page", "-m", text))
        held(project)
        assert calls(project)[-1] == f"page {number}"
        assert text in project.run("show", "page", "--changes").out
    assert calls(project) == ["page 1", "page 2", "page 3", "page 4"]
    clone = Project(tmp_path / "clone")
    for name in ("pipeline.yaml", "model.py", "spec.txt", "page.j2"):
        clone.write({name: project.read(name)})
    shutil.copytree(project.root / "t", clone.root / "t")
    assert clone.build("--replay").code == APPROVAL
    assert calls(clone) == []
    assert clone.run("show", "page", "--changes").out == project.run("show", "page", "--changes").out
    green(project.run("approve", "page"))
    green(project.build())
    assert project.read("site.txt") == "rejected: make it blue\n"
    # The lock file says what was promoted: it is approved.
    for name in ("page.txt", "site.txt"):
        project.delete(name)
    shutil.rmtree(project.root / ".orch23")
    green(project.build("--replay"))
    assert project.read("site.txt") == "rejected: make it blue\n"
    assert len(calls(project)) == 4


@pytest.mark.parametrize("retry", [0, 1])
def test_a_rejection_always_has_another_attempt_and_the_same_result_ends_the_stage(
    project: Project, retry: int
) -> None:
    stages = STAGES.replace("approve: true", f"approve: true, retry: {retry}")
    held(story(project, stages, **{"page.j2": prompt("page {{ attempt }} {{ brief.excerpt if brief }}", "the same")}))
    green(project.run("reject", "page", "-m", "other"))
    failed = project.build()
    assert failed.code == 1
    assert "[E327]" in failed.err or "E327" in failed.err
    assert "other" in failed.err
    assert ends(project) == {"page": "failed", "site": "blocked"}
    assert calls(project) == ["page 1", "page 2 other"]
    assert project.build().code == 1
    assert len(calls(project)) == 2, "nothing is paid for twice"
    green(project.run("approve", "page"))
    green(project.build())
    assert len(calls(project)) == 2
