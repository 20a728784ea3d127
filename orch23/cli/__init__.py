"""Arguments to a call to an exit code."""
