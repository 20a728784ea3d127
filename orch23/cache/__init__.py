"""Shared caches: backends for the protocols of Bazel, and the client above them."""
