"""The kind `pytest`: run tests."""
