"""Declare `model list`, `model install` and `model remove`."""

import click

from orch23.cli.declaration import declare_command, declare_group, json_option


@declare_group("model")
def command() -> None:
    """Install or remove the small local model.

    It needs no key and no network.
    """


@declare_command("list", command)
@json_option
def list_models() -> None:
    """List models that can be installed."""


@declare_command("install", command)
@click.argument("name")
def install() -> None:
    """Install a model.

    Downloads it with pip, verifies its checksum and keeps it in your data folder.
    """


@declare_command("remove", command)
@click.argument("name")
def remove() -> None:
    """Remove an installed model."""
