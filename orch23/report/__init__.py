"""Events and decisions to text and JSON."""
