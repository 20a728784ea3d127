"""Each command has one declaration, which loads nothing, and one action, which takes the declared parameters."""

import ast
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import pytest

import orch23
from orch23.cli.console import Console
from orch23.cli.group import PROGRAM_NAME
from orch23.cli.group import orch23 as program
from orch23.cli.parameters import GivenOptions, PipelineArguments, load_action
from orch23.model import features

CLI = Path(orch23.__file__).parent / "cli"
LIGHT = {
    "click",
    "orch23.cli.declaration",
    "orch23.cli.parameters",
    "orch23.model.features",
    "orch23.report.registry",
}
"""All that a declaration may import."""


def acting(context: click.Context, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Give each command that does something, with its path."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden:
            continue  # it is of a feature that is not there
        if isinstance(command, click.Group):
            below = click.Context(command, info_name=name, parent=context)
            yield from ((f"{name} {path}", one) for path, one in acting(below, command))
        else:
            yield name, command


def modules_in(folder: str) -> set[str]:
    return {path.stem for path in CLI.glob(f"{folder}/*.py")} - {"__init__"}


def started_by(command: click.Command, names: set[str]) -> tuple[Callable[..., Any], set[str]]:
    """Return the action that a command starts, and the names of what it passes besides the console."""
    assert command.callback is not None
    loading = [patch(f"orch23.{module}.import_module", Recorder) for module in ("cli.parameters", "model.features")]
    with loading[0], loading[1], click.Context(command, obj=Console()):
        function, given = command.callback(**dict.fromkeys(names))
    return function, given


class Recorder:
    """A module that has the functions of an action's module, which return themselves and what they were given."""

    def __init__(self, module: str) -> None:
        self.module = import_module(module)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda _console, **given: (getattr(self.module, name), set(given))


INSTALLED = program.list_commands(click.Context(program))
COMMANDS = dict(acting(click.Context(program, info_name=PROGRAM_NAME), program))


@pytest.mark.parametrize("path", COMMANDS)
def test_an_action_takes_the_console_and_exactly_what_its_command_declares(path: str) -> None:
    command = COMMANDS[path]
    declared = {str(one.name) for one in command.params} - {"wait_lock"}  # which `run_action` takes
    function, given = started_by(command, declared)
    taken = inspect.signature(function).parameters
    expected = declared | {"console"}
    for name, form in (("args", PipelineArguments), ("given", GivenOptions)):
        if form.__struct_fields__[0] in declared:
            expected = (expected - {*form.__struct_fields__}) | {name}
    assert given == expected - {"console"}
    assert set(taken) == expected
    assert {name for name, one in taken.items() if one.kind is not one.KEYWORD_ONLY} == {"console"}
    assert [name for name, one in taken.items() if one.default is not one.empty] == []


def test_each_command_has_a_declaration_and_each_action_a_command() -> None:
    found = {}
    of_features = {
        f"orch23.features.{features.COMMANDS[name].partition(':')[0]}"
        for name in INSTALLED
        if name in features.COMMANDS
    }
    for module in sorted({f"orch23.cli.commands.{one}" for one in modules_in("commands")} | of_features):
        for name, one in vars(import_module(module)).items():
            if name.endswith("_command") and isinstance(one, click.Command):
                found[one.name] = name
    assert found == {name: f"{name}_command" for name in INSTALLED}
    actions = {started_by(one, {str(param.name) for param in one.params})[0] for one in COMMANDS.values()}
    assert len(actions) == len(COMMANDS)
    of_core = {one.__module__.rpartition(".")[2] for one in actions if one.__module__.startswith("orch23.cli.actions.")}
    assert of_core == modules_in("actions") - {"completing"}


@pytest.mark.parametrize("name", INSTALLED)
def test_a_declaration_imports_only_light_modules_and_does_nothing(name: str) -> None:
    paths = [*CLI.glob("commands/*.py"), *CLI.parent.glob("features/*/*.py")]
    (text,) = (text for path in paths if f"def {name}_command(" in (text := path.read_text()))
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    named = {one.names[0].name if isinstance(one, ast.Import) else one.module for one in imports}
    assert named - LIGHT == set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        assert ast.get_docstring(function)
        assert len(function.body) == 1


@pytest.mark.needs("templates")
def test_a_completion_is_an_action_too() -> None:
    context = click.Context(click.Command("init"))
    complete = load_action("templates.rendering:complete_templates")
    assert [item.value for item in complete(context, click.Argument(["template"]), "tdd")] == ["tdd_loop"]
