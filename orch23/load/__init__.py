"""Text to values: strict YAML with positions, one schema, variables."""
