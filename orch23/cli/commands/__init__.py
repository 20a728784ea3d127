"""What a command is told: options and a help text, without anything that does it."""
