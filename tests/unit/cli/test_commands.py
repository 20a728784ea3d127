"""Each command has one declaration, which loads nothing, and one action, which takes the declared parameters."""

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

import orch23
from orch23.cli.declaration import PipelineArguments, load_action
from orch23.cli.group import COMMAND_NAMES, PROGRAM_NAME
from orch23.cli.group import orch23 as program

CLI = Path(orch23.__file__).parent / "cli"
LIGHT = {
    "click",
    "orch23.cli.declaration",
    "orch23.report.registry",
}
"""All that a declaration may import."""


def acting(context: click.Context, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Give each command that does something, with its path."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            below = click.Context(command, info_name=name, parent=context)
            yield from ((f"{name} {path}", one) for path, one in acting(below, command))
        else:
            yield name, command


COMMANDS = dict(acting(click.Context(program, info_name=PROGRAM_NAME), program))


@pytest.mark.parametrize("path", COMMANDS)
def test_an_action_takes_the_console_and_exactly_what_its_command_declares(path: str) -> None:
    command = COMMANDS[path]
    assert command.callback is not None
    module, _, name = path.partition(" ")
    function = command.callback.__name__ if name else "run"
    taken = inspect.signature(getattr(import_module(f"orch23.cli.actions.{module}"), function)).parameters
    declared = {one.name for one in command.params}
    pipeline_names = declared.intersection(PipelineArguments.__struct_fields__)
    expected = (declared - pipeline_names) | {"console"} | ({"args"} if pipeline_names else set())
    assert set(taken) == expected
    assert {name for name, one in taken.items() if one.kind is not one.KEYWORD_ONLY} == {"console"}
    assert [name for name, one in taken.items() if one.default is not one.empty] == []


def test_each_command_has_a_declaration_file_and_an_action_file() -> None:
    assert {path.stem for path in CLI.glob("commands/*.py")} - {"__init__"} == set(COMMAND_NAMES)
    beside = {"__init__", "completing"}
    assert {path.stem for path in CLI.glob("actions/*.py")} - beside == set(COMMAND_NAMES)


@pytest.mark.parametrize("name", COMMAND_NAMES)
def test_a_declaration_imports_only_light_modules_and_does_nothing(name: str) -> None:
    tree = ast.parse((CLI / f"commands/{name}.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    named = {one.names[0].name if isinstance(one, ast.Import) else one.module for one in imports}
    assert named - LIGHT == set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        assert ast.get_docstring(function)
        assert len(function.body) == 1


def test_a_completion_is_an_action_too() -> None:
    context = click.Context(click.Command("init"))
    complete = load_action("completing", "shipped_templates")
    assert [item.value for item in complete(context, click.Argument(["template"]), "tdd")] == ["tdd_loop"]
