"""The step kind `fetch`: `step` is what it is, `runner` runs it, with `download` over `connections`."""
