"""Declare the command `cancel`."""

from orch23.cli.declaration import declare_command, pipeline_argument, variable_options, wait_lock_option


@declare_command("cancel", "batches.cancelling:cancel_batches")
@pipeline_argument
@variable_options
@wait_lock_option
def cancel_command() -> None:
    """Cancel the batches that a build waits for.

    Cancels them at the vendor. Responses that are complete are paid for: they are recorded, and later builds use them.
    Requests that were not processed cost nothing.
    """
