"""Declare the commands that approve or reject the changes of stages."""

from orch23.cli.declaration import declare_command, option, stages_argument, variable_options, wait_lock_option


@declare_command("approve", "approval.actions:approve_changes")
@stages_argument
@variable_options
@option("--by", metavar="NAME", help="Name who approves; the default is git's user.")
@wait_lock_option
def approve_command() -> None:
    """Approve the changes of stages.

    For stages with `approve: true` whose changes the last build held. The next build promotes them without a model
    call, as long as they are the same.
    """


@declare_command("reject", "approval.actions:reject_changes")
@stages_argument
@variable_options
@option("-m", "--message", metavar="TEXT", required=True, help="Say what the next attempt has to change.")
@option("--by", metavar="NAME", help="Name who rejects; the default is git's user.")
@wait_lock_option
def reject_command() -> None:
    """Reject the changes of stages, with words.

    The next build starts another attempt of STAGE with the text as feedback, whatever its `retry` says. In a promotion
    group, name the stage that has to change.
    """
