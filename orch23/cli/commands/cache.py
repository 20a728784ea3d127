"""Declare `cache stats` and `cache verify`."""

from orch23.cli.declaration import declare_command, declare_group, json_option, option


@declare_group("cache")
def command() -> None:
    """See what the store holds, and whether it is sound."""


@declare_command("stats", command)
@json_option
def stats() -> None:
    """Say how much of which kind the store holds. Writes nothing."""


@declare_command("verify", command)
@option("--exit-code", is_flag=True, help="End with 1 if something was damaged.")
@json_option
def verify() -> None:
    """Read all of the store, name what is damaged, and drop it.

    A build makes again what is gone, or takes it from the workspace. A damaged answer was paid for, and damaged bytes
    of a person cannot be made again: both are set aside beside their place, as NAME.damaged.
    """
