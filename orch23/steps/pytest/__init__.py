"""The step kind `pytest`: run tests."""
