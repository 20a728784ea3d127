"""Pure functions on texts that several packages use: excerpts, secrets, differences, protected paths."""
