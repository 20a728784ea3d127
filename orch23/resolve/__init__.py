"""A stage to everything that determines its result: inputs, slices, prompts, the manifest."""
