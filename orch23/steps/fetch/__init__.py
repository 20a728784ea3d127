"""The step kind `fetch`: download a file with a known SHA-256."""
