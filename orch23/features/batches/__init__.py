"""Asks many requests as one batch, for half the price and within a day: `pace: batch`, and the command `cancel`."""
