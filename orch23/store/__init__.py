"""Bytes on disk: contents, records, exchanges, journals, lock files, the workspace."""
