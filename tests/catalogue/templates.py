"""Templates that are not there, not sound or not welcome, and files in their way."""

from tests.catalogue.provoking import Triggers, shown
from tests.project import Project
from tests.template_repository import TemplateRepository, house

TRIGGERS = Triggers()


def repository(project: Project) -> TemplateRepository:
    """Return the repository of a template, beside the project."""
    return house(project.root.parent / "house")


@TRIGGERS.of("E670")
def template_with_a_link(project: Project) -> set[str]:
    """Start from a template that brings a symbolic link."""
    made = TemplateRepository(project.root.parent / "house")
    made.version({"notes.md": "x\n"}, settings={"_preserve_symlinks": True})
    (made.folder / "files/link").symlink_to("/etc/passwd")
    return shown(project.run("init", made.commit("1.0").url, "--defaults"))


@TRIGGERS.of("E671")
def template_that_is_none(project: Project) -> set[str]:
    """Start from a name that no template has."""
    return shown(project.run("init", "nothing", "--defaults"))


@TRIGGERS.of("E672")
def repository_that_is_gone(project: Project) -> set[str]:
    """Start from a repository that is not there."""
    return shown(project.run("init", (project.root.parent / "gone").as_uri(), "--defaults"))


@TRIGGERS.of("E673")
def template_with_a_task(project: Project) -> set[str]:
    """Start from a template that would run a command."""
    made = TemplateRepository(project.root.parent / "house")
    made.version({"notes.md": "x\n"}, "1.0", settings={"_tasks": ["touch x"]})
    return shown(project.run("init", made.url, "--defaults"))


@TRIGGERS.of("E674")
def questions_and_no_one_there(project: Project) -> set[str]:
    """Start from a template without a terminal and without `--defaults`."""
    return shown(project.run("init", repository(project).url))


@TRIGGERS.of("E675")
def answer_to_no_question(project: Project) -> set[str]:
    """Answer what the template does not ask."""
    return shown(project.run("init", repository(project).url, "--defaults", "--data", "colour=red"))


@TRIGGERS.of("E676")
def file_in_the_way(project: Project) -> set[str]:
    """Start from a template that brings a file which is there."""
    project.write({"notes.md": "mine\n"})
    return shown(project.run("init", repository(project).url, "--defaults"))


@TRIGGERS.of("E677")
def update_of_nothing(project: Project) -> set[str]:
    """Update where no template is."""
    return shown(project.run("template", "update"))


@TRIGGERS.of("E678")
def template_with_a_fault(project: Project) -> set[str]:
    """Start from a template whose settings are no YAML."""
    made = repository(project)
    (made.folder / "copier.yml").write_text("a: [")
    return shown(project.run("init", made.commit("2.0").url, "--defaults"))


@TRIGGERS.of("E679")
def edit_against_the_template(project: Project) -> set[str]:
    """Edit the line that the next version changes too."""
    made = repository(project)
    assert project.run("init", made.url, "--defaults").code == 0
    project.edit("notes.md", "mine\n")
    made.version({"notes.md": "two\n"}, "2.0")
    return shown(project.run("template", "update"))
