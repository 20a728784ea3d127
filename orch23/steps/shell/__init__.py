"""The kind `shell`: run a program."""
