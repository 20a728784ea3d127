"""Builds what an edit reaches when a file is saved: the command `watch`."""
