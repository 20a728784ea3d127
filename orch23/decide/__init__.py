"""Pure judgements: is a stage fresh, may a proposal be written, did the tests pass."""
