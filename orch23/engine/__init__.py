"""The build loop: start ready stages, run them in threads, promote their results."""
