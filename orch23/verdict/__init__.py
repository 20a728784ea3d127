"""Judge what a verification printed: passed, or why not. Pure."""
