"""What does a command: one function for each, loaded when the command runs."""
