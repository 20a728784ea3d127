"""`orch23 shell`: a shell in the tree and the sandbox of a step."""
