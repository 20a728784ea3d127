"""The build loop, the attempt loop and the dry-run."""
