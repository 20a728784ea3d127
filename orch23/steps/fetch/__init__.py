"""The kind `fetch`: bring a file whose digest is known."""
