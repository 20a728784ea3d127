"""Decide what is to be done about each stage, and why."""
