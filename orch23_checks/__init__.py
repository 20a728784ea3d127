"""Checks that the shipped templates alone use, built on what any plugin has: `orch23.checks` and `orch23.model`."""
