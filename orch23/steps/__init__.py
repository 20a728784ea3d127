"""Step kinds: one folder for each kind, and one line in the registry."""
