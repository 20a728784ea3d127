"""Declare `cache stats` and `cache verify`."""

from orch23.cli.declaration import declare_command, declare_group, json_option, option


@declare_group("cache")
def command() -> None:
    """Show and verify what the store holds."""


@declare_command("stats", command)
@json_option
def stats() -> None:
    """Show what the store holds, by kind."""


@declare_command("verify", command)
@option("--exit-code", is_flag=True, help="Exit with 1 if something was damaged.")
@json_option
def verify() -> None:
    """Verify the store and remove damaged data.

    A build makes removed results again, or takes them from the workspace. A damaged response was paid for, and bytes
    of user edits cannot be made again: both are renamed to NAME.damaged.
    """
