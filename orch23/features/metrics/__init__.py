"""Compares metrics and stages with other states of the project: the commands `diff` and `affected`."""
