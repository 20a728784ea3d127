"""Pure decisions: is a stage fresh, may a proposal be written, did the tests pass."""
