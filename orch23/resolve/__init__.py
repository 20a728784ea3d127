"""Resolve stages: inputs to digests, prompts and templates to texts, and all of it to a manifest and its key."""
