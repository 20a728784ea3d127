"""The page of a run, live in a browser of this machine: a server on loopback that follows journals (ADR 49)."""
