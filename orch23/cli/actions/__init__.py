"""Actions of commands. Each module is loaded when its command runs."""
