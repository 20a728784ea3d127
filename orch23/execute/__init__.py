"""Run one action in a room of its own and say what came of it."""
