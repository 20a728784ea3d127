"""Bytes on disk: contents, records, exchanges, the journal, the lock file, the workspace."""
