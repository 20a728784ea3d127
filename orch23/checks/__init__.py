"""Checks of a stage's outputs: pure functions from files to diagnostics."""
