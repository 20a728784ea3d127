"""Checks that only the shipped templates use. They import the plugin API alone."""
