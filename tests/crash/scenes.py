"""The builds that are made to die: a first one, one after an edit, and one that puts former results back."""

from tests.crash.harness import Scene
from tests.e2e.pipelines import green
from tests.e2e.test_crash import second_spec, story
from tests.project import Project

SCENES = ("first", "edited", "reverted")


def scene_of(project: Project, which: str) -> Scene:
    """Return the story as it is before that build."""
    story(project)
    if which != "first":
        green(project.build("-j1"))
        second_spec(project)
    if which == "reverted":
        green(project.build("-j1"))
        project.edit("spec.md", "red green\n")
    return Scene.of(project)
