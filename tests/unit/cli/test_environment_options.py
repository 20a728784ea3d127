"""Every option of every command can be set by a variable that is named after its flag."""

from collections.abc import Iterator

import click
import pytest

from orch23.cli.declaration import EnvironmentOption
from orch23.cli.group import PROGRAM_NAME, orch23
from tests.project import Project

PIPELINE = "version: 1\nvars: {x: 1}\nstages:\n  s: {outputs: [a.txt], shell: \"echo '${{ vars.x }}' > a.txt\"}\n"


def commands(context: click.Context) -> Iterator[click.Context]:
    """Give a context for every command, as its command line would make it."""
    yield context
    group = context.command
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from commands(click.Context(command, info_name=name, parent=context))


CASES = [
    (context, one)
    for context in commands(
        click.Context(orch23, info_name=PROGRAM_NAME, auto_envvar_prefix="ORCH23", **orch23.context_settings)
    )
    for one in context.command.params
    if isinstance(one, click.Option) and one.name != "version"
]


@pytest.mark.parametrize(
    ("context", "one"), CASES, ids=[f"{context.command_path} {one.opts[-1]}" for context, one in CASES]
)
def test_an_option_is_set_by_the_variable_of_its_flag(
    context: click.Context, one: click.Option, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = context.command_path.upper().replace(" ", "_")
    flag = next((text for text in one.opts if text.startswith("--")), "--directory")
    monkeypatch.setenv(f"{path}_{flag.removeprefix('--').replace('-', '_').upper()}", "1")
    assert isinstance(one, EnvironmentOption)
    values = {True: ["1"], False: one.flag_value if one.is_flag and not one.is_bool_flag else "1"}
    assert one.value_from_envvar(context) == values[one.multiple]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "made"),
    [
        ({"ORCH23_BUILD_SET": "x=5"}, "5"),
        ({"ORCH23_BUILD_SET": "x='two words'"}, "two words"),
        ({"ORCH23_BUILD_VARS": "v.yaml"}, "7"),
        ({"ORCH23_BUILD_VARS": "v.yaml", "ORCH23_BUILD_SET": "x=5"}, "5"),
        ({"ORCH23_BUILD_SET": ""}, "1"),
    ],
)
def test_a_build_takes_its_vars_from_the_environment(project: Project, variables: dict[str, str], made: str) -> None:
    project.write({"pipeline.yaml": PIPELINE, "v.yaml": "x: 7\n"})
    outcome = project.build(env=variables)
    assert outcome.code == 0, outcome.err
    assert project.read("a.txt") == f"{made}\n"
    assert project.build(env={**variables, "ORCH23_BUILD_FORCE": "s"}).err.count("1 built") == 1


def test_wrong_shell_quoting_is_reported_with_the_name_of_the_variable(project: Project) -> None:
    project.write({"pipeline.yaml": PIPELINE})
    outcome = project.build(env={"ORCH23_BUILD_SET": "x='secret"})
    assert outcome.code == 64
    assert "ORCH23_BUILD_SET is not quoted as in a shell: No closing quotation" in outcome.err
    assert "secret" not in outcome.err


def test_a_version_in_a_variable_is_not_an_option(project: Project) -> None:
    project.write({"pipeline.yaml": PIPELINE})
    assert project.build(env={"ORCH23_VERSION": "0.3.0"}).code == 0


@pytest.mark.needs("inspecting")
def test_a_view_flag_is_off_if_its_variable_says_so(project: Project) -> None:
    project.write({"pipeline.yaml": PIPELINE})
    assert project.build().code == 0
    assert "action_format" in project.run("show", "s", env={"ORCH23_SHOW_KEY": "1"}).out
    off = project.run("show", "s", env={"ORCH23_SHOW_KEY": "0"})
    assert (off.code, "action_format" in off.out) == (0, False)
