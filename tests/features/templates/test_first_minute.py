"""The first walks through templates, each with a process of its own; test_init.py and others go everywhere."""

import pytest

from orch23.features.templates.rendering import builtin_templates
from tests.project import Project

NOBODY = {"XDG_DATA_HOME": "/nonexistent"}


@pytest.mark.slow
@pytest.mark.needs("local")
def test_init_plan_and_an_update_with_nothing_to_do(project: Project) -> None:
    made = project.run("init", "quickstart", "--defaults", env=NOBODY)
    assert (made.code, made.err) == (0, f"next: {builtin_templates()['quickstart'].next}\n")
    assert set(project.plan("pipelines/quickstart.yaml", env=NOBODY).values()) == {"run"}
    assert project.run("template", "update").err == "quickstart v1: up to date\n".replace(
        "v1", builtin_templates()["quickstart"].version
    )


@pytest.mark.slow
def test_what_is_in_the_way_stops_it(project: Project) -> None:
    project.write({"specs/quickstart.md": "mine\n"})
    refused = project.run("init", "quickstart", "--defaults")
    assert (refused.code, project.files()) == (6, {"specs/quickstart.md": b"mine\n"})


def test_list_and_show_need_no_git(project: Project) -> None:
    nowhere = {"PATH": "/nonexistent"}
    listed = project.run("template", "list", env=nowhere)
    assert [line.split()[0] for line in listed.out.splitlines()] == list(builtin_templates())
    rows = project.run("template", "list", "--json", env=nowhere).json()["templates"]
    assert [(row["name"], row["version"]) for row in rows] == [
        (one.name, one.version) for one in builtin_templates().values()
    ]
    shown = project.run("template", "show", "quickstart", env=nowhere)
    assert "  provider: Provider that writes the code" in shown.out
    assert "(local, anthropic, openai, server, command)  default: local\n" in shown.out
    assert "  prompts/quickstart/function.md.j2\n" in shown.out
    assert shown.out.endswith(f"next: {builtin_templates()['quickstart'].next}\n")
    assert project.run("template").code == 64
