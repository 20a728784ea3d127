"""The values that every layer shares: what was declared, what was done, what happened. No I/O."""
