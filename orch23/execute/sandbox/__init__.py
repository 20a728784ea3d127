"""Tiers of the sandbox: bubblewrap, namespaces, or Landlock with seccomp."""
