"""Validators of artifacts: pure functions from an artifact to diagnostics."""
