"""The step kind `shell`: run a command."""
