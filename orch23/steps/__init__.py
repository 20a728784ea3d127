"""Kinds of steps: what a stage can do. A kind is a folder here and a line of the registry."""
