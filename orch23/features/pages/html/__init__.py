"""A page about one run: what its journal says, as one HTML file without scripts and without requests (ADR 49)."""
