"""Declarations of commands: options and help texts, without the code that runs them (ADR 18)."""
