"""The commands `gc`, `cache`, `clean`, `release` and `reset`: keep or remove outputs and stored results."""
