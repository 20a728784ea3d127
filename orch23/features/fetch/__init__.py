"""The step kind `fetch`: `step` is what it is, `download` runs it, over `connections`."""
