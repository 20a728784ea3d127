"""Pipelines to start from: found, rendered, laid into a project, and brought up to date there."""
