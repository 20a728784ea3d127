"""Depfiles: which of the declared inputs a program has read, by what it says itself (ADR 99)."""
