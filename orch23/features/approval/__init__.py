"""Changes that a user approves, or rejects with words, before they reach the workspace: `approve: true` (ADR 88)."""
