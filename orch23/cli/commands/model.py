"""The declarations of the commands `model list`, `model install` and `model remove`."""

import click

from orch23.cli.command import declared, declared_family
from orch23.cli.options import json_option


@declared_family("model")
def command() -> None:
    """Install or remove the small local model.

    It answers without a key and without a network.
    """


@declared("list", command)
@json_option
def list_models() -> None:
    """List the models that can be installed."""


@declared("install", command)
@click.argument("name")
def install() -> None:
    """Fetch a model with pip, check every byte, and keep it in your data folder."""


@declared("remove", command)
@click.argument("name")
def remove() -> None:
    """Remove the weights of a model."""
