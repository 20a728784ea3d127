"""Resolve stages: read their documents, render expressions and prompts, compute manifests."""
