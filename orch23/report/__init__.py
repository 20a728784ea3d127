"""Text and JSON that several commands, or the screens of a build, write."""
