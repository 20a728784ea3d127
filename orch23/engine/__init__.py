"""Decide the stages of a plan, run their attempts, and publish their results."""
