"""Run actions on workers of an existing engine, such as a cluster of dask (ADR 59)."""
